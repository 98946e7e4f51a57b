use std::process::{Child, Command};

use super::*;

fn starting() -> State {
    State {
        phase: Phase::Starting,
        created: Timestamp::now(),
        owner: std::process::id(),
        audit: false,
        node: false,
        components: BTreeMap::new(),
        parts: BTreeSet::new(),
        programs: BTreeMap::new(),
    }
}

/// A process that carries the mark of a sandbox, as its components do.
fn component_of(home: &Home) -> anyhow::Result<(Child, ProcessId)> {
    let (name, value) = home.mark();
    let child = Command::new("sleep").arg("60").env(name, value).spawn()?;
    let id = ProcessId::of(child.id()).context("it runs")?;
    // The kernel lets the parent go on a moment before it shows the environment of the child.
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !home.marked_processes().contains(&id) {
        anyhow::ensure!(std::time::Instant::now() < deadline, "{id:?} never shows its mark");
    }
    Ok((child, id))
}

/// The names of those that were swept away.
fn swept(sandboxes: &Sandboxes) -> anyhow::Result<Vec<String>> {
    sandboxes.sweep().into_iter().map(|(name, result)| result.map(|()| name)).collect()
}

#[test]
fn a_name_is_given_once() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let sandboxes = Sandboxes::at(dir.path().join("sandboxes"));
    let held = sandboxes.reserve("one", &starting())?;
    let refused = sandboxes.reserve("one", &starting()).map(drop).map_err(|e| e.to_string());
    assert_eq!(refused, Err("There is a sandbox one already.".to_owned()));
    assert_eq!(sandboxes.names(), ["one"]);
    assert_eq!(sandboxes.get("one")?.health, Health::Starting);
    let refused = sandboxes.remove(&sandboxes.get("one")?).map_err(|e| e.to_string());
    assert!(refused.is_err_and(|e| e.contains("is being started")));

    drop(held);
    assert!(!sandboxes.dir().exists(), "a start that is given up leaves nothing");
    Ok(())
}

#[test]
fn a_start_that_was_killed_is_recognised_and_cleaned_up() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let sandboxes = Sandboxes::at(dir.path().join("sandboxes"));
    let mut held = sandboxes.reserve("one", &starting())?;
    let home = held.home().clone();
    // Started, but killed before it could be written down.
    let (mut child, process) = component_of(&home)?;
    held.kept = true; // As a killed process: its lock is freed, nothing else happens.
    drop(held);

    assert_eq!(sandboxes.get("one")?.health, Health::HalfStarted);
    assert_eq!(swept(&sandboxes)?, ["one"]);
    assert!(!process.is_alive());
    assert!(!sandboxes.dir().exists());
    child.wait()?;
    Ok(())
}

#[test]
fn one_whose_components_ended_is_broken_and_says_which() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let sandboxes = Sandboxes::at(dir.path().join("sandboxes"));
    let reservation = sandboxes.reserve("one", &starting())?;
    let mut children = Vec::new();
    let mut state = State { phase: Phase::Running, ..starting() };
    for component in Component::CONTROL_PLANE {
        let (child, process) = component_of(reservation.home())?;
        let record = Record { process, port: 1, started: Timestamp::now() };
        state.components.insert(component, record);
        children.push(child);
    }
    reservation.complete(&state)?;
    assert_eq!(sandboxes.get("one")?.health, Health::Running);
    assert_eq!(swept(&sandboxes)?, [""; 0], "a running one is left alone");

    children[0].kill()?;
    children[0].wait()?;
    let existing = sandboxes.get("one")?;
    assert_eq!(existing.health, Health::Broken(vec![Component::Etcd]));

    sandboxes.remove(&existing)?;
    for (record, child) in state.components.values().zip(&mut children) {
        assert!(!record.process.is_alive());
        child.wait()?;
    }
    assert!(!sandboxes.dir().exists());
    Ok(())
}

#[test]
fn one_whose_state_is_damaged_can_still_be_removed() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let sandboxes = Sandboxes::at(dir.path().join("sandboxes"));
    let reservation = sandboxes.reserve("one", &starting())?;
    let (mut child, process) = component_of(reservation.home())?;
    fs::write(reservation.home().state(), "{")?;
    let mut reservation = reservation;
    reservation.kept = true;
    drop(reservation);

    let existing = sandboxes.get("one")?;
    assert_eq!(existing.health, Health::Broken(Component::CONTROL_PLANE.to_vec()));
    sandboxes.remove(&existing)?;
    assert!(!process.is_alive() && !sandboxes.dir().exists());
    child.wait()?;
    Ok(())
}

#[test]
fn one_that_lost_its_lock_can_still_be_removed() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let sandboxes = Sandboxes::at(dir.path().join("sandboxes"));
    let reservation = sandboxes.reserve("one", &starting())?;
    let home = reservation.home().clone();
    reservation.complete(&State { phase: Phase::Running, ..starting() })?;
    fs::remove_file(home.lock())?;
    sandboxes.remove(&sandboxes.get("one")?)?;
    assert!(!home.dir().exists());
    Ok(())
}

#[test]
fn what_else_lies_beside_sandboxes_is_not_taken_for_one() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let sandboxes = Sandboxes::at(dir.path());
    let _held = sandboxes.reserve("one", &starting())?;
    fs::create_dir(dir.path().join("lost+found"))?;
    fs::write(dir.path().join("notes"), "")?;
    assert_eq!(sandboxes.names(), ["one"]);
    Ok(())
}

#[test]
fn names_that_could_leave_the_directory_are_refused() {
    for name in ["", "..", "a/b", "-a", "A", ".new-x", &"a".repeat(41)] {
        assert!(valid(name).is_err(), "{name:?}");
    }
    for name in ["default", "a", "pr-42"] {
        assert!(valid(name).is_ok(), "{name:?}");
    }
}

#[test]
fn an_unknown_name_is_answered_with_those_that_exist() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let sandboxes = Sandboxes::at(dir.path());
    let answer = |name| sandboxes.get(name).map(drop).map_err(|e| e.to_string());
    let none = "There is no sandbox two: there is none; start one with: sandbox up.";
    assert_eq!(answer("two"), Err(none.to_owned()));
    let _held = sandboxes.reserve("one", &starting())?;
    assert_eq!(answer("two"), Err("There is no sandbox two: there is one.".to_owned()));
    Ok(())
}

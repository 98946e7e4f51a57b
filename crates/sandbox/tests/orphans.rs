//! A sandbox that a test started ends with the test, however that ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// `examples/hold.rs`, which starts a sandbox and tells what belongs to it.
fn hold() -> anyhow::Result<(Child, PathBuf, Vec<u32>)> {
    let programs = Path::new(env!("CARGO_BIN_EXE_sandbox")).parent().context("it lies somewhere")?;
    let mut child = Command::new(programs.join("examples/hold"))
        // One of its own, whatever the tests around it share.
        .env_remove("OPCORE_KUBECONFIG")
        .stdout(Stdio::piped())
        .spawn()
        .context("Cannot run the example `hold`: build it with `cargo build -p sandbox --examples`")?;
    let lines = BufReader::new(child.stdout.take().context("it has an output")?).lines();
    let said: Vec<String> =
        lines.take_while(|line| !matches!(line, Ok(l) if l == "ready")).collect::<Result<_, _>>()?;
    let (dir, pids) = said.split_first().context("it did not start")?;
    let pids = pids.iter().map(|pid| pid.parse()).collect::<Result<_, _>>()?;
    Ok((child, dir.into(), pids))
}

#[test]
fn nothing_is_left_of_a_test_that_was_killed() -> anyhow::Result<()> {
    let (mut child, dir, pids) = hold()?;
    ensure!(pids.len() == 4, "{pids:?}");
    ensure!(dir.join("kubeconfig").is_file());
    let runs = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    ensure!(pids.iter().all(runs));

    child.kill()?;
    child.wait()?;

    let deadline = Instant::now() + Duration::from_secs(20);
    while pids.iter().any(runs) || dir.exists() {
        let left: Vec<_> = pids.iter().filter(|pid| runs(pid)).collect();
        ensure!(Instant::now() < deadline, "processes {left:?}, directory there: {}", dir.exists());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

//! The program as a person uses it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use tempfile::TempDir;

#[path = "support/leaving.rs"]
mod leaving;
use leaving::Sandboxes;

const PATIENCE: Duration = Duration::from_mins(1);

/// A user with no sandbox yet, but with the components that this machine has built; and with no sandbox when the test is
/// over.
struct User {
    // Before their directory goes.
    _sandboxes: Sandboxes,
    dir: TempDir,
}

struct Answer {
    status: ExitStatus,
    out: String,
    err: String,
}

impl User {
    fn new() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        Ok(Self { _sandboxes: Sandboxes(dir.path().join("sandboxes")), dir })
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("sandboxes")
    }

    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
        command.args(args).env("OPCORE_STATE", self.state()).stdin(Stdio::null());
        for variable in ["OPCORE_KUBECONFIG", "KUBECONFIG", "OPCORE_SANDBOX_HOME", "OPCORE_SANDBOX_AUDIT"] {
            command.env_remove(variable);
        }
        command
    }

    fn run(&self, line: &str) -> anyhow::Result<Answer> {
        answer(&mut self.command(line.split_whitespace()))
    }

    /// What is written down about a sandbox, once `enough` of it is.
    fn state_once(&self, name: &str, enough: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let file = self.state().join(name).join("state.json");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let state = fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
            match state {
                Some(state) if enough(&state) => return Ok(state),
                other => ensure!(Instant::now() < deadline, "{} is {other:#?}", file.display()),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn answer(command: &mut Command) -> anyhow::Result<Answer> {
    let Output { status, stdout, stderr } = command.output()?;
    Ok(Answer { status, out: String::from_utf8(stdout)?, err: String::from_utf8(stderr)? })
}

impl Answer {
    fn good(self) -> anyhow::Result<String> {
        ensure!(self.status.success(), "{}: {}{}", self.status, self.out, self.err);
        Ok(self.out)
    }

    /// The one sentence that a failure gets.
    fn refusal(self) -> anyhow::Result<String> {
        ensure!(self.status.code() == Some(1), "{}: {}{}", self.status, self.out, self.err);
        ensure!(!self.err.contains('\x1b'), "colours only on a terminal: {:?}", self.err);
        Ok(self.err.trim_end().trim_start_matches("sandbox: ").to_owned())
    }
}

/// The numbers of the processes in a state.
fn pids(state: &Value) -> anyhow::Result<Vec<u64>> {
    let components = state["components"].as_object().context("it has components")?;
    components.values().map(|c| c["process"]["pid"].as_u64().context("it has a number")).collect()
}

fn runs(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn signal(child: &Child, name: &str) -> anyhow::Result<()> {
    ensure!(Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status()?.success());
    Ok(())
}

#[test]
fn a_cargo_inside_is_not_told_which_package_is_outside() -> anyhow::Result<()> {
    let mut command = User::new()?.command(["run", "--", "printenv"]);
    command.env("OPCORE_KUBECONFIG", "/dev/null").env("CARGO_PKG_NAME", "sandbox").env("CARGO_TERM_COLOR", "never");
    let said = answer(&mut command)?.good()?;
    ensure!(!said.contains("CARGO_PKG_") && said.contains("CARGO_TERM_COLOR=never"), "{said}");
    Ok(())
}

#[test]
fn a_sandbox_lives_from_up_to_down() -> anyhow::Result<()> {
    let user = User::new()?;
    ensure!(user.run("list")?.good()? == "There is no sandbox. Start one with: sandbox up\n");

    let said = user.run("up --name one --audit")?.good()?;
    ensure!(said.starts_with("Sandbox one is ready after "), "{said}");
    let state = user.state_once("one", |s| s["phase"] == "running")?;
    let pids = pids(&state)?;
    ensure!(pids.len() == 4 && pids.iter().all(|pid| runs(*pid)), "{state:#}");

    ensure!(user.run("up --name one")?.good()?.starts_with("Sandbox one is already running."));
    ensure!(user.run("exec --name one -- kubectl get --raw /readyz")?.good()? == "ok");
    let code = user.command(["exec", "--name", "one", "--", "sh", "-c", "exit 42"]).status()?.code();
    ensure!(code == Some(42), "the exit code is passed on: {code:?}");
    ensure!(user.run("exec --name one -- no-such-program")?.status.code() == Some(127));

    let kubeconfig = PathBuf::from(user.run("kubeconfig --name one")?.good()?.trim_end());
    ensure!(kubeconfig == user.state().join("one/kubeconfig"));
    ensure!(fs::metadata(&kubeconfig)?.permissions().mode() & 0o777 == 0o600);
    ensure!(fs::metadata(user.state().join("one"))?.permissions().mode() & 0o777 == 0o700);

    let list = user.run("list")?.good()?;
    ensure!(list.lines().count() == 2 && list.contains("one   running"), "{list}");
    let status = user.run("status --name one")?.good()?;
    for (component, pid) in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"].iter().zip(&pids) {
        let line = status.lines().find(|line| line.starts_with(component)).context(status.clone())?;
        ensure!(line.contains("running") && line.contains(&pid.to_string()) && line.contains("MiB"), "{line}");
    }
    ensure!(user.run("logs --name one apiserver")?.good()?.contains("Serving securely"));
    ensure!(user.run("logs --name one etcd -n 2")?.good()?.lines().count() == 2);
    let audit = user.run("logs --name one audit -n 1")?.good()?;
    ensure!(serde_json::from_str::<Value>(&audit)?["kind"] == "Event");

    for (line, refusal) in [
        ("status --name two", "There is no sandbox two: there is one."),
        ("down --name two", "There is no sandbox two: there is one."),
        (
            "logs --name one kubelte",
            "There is no component \"kubelte\": choose one of etcd, kube-apiserver, kube-controller-manager, \
             kube-scheduler, node-init, containerd, kubelet, kube-proxy, git, kustomize-controller, opentofu, \
             prometheus, registry, registry-auth, source-controller, spire, terraform, traefik.",
        ),
    ] {
        let said = user.run(line)?.refusal()?;
        ensure!(said == refusal, "{line}: {said}");
    }

    // A component that died is noticed, not hidden.
    let scheduler = pids[3];
    ensure!(Command::new("kill").args(["-9", &scheduler.to_string()]).status()?.success());
    let deadline = Instant::now() + PATIENCE;
    while runs(scheduler) {
        ensure!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = user.run("status --name one")?;
    ensure!(status.status.code() == Some(1) && status.out.contains("kube-scheduler           dead"), "{}", status.out);
    ensure!(user.run("list")?.good()?.contains("kube-scheduler does not run"));
    let said = user.run("up --name one")?.refusal()?;
    ensure!(said.starts_with("Sandbox one exists, but kube-scheduler does not run: "), "{said}");

    ensure!(user.run("down --all")?.good()? == "Sandbox one is gone.\n");
    ensure!(!pids.iter().any(|pid| runs(*pid)));
    ensure!(!user.state().exists(), "something is left in {}", user.state().display());
    Ok(())
}

/// Starts `up` and stops it in the middle.
fn interrupted(user: &User, name: &str) -> anyhow::Result<(Output, Vec<u64>)> {
    let child = user.command(["up"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let begun = |state: &Value| !state["components"]["kube-apiserver"].is_null();
    let state = user.state_once("default", begun)?;
    ensure!(state["phase"] == "starting");
    ensure!(user.run("list")?.good()?.contains("default  starting"), "others see that it is being started");
    let busy = user.run("down")?.refusal()?;
    ensure!(busy.contains("is being started"), "{busy}");
    signal(&child, name)?;
    Ok((child.wait_with_output()?, pids(&state)?))
}

#[test]
fn an_interrupted_start_cleans_up_after_itself() -> anyhow::Result<()> {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let user = User::new()?;
        let (output, pids) = interrupted(&user, name)?;
        ensure!(output.status.code() == Some(code), "{output:?}");
        ensure!(!pids.iter().any(|pid| runs(*pid)), "processes are left");
        ensure!(!user.state().exists(), "files are left");
    }
    Ok(())
}

#[test]
fn a_test_that_fails_midway_leaves_no_sandbox() -> anyhow::Result<()> {
    let started = User::new()?;
    started.run("up")?.good()?;
    // This one has only begun.
    let starting = User::new()?;
    let mut child = starting.command(["up"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    starting.state_once("default", |state| !state["components"]["etcd"].is_null())?;
    for user in [started, starting] {
        let state = user.state_once("default", |_| true)?;
        let dir = user.state();
        drop(user);
        ensure!(!pids(&state)?.iter().any(|pid| runs(*pid)), "processes are left");
        ensure!(!dir.exists(), "files are left");
    }
    child.wait()?;
    Ok(())
}

#[test]
fn a_killed_start_is_cleaned_up_by_the_next_command() -> anyhow::Result<()> {
    let user = User::new()?;
    let (_, pids) = interrupted(&user, "KILL")?;
    let list = user.run("list")?;
    ensure!(list.err.contains("Sandbox default was started only in part"), "{}", list.err);
    ensure!(list.good()?.starts_with("There is no sandbox."));
    ensure!(!pids.iter().any(|pid| runs(*pid)), "processes are left");
    ensure!(!user.state().exists(), "files are left");
    Ok(())
}

#[test]
fn run_gives_a_command_a_control_plane_of_its_own() -> anyhow::Result<()> {
    let user = User::new()?;
    let script = "kubectl get --raw /readyz >&2; test \"$KUBECONFIG\" = \"$OPCORE_KUBECONFIG\"; \
                  dirname $KUBECONFIG; exit 7";
    let said = answer(&mut user.command(["run", "--", "sh", "-c", script]))?;
    ensure!(said.status.code() == Some(7), "{}: {}", said.status, said.err);
    ensure!(said.err.contains("Control plane ready after ") && said.err.ends_with("ok"), "{}", said.err);
    ensure!(!Path::new(said.out.trim_end()).exists(), "{} is left", said.out);
    Ok(())
}

#[test]
fn run_uses_the_cluster_that_it_is_given() -> anyhow::Result<()> {
    let user = User::new()?;
    let mut command = user.command(["run", "--", "sh", "-c", "echo $KUBECONFIG"]);
    let said = answer(command.env("OPCORE_KUBECONFIG", "/some/kubeconfig"))?;
    ensure!(said.err.is_empty(), "nothing is started: {}", said.err);
    ensure!(said.good()? == "/some/kubeconfig\n");
    Ok(())
}

#[test]
fn what_cannot_be_is_answered_with_one_sentence() -> anyhow::Result<()> {
    let user = User::new()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let said = user.run(&format!("up --port {port}"))?.refusal()?;
    ensure!(said.starts_with(&format!("Port {port} is in use by another program: choose another one")), "{said}");
    ensure!(!user.state().exists(), "files are left");

    let said = user.run("up --name ../x")?.refusal()?;
    ensure!(said.starts_with("\"../x\" cannot be the name of a sandbox"), "{said}");
    let said = user.run("exec -- true")?.refusal()?;
    ensure!(said == "There is no sandbox default: there is none; start one with: sandbox up.", "{said}");
    let said = user.run("build kubelte")?.refusal()?;
    ensure!(said.starts_with("There is no component \"kubelte\" to build: choose one of ca-certificates, "), "{said}");
    let said = user.run("which kubelte")?.refusal()?;
    ensure!(said.starts_with("There is no component \"kubelte\" to build: choose one of ca-certificates, "), "{said}");
    let said = user.run("which kubernetes-node")?.refusal()?;
    ensure!(
        said == "\"kubernetes-node\" is a component of several programs: choose one of kube-proxy, kubelet.",
        "{said}"
    );
    ensure!(user.run("down --all")?.good()? == "There is no sandbox to stop.\n");

    let mut command = user.command(["up"]);
    let said = answer(command.env("KUBEBUILDER_ASSETS", user.dir.path()))?.refusal()?;
    ensure!(said.contains("which does not contain etcd: correct it, or unset it"), "{said}");
    Ok(())
}

#[test]
fn scripts_learn_where_a_program_is_and_nothing_else() -> anyhow::Result<()> {
    let said = User::new()?.run("which etcd")?.good()?;
    let path = Path::new(said.strip_suffix('\n').context("the path ends its line")?);
    ensure!(path.is_file() && path.file_name() == Some(OsStr::new("etcd")), "{said:?}");
    Ok(())
}

#[test]
fn a_component_that_cannot_be_built_is_answered_with_the_remedy() -> anyhow::Result<()> {
    let user = User::new()?;
    let empty = user.dir.path().join("empty");
    fs::create_dir(&empty)?;
    let build = || {
        let mut command = user.command(["build", "etcd"]);
        command.env("OPCORE_CACHE", user.dir.path().join("cache"));
        command
    };

    let said = answer(build().env("PATH", &empty))?.refusal()?;
    ensure!(said.starts_with("Go is not found: ") && said.contains("https://go.dev/dl"), "{said}");

    // Nothing listens on port 1.
    for proxy in ["off", "http://127.0.0.1:1"] {
        let said = answer(build().env("GOPROXY", proxy).env("GOMODCACHE", user.dir.path().join("modules")))?.err;
        ensure!(said.contains("The sources of etcd could not be downloaded: "), "{said}");
        ensure!(said.contains("Check the network and GOPROXY"), "{said}");
    }

    let said = answer(build().env("OPCORE_CACHE", "/proc/opcore"))?.refusal()?;
    ensure!(said.starts_with("The cache /proc/opcore cannot be written (set OPCORE_CACHE"), "{said}");
    Ok(())
}

/// Runs a command with a small disk at a directory. The mount is seen by this one process only and goes with it.
fn with_disk(size: &str, variable: &str, line: &str) -> anyhow::Result<Option<String>> {
    let user = User::new()?;
    let disk = user.dir.path().join("disk");
    fs::create_dir(&disk)?;
    let script = "mount -t tmpfs -o size=$SIZE tmpfs \"$0\" || exit 99; \"$@\"; code=$?; ls -A \"$0\"; exit $code";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&disk).arg(env!("CARGO_BIN_EXE_sandbox"));
    command.args(line.split_whitespace()).env("SIZE", size).env("OPCORE_STATE", user.state()).env(variable, &disk);
    let said = answer(&mut command)?;
    if said.err.contains("Operation not permitted") || said.err.contains("permission denied") {
        eprintln!("NOT RUN: a_full_disk_is_called_that needs the right to mount (run as root): {}", said.err);
        return Ok(None);
    }
    ensure!(said.status.code() == Some(1), "{}: {}{}", said.status, said.out, said.err);
    if variable == "OPCORE_STATE" {
        ensure!(said.out.is_empty(), "files are left: {}", said.out);
    }
    Ok(Some(said.err))
}

#[test]
fn a_full_disk_is_called_that() -> anyhow::Result<()> {
    if let Some(said) = with_disk("1m", "OPCORE_CACHE", "build etcd")? {
        ensure!(said.contains("No space is left on the disk to build etcd"), "{said}");
    }
    // For the certificates it is too small, for etcd, or for images.
    for (size, words) in [("64k", "No space left on device"), ("8m", "No space is left on the disk for ")] {
        if let Some(said) = with_disk(size, "OPCORE_STATE", "up")? {
            ensure!(said.contains(words), "{said}");
        }
    }
    if let Err(why) = sandbox::can_run_node() {
        eprintln!("NOT RUN: a_full_disk_is_called_that, with a node: {why:#}");
        return Ok(());
    }
    let said = with_disk("160m", "OPCORE_STATE", "up --node")?.unwrap_or_default();
    ensure!(said.contains("No space is left on the disk for the image "), "{said}");
    Ok(())
}

#[test]
fn doctor_says_what_is_missing_and_how_to_get_it() -> anyhow::Result<()> {
    let user = User::new()?;
    let said = user.run("doctor")?.good()?;
    ensure!(said.ends_with("Nothing is missing.\n"), "{said}");

    let empty = user.dir.path().join("empty");
    fs::create_dir(&empty)?;
    let said = answer(user.command(["doctor"]).env("PATH", &empty))?;
    ensure!(said.status.code() == Some(1), "{}", said.status);
    for part in ["MISSING  setpriv", "remedy: apt-get install util-linux", "MISSING  go", "2 things are missing."] {
        ensure!(said.out.contains(part), "no {part:?} in:\n{}", said.out);
    }

    let cache = user.dir.path().join("cache");
    let said = answer(user.command(["doctor"]).env("OPCORE_CACHE", &cache))?.good()?;
    ensure!(said.contains("is not built yet: on first use, or now with `sandbox build etcd`"), "{said}");
    ensure!(!cache.exists(), "a look changes nothing");
    Ok(())
}

#[test]
fn one_that_cannot_be_stopped_keeps_no_other() -> anyhow::Result<()> {
    let user = User::new()?;
    // Neither is one: what has no state is not looked at, and what has no name for a sandbox cannot be.
    fs::create_dir_all(user.state().join("lost+found"))?;
    fs::create_dir_all(user.state().join("Not A Name"))?;
    fs::write(user.state().join("Not A Name/state.json"), "{}")?;
    fs::create_dir_all(user.state().join("broken"))?;
    fs::write(user.state().join("broken/state.json"), "{}")?;
    let answer = user.run("down --all")?;
    ensure!(answer.out == "Sandbox broken is gone.\n", "{}{}", answer.out, answer.err);
    ensure!(answer.refusal()?.contains("\"Not A Name\" cannot be the name of a sandbox"));
    ensure!(user.state().join("lost+found").exists());
    Ok(())
}

#[test]
fn programs_that_are_given_are_used() -> anyhow::Result<()> {
    let user = User::new()?;
    let given = user.dir.path().join("given");
    fs::create_dir(&given)?;
    let which = "for program in etcd kube-apiserver kubectl; do command -v $program; done";
    let cached = answer(&mut user.command(["run", "--", "sh", "-c", which]))?.good()?;
    let cached: Vec<&Path> = cached.lines().map(Path::new).collect();
    for program in &cached[..2] {
        std::os::unix::fs::symlink(program, given.join(program.file_name().context("it has a name")?))?;
    }
    let mut command = user.command(["run", "--", "sh", "-c", which]);
    let found = answer(command.env("KUBEBUILDER_ASSETS", &given))?.good()?;
    let found: Vec<&Path> = found.lines().map(Path::new).collect();
    ensure!(found[..2] == [given.join("etcd"), given.join("kube-apiserver")], "{found:?}");
    ensure!(found[2] == cached[2], "what is not given comes from the cache: {found:?}");
    Ok(())
}

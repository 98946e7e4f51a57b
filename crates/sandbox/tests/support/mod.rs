//! What tests of nodes and parts have in common.

#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod leaving;
pub(crate) mod machine;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::wait::{Condition, await_condition};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Mutex;

pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// One at a time: they look at the whole machine, which has few processors.
pub(crate) static TURN: Mutex<()> = Mutex::const_new(());

/// Says so where nobody can miss it, and not only when a test fails.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether a node can run here; where not, the test `name` says that it did not run, and why.
pub(crate) fn can_run(name: &str) -> bool {
    match sandbox::can_run_node() {
        Ok(()) => true,
        Err(why) => {
            tell(&format!("NOT RUN: {name}: {why:#}"));
            false
        }
    }
}

/// Waits for an object to become as it should, or fails with what it is.
pub(crate) async fn once<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> anyhow::Result<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + DeserializeOwned + 'static,
{
    match tokio::time::timeout(PATIENCE, await_condition(api.clone(), name, condition)).await {
        Ok(object) => object?.with_context(|| format!("{name} is gone")),
        Err(_) => bail!("{name} never became as it should: {:#?}", api.get_opt(name).await?),
    }
}

pub(crate) fn condition_holds(pod: Option<&Pod>, condition: &str) -> bool {
    let conditions = pod.and_then(|p| p.status.as_ref()?.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == condition && c.status == "True"))
}

/// What a web server answers: the head, and the body.
pub(crate) fn http(
    authority: &str,
    request: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> anyhow::Result<(String, String)> {
    let address: SocketAddr = authority.parse()?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "{request} HTTP/1.0\r\nContent-Length: {}\r\n", body.len())?;
    for (name, value) in headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    stream.write_all(b"\r\n")?;
    stream.write_all(body)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    Ok((head.to_owned(), body.to_owned()))
}

/// Retries until the answer is good; fails with the last error.
pub(crate) fn until<T>(mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
            last => return last,
        }
    }
}

/// A user with no sandbox yet, and with none when the test is over.
pub(crate) struct User {
    // Before their directory goes.
    _sandboxes: leaving::Sandboxes,
    pub(crate) dir: TempDir,
}

impl User {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        Ok(Self { _sandboxes: leaving::Sandboxes(dir.path().join("sandboxes")), dir })
    }

    pub(crate) fn home(&self, name: &str) -> PathBuf {
        self.dir.path().join("sandboxes").join(name)
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
        command.args(line.split_whitespace()).env("OPCORE_STATE", self.dir.path().join("sandboxes"));
        command.env_remove("OPCORE_KUBECONFIG").stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, line: &str) -> anyhow::Result<Output> {
        Ok(self.command(line).output()?)
    }

    pub(crate) fn good(&self, line: &str) -> anyhow::Result<String> {
        let output = self.run(line)?;
        ensure!(output.status.success(), "{line}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }

    pub(crate) fn component(&self, sandbox: &str, name: &str) -> Option<u64> {
        let state = fs::read(self.home(sandbox).join("state.json")).ok()?;
        let state: Value = serde_json::from_slice(&state).ok()?;
        state["components"][name]["process"]["pid"].as_u64()
    }
}

pub(crate) fn signal(pid: u64, name: &str) -> anyhow::Result<()> {
    ensure!(Command::new("kill").args([format!("-{name}"), pid.to_string()]).status()?.success());
    Ok(())
}

//! Terraform as a child process: arguments without a shell, a single SIGTERM, and no process outlives a call.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::redact::Redactor;
use super::stream::EngineOutput;
use crate::run::order::reserved_env;

/// How long to wait for the remaining output of a process that has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How many plain lines of a failed process are reported.
const TAIL: usize = 20;

/// How Terraform is called.
pub struct Engine {
    /// The program.
    pub program: &'static str,
    /// Where it runs.
    pub dir: PathBuf,
    /// Its environment, in addition to the inherited one.
    pub env: BTreeMap<String, String>,
    /// What must not be printed.
    pub redactor: Arc<Redactor>,
    /// Becomes true when everything must stop.
    pub stop: watch::Receiver<bool>,
    /// How long it may take to stop after it was asked to.
    pub grace: Duration,
    /// Receives the resources that it begins to create, at once.
    pub begun: UnboundedSender<String>,
}

/// Why a process was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It took too long.
    TimedOut,
    /// Everything must stop.
    Interrupted,
}

/// What happens to the output of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// It is parsed and printed.
    Stream,
    /// It is kept, and not printed. The process only reads, and continues when everything must stop, because what was
    /// done is worth knowing.
    Keep,
}

/// How a call ended.
pub struct Ended {
    /// The exit status of the process.
    pub status: ExitStatus,
    /// Why it was asked to stop, if so.
    pub cause: Option<Cause>,
    /// The parsed output.
    pub engine_output: EngineOutput,
    /// The kept output.
    pub kept: Vec<u8>,
    /// The last plain lines of its output.
    pub tail: Vec<String>,
}

impl Ended {
    /// The exit code; none when it was killed.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Whether it was killed without a chance to clean up.
    pub fn was_killed(&self) -> bool {
        self.status.signal().is_some()
    }
}

impl Engine {
    /// Runs the program until it ends, or until its deadline.
    pub async fn call(&self, args: &[OsString], until: Instant, listen: Listen) -> std::io::Result<Ended> {
        let mut command = Command::new(self.program);
        // In its own process group, so that its plugins and their children end with it.
        command.args(args).current_dir(&self.dir).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_not_inherited)) {
            command.env_remove(name);
        }
        command.envs(&self.env);
        let mut child = command.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let said = self.listen(child.stdout.take(), listen);
        let complained = self.listen(child.stderr.take(), Listen::Stream);
        let (status, cause) = self.watch(&mut child, group, until, listen == Listen::Stream).await?;
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let (said, complained) = (last_words(said).await, last_words(complained).await);
        let tail = complained.tail.into_iter().chain(said.tail).collect();
        Ok(Ended { status, cause, engine_output: said.engine_output, kept: said.kept, tail })
    }

    async fn watch(
        &self,
        child: &mut Child,
        id: Option<Pid>,
        until: Instant,
        heeds_stop: bool,
    ) -> std::io::Result<(ExitStatus, Option<Cause>)> {
        let (mut stop, mut cause, mut kill_at) = (self.stop.clone(), None, until);
        loop {
            let asked = tokio::select! {
                status = child.wait() => return Ok((status?, cause)),
                () = sleep_until(until), if cause.is_none() => Cause::TimedOut,
                _ = stop.wait_for(|stop| *stop), if cause.is_none() && heeds_stop => Cause::Interrupted,
                () = sleep_until(kill_at), if cause.is_some() => {
                    child.start_kill()?;
                    return Ok((child.wait().await?, cause));
                }
            };
            // Only once: a second signal would make it abandon its work.
            if let Some(id) = id {
                let _ = kill_process(id, Signal::TERM);
            }
            (cause, kill_at) = (Some(asked), Instant::now() + self.grace);
        }
    }

    fn listen<R: AsyncRead + Send + Unpin + 'static>(&self, from: Option<R>, listen: Listen) -> JoinHandle<Said> {
        let (redactor, begun) = (self.redactor.clone(), self.begun.clone());
        tokio::spawn(async move {
            let mut said = Said::default();
            let Some(from) = from else { return said };
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            while from.read_until(b'\n', &mut line).await.is_ok_and(|bytes| bytes > 0) {
                let known = said.engine_output.begun.len();
                said.take(&line, listen, &redactor);
                for address in said.engine_output.begun.iter().skip(known) {
                    let _ = begun.send(address.clone());
                }
                line.clear();
            }
            said
        })
    }
}

#[derive(Default)]
struct Said {
    engine_output: EngineOutput,
    kept: Vec<u8>,
    tail: Vec<String>,
}

impl Said {
    fn take(&mut self, line: &[u8], listen: Listen, redactor: &Redactor) {
        if listen == Listen::Keep {
            self.kept.extend_from_slice(line);
            return;
        }
        let line = String::from_utf8_lossy(line);
        let words = self.engine_output.read_line(line.trim_end(), redactor);
        if words.is_empty() {
            return;
        }
        println!("{words}");
        if !line.starts_with('{') {
            self.tail.push(words);
            if self.tail.len() > TAIL {
                self.tail.remove(0);
            }
        }
    }
}

async fn last_words(said: JoinHandle<Said>) -> Said {
    timeout(LAST_WORDS, said).await.ok().and_then(Result::ok).unwrap_or_default()
}

/// The runner's own settings are not passed on to Terraform; the variables of its image are.
fn is_not_inherited(name: &str) -> bool {
    reserved_env(name).is_some() && !matches!(name, "PATH" | "LD_LIBRARY_PATH" | "TF_CLI_CONFIG_FILE")
}

//! Commands in containers.
//!
//! The API server passes a command on to the kubelet over a WebSocket. The first byte of each message is the channel: what
//! the command writes to its standard output and its standard error, and in the end a `Status` that says how it ended.

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachParams, DynamicObject};
use kube::client::Connection;
use kube::core::{Request, Resource};

use super::{Actor, Outcome, Refusal, RefusalReason, refused};
use crate::client::Deadline;
use crate::conditions::cut;
use crate::error::{self, Error};
use crate::writes::Exec;

/// How many bytes a command may write to its standard output. More is an error: nothing is cut off.
pub const LONGEST_STDOUT: usize = 256 * 1024;
/// How many bytes a command may write to its standard error. More is an error: nothing is cut off.
pub const LONGEST_STDERR: usize = 16 * 1024;

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;

impl Actor<'_> {
    /// Runs a command in exactly the pod that is named, and returns what it wrote.
    pub(super) async fn exec(&self, exec: &Exec) -> Result<Outcome, Error> {
        if exec.command.is_empty() {
            return Err(Error::Bug(format!("cannot run an empty command in {}", exec.target)));
        }
        let live = match self.find(&exec.target).await {
            Ok(live) => live,
            Err(error) => return refused(&exec.target.id(), error),
        };
        if live.is_none_or(|live| live.metadata.deletion_timestamp.is_some()) {
            return Ok(Outcome::Gone);
        }
        let deadline = Deadline::default();
        let connection = match self.client.connect(request(exec, &deadline)?).await {
            Ok(connection) => connection,
            Err(error) => return not_begun(exec, error),
        };
        let ended = deadline.keep(ended(connection)).await;
        let ended = ended.unwrap_or_else(|deadline| Err(format!("did not end within {deadline:?}")));
        ended.map_err(|words| Error::Outside(format!("{exec} {words}")))
    }
}

fn request(exec: &Exec, deadline: &Deadline) -> Result<http::Request<Vec<u8>>, Error> {
    let target = &exec.target;
    let pods = Request::new(DynamicObject::url_path(&target.resource, target.namespace.as_deref()));
    let params = AttachParams::default().container(&exec.container);
    let request = pods.exec(&target.name, &exec.command, &params);
    let mut request =
        request.map_err(|error| Error::Bug(format!("cannot build the request to run {exec}: {error}")))?;
    request.extensions_mut().insert(deadline.clone());
    Ok(request)
}

/// What the API server says instead of running a command.
fn not_begun(exec: &Exec, error: kube::Error) -> Result<Outcome, Error> {
    let object = exec.target.id();
    let code = if let kube::Error::Api(status) = &error { status.code } else { 0 };
    let error = Error::from(error);
    match code {
        // The pod is not on a node yet, or has no such container.
        400 => Err(Error::Outside(format!("{exec} could not be run: {error}"))),
        403 => {
            // Which of the two is checked depends on the version of Kubernetes; from 1.35 on it is both.
            let remedy = "Grant this operator get and create of pods/exec, or change the policy that forbids it.";
            let said = error.to_string();
            let message = format!("{exec} was not run: {}. {remedy}", said.trim_end_matches('.'));
            Ok(Outcome::Refused(Refusal { object, reason: RefusalReason::Forbidden, message }))
        }
        // The pod went after it was read, or its kubelet does not know it yet.
        404 => Err(Error::Stale(object.to_string())),
        _ => refused(&object, error),
    }
}

/// Reads until the command ends. An error is a part of a sentence that begins with the command.
async fn ended(connection: Connection) -> Result<Outcome, String> {
    let mut messages = connection.into_stream();
    let mut written = Written::default();
    while let Some(message) = messages.next().await {
        let message = message.map_err(|error| format!("was disconnected before it ended: {}", error::chain(&error)))?;
        // The others keep the connection alive or close it.
        if message.is_binary()
            && let Some(exit) = written.take(&message.into_data())?
        {
            return Ok(written.ran(exit));
        }
    }
    Err("was disconnected before it ended".to_owned())
}

/// What a command has written so far.
#[derive(Default)]
struct Written {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Written {
    /// Takes a message. Returns the exit code when it is the last one.
    fn take(&mut self, message: &[u8]) -> Result<Option<i32>, String> {
        // An empty message opens a channel.
        let Some((channel, data)) = message.split_first().filter(|(_, data)| !data.is_empty()) else {
            return Ok(None);
        };
        match *channel {
            STDOUT => keep(&mut self.stdout, data, LONGEST_STDOUT, "standard output"),
            STDERR => keep(&mut self.stderr, data, LONGEST_STDERR, "standard error"),
            STATUS => exit_code(data).map(Some),
            _ => Ok(None),
        }
    }

    fn ran(&self, exit: i32) -> Outcome {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Outcome::Ran { stdout: text(&self.stdout), stderr: text(&self.stderr), exit }
    }
}

fn keep(kept: &mut Vec<u8>, data: &[u8], longest: usize, what: &str) -> Result<Option<i32>, String> {
    if kept.len() + data.len() > longest {
        return Err(format!("wrote more than {} KiB to its {what}, which is too much", longest / 1024));
    }
    kept.extend_from_slice(data);
    Ok(None)
}

/// The exit code in a status.
fn exit_code(status: &[u8]) -> Result<i32, String> {
    let status: Status = serde_json::from_slice(status)
        .map_err(|error| format!("ended with an unknown status: {}", error::values::of_serde(&error.to_string())))?;
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let causes = status.details.iter().flat_map(|details| details.causes.iter().flatten());
    let mut codes = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = codes.find_map(|cause| cause.message.as_deref()?.parse().ok());
    // Without a code it never began: there is no such program, or the container does not run.
    code.ok_or_else(|| {
        format!("could not be run: {}", cut(status.message.as_deref().unwrap_or("no reason was given"), error::LONGEST))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(channel: u8, data: &[u8]) -> Vec<u8> {
        [&[channel], data].concat()
    }

    fn ends(status: &serde_json::Value) -> Result<Option<i32>, String> {
        Written::default().take(&message(STATUS, status.to_string().as_bytes()))
    }

    #[test]
    fn output_is_put_together_by_channel_and_does_not_show_in_logs() {
        let mut written = Written::default();
        for (channel, data) in
            [(STDOUT, ""), (STDERR, ""), (STATUS, ""), (STDOUT, "hunter"), (STDERR, "hm"), (STDOUT, "2\n"), (9, "?")]
        {
            assert_eq!(written.take(&message(channel, data.as_bytes())), Ok(None));
        }
        assert_eq!(written.take(&[]), Ok(None));
        let ran = written.ran(0);
        assert_eq!(ran, Outcome::Ran { stdout: "hunter2\n".to_owned(), stderr: "hm".to_owned(), exit: 0 });
        assert_eq!(format!("{ran:?}"), "Ran(exit: 0, stdout: 8 bytes, stderr: 2 bytes)");
    }

    #[test]
    fn output_may_be_as_long_as_the_bound_and_no_byte_longer() {
        for (channel, longest, words) in [
            (STDOUT, LONGEST_STDOUT, "wrote more than 256 KiB to its standard output, which is too much"),
            (STDERR, LONGEST_STDERR, "wrote more than 16 KiB to its standard error, which is too much"),
        ] {
            let mut written = Written::default();
            assert_eq!(written.take(&message(channel, &vec![b'x'; longest - 1])), Ok(None));
            assert_eq!(written.take(&message(channel, b"x")), Ok(None));
            assert_eq!(written.take(&message(channel, b"x")), Err(words.to_owned()));
        }
    }

    #[test]
    fn the_status_says_how_a_command_ended() {
        assert_eq!(ends(&json!({"metadata": {}, "status": "Success"})), Ok(Some(0)));
        let causes = json!([{"reason": "ExitCode", "message": "7"}]);
        let failed = json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": "command terminated with non-zero exit code: exit status 7", "details": {"causes": causes}});
        assert_eq!(ends(&failed), Ok(Some(7)));
        let absent = json!({"metadata": {}, "status": "Failure", "reason": "InternalError",
            "message": "container not found (\"front\")", "code": 500});
        assert_eq!(ends(&absent), Err("could not be run: container not found (\"front\")".to_owned()));
        assert_eq!(ends(&json!({})), Err("could not be run: no reason was given".to_owned()));
        let words = ends(&json!({"status": 4711})).unwrap_err();
        assert!(words.starts_with("ended with an unknown status: ") && !words.contains("4711"), "{words}");
    }
}

//! A simulated kubelet for commands in containers, for tests without a node. It speaks the protocol of a kubelet, so
//! that the code that runs a command is the same as on a node.

use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// Its exit code.
    pub exit: i32,
}

impl Answer {
    /// A success with this standard output.
    pub fn says(stdout: impl Into<String>) -> Self {
        Self { stdout: stdout.into(), ..Self::default() }
    }

    /// A failure with this exit code and standard error.
    pub fn fails(exit: i32, stderr: impl Into<String>) -> Self {
        Self { exit, stderr: stderr.into(), ..Self::default() }
    }
}

/// Runs commands: it gets the name of the pod, the container and the command.
pub(crate) type RunCommand = Box<dyn FnMut(&str, &str, &[String]) -> Answer + Send>;

/// How the connection of a command ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// With the status of the command.
    Status,
    /// It is cut off after this many messages.
    Cut(usize),
    /// Nothing is sent, and the connection stays open.
    Never,
}

/// A kubelet sends at most this much in one message.
const CHUNK: usize = 32 * 1024;

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;

/// The pod in which a request with this path runs a command, if it does.
pub(crate) fn pod(path: &str) -> Option<&str> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["", "api", "v1", "namespaces", _, "pods", pod, "exec"] => Some(pod),
        _ => None,
    }
}

/// Runs the command of this request. Returns the response that opens the connection on which the result is sent.
pub(crate) fn run(mut request: Request<Incoming>, run_command: &mut RunCommand, end: End) -> Response<()> {
    let (mut container, mut command) = (String::new(), Vec::new());
    for (name, value) in form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes()) {
        match name.as_ref() {
            "container" => container = value.into_owned(),
            "command" => command.push(value.into_owned()),
            _ => {}
        }
    }
    let answer = run_command(pod(request.uri().path()).unwrap(), &container, &command);
    let key = derive_accept_key(request.headers()[SEC_WEBSOCKET_KEY].as_bytes());
    // The newest protocol that the client offers.
    let offered = request.headers()[SEC_WEBSOCKET_PROTOCOL].to_str().unwrap();
    let protocol = offered.split(',').next().unwrap().to_owned();
    tokio::spawn(send(hyper::upgrade::on(&mut request), messages(&answer), end));
    let head = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let head = head.header(CONNECTION, "Upgrade").header(UPGRADE, "websocket");
    head.header(SEC_WEBSOCKET_ACCEPT, key).header(SEC_WEBSOCKET_PROTOCOL, protocol).body(()).unwrap()
}

async fn send(upgrade: OnUpgrade, messages: Vec<Message>, end: End) {
    // The connection may be cut off before the result, if a test asks for that.
    let Ok(upgraded) = upgrade.await else { return };
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    let sent = match end {
        End::Status => messages.len(),
        End::Cut(sent) => sent,
        End::Never => 0,
    };
    for message in messages.into_iter().take(sent) {
        // The client may close the connection early.
        if socket.send(message).await.is_err() {
            return;
        }
    }
    match end {
        End::Status => drop(socket.close(None).await),
        End::Cut(_) => {}
        End::Never => while socket.next().await.is_some_and(|message| message.is_ok()) {},
    }
}

/// The messages of a kubelet: each channel is opened by an empty message, and the status is the last message.
fn messages(answer: &Answer) -> Vec<Message> {
    let mut messages: Vec<_> = [STDOUT, STDERR, STATUS].map(|channel| message(channel, &[])).into();
    for (channel, text) in [(STDOUT, &answer.stdout), (STDERR, &answer.stderr)] {
        messages.extend(text.as_bytes().chunks(CHUNK).map(|chunk| message(channel, chunk)));
    }
    messages.push(message(STATUS, status(answer.exit).to_string().as_bytes()));
    messages
}

fn message(channel: u8, data: &[u8]) -> Message {
    Message::binary([&[channel], data].concat())
}

fn status(exit: i32) -> Value {
    if exit == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {exit}"),
        "details": {"causes": [{"reason": "ExitCode", "message": exit.to_string()}]},
    })
}

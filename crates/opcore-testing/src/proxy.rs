//! A proxy in front of the real API server that injects faults.
//!
//! It listens on loopback, forwards requests with the credentials of the sandbox, records them, and asks a rule what to
//! do with each request. Without a node, it can also [act as the kubelet](Proxy::answers_exec) and run commands.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};

pub use crate::kubelet::Answer;
use crate::kubelet::{self, End, RunCommand};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is forwarded and answered.
    Pass,
    /// It is answered with this code, and not forwarded.
    Answer(u16),
    /// The client is asked to retry after this many seconds, and the request is not forwarded. The delay is in a
    /// status, as from the API server's storage.
    Later(u32),
    /// The same with a header and in plain text, as from an API server that is overloaded.
    Crowded(u32),
    /// It is forwarded, and answered with this code.
    AnswerAfter(u16),
    /// It is neither answered nor forwarded.
    Hang,
    /// The connection is cut off before the request is forwarded.
    LoseRequest,
    /// The request is forwarded, and then the connection is cut off.
    LoseAnswer,
    /// It waits until it is released; then it is forwarded and answered.
    Hold,
    /// A watch or a command: the connection is cut off after this many chunks.
    CutAfterChunks(usize),
    /// A watch or a command: it starts, and nothing is ever sent.
    Silence,
    /// A watch: the server reports that the version has expired.
    Expired,
}

/// A recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Its method.
    pub method: String,
    /// Its path, without the query.
    pub path: String,
    /// Whether it is a watch.
    pub watch: bool,
    /// The status code of the response; none if there was none.
    pub code: Option<u16>,
}

impl Passed {
    /// Whether it writes.
    pub fn writes(&self) -> bool {
        writes(&self.method, &self.path)
    }
}

/// Whether a request writes. A command in a container does, although its request is a GET.
pub(crate) fn writes(method: &str, path: &str) -> bool {
    method != "GET" || kubelet::pod(path).is_some()
}

type Rule = Box<dyn FnMut(&Passed) -> Fate + Send>;
type Reply = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// A proxy in front of the real API server. Cheap to clone.
#[derive(Clone)]
pub struct Proxy(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    upstream: Client,
    rule: Mutex<Rule>,
    run_command: Mutex<Option<RunCommand>>,
    passed: Mutex<Vec<Passed>>,
    changed: Notify,
    /// How many requests were held, and how many of them were released.
    held: Mutex<usize>,
    released: Semaphore,
}

impl Proxy {
    /// Starts a proxy for the API server of this client.
    pub async fn start(upstream: Client) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let proxy = Self(Arc::new(Inner {
            address: listener.local_addr()?,
            upstream,
            rule: Mutex::new(Box::new(|_| Fate::Pass)),
            run_command: Mutex::default(),
            passed: Mutex::default(),
            changed: Notify::new(),
            held: Mutex::default(),
            released: Semaphore::new(0),
        }));
        tokio::spawn(serve(listener, proxy.clone()));
        Ok(proxy)
    }

    /// Sets the rule that decides from now on.
    pub fn rule(&self, rule: impl FnMut(&Passed) -> Fate + Send + 'static) {
        *self.0.rule.lock().unwrap() = Box::new(rule);
    }

    /// From now on, this function runs the commands in containers: it gets the name of the pod, the container and the
    /// command. The API server does not receive these requests. The rule still decides first: with
    /// [`Fate::LoseAnswer`], the command is run and its result is lost.
    pub fn answers_exec(&self, run_command: impl FnMut(&str, &str, &[String]) -> Answer + Send + 'static) {
        *self.0.run_command.lock().unwrap() = Some(Box::new(run_command));
    }

    /// A configuration that connects to the API server through this proxy.
    pub fn config(&self) -> Config {
        Config::new(format!("http://{}", self.0.address).parse().unwrap())
    }

    /// Returns the recorded requests, and clears the record.
    pub fn take(&self) -> Vec<Passed> {
        std::mem::take(&mut self.0.passed.lock().unwrap())
    }

    /// Returns the recorded writes, and clears the record.
    pub fn writes(&self) -> Vec<Passed> {
        self.0.passed.lock().unwrap().iter().filter(|passed| passed.writes()).cloned().collect()
    }

    /// Waits until the recorded requests meet a condition.
    pub async fn until(&self, what: &str, condition: impl Fn(&[Passed]) -> bool) {
        let fulfilled = async {
            loop {
                let changed = self.0.changed.notified();
                if condition(&self.0.passed.lock().unwrap()) {
                    return;
                }
                changed.await;
            }
        };
        assert!(
            tokio::time::timeout(Duration::from_secs(30), fulfilled).await.is_ok(),
            "{what} did not happen; what passed: {:#?}",
            self.0.passed.lock().unwrap()
        );
    }

    /// How many requests were held so far.
    pub fn held(&self) -> usize {
        *self.0.held.lock().unwrap()
    }

    /// Waits until this many requests were held.
    pub async fn until_held(&self, count: usize) {
        self.until(&format!("{count} requests held"), |_| self.held() >= count).await;
    }

    /// Releases held requests. Requests with this fate that arrive later are also released.
    pub fn release(&self, count: usize) {
        self.0.released.add_permits(count);
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Reply, std::io::Error> {
        let mut passed = Passed {
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            watch: request.uri().query().is_some_and(|query| query.contains("watch=true")),
            code: None,
        };
        let fate = (self.0.rule.lock().unwrap())(&passed);
        let answer = self.fulfil(fate, request).await;
        passed.code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
        self.0.passed.lock().unwrap().push(passed);
        self.0.changed.notify_waiters();
        answer
    }

    async fn fulfil(&self, fate: Fate, request: Request<Incoming>) -> Result<Reply, std::io::Error> {
        match fate {
            Fate::Pass => self.forward(request).await,
            Fate::Answer(code) => Ok(refusal(code, None)),
            Fate::Later(seconds) => Ok(refusal(429, Some(seconds))),
            Fate::Crowded(seconds) => {
                let words = Full::new(Bytes::from("Too many requests, please try again later.\n"));
                let body = words.map_err(|never: Infallible| match never {}).boxed_unsync();
                let answer = Response::builder().status(429).header("retry-after", seconds);
                answer.header("content-type", "text/plain; charset=utf-8").body(body).map_err(std::io::Error::other)
            }
            Fate::AnswerAfter(code) => self.forward(request).await.map(|_| refusal(code, None)),
            Fate::Hang => std::future::pending().await,
            Fate::Hold => {
                *self.0.held.lock().unwrap() += 1;
                self.0.changed.notify_waiters();
                self.0.released.acquire().await.map_err(std::io::Error::other)?.forget();
                self.forward(request).await
            }
            Fate::LoseRequest => Err(std::io::ErrorKind::ConnectionReset.into()),
            Fate::LoseAnswer => {
                self.forward(request).await?;
                Err(std::io::ErrorKind::ConnectionReset.into())
            }
            Fate::CutAfterChunks(chunks) if self.runs(&request) => self.run(request, End::Cut(chunks)),
            Fate::Silence if self.runs(&request) => self.run(request, End::Never),
            Fate::CutAfterChunks(chunks) => self.forward(request).await.map(|answer| {
                let cut = stream::iter([Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))]);
                answer.map(|body| StreamBody::new(BodyStream::new(body).take(chunks).chain(cut)).boxed_unsync())
            }),
            Fate::Silence => Ok(Response::new(StreamBody::new(stream::pending()).boxed_unsync())),
            Fate::Expired => {
                let status = serde_json::json!({"type": "ERROR", "object": {
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
                    "message": "too old resource version",
                }});
                let line = Frame::data(Bytes::from(format!("{status}\n")));
                Ok(Response::new(StreamBody::new(stream::iter([Ok(line)])).boxed_unsync()))
            }
        }
    }

    /// Whether the simulated kubelet handles this request.
    fn runs(&self, request: &Request<Incoming>) -> bool {
        kubelet::pod(request.uri().path()).is_some() && self.0.run_command.lock().unwrap().is_some()
    }

    fn run(&self, request: Request<Incoming>, end: End) -> Result<Reply, std::io::Error> {
        let mut run_command = self.0.run_command.lock().unwrap();
        let run_command = run_command.as_mut().ok_or_else(|| std::io::Error::other("nobody runs commands"))?;
        let reply = kubelet::run(request, run_command, end);
        Ok(reply.map(|()| Full::default().map_err(|never: Infallible| match never {}).boxed_unsync()))
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Reply, std::io::Error> {
        if self.runs(&request) {
            return self.run(request, End::Status);
        }
        let (mut head, body) = request.into_parts();
        let bytes = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        // The upstream client adds its own address.
        head.uri = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).parse().unwrap();
        head.headers.remove(http::header::HOST);
        let answer = self.0.upstream.send(Request::from_parts(head, Body::from(bytes))).await;
        answer
            .map(|answer| answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync()))
            .map_err(std::io::Error::other)
    }
}

async fn serve(listener: TcpListener, proxy: Proxy) {
    while let Ok((connection, _)) = listener.accept().await {
        let proxy = proxy.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| proxy.clone().answer(request));
            // An error is how a fate cuts the connection off.
            let served = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
            let _ = served.with_upgrades().await;
        });
    }
}

fn refusal(code: u16, later: Option<u32>) -> Reply {
    let reason = match code {
        403 => "Forbidden",
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "made up",
        "details": {"retryAfterSeconds": later.unwrap_or(0)},
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never: Infallible| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
    answer
}

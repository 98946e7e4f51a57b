//! The client that every operator uses: kube's client, without the hazards of its defaults.
//!
//! - kube retries 429, 503 and 504 up to fifteen times inside one call, creates included: for minutes an object's
//!   reconcile hangs. Here a call is attempted once, and the object's own backoff does the rest.
//! - kube has no read timeout: a request that is never answered blocks its object for ever. Here every request except a
//!   watch has a deadline that includes its body. A request that opens a connection, as a command in a container does, has
//!   it for the connection, too.
//! - A leader that was suspended and resumes would write with authority that it has lost. Here the lease is checked
//!   against the clock right before each write is sent.
//! - kube does not read how long an overloaded API server asks clients to wait. Here it is respected.
//! - With two crypto providers compiled in, building a TLS client panics. Here one is chosen.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Bytes};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use serde_json::{Value, json};
use thiserror::Error;
use tower::{BoxError, Layer, Service};

use crate::election::Leadership;
use crate::metrics::Metrics;

/// How long a connection that waits for data may stay completely silent. This is longer than a watch lives: see
/// [`Limits::watch`](crate::controller::Limits).
const SILENCE: Duration = Duration::from_secs(75);
const CONNECT: Duration = Duration::from_secs(10);

/// The response to a request did not come in time.
#[derive(Debug, Error)]
#[error("the API server did not respond to {verb} {resource} within {deadline:?}")]
pub struct DeadlineExceeded {
    verb: &'static str,
    resource: String,
    deadline: Duration,
}

/// The deadline of a request that opens a connection, for what happens on that connection: it leaves the shield when it is
/// open. Who sends such a request puts this into its extensions, and the shield sets it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deadline(Arc<OnceLock<(Instant, Duration)>>);

impl Deadline {
    fn begin(&self, deadline: Duration) {
        // It is set already if the request is sent twice, which none is.
        let _ = self.0.set((Instant::now(), deadline));
    }

    /// Waits for a result until the deadline. Without a shield, as in some tests, there is none.
    ///
    /// # Errors
    ///
    /// How long the whole request may take, when it has taken that long.
    pub(crate) async fn keep<T>(&self, result: impl Future<Output = T>) -> Result<T, Duration> {
        let Some((began, deadline)) = self.0.get() else { return Ok(result.await) };
        let left = deadline.saturating_sub(began.elapsed());
        tokio::time::timeout(left, result).await.map_err(|_| *deadline)
    }
}

/// The layer between kube's client and the network.
#[derive(Clone)]
pub struct Shield {
    /// Checked right before each write.
    pub leadership: Leadership,
    /// Where requests are counted.
    pub metrics: Metrics,
    /// How long a request other than a watch may take, until the last byte of its response.
    pub deadline: Duration,
}

impl Shield {
    /// A client behind this layer.
    ///
    /// # Errors
    ///
    /// When the configuration names certificates or proxies that cannot be used.
    pub fn client(&self, mut config: Config) -> kube::Result<Client> {
        install_crypto_provider();
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(SILENCE);
        config.write_timeout = Some(SILENCE);
        Ok(ClientBuilder::try_from(config)?.with_layer(self).build())
    }

    /// Returns the response if it comes before the deadline. A write must also be sent while this process leads: if it
    /// still waits for a connection when the lease runs out, it is not sent. If the lease is renewed in the meantime,
    /// it is.
    async fn in_time(
        &self,
        ask: &Ask,
        answer: impl Future<Output = Result<Answer, BoxError>>,
    ) -> Result<Answer, BoxError> {
        let started = Instant::now();
        let mut answer = std::pin::pin!(answer);
        loop {
            let left = self.deadline.saturating_sub(started.elapsed());
            let lease = self.leadership.remaining().filter(|_| ask.writes);
            let wait = lease.map_or(left, |lease| lease.min(left));
            if let Ok(answer) = tokio::time::timeout(wait, &mut answer).await {
                return answer;
            }
            if ask.writes {
                self.leadership.check()?;
            }
            if started.elapsed() >= self.deadline {
                let (resource, deadline) = (ask.resource.clone(), self.deadline);
                return Err(DeadlineExceeded { verb: ask.verb, resource, deadline }.into());
            }
        }
    }
}

/// Sets the crypto provider for this process; a second call does nothing.
pub fn install_crypto_provider() {
    // An error means that a provider is installed already, which is enough.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl<S> Layer<S> for Shield {
    type Service = Shielded<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Shielded { inner, shield: self.clone() }
    }
}

/// A service behind a [`Shield`].
pub struct Shielded<S> {
    inner: S,
    shield: Shield,
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl<S, B> Service<Request<Body>> for Shielded<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let ask = Ask::read(request.method(), request.uri());
        if ask.writes
            && let Err(lost) = self.shield.leadership.check()
        {
            return Box::pin(std::future::ready(Err(lost.into())));
        }
        if let Some(deadline) = request.extensions().get::<Deadline>() {
            deadline.begin(self.shield.deadline);
        }
        let (shield, metrics) = (self.shield.clone(), self.shield.metrics.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let started = Instant::now();
            let answer = if ask.verb == "watch" {
                answer.await.map(|answer| answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            } else {
                shield.in_time(&ask, whole(answer)).await
            };
            let code = match &answer {
                Ok(answer) => answer.status().as_str().to_owned(),
                Err(error) if error.is::<DeadlineExceeded>() => "deadline".to_owned(),
                Err(_) => "unreachable".to_owned(),
            };
            metrics.api_request(ask.verb, &ask.resource, &code, started.elapsed());
            answer
        })
    }
}

/// Reads a response together with its body: with a deadline for the head only, a reader could still hang.
async fn whole<B>(answer: impl Future<Output = Result<Response<B>, BoxError>>) -> Result<Answer, BoxError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = answer.await?.into_parts();
    let mut bytes = body.collect().await.map_err(Into::into)?.to_bytes();
    if head.status.is_client_error() || head.status.is_server_error() {
        bytes = with_pause(&head, bytes);
    }
    Ok(Response::from_parts(head, Full::new(bytes).map_err(|never| match never {}).boxed_unsync()))
}

/// An error response whose body says how long to wait. An overloaded API server says so in a header, which kube does
/// not read, and its body is a sentence instead of a status.
fn with_pause(head: &http::response::Parts, body: Bytes) -> Bytes {
    let header = head.headers.get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let Some(seconds) = header.and_then(|value| value.parse::<u32>().ok()) else { return body };
    let status = serde_json::from_slice(&body).ok().filter(|body: &Value| body["kind"] == "Status");
    let mut status = status.unwrap_or_else(|| {
        let reason = head.status.canonical_reason().unwrap_or_default().replace(' ', "");
        let message = String::from_utf8_lossy(&body);
        json!({"kind": "Status", "status": "Failure", "code": head.status.as_u16(), "reason": reason,
            "message": message.trim()})
    });
    if !status["details"].is_object() {
        status["details"] = json!({});
    }
    let stated = status["details"]["retryAfterSeconds"].as_u64().unwrap_or(0);
    status["details"]["retryAfterSeconds"] = stated.max(seconds.into()).into();
    Bytes::from(status.to_string())
}

/// What a request is about, derived from its URL.
#[derive(Debug, PartialEq, Eq)]
struct Ask {
    verb: &'static str,
    /// `deployments.apps`, or `deployments.apps/status`; never an object's name.
    resource: String,
    writes: bool,
}

impl Ask {
    fn read(method: &Method, uri: &http::Uri) -> Self {
        let path: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let (group, mut rest) = match path.as_slice() {
            ["api", _version, rest @ ..] => ("", rest),
            ["apis", group, _version, rest @ ..] => (*group, rest),
            _ => ("", &[][..]),
        };
        // `namespaces/shop/pods/front` is about pods; `namespaces/shop` and `namespaces/shop/status` about a namespace.
        if let ["namespaces", _, below @ ..] = rest
            && !matches!(below, [] | ["status" | "finalize"])
        {
            rest = below;
        }
        let (plural, named, below) = match rest {
            [] => ("other", true, ""),
            [plural] => (*plural, false, ""),
            [plural, _name] => (*plural, true, ""),
            [plural, _name, below, ..] => (*plural, true, *below),
        };
        let mut resource = plural.to_owned();
        if !group.is_empty() {
            resource = format!("{resource}.{group}");
        }
        if !below.is_empty() {
            resource = format!("{resource}/{below}");
        }
        let watch =
            uri.query().is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")));
        // These begin with a GET, and do what they like.
        let connects = matches!((plural, below), ("pods", "attach" | "exec" | "portforward"));
        let verb = match *method {
            _ if connects => "connect",
            Method::GET if watch => "watch",
            Method::GET if named => "get",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if named => "delete",
            Method::DELETE => "deletecollection",
            _ => "other",
        };
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) && !connects;
        Self { verb, resource, writes: !reads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crypto_provider_is_chosen_and_choosing_twice_is_no_fault() {
        install_crypto_provider();
        install_crypto_provider();
        assert!(rustls::crypto::CryptoProvider::get_default().is_some());
    }

    #[test]
    fn requests_are_read_from_their_address() {
        for (method, uri, verb, resource) in [
            ("GET", "/api/v1/namespaces/shop/pods/front", "get", "pods"),
            ("GET", "/api/v1/namespaces/shop/pods?limit=5", "list", "pods"),
            ("GET", "/api/v1/pods?allowWatchBookmarks=true&watch=true", "watch", "pods"),
            ("GET", "/api/v1/namespaces/shop", "get", "namespaces"),
            ("PUT", "/api/v1/namespaces/shop/finalize", "update", "namespaces/finalize"),
            ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/front/status", "patch", "deployments.apps/status"),
            ("DELETE", "/apis/apps/v1/namespaces/shop/deployments/front", "delete", "deployments.apps"),
            ("POST", "/apis/batch/v1/namespaces/shop/jobs", "create", "jobs.batch"),
            ("GET", "/api/v1/namespaces/shop/pods/front/exec?command=ls", "connect", "pods/exec"),
            ("GET", "/api/v1/namespaces/shop/pods/front/log", "get", "pods/log"),
            ("GET", "/api/v1/namespaces/shop/configmaps/exec", "get", "configmaps"),
            ("GET", "/version", "get", "other"),
        ] {
            let ask = Ask::read(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!((ask.verb, ask.resource.as_str()), (verb, resource), "{method} {uri}");
            assert_eq!(ask.writes, method != "GET" || verb == "connect", "{method} {uri}");
        }
    }

    fn shield(deadline: Duration) -> Shield {
        let metrics = Metrics::new(crate::build_info!()).unwrap();
        Shield { leadership: Leadership::unquestioned(), metrics, deadline }
    }

    /// A server that begins a response to every request and never ends it.
    async fn unending() -> Config {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
        tokio::spawn(async move {
            let (connection, _) = listener.accept().await.unwrap();
            // Read the request first.
            while connection.try_read(&mut [0; 4096]).is_err() {
                connection.readable().await.unwrap();
            }
            connection.try_write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
            std::future::pending::<()>().await;
        });
        config
    }

    #[tokio::test]
    async fn the_deadline_of_a_request_covers_its_answer_to_the_last_byte() {
        let client = shield(Duration::from_millis(50)).client(unending().await).unwrap();
        let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::namespaced(client, "shop");
        let answer = tokio::time::timeout(Duration::from_secs(10), pods.get("front")).await.expect("a deadline");
        let error = crate::Error::from(answer.unwrap_err()).to_string();
        assert_eq!(error, "the API server did not respond to get pods within 50ms");
    }

    #[tokio::test]
    async fn a_watch_on_which_nothing_arrives_ends_when_its_time_is_up() {
        let client = shield(Duration::from_secs(10)).client(unending().await).unwrap();
        let watch = Request::get("/api/v1/pods?watch=true").body(Body::empty()).unwrap();
        let answer = client.send(watch).await.unwrap();
        // From here on the clock skips to the next timer.
        tokio::time::pause();
        let body = tokio::time::timeout(Duration::from_mins(10), answer.into_body().collect_bytes()).await;
        assert!(body.expect("it never ends").is_err());
    }

    #[test]
    fn a_watch_lives_a_minute_at_most_and_is_not_taken_for_silence() {
        let lives = crate::controller::Limits::default().watch;
        assert!(lives <= Duration::from_mins(1), "a dead watch would be noticed only after {lives:?}");
        // The API server ends a watch in time; if not, kube's own timeout expires a few seconds later.
        assert!(lives + Duration::from_secs(10) < SILENCE);
    }
}

//! The small HTTP server for probes and metrics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::health::Health;
use crate::metrics::Metrics;

/// Opens the listener, so that a port in use is noticed before anything else starts.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// How many connections there are at a time, and how long each may last. Probes and scrapes are few and short, and
/// other clients must not use up the file descriptors that connections to the API server need.
const CONNECTIONS: usize = 64;
const LASTS: Duration = Duration::from_secs(30);

/// Serves `/metrics`, `/healthz` and `/readyz` for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, metrics: Metrics, health: Health) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let connection = match listener.accept().await {
            Ok((connection, _)) => connection,
            Err(error) => {
                // For example, no file descriptor was free: the next connection may succeed.
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (metrics, health) = (metrics.clone(), health.clone());
        tokio::spawn(async move {
            let _place = place;
            let answers = service_fn(move |request| {
                let answer = answer(&request, &metrics, &health);
                async move { Ok::<_, Infallible>(answer) }
            });
            // The timer ends connections that never send their request.
            let served =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(connection), answers);
            if let Ok(Err(error)) = tokio::time::timeout(LASTS, served).await {
                tracing::debug!(%error, "a connection broke");
            }
        });
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics, health: &Health) -> Response<Full<Bytes>> {
    let (status, kind, body) = match request.uri().path() {
        "/metrics" => (StatusCode::OK, prometheus::TEXT_FORMAT, metrics.text()),
        "/healthz" => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
        "/readyz" => match health.missing().as_slice() {
            [] => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
            missing => (
                StatusCode::SERVICE_UNAVAILABLE,
                "text/plain",
                format!("waiting for the first list of {}\n", missing.join(", ")),
            ),
        },
        _ => (StatusCode::NOT_FOUND, "text/plain", "this server has /metrics, /healthz and /readyz\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}

//! A change at the worst moment.

use std::sync::Mutex;

use futures::FutureExt;
use http::Request;
use kube::Client;
use kube::client::Body;

/// A client that makes a change once: right before the first matching request is sent, after everything that led to the
/// request.
pub fn meddled(
    upstream: &Client,
    when: impl Fn(&Request<Body>) -> bool + Send + 'static,
    meddle: impl Future<Output = ()> + Send + 'static,
) -> Client {
    let (upstream, meddle) = (upstream.clone(), Mutex::new(Some(meddle.boxed())));
    let service = tower::service_fn(move |request: Request<Body>| {
        let upstream = upstream.clone();
        let meddle = if when(&request) { meddle.lock().unwrap().take() } else { None };
        async move {
            if let Some(meddle) = meddle {
                meddle.await;
            }
            upstream.send(request).await
        }
    });
    Client::new(service, "default")
}

/// Whether a request writes.
pub fn writes(request: &Request<Body>) -> bool {
    crate::proxy::writes(request.method().as_str(), request.uri().path())
}

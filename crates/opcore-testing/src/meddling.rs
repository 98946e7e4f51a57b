//! Something that happens at the worst moment.

use std::sync::Mutex;

use futures::FutureExt;
use http::Request;
use kube::Client;
use kube::client::Body;

/// A client to which something happens once: right before the first such request is sent, after all that led to it.
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

/// A request that writes.
pub fn writes(request: &Request<Body>) -> bool {
    crate::proxy::writes(request.method().as_str(), request.uri().path())
}

//! What is logged, and what must never be.

use std::io::Write;
use std::sync::{Arc, Mutex};

use http::{Request, Response};
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::{Api, Client};
use tower::{BoxError, service_fn};

use super::*;

/// A log that the test can read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads a Secret that does not fit its type. Returns what was logged at this level, and the error message.
async fn logged(level: &str) -> (String, String) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_env_filter(log_filter(level).unwrap());
    let _logs = tracing::subscriber::set_default(subscriber.with_writer(move || writer.clone()).finish());
    let service = service_fn(|_: Request<Body>| async {
        let secret = r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "front"}, "data": "hunter2"}"#;
        Ok::<_, BoxError>(Response::new(Body::from(secret.as_bytes().to_vec())))
    });
    let secrets: Api<Secret> = Api::namespaced(Client::new(service, "shop"), "shop");
    let error = crate::Error::from(secrets.get("front").await.unwrap_err());
    tracing::info!("read");
    tracing::trace!(target: "tungstenite::protocol", "Received message hunter2");
    let bytes = log.0.lock().unwrap().clone();
    (String::from_utf8(bytes).unwrap(), error.to_string())
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_is_neither_logged_nor_quoted() {
    for level in ["info", "debug", "trace", "info,opcore=debug"] {
        let (log, error) = logged(level).await;
        assert!(log.contains("read") && !log.contains("hunter2"), "{level}: {log}");
        assert!(
            error.starts_with("the response of the API server could not be parsed") && !error.contains("hunter2"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn who_names_kubes_client_sees_what_it_logs() {
    let (log, _) = logged("info,kube_client=debug").await;
    assert!(log.contains("hunter2"), "{log}");
}

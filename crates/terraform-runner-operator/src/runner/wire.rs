//! The protocol between the two containers of a pod, on its loopback.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::run::report::{OutputValues, PlanReport, Report, StateReport};
use crate::store::plan::KeptPlan;

/// The pause between two attempts to reach the store.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the store may take to be reachable, the first time or after a restart: it may be killed at any moment, and
/// then starts again.
const THERE_WITHIN: Duration = Duration::from_mins(1);
/// How long a response may take: the store waits a minute for the API server.
const ANSWER: Duration = Duration::from_secs(100);

/// The response of a store that has waited for the API server until its own deadline. Terraform would repeat the
/// request ten times after a server error, a minute each; with this code it keeps the state in a file instead, and the
/// runner continues from there.
pub const AWAY: StatusCode = StatusCode::FAILED_DEPENDENCY;

/// A report with the outputs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filing {
    /// The report.
    pub report: Report,
    /// The outputs, if they were read.
    pub outputs: Option<OutputValues>,
}

/// A plan to be kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanFiling {
    /// What the plan does.
    pub report: PlanReport,
    /// The inputs from which it was made.
    pub inputs: String,
    /// The text for users.
    pub text: String,
    /// The file.
    pub file: ByteString,
}

/// A plan that was kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanFetched {
    /// What is known of it.
    pub kept: KeptPlan,
    /// The file.
    pub file: ByteString,
}

/// Why the store did not carry out a request.
#[derive(Debug)]
pub enum Trouble {
    /// The store cannot be reached, or cannot reach the API server.
    Away(String),
    /// The store refused the request.
    Refused(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Away(why) | Self::Refused(why) => f.write_str(why),
        }
    }
}

/// A client of the store for the container in which Terraform runs.
#[derive(Clone, Debug)]
pub struct StoreClient {
    address: String,
}

impl StoreClient {
    /// The store at this address.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into() }
    }

    /// Waits until the store responds.
    pub async fn ready(&self) -> Result<(), Trouble> {
        self.ask(Method::GET, "/healthz", Bytes::new()).await.map(drop)
    }

    /// Returns what the store knows of the state.
    pub async fn summary(&self) -> Result<Option<StateReport>, Trouble> {
        self.read("/summary").await
    }

    /// Returns the holder of the lock, in the form that Terraform expects.
    pub async fn lock(&self) -> Result<Option<Value>, Trouble> {
        self.read("/lock").await
    }

    /// Returns the state.
    pub async fn state(&self) -> Result<Option<Bytes>, Trouble> {
        self.ask(Method::GET, "/state", Bytes::new()).await
    }

    /// Returns the kept plan.
    pub async fn plan(&self) -> Result<Option<PlanFetched>, Trouble> {
        self.read("/plan").await
    }

    /// Keeps a plan.
    pub async fn keep(&self, plan: &PlanFiling) -> Result<(), Trouble> {
        self.write(Method::PUT, "/plan", plan).await
    }

    /// Returns the kept provider versions.
    pub async fn lockfile(&self) -> Result<Option<Bytes>, Trouble> {
        self.ask(Method::GET, "/lockfile", Bytes::new()).await
    }

    /// Keeps other provider versions.
    pub async fn keep_lockfile(&self, text: Vec<u8>) -> Result<(), Trouble> {
        self.ask(Method::PUT, "/lockfile", text.into()).await.map(drop)
    }

    /// Adds what Terraform begins to create to the journal.
    pub async fn note(&self, begun: &BTreeMap<String, String>) -> Result<(), Trouble> {
        self.write(Method::POST, "/journal", begun).await
    }

    /// Files a report.
    pub async fn file(&self, filing: &Filing) -> Result<(), Trouble> {
        self.write(Method::POST, "/report", filing).await
    }

    /// Adopts an existing state.
    pub async fn adopt(&self) -> Result<(), Trouble> {
        self.ask(Method::POST, "/adopt", Bytes::new()).await.map(drop)
    }

    /// Saves a state that Terraform could not save.
    pub async fn rescue(&self, state: Vec<u8>) -> Result<(), Trouble> {
        self.ask(Method::POST, "/rescue", state.into()).await.map(drop)
    }

    async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Trouble> {
        match self.ask(Method::GET, path, Bytes::new()).await? {
            Some(body) => serde_json::from_slice(&body).map(Some).map_err(|error| Trouble::Refused(error.to_string())),
            None => Ok(None),
        }
    }

    async fn write<T: Serialize>(&self, method: Method, path: &str, what: &T) -> Result<(), Trouble> {
        let body = serde_json::to_vec(what).map_err(|error| Trouble::Refused(error.to_string()))?;
        self.ask(method, path, body.into()).await.map(drop)
    }

    /// Sends a request. Returns the body of a successful response; none if there is nothing. Every request can be
    /// repeated: if the store was killed, it is asked again when it is back.
    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Option<Bytes>, Trouble> {
        let started = Instant::now();
        let (status, body) = loop {
            match timeout(ANSWER, self.send(method.clone(), path, body.clone())).await {
                Ok(Ok(answer)) => break answer,
                Ok(Err(_)) if started.elapsed() < THERE_WITHIN => sleep(PAUSE).await,
                Ok(Err(error)) => return Err(Trouble::Away(format!("the store cannot be reached: {error}"))),
                Err(_) => return Err(Trouble::Away("the store does not respond".to_owned())),
            }
        };
        match status {
            StatusCode::NO_CONTENT => Ok(None),
            status if status.is_success() => Ok(Some(body)),
            status if status == AWAY || status.is_server_error() => {
                Err(Trouble::Away(String::from_utf8_lossy(&body).into_owned()))
            }
            _ => Err(Trouble::Refused(String::from_utf8_lossy(&body).into_owned())),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> std::io::Result<(StatusCode, Bytes)> {
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        let connection = tokio::spawn(connection);
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::HOST, &self.address)
            .body(Full::new(body))
            .map_err(std::io::Error::other)?;
        let answer = sender.send_request(request).await.map_err(std::io::Error::other)?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
        connection.abort();
        Ok((status, body))
    }
}

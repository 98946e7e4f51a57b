//! `tf-runner serve`: Terraform's http backend on the pod's own loopback, and the only container with a token.
//!
//! | Path | |
//! |---|---|
//! | `GET`, `POST`, `LOCK`, `UNLOCK /state` | the requests of Terraform |
//! | `GET /lock`, `GET /summary` | the holder of the lock, and what is known of the state |
//! | `POST /rescue` | a state that Terraform could not save |
//! | `POST /adopt` | begins with an existing state from elsewhere |
//! | `GET`, `PUT /lockfile` | the versions of the providers |
//! | `PUT`, `GET /plan`, `POST /journal`, `POST /report` | what `tf-runner run` has to keep |

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::ByteString;
use kube::{Client, Config};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use super::wire::{AWAY, Filing, PlanFetched, PlanFiling};
use crate::run::order::StoreOrder;
use crate::run::report::{Journal, NAMED_RESOURCES};
use crate::store::pack::pack;
use crate::store::retry::patiently;
use crate::store::{Store, StoreError, adopted, journal, lock, lockfile, plan, report, state};

/// How often the lock is renewed.
const RENEW: Duration = Duration::from_secs(10);
/// How long a request to the API server may take.
const REQUEST: Duration = Duration::from_secs(15);

/// A larger request is refused: a state that large could not be kept.
const LARGEST: usize = 1 << 30;

/// The running store.
struct Server {
    store: Store,
    order: StoreOrder,
    /// The UID of the pod, which is the holder of the lock.
    pod: String,
    /// Only one save, lock or unlock runs at a time.
    turn: tokio::sync::Mutex<()>,
    /// Set once a lock of a predecessor in this pod, if any, has been taken over.
    adopted: OnceCell<()>,
    renewing: Mutex<Option<AbortHandle>>,
    /// The journal as it is kept; none until it is known what a predecessor in this pod kept.
    journal: tokio::sync::Mutex<Option<Journal>>,
    /// Whether the report was filed.
    is_reported: AtomicBool,
}

/// Why a request does not succeed.
enum RequestError {
    Store(StoreError),
    /// Another pod holds the lock.
    Locked(Value),
    /// The request is invalid.
    Bad(String),
}

impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The response to a request: none is 204.
type Answer = Result<Option<Bytes>, RequestError>;

/// A client that leaves retries to this program.
///
/// # Errors
///
/// When no connection to the API server can be configured.
pub async fn client() -> Result<Client, String> {
    opcore::client::install_crypto_provider();
    let config = Config::infer().await.map_err(|error| format!("Cannot create a client of the API server: {error}"))?;
    let mut config = config;
    config.default_retry = false;
    config.connect_timeout = Some(REQUEST);
    config.read_timeout = Some(REQUEST);
    config.write_timeout = Some(REQUEST);
    config.reset_reader_on_write = true;
    Client::try_from(config).map_err(|error| format!("Cannot create a client of the API server: {error}"))
}

/// Serves until it is asked to stop, and then finishes the active requests.
///
/// # Errors
///
/// When it cannot listen.
pub async fn serve(
    store: Store,
    order: StoreOrder,
    pod: String,
    address: &str,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let server = Server {
        store,
        order,
        pod,
        turn: tokio::sync::Mutex::default(),
        adopted: OnceCell::new(),
        renewing: Mutex::default(),
        journal: tokio::sync::Mutex::default(),
        is_reported: AtomicBool::new(false),
    };
    let server = Arc::new(server);
    let adopting = server.clone();
    tokio::spawn(async move { adopting.adopt().await });
    let mut connections = JoinSet::new();
    loop {
        let stopping = stop.clone();
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => {
                let (connection, _) = accepted?;
                connections.spawn(talk(server.clone(), TokioIo::new(connection), stopping));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn talk(server: Arc<Server>, io: TokioIo<tokio::net::TcpStream>, mut stop: watch::Receiver<bool>) {
    let service = service_fn(move |request| {
        let server = server.clone();
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    });
    let mut connection = std::pin::pin!(http1::Builder::new().serve_connection(io, service));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

impl Server {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, LARGEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return response(StatusCode::BAD_REQUEST, error.to_string().into()),
        };
        let id = head.uri.query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("ID=")));
        let what = format!("{} {}", head.method, head.uri.path());
        // It continues when the client disconnects: what was begun is finished.
        let id = id.map(str::to_owned);
        let asked = tokio::spawn(async move { self.route(&head.method, head.uri.path(), id.as_deref(), body).await });
        let answer = asked.await.unwrap_or_else(|error| Err(RequestError::Bad(error.to_string())));
        let (status, words) = match answer {
            Ok(Some(body)) => return response(StatusCode::OK, body),
            Ok(None) => return response(StatusCode::NO_CONTENT, Bytes::new()),
            Err(RequestError::Locked(holder)) => (StatusCode::LOCKED, holder.to_string()),
            Err(RequestError::Bad(words)) => (StatusCode::BAD_REQUEST, words),
            Err(RequestError::Store(error)) => (code(&error), error.to_string()),
        };
        tracing::warn!("{what}: {status}: {words}");
        response(status, words.into())
    }

    async fn route(self: &Arc<Self>, method: &Method, path: &str, id: Option<&str>, body: Bytes) -> Answer {
        match (method.as_str(), path) {
            ("GET", "/healthz") => Ok(None),
            ("GET", "/state") => Ok(patiently(|| state::current(&self.store)).await?.map(Bytes::from)),
            ("GET", "/summary") => to_answer(patiently(|| state::summary(&self.store)).await?.as_ref()),
            ("GET", "/lock") => {
                let holder = patiently(|| lock::read(&self.store)).await?;
                to_answer(holder.map(|holder| holder.as_json()).as_ref())
            }
            ("GET", "/plan") => {
                let found = patiently(|| plan::load(&self.store)).await?;
                to_answer(found.map(|(kept, file)| PlanFetched { kept, file: ByteString(file) }).as_ref())
            }
            ("PUT", "/plan") => self.keep(&parse(&body)?).await,
            ("GET", "/lockfile") => Ok(patiently(|| lockfile::load(&self.store)).await?.map(Bytes::from)),
            ("PUT", "/lockfile") => {
                patiently(|| lockfile::save(&self.store, &body)).await?;
                Ok(None)
            }
            ("POST", "/journal") => self.note(parse(&body)?).await,
            ("POST", "/report") => {
                let Filing { report, outputs } = parse(&body)?;
                if report.run != self.order.run {
                    return Err(RequestError::Bad(format!("a report of {} must come from its own pod", report.run)));
                }
                // Nothing is added to the journal after the report: the operator may read both as soon as the report
                // exists.
                let _journal = self.journal.lock().await;
                self.is_reported.store(true, Ordering::SeqCst);
                patiently(|| report::save(&self.store, &report, outputs.as_ref())).await?;
                Ok(None)
            }
            ("POST", "/state") => {
                let id = id.ok_or_else(|| RequestError::Bad("a state can only be saved under a lock".to_owned()))?;
                self.save(body, id).await
            }
            ("POST", "/rescue") => self.save_by_itself("rescue", body).await,
            ("POST", "/adopt") => self.adopt_state().await,
            ("LOCK", "/state") => self.lock(&parse(&body)?).await,
            ("UNLOCK", "/state") => self.unlock(&parse(&body)?).await,
            _ => Err(RequestError::Bad(format!("{method} {path} is not served"))),
        }
    }

    async fn keep(&self, filing: &PlanFiling) -> Answer {
        let PlanFiling { report, inputs, text, file } = filing;
        patiently(|| plan::save(&self.store, report, inputs, &self.order.run, &file.0, text)).await?;
        Ok(None)
    }

    /// Adds what Terraform begins to create to the journal.
    async fn note(&self, begun: BTreeMap<String, String>) -> Answer {
        let mut journal = self.journal.lock().await;
        if self.is_reported.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let mut noted = if let Some(known) = journal.clone() {
            known
        } else {
            let kept = match patiently(|| journal::load(&self.store)).await {
                // An unreadable journal is of no use.
                Err(StoreError::Damaged { .. }) => None,
                kept => kept?,
            };
            let own = || Journal { run: self.order.run.clone(), begun: BTreeMap::new() };
            kept.filter(|kept| kept.run == self.order.run).unwrap_or_else(own)
        };
        noted.begun.extend(begun);
        while noted.begun.len() > NAMED_RESOURCES {
            noted.begun.pop_last();
        }
        self.keep_journal(&mut journal, noted).await
    }

    /// Removes from the journal what a saved state contains.
    async fn strike(&self, state: &[u8]) {
        let mut journal = self.journal.lock().await;
        let Some(mut noted) = journal.clone().filter(|noted| !noted.begun.is_empty()) else { return };
        let recorded = state::addresses(state).unwrap_or_default();
        noted.begun.retain(|address, _| !recorded.contains(address));
        if self.keep_journal(&mut journal, noted).await.is_err() {
            // A journal with too many entries is better than one with too few.
            tracing::warn!("the journal cannot be saved");
        }
    }

    async fn keep_journal(&self, journal: &mut Option<Journal>, noted: Journal) -> Answer {
        if journal.as_ref() != Some(&noted) {
            patiently(|| journal::save(&self.store, &noted)).await?;
            *journal = Some(noted);
        }
        Ok(None)
    }

    async fn save(&self, body: Bytes, id: &str) -> Answer {
        let _turn = self.turn.lock().await;
        self.save_in_turn(body, id).await
    }

    async fn save_in_turn(&self, body: Bytes, id: &str) -> Answer {
        let facts = state::facts(&body)?;
        let state = body.clone();
        let packed = tokio::task::spawn_blocking(move || pack(&body)).await;
        let packed = packed.map_err(|error| RequestError::Bad(error.to_string()))?;
        let save = state::Save { packed: &packed, facts: &facts, run: &self.order.run, history: &self.order.history };
        patiently(|| async {
            // In this order: a process that saves after us must have taken the lock after we checked it.
            let aim = state::aim(&self.store, &save).await?;
            lock::require(&self.store, &self.pod, id).await?;
            state::save(&self.store, aim, &save).await
        })
        .await?;
        self.strike(&state).await;
        Ok(None)
    }

    /// Adopts an existing state, unless the workspace has its own.
    async fn adopt_state(self: &Arc<Self>) -> Answer {
        let secret = self.order.adopts.as_deref();
        let secret = secret.ok_or_else(|| RequestError::Bad("there is no state to adopt".to_owned()))?;
        if patiently(|| state::summary(&self.store)).await?.is_some() {
            return Ok(None);
        }
        let bytes = patiently(|| adopted::load(&self.store, secret)).await?;
        if let Some(versions) = patiently(|| adopted::lockfile(&self.store, secret)).await? {
            patiently(|| lockfile::save(&self.store, &versions)).await?;
        }
        self.save_by_itself("adopt", bytes.into()).await
    }

    /// Saves under the lock that this pod holds, or under a lock of its own.
    async fn save_by_itself(self: &Arc<Self>, operation: &str, body: Bytes) -> Answer {
        self.adopt().await;
        let _turn = self.turn.lock().await;
        let held = patiently(|| lock::read(&self.store)).await?;
        let held = held.filter(|holder| holder.pod == self.pod).and_then(|holder| holder.id().map(str::to_owned));
        let id = if let Some(id) = held {
            id
        } else {
            let id = format!("{operation}-{}", self.order.run);
            self.take(&json!({ "ID": id, "Operation": operation, "Created": jiff::Timestamp::now() })).await?;
            id
        };
        let saved = self.save_in_turn(body, &id).await;
        // Terraform is gone: nothing else will release the lock.
        self.release(&id).await?;
        saved
    }

    async fn lock(self: &Arc<Self>, info: &Value) -> Answer {
        self.adopt().await;
        let _turn = self.turn.lock().await;
        self.take(info).await?;
        Ok(Some(Bytes::new()))
    }

    async fn take(self: &Arc<Self>, info: &Value) -> Result<(), RequestError> {
        match patiently(|| lock::take(&self.store, &self.pod, info)).await? {
            Ok(()) => {
                self.renew();
                Ok(())
            }
            Err(holder) => Err(RequestError::Locked(holder.as_json())),
        }
    }

    async fn unlock(self: &Arc<Self>, info: &Value) -> Answer {
        self.adopt().await;
        let _turn = self.turn.lock().await;
        let id = info["ID"]
            .as_str()
            .ok_or_else(|| RequestError::Bad("the lock can only be released by its id".to_owned()))?;
        self.release(id).await?;
        Ok(Some(Bytes::new()))
    }

    async fn release(&self, id: &str) -> Result<(), RequestError> {
        match patiently(|| lock::release(&self.store, &self.pod, id)).await? {
            Ok(()) => {
                self.set_renewing(None);
                Ok(())
            }
            Err(holder) => Err(RequestError::Locked(holder.as_json())),
        }
    }

    /// Continues with a lock that a predecessor in this pod took.
    async fn adopt(self: &Arc<Self>) {
        let adopt = || async {
            match patiently(|| lock::read(&self.store)).await {
                Ok(Some(holder)) if holder.pod == self.pod => self.renew(),
                Ok(_) => {}
                Err(error) => tracing::warn!("the lock cannot be read: {error}"),
            }
        };
        self.adopted.get_or_init(adopt).await;
    }

    /// Renews the lock until it is released.
    fn renew(self: &Arc<Self>) {
        let server = self.clone();
        let task = tokio::spawn(async move {
            let mut ticks = interval(RENEW);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                match lock::renew(&server.store, &server.pod).await {
                    Ok(true) => {}
                    Ok(false) => return tracing::warn!("the lock is no longer held by this pod"),
                    Err(error) => tracing::warn!("the lock cannot be renewed: {error}"),
                }
            }
        });
        self.set_renewing(Some(task.abort_handle()));
    }

    fn set_renewing(&self, task: Option<AbortHandle>) {
        let mut renewing = opcore::lock(&self.renewing);
        if let Some(old) = std::mem::replace(&mut *renewing, task) {
            old.abort();
        }
    }
}

fn code(error: &StoreError) -> StatusCode {
    match error {
        StoreError::Refused(_) | StoreError::Raced(_) => StatusCode::CONFLICT,
        StoreError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        // A retry does not fix these.
        StoreError::Missing(_) | StoreError::Damaged { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        StoreError::Api(_) => AWAY,
    }
}

fn response(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, RequestError> {
    serde_json::from_slice(body).map_err(|error| RequestError::Bad(format!("the request cannot be parsed: {error}")))
}

fn to_answer<T: Serialize>(what: Option<&T>) -> Answer {
    let bytes = what.map(serde_json::to_vec).transpose().map_err(|error| RequestError::Bad(error.to_string()))?;
    Ok(bytes.map(Bytes::from))
}

//! Endpoints that must answer before a wave is ready. Asked beside the reconciles, never inside one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use opcore::controller::Wakes;
use opcore::lock;
use opcore::queue::Key;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::api::v1alpha1::{HttpProbe, Probe, TcpProbe};
use crate::index::PlanName;

/// How long an endpoint may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pauses between attempts: nobody tells when an endpoint begins to answer.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What came of asking an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSeen {
    /// The endpoint.
    pub address: String,
    /// None: it answers. Else why that does not count.
    pub lack: Option<String>,
}

/// The endpoints that are being asked.
#[derive(Debug, Default)]
pub struct Prober {
    asked: Mutex<HashMap<(PlanName, String), Asked>>,
}

#[derive(Debug)]
struct Asked {
    probes: Vec<Probe>,
    /// What distinguishes one start of the wave from the next.
    start: String,
    answers: Arc<Mutex<Vec<Option<String>>>>,
    task: AbortHandle,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Prober {
    /// Asks the endpoints of a wave until each has answered, and wakes the plan as they do. Answers what is known.
    pub fn ask(
        &self,
        plan: &PlanName,
        wave: &str,
        start: &str,
        probes: &[Probe],
        wakes: Option<&Wakes>,
    ) -> Vec<ProbeSeen> {
        let key = (plan.clone(), wave.to_owned());
        let mut asked = lock(&self.asked);
        if asked.get(&key).is_none_or(|asked| asked.probes != probes || asked.start != start) {
            let answers = Arc::new(Mutex::new(vec![Some("It has not been asked yet".to_owned()); probes.len()]));
            let task = tokio::spawn(ask_all(plan.clone(), probes.to_vec(), answers.clone(), wakes.cloned()));
            let entry = Asked { probes: probes.to_vec(), start: start.to_owned(), answers, task: task.abort_handle() };
            asked.insert(key.clone(), entry);
        }
        let answers = asked.get(&key).map(|asked| lock(&asked.answers).clone()).unwrap_or_default();
        probes.iter().zip(answers).map(|(probe, lack)| ProbeSeen { address: address(probe), lack }).collect()
    }

    /// The endpoints of a wave need not be asked.
    pub fn leave(&self, plan: &PlanName, wave: &str) {
        lock(&self.asked).remove(&(plan.clone(), wave.to_owned()));
    }

    /// A plan is gone.
    pub fn forget(&self, plan: &PlanName) {
        lock(&self.asked).retain(|(of, _), _| of != plan);
    }
}

/// The endpoint of a probe, in words.
pub fn address(probe: &Probe) -> String {
    match (&probe.http, &probe.tcp) {
        (Some(http), _) => http.url.clone(),
        (None, Some(tcp)) => format!("{}:{}", tcp.host, tcp.port),
        (None, None) => "a probe without an endpoint".to_owned(),
    }
}

/// Asks an endpoint once.
///
/// # Errors
///
/// Why its answer does not count.
pub async fn ask(probe: &Probe) -> Result<(), String> {
    let answer = async {
        match (&probe.http, &probe.tcp) {
            (Some(http), _) => ask_http(http).await,
            (None, Some(tcp)) => ask_tcp(tcp).await,
            (None, None) => Err("It has neither http nor tcp".to_owned()),
        }
    };
    timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(format!("It did not answer within {PATIENCE:?}")))
}

async fn ask_all(plan: PlanName, probes: Vec<Probe>, answers: Arc<Mutex<Vec<Option<String>>>>, wakes: Option<Wakes>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut lacking = false;
        for (number, probe) in probes.iter().enumerate() {
            if lock(&answers).get(number).is_none_or(Option::is_none) {
                continue;
            }
            let lack = ask(probe).await.err();
            lacking |= lack.is_some();
            let changed = match lock(&answers).get_mut(number) {
                Some(answer) => std::mem::replace(answer, lack.clone()) != lack,
                None => false,
            };
            if let Some(wakes) = wakes.as_ref().filter(|_| changed) {
                wakes.wake(&Key { namespace: None, name: plan.to_string() });
            }
        }
        if !lacking {
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn ask_tcp(probe: &TcpProbe) -> Result<(), String> {
    let port = u16::try_from(probe.port).map_err(|_| format!("{} is no port", probe.port))?;
    TcpStream::connect((probe.host.as_str(), port))
        .await
        .map(drop)
        .map_err(|error| format!("It cannot be reached: {error}"))
}

async fn ask_http(probe: &HttpProbe) -> Result<(), String> {
    let uri: http::Uri = probe.url.parse().map_err(|error| format!("It is no URL: {error}"))?;
    let host = uri.host().ok_or("Its URL names no host")?;
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port)).await.map_err(|error| format!("It cannot be reached: {error}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| format!("It does not speak HTTP: {error}"))?;
    let connection = tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let authority = uri.authority().map_or(host, http::uri::Authority::as_str);
    let request = http::Request::get(path)
        .header(http::header::HOST, authority)
        .header(http::header::USER_AGENT, "wave-orchestrator")
        .body(Empty::<Bytes>::new())
        .map_err(|error| format!("It cannot be asked: {error}"))?;
    let answer = sender.send_request(request).await;
    connection.abort();
    let status = answer.map_err(|error| format!("It did not answer: {error}"))?.status().as_u16();
    if i32::from(status) == probe.expect_status {
        Ok(())
    } else {
        Err(format!("It answers {status}, not {}", probe.expect_status))
    }
}

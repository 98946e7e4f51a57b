//! Endpoints that must answer before a wave is ready. They are probed in the background, never inside a reconcile.

use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use kube::ResourceExt;
use opcore::poll::Question;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::api::v1alpha1::{HttpProbe, Probe, TcpProbe, Wave, WavePlan};

/// How long an endpoint may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pauses between attempts: there is no event when an endpoint begins to answer.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The result of probing an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// The endpoint.
    pub address: String,
    /// None: it answers. Otherwise the reason why it does not count as ready.
    pub failure: Option<String>,
}

/// An endpoint that is probed for one start of a wave, until it answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    plan: String,
    wave: String,
    /// What distinguishes one start of the wave from the next.
    start: String,
    probe: Probe,
}

impl Endpoint {
    /// The probes of a wave whose start was published.
    pub fn of(plan: &WavePlan, wave: &Wave) -> Vec<Self> {
        let status = plan.status.as_ref().and_then(|status| status.wave(&wave.name));
        let start = status.and_then(|status| Some(format!("{} {}", status.started_at?, status.attempts)));
        let endpoint = |(start, probe): (&String, &Probe)| Self {
            plan: plan.name_any(),
            wave: wave.name.clone(),
            start: start.clone(),
            probe: probe.clone(),
        };
        start.iter().flat_map(|start| wave.probes.iter().map(move |probe| (start, probe))).map(endpoint).collect()
    }

    /// The result of this probe; none: there is no result yet.
    pub fn observed(&self, failure: Option<Option<String>>) -> ProbeResult {
        let failure = failure.unwrap_or_else(|| Some("not probed yet".to_owned()));
        ProbeResult { address: address(&self.probe), failure }
    }
}

impl Question for Endpoint {
    /// The reason why the response does not count, if it does not.
    type Answer = Option<String>;

    async fn ask(&self) -> Option<String> {
        ask(&self.probe).await.err()
    }

    fn patience(&self) -> Duration {
        // A single attempt has its own deadline, with a better message.
        PATIENCE * 2
    }

    fn unanswered(&self) -> Option<String> {
        Some(format!("no response within {PATIENCE:?}"))
    }

    fn again(&self, failure: &Option<String>, same: u32) -> Option<Duration> {
        let pause = FIRST_PAUSE.saturating_mul(1 << same.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
        failure.is_some().then_some(pause)
    }
}

/// The endpoint of a probe as text.
pub fn address(probe: &Probe) -> String {
    match (&probe.http, &probe.tcp) {
        (Some(http), _) => http.url.clone(),
        (None, Some(tcp)) => format!("{}:{}", tcp.host, tcp.port),
        (None, None) => "a probe without an endpoint".to_owned(),
    }
}

/// Probes an endpoint once.
///
/// # Errors
///
/// The reason why its response does not count.
pub async fn ask(probe: &Probe) -> Result<(), String> {
    let answer = async {
        match (&probe.http, &probe.tcp) {
            (Some(http), _) => ask_http(http).await,
            (None, Some(tcp)) => ask_tcp(tcp).await,
            (None, None) => Err("the probe has neither http nor tcp".to_owned()),
        }
    };
    timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(format!("no response within {PATIENCE:?}")))
}

async fn ask_tcp(probe: &TcpProbe) -> Result<(), String> {
    let port = u16::try_from(probe.port).map_err(|_| format!("{} is not a valid port", probe.port))?;
    TcpStream::connect((probe.host.as_str(), port)).await.map(drop).map_err(|error| format!("cannot connect: {error}"))
}

async fn ask_http(probe: &HttpProbe) -> Result<(), String> {
    let uri: http::Uri = probe.url.parse().map_err(|error| format!("the URL is invalid: {error}"))?;
    let host = uri.host().ok_or("the URL has no host")?;
    let port = uri.port_u16().unwrap_or(80);
    let stream =
        TcpStream::connect((without_brackets(host), port)).await.map_err(|error| format!("cannot connect: {error}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| format!("the HTTP handshake failed: {error}"))?;
    let connection = tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let authority = uri.authority().map_or(host, http::uri::Authority::as_str);
    let request = http::Request::get(path)
        .header(http::header::HOST, authority)
        .header(http::header::USER_AGENT, "wave-orchestrator")
        .body(Empty::<Bytes>::new())
        .map_err(|error| format!("the request is invalid: {error}"))?;
    let answer = sender.send_request(request).await;
    connection.abort();
    let status = answer.map_err(|error| format!("no response: {error}"))?.status().as_u16();
    if i32::from(status) == probe.expect_status {
        Ok(())
    } else {
        Err(format!("status code {status} instead of {}", probe.expect_status))
    }
}

/// The host of a URL as a name or an address: an address of IPv6 is in brackets in a URL, and nowhere else.
fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs;

    use super::*;

    #[test]
    fn the_address_of_a_url_is_one_to_connect_to_whether_it_is_of_ipv4_or_of_ipv6() {
        for (url, address) in [("http://[::1]:8080/healthz", "[::1]:8080"), ("http://127.0.0.1/", "127.0.0.1:80")] {
            let uri: http::Uri = url.parse().unwrap();
            let host = without_brackets(uri.host().unwrap());
            let mut found = (host, uri.port_u16().unwrap_or(80)).to_socket_addrs().unwrap();
            assert_eq!(found.next(), Some(address.parse().unwrap()), "{url}");
        }
        assert_eq!(without_brackets("web.shop"), "web.shop");
    }
}

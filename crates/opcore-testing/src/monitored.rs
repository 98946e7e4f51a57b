//! An operator in its own process, and a real Prometheus that scrapes it: do the queries of the chart return data?

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::PATIENCE;

/// A query of a chart, and where it is defined.
#[derive(Clone, Debug)]
pub struct Query {
    /// The dashboard and the panel, or `alerts` and the alert.
    pub place: String,
    /// The PromQL expression.
    pub expression: String,
}

/// The queries of the dashboards and alerts of a chart, with a value for every variable.
pub fn queries(chart: &str) -> Vec<Query> {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts").join(chart).join("files");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(files.join("dashboards")).unwrap() {
        let path = entry.unwrap().path();
        let dashboard: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let mut expression = target["expr"].as_str().unwrap().to_owned();
                for (open, chosen) in
                    [("$__rate_interval", "1m"), ("$__range", "1m"), ("$namespace", ".*"), ("$instance", ".*")]
                {
                    expression = expression.replace(open, chosen);
                }
                all.push(Query { place: format!("{name}: {}", panel["title"].as_str().unwrap()), expression });
            }
        }
    }
    let alerts = std::fs::read_to_string(files.join("alerts.yaml")).unwrap();
    let alerts = Value::deserialize(serde_yaml::Deserializer::from_str(&alerts)).unwrap();
    for rule in alerts["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        let text = |key: &str| rule[key].as_str().unwrap().to_owned();
        all.push(Query { place: format!("alerts: {}", text("alert")), expression: text("expr") });
    }
    all
}

/// An operator and a Prometheus. Both are stopped when this is dropped.
pub struct Monitored {
    processes: Vec<Child>,
    prometheus: u16,
    _folder: TempDir,
}

impl Drop for Monitored {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Monitored {
    /// Starts an operator with these flags, and a Prometheus that scrapes it every second.
    pub fn start(program: &str, kubeconfig: &Path, flags: &[&str]) -> Self {
        let [own, prometheus] = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
        let mut operator = Command::new(program);
        operator.arg("--kubeconfig").arg(kubeconfig).arg(format!("--listen=127.0.0.1:{own}"));
        operator.args(["--leader-elect=false", "--log-level=warn"]).args(flags);
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- {{ job_name: operator, static_configs: [{{ targets: [\"127.0.0.1:{own}\"] }}] }}\n"
        );
        std::fs::write(&config, text).unwrap();
        let mut server = Command::new("prometheus");
        server.arg(format!("--config.file={}", config.display()));
        server.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        server.arg(format!("--web.listen-address=127.0.0.1:{prometheus}")).arg("--log.level=error");
        let start = |mut command: Command| command.stdin(Stdio::null()).spawn().expect("hack/setup installs it");
        Self { processes: vec![start(operator), start(server)], prometheus, _folder: folder }
    }

    /// Waits until a query returns data.
    pub async fn until(&self, query: &str) {
        let answered = async {
            let mut pause = tokio::time::interval(Duration::from_millis(100));
            while !self.ask(query).await.is_ok_and(|series| series > 0) {
                pause.tick().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, answered).await.is_ok(), "nobody ever answers {query}");
    }

    /// Evaluates a query. Returns the number of series.
    ///
    /// # Errors
    ///
    /// When Prometheus does not respond, or rejects the query; with its message.
    pub async fn ask(&self, query: &str) -> Result<usize, String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.prometheus)).await.map_err(|error| error.to_string())?;
        let encoded = query.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02X}"));
        let request = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        let body: Value = serde_json::from_str(body).map_err(|_| answer.clone())?;
        body["data"]["result"].as_array().map(Vec::len).ok_or_else(|| body["error"].to_string())
    }

    /// Evaluates all queries of a chart. Returns the places of those without data.
    pub async fn ask_all(&self, chart: &str) -> Vec<String> {
        let mut silent = Vec::new();
        for Query { place, expression } in queries(chart) {
            match self.ask(&expression).await {
                Ok(0) => silent.push(place),
                Ok(_) => {}
                Err(error) => panic!("{place}: {expression}: {error}"),
            }
        }
        silent.sort();
        silent.dedup();
        silent
    }
}

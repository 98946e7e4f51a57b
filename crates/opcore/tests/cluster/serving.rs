//! What a process reports about itself: probes, metrics, its log, and why it does not start.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::leading::{kubeconfig, led_by};
use crate::process::Process;
use crate::stage::{PATIENCE, Stage};
use opcore_testing::proxy::{Fate, Proxy};

const LEASE: Duration = Duration::from_secs(15);

/// The address on which it listens.
async fn address(process: &Process) -> SocketAddr {
    let listens = |log: &str| log.split("listen=").nth(1)?.split_whitespace().next()?.parse().ok();
    process.says("where it listens", listens).await
}

/// The status code and the body of a response.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Sends requests until the response is as expected.
async fn until(address: SocketAddr, path: &str, code: u16, part: &str) {
    let answers = async {
        loop {
            let (now, body) = get(address, path).await;
            if now == code && body.contains(part) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let answered = tokio::time::timeout(PATIENCE, answers).await;
    assert!(answered.is_ok(), "{path} is not {code} with {part:?}; it is {:?}", get(address, path).await);
}

#[tokio::test]
async fn a_leader_and_a_standby_are_ready_and_their_metrics_say_who_leads() {
    let stage = Stage::new("serve").await;
    let kubeconfig = kubeconfig().await;
    let first = Process::start(&kubeconfig, &stage.namespace, "first", LEASE);
    led_by(&stage.client, &stage.namespace, "first").await;
    let second = Process::start(&kubeconfig, &stage.namespace, "second", LEASE);
    second.says("that it stands by", |log| log.contains("standing by").then_some(())).await;
    for (process, leads) in [(&first, "opcore_leader 1"), (&second, "opcore_leader 0")] {
        let address = address(process).await;
        until(address, "/readyz", 200, "ok").await;
        until(address, "/metrics", 200, leads).await;
        assert_eq!(get(address, "/healthz").await, (200, "ok\n".to_owned()));
        let (code, body) = get(address, "/elsewhere").await;
        assert!(code == 404 && body.contains("/readyz"), "{code} {body}");
    }
}

/// A kubeconfig for an API server without authentication.
fn plain_kubeconfig(stage: &Stage, url: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("opcore-{}-{}.kubeconfig", std::process::id(), stage.namespace));
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": url}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "users": [{"name": "it", "user": {}}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

#[tokio::test]
async fn a_leader_is_not_ready_before_it_knows_its_objects() {
    let stage = Stage::new("serve").await;
    let proxy = Proxy::start(stage.client.clone()).await.unwrap();
    proxy.rule(|passed| if passed.path.ends_with("/notebooks") { Fate::Hold } else { Fate::Pass });
    let kubeconfig = plain_kubeconfig(&stage, &proxy.config().cluster_url.to_string());
    let process = Process::start(&kubeconfig, &stage.namespace, "first", LEASE);
    let address = address(&process).await;
    proxy.until_held(1).await;
    until(address, "/readyz", 503, "waiting for the first list of notebooks.example.opcore.dev").await;
    until(address, "/healthz", 200, "ok").await;
    proxy.rule(|_| Fate::Pass);
    proxy.release(1);
    until(address, "/readyz", 200, "ok").await;
    std::fs::remove_file(kubeconfig).unwrap();
}

#[tokio::test]
async fn a_log_for_machines_is_one_json_object_a_line() {
    let stage = Stage::new("serve").await;
    let flags = ["--listen", "127.0.0.1:0", "--log-format", "json"];
    let process = Process::with(&kubeconfig().await, &stage.namespace, "first", &flags);
    stage.write("diary", &[("Not A Name", "x")]).await;
    let reported = |log: &str| log.contains("InvalidPage").then_some(());
    process.says("what is wrong with the notebook", reported).await;
    for line in process.said().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["timestamp"].is_string() && line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}

#[tokio::test]
async fn a_process_whose_port_is_taken_ends_and_says_which_flag_helps() {
    let stage = Stage::new("serve").await;
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let first = Process::with(&kubeconfig().await, &stage.namespace, "first", &["--listen", &taken]);
    address(&first).await;
    let mut second = Process::with(&kubeconfig().await, &stage.namespace, "second", &["--listen", &taken]);
    assert_eq!(second.end().await.code(), Some(1), "{}", second.said());
    let said = second.said();
    assert!(said.contains(&format!("cannot listen on {taken}")) && said.contains("--listen"), "{said}");
}

#[tokio::test]
async fn a_process_without_a_cluster_ends_and_says_which_flag_helps() {
    let mut process = Process::start(Path::new("/nowhere/kubeconfig"), "serve", "without-a-cluster", LEASE);
    assert_eq!(process.end().await.code(), Some(1), "{}", process.said());
    let said = process.said();
    assert!(said.contains("no cluster is configured") && said.contains("--kubeconfig"), "{said}");
}

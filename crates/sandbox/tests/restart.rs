//! Components that are stopped, crash and come back, beside another sandbox that does not notice.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use sandbox::{Component, Options, Sandbox, Signal};
use serde_json::Value;

/// What is written must be there afterwards.
async fn remember(client: &Client, name: &str) -> anyhow::Result<()> {
    let object = ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("said".to_owned(), name.to_owned())])),
        ..ConfigMap::default()
    };
    Api::<ConfigMap>::namespaced(client.clone(), "default").create(&PostParams::default(), &object).await?;
    Ok(())
}

async fn remembers(client: &Client, name: &str) -> anyhow::Result<()> {
    let object = Api::<ConfigMap>::namespaced(client.clone(), "default")
        .get(name)
        .await
        .with_context(|| format!("{name} was forgotten"))?;
    ensure!(object.data.is_some_and(|d| d.get("said").map(String::as_str) == Some(name)));
    Ok(())
}

#[tokio::test]
async fn what_was_stored_outlives_crashes_and_the_audit_log_tells_of_it() -> anyhow::Result<()> {
    let neighbour = Sandbox::shared().await?;
    let sandbox = Sandbox::start(Options { audit: true, ..Options::default() }).await?;
    let client = sandbox.client().await?;
    remember(&client, "before").await?;

    let pids = sandbox.pids();
    sandbox.stop(Component::ApiServer, Signal::Kill).await?;
    ensure!(client.apiserver_version().await.is_err(), "it answers although it was killed");
    sandbox.restart(Component::ApiServer).await?;
    remembers(&client, "before").await?;
    ensure!(sandbox.pids()[&Component::ApiServer] != pids[&Component::ApiServer]);

    sandbox.restart(Component::Etcd).await?;
    remembers(&client, "before").await?;
    remember(&client, "after").await?;

    sandbox.stop(Component::ControllerManager, Signal::Term).await?;
    sandbox.restart(Component::ControllerManager).await?;
    sandbox.restart(Component::Scheduler).await?;
    sandbox.namespace("alive").await.context("the controller manager works again")?;

    ensure!(sandbox.audit_log() != neighbour.audit_log());
    let found = Api::<Namespace>::all(neighbour.client().await?).list(&ListParams::default()).await?;
    ensure!(
        found.items.iter().all(|n| !n.metadata.name.as_deref().unwrap_or_default().starts_with("alive-")),
        "two sandboxes share their objects"
    );

    let audit = sandbox.audit_log().context("it was asked for")?;
    for name in ["before", "after"] {
        let created = events(&audit)?
            .into_iter()
            .filter(|e| e["verb"] == "create" && e["objectRef"]["name"] == name)
            .collect::<Vec<Value>>();
        ensure!(created.len() == 1, "one write makes one event: {created:#?}");
        ensure!(created[0]["user"]["username"] == "opcore-sandbox-admin");
        ensure!(created[0].get("requestObject").is_none(), "no content is logged");
    }
    ensure!(sandbox.log(Component::Etcd).is_file());
    ensure!(sandbox.bin("kubectl").is_some_and(|path| path.is_file()));

    let home = sandbox.kubeconfig().parent().context("it lies somewhere")?.to_owned();
    let pids = sandbox.pids();
    drop(sandbox);
    ensure!(!home.exists(), "{} is left", home.display());
    for (component, pid) in pids {
        ensure!(!Path::new(&format!("/proc/{pid}")).exists(), "{component} is left as process {pid}");
    }
    Ok(())
}

fn events(log: &Path) -> anyhow::Result<Vec<Value>> {
    std::fs::read_to_string(log)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

#[tokio::test]
async fn a_start_that_fails_names_the_component_and_its_last_words() -> anyhow::Result<()> {
    let options = Options { api_server_flags: vec!["--no-such-flag".to_owned()], ..Options::default() };
    let error = Sandbox::start(options).await.map(drop).expect_err("no such flag").to_string();
    ensure!(error.starts_with("kube-apiserver ended with exit status: 1 before it was ready."), "{error}");
    ensure!(error.contains("unknown flag: --no-such-flag"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_in_use_is_named() -> anyhow::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let error = Sandbox::start(Options { port: Some(port), ..Options::default() }).await.map(drop);
    let error = error.expect_err("the port is taken").to_string();
    ensure!(error.starts_with(&format!("Port {port} is in use")), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_port_that_was_lost_to_another_is_not_the_end() -> anyhow::Result<()> {
    // The last flag wins: whatever port is chosen, it turns out to be taken.
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let flag = format!("--secure-port={}", listener.local_addr()?.port());
    let options = Options { api_server_flags: vec![flag], ..Options::default() };
    let error = Sandbox::start(options).await.map(drop).expect_err("it is taken each time").to_string();
    ensure!(error.starts_with("kube-apiserver found its port in use 5 times, each time a new one"), "{error}");
    Ok(())
}

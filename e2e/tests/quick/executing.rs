//! A command of a decision runs in a container, with a real kubelet.

use std::time::Duration;

use anyhow::{Context, ensure};
use e2e::{PATIENCE, Stage, notebook, ready, scenario};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::PostParams;
use opcore::act::{self, Outcome};
use opcore::client::Shield;
use opcore::election::Leadership;
use opcore::metrics::Metrics;
use opcore::ownership::Claimant;
use opcore::{Error, Write, Writes};
use opcore_testing::running::without_contract;
use serde_json::json;

const PROGRAM: &str = "/notebook-operator";

#[tokio::test]
async fn a_command_runs_in_a_container_and_its_output_comes_back() -> anyhow::Result<()> {
    scenario("a_command_runs_in_a_container_and_its_output_comes_back", async |stage| {
        let pod = pod(stage).await?;
        let client = shielded(stage).await?;
        let run = async |container: &str, command: &[&str]| run(&client, &pod, container, command).await;

        let ran = run("operator", &[PROGRAM, "--version"]).await?;
        let Outcome::Ran { stdout, stderr, exit: 0 } = &ran else { anyhow::bail!("{ran:?}") };
        ensure!(stdout.starts_with("notebook-operator ") && stderr.is_empty(), "{stdout:?} {stderr:?}");

        let ran = run("operator", &[PROGRAM, "--no such flag"]).await?;
        let Outcome::Ran { stdout, stderr, exit: 2 } = &ran else { anyhow::bail!("{ran:?}") };
        ensure!(stdout.is_empty() && stderr.contains("unexpected argument '--no such flag' found"), "{stderr:?}");

        for (container, program, words) in [
            ("operator", "/no-such-program", "could not be run: "),
            ("no-such-container", PROGRAM, "could not be run: "),
        ] {
            let error = run(container, &[program]).await.err().context("it cannot run")?;
            let is_reported = matches!(error, Error::Outside(_)) && error.to_string().contains(words);
            ensure!(is_reported, "{program} in {container}: {error}");
        }
        Ok(())
    })
    .await
}

/// A pod that runs, whatever its program can do without rights.
async fn pod(stage: &Stage) -> anyhow::Result<Pod> {
    let image = stage.image(notebook::OPERATOR).await?;
    let pod = serde_json::from_value(json!({
        "metadata": { "name": "server" },
        "spec": {
            "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "operator",
                "image": format!("{}:{}", image.repository, image.tag),
                "imagePullPolicy": "Never",
                "args": ["--leader-elect=false"],
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    }))?;
    stage.api::<Pod>().create(&PostParams::default(), &pod).await?;
    ready(&stage.api::<Pod>(), "server", PATIENCE).await
}

/// A client like that of operators.
async fn shielded(stage: &Stage) -> anyhow::Result<Client> {
    let metrics = Metrics::new(opcore::build_info!())?;
    let shield = Shield { leadership: Leadership::unquestioned(), metrics, deadline: Duration::from_secs(30) };
    Ok(shield.client(stage.config().await?)?)
}

async fn run(client: &Client, pod: &Pod, container: &str, command: &[&str]) -> Result<Outcome, Error> {
    let claimant = Claimant { operator: notebook::OPERATOR.to_owned(), owner: None };
    let context = without_contract(notebook::OPERATOR, client.clone());
    let writes = Writes::from_iter([Write::exec(pod, container, command.iter().copied())]);
    let mut done = act::run(&context.actor(&claimant)?, None, &writes).await.whole()?;
    done.attempts.pop().map(|attempt| attempt.outcome).ok_or_else(|| Error::Bug("nothing was attempted".to_owned()))
}

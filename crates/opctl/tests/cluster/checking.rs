//! `graph` and `verify-startup`: what is checked, on a plan and on a file.

use std::path::Path;

use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use wave_orchestrator::api::v1alpha1::{Probe, TcpProbe, WavePlan};

use crate::user::{Answer, DONE, FLEET, TIMED_OUT, User, run};

/// Runs the program where there is no cluster.
async fn nobody(line: &str) -> Answer {
    run(Path::new("/nonexistent"), line).await
}

/// A file with this text.
fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[tokio::test]
async fn the_graph_of_a_plan_and_the_one_of_its_file_are_the_same() {
    let user = User::shared().await;
    user.plan("fleet", DONE).await;
    let file = file(&format!("kind: ConfigMap\n---\n{FLEET}"));
    for form in ["text", "json", "dot", "mermaid"] {
        let of_cluster = user.run(&format!("waves graph fleet -o {form}")).await.good();
        let of_file = nobody(&format!("waves graph -f {} -o {form}", file.path().display())).await.good();
        assert_eq!(of_cluster, of_file);
    }
    user.remove(&["fleet"]).await;
}

#[tokio::test]
async fn a_file_with_a_cycle_or_an_unknown_wave_is_refused_with_the_path() {
    let core = "- name: infrastructure-core\n";
    let cycle = file(&FLEET.replace(core, &format!("{core}    dependsOn: [{{ wave: services }}]\n")));
    let answer = nobody(&format!("waves graph -f {}", cycle.path().display())).await;
    assert_eq!((answer.out.as_str(), answer.status.code()), ("", Some(1)), "{}", answer.err);
    assert!(answer.err.contains("fleet: these waves wait for each other: "), "{}", answer.err);
    assert!(answer.err.contains("→ infrastructure-core → services →"), "{}", answer.err);

    let unknown = file(&FLEET.replace("wave: database-workloads", "wave: databases"));
    let answer = nobody(&format!("waves graph -f {}", unknown.path().display())).await;
    assert_eq!(answer.err.lines().count(), 2, "each wave that depends on it: {}", answer.err);
    assert!(answer.err.contains("fleet: wave services: it depends on databases, which is not in spec.waves."));

    let answer = nobody(&format!("waves graph -f {} -o json", unknown.path().display())).await;
    let graph: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((graph["problems"].as_array().map(Vec::len), answer.status.code()), (Some(2), Some(1)));
}

#[tokio::test]
async fn a_file_that_holds_no_plan_several_or_a_misspelt_one_is_refused_with_the_remedy() {
    let refusal = async |text: &str| {
        let file = file(text);
        let place = file.path().display().to_string();
        nobody(&format!("waves graph -f {place}")).await.refusal().replace(&place, "FILE")
    };
    assert_eq!(
        refusal("kind: ConfigMap").await,
        "FILE does not hold a WavePlan (apiVersion waves.opcore.dev/v1alpha1): name another file."
    );
    let two = format!("{FLEET}---\n{}", FLEET.replace("name: fleet", "name: other"));
    assert_eq!(refusal(&two).await, "FILE holds several WavePlans: name one of fleet, other.");
    let misspelt = refusal(&FLEET.replace("timeout: 15m", "timout: 15m")).await;
    assert!(
        misspelt.starts_with("FILE does not hold a valid WavePlan: spec.waves[4]: unknown field `timout`"),
        "{misspelt}"
    );
    assert!(misspelt.contains("at line 4"), "{misspelt}");
    let missing = nobody("waves graph -f /nonexistent/plan.yaml").await.refusal();
    assert_eq!(
        missing,
        "/nonexistent/plan.yaml cannot be read (No such file or directory (os error 2)): name another file."
    );
}

#[tokio::test]
async fn verify_startup_compares_the_order_with_the_graph_and_its_exit_code_says_what_came_of_it() {
    let user = User::shared().await;
    user.plan("verified", DONE).await;
    let text = user.run("waves verify-startup verified").await.good();
    assert!(text.contains("✔ services started right after database-workloads was ready"), "{text}");
    assert!(text.contains("~ database-ui started 5m before database-workloads was ready: it was forced"), "{text}");
    assert!(text.ends_with("verified: 10 passed, 2 excused, 0 failed\n"), "{text}");

    user.publish("verified", &DONE.replace("forced: true, ", "forced: false, ")).await;
    let text = user.run("waves verify-startup verified").await.bad();
    assert!(text.contains("✘ database-ui started 5m before database-workloads was ready\n"), "{text}");

    user.publish("verified", TIMED_OUT).await;
    let answer = user.run("waves verify-startup verified -o json").await.bad();
    let report: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(report["passed"], json!(false));
    let failed = report["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "fail");
    let waves: Vec<&str> = failed.map(|check| check["wave"].as_str().unwrap()).collect();
    assert_eq!(waves, ["database-workloads", "services", "database-ui"]);
    user.remove(&["verified"]).await;
}

#[tokio::test]
async fn verify_startup_asks_every_probe_from_where_it_runs() {
    let user = User::shared().await;
    let (open, closed) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let probe = |listener: &TcpListener| {
        let port = i32::from(listener.local_addr().unwrap().port());
        Probe { tcp: Some(TcpProbe { host: "127.0.0.1".to_owned(), port }), http: None }
    };
    let mut plan: WavePlan = serde_yaml::from_str(FLEET).unwrap();
    plan.metadata.name = Some("probed".to_owned());
    plan.spec.waves[5].probes = vec![probe(&open), probe(&closed)];
    let _ = user.plans().delete("probed", &DeleteParams::default()).await;
    user.create(&plan).await;
    user.publish("probed", DONE).await;

    let (answers, refuses) = (open.local_addr().unwrap(), closed.local_addr().unwrap());
    let text = user.run("waves verify-startup probed").await.good();
    assert!(text.contains(&format!("✔ services: {answers} answers")), "{text}");
    drop(closed);
    let text = user.run("waves verify-startup probed").await.bad();
    assert!(text.contains(&format!("✔ services: {answers} answers")), "{text}");
    assert!(text.contains(&format!("✘ services: {refuses}: cannot connect: Connection refused")), "{text}");
    user.remove(&["probed"]).await;
}

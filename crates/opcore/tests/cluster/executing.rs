//! Commands in containers, run by a simulated kubelet, because a control plane alone has no node. The tests in `e2e`
//! have a node.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use opcore::act::{self, LONGEST_STDERR, LONGEST_STDOUT, Outcome, RefusalReason};
use opcore::client::Shield;
use opcore::election::Leadership;
use opcore::error::Class;
use opcore::metrics::Metrics;
use opcore::ownership::Claimant;
use opcore::{Error, Write, Writes};
use opcore_testing::chart::as_person;
use opcore_testing::proxy::{Answer, Fate, Passed, Proxy};
use opcore_testing::running::without_contract;
use serde_json::json;

use crate::stage::{PATIENCE, Stage};

/// A server whose commands are run by the simulated kubelet.
struct Server {
    stage: Stage,
    proxy: Proxy,
    metrics: Metrics,
    client: Client,
    pod: Pod,
    ran: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Server {
    /// A server on which every command has this result.
    async fn answering(answer: Answer) -> Self {
        Self::with_deadline(answer, PATIENCE).await
    }

    async fn with_deadline(answer: Answer, deadline: Duration) -> Self {
        let stage = Stage::new("exec").await;
        let proxy = Proxy::start(stage.client.clone()).await.unwrap();
        let metrics = Metrics::new(opcore::build_info!()).unwrap();
        let shield = Shield { leadership: Leadership::unquestioned(), metrics: metrics.clone(), deadline };
        let client = shield.client(proxy.config()).unwrap();
        let ran = Arc::new(Mutex::new(Vec::new()));
        let log = ran.clone();
        proxy.answers_exec(move |pod, container, command| {
            let words = [pod, container].into_iter().chain(command.iter().map(String::as_str));
            log.lock().unwrap().push(words.map(str::to_owned).collect());
            answer.clone()
        });
        let pod = stage.pods().create(&PostParams::default(), &server()).await.unwrap();
        Self { stage, proxy, metrics, client, pod, ran }
    }

    async fn run(&self, command: &[&str]) -> Result<Outcome, Error> {
        run(&self.client, &self.pod, command).await
    }

    /// The pods, containers and commands that were run since the last call.
    fn ran(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.ran.lock().unwrap())
    }
}

impl Stage {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

fn server() -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "server-0"},
        "spec": {"containers": [{"name": "server", "image": "server:v1"}], "terminationGracePeriodSeconds": 0},
    }))
    .unwrap()
}

async fn run(client: &Client, pod: &Pod, command: &[&str]) -> Result<Outcome, Error> {
    let claimant = Claimant { operator: "notebook-operator".to_owned(), owner: None };
    let context = without_contract("notebook-operator", client.clone());
    let writes = Writes::from_iter([Write::exec(pod, "server", command.iter().copied())]);
    let mut done = act::run(&context.actor(&claimant)?, None, &writes).await.whole()?;
    Ok(done.attempts.pop().unwrap().outcome)
}

fn says(stdout: &str) -> Outcome {
    Outcome::Ran { stdout: stdout.to_owned(), stderr: String::new(), exit: 0 }
}

#[tokio::test]
async fn a_command_is_run_as_it_is_written_and_its_output_comes_back() {
    let server = Server::answering(Answer::says("{\"agents\": []}\n")).await;
    let command = ["/bin/server", "agent", "list", "-match", "a b&c=d%20+é\"$(x)'", ""];
    assert_eq!(server.run(&command).await.unwrap(), says("{\"agents\": []}\n"));
    let words: Vec<_> = ["server-0", "server"].into_iter().chain(command).collect();
    assert_eq!(server.ran(), [words]);
    let counted = r#"opcore_api_requests_total{code="101",resource="pods/exec",verb="connect"} 1"#;
    assert!(server.metrics.text().contains(counted), "{}", server.metrics.text());
    assert_eq!(server.proxy.writes().len(), 1, "a command counts as a write");
}

#[tokio::test]
async fn a_command_that_fails_returns_its_exit_code_and_its_standard_error() {
    let server = Server::answering(Answer::fails(7, "no such agent\n")).await;
    let failed = Outcome::Ran { stdout: String::new(), stderr: "no such agent\n".to_owned(), exit: 7 };
    assert_eq!(server.run(&["evict"]).await.unwrap(), failed);
}

#[tokio::test]
async fn output_comes_back_whole_or_is_an_error_that_says_so() {
    let most = Answer { stdout: "o".repeat(LONGEST_STDOUT), stderr: "e".repeat(LONGEST_STDERR), exit: 0 };
    let server = Server::answering(most.clone()).await;
    let Outcome::Ran { stdout, stderr, exit: 0 } = server.run(&["list"]).await.unwrap() else { panic!("it ran") };
    assert_eq!((stdout, stderr), (most.stdout.clone(), most.stderr.clone()));
    for (answer, words) in [
        (Answer { stdout: most.stdout.clone() + "o", ..most.clone() }, "more than 256 KiB to its standard output"),
        (Answer { stderr: most.stderr.clone() + "e", ..most.clone() }, "more than 16 KiB to its standard error"),
    ] {
        server.proxy.answers_exec(move |_, _, _| answer.clone());
        let error = server.run(&["list"]).await.unwrap_err();
        let whole = format!("list in Pod {}/server-0 wrote {words}", server.stage.namespace);
        assert!(error.to_string().starts_with(&whole), "{error}");
        assert_eq!(error.class(), Class::Transient);
    }
}

#[tokio::test]
async fn a_command_whose_answer_is_lost_is_an_error_and_may_be_run_again() {
    let server = Server::answering(Answer::says("evicted")).await;
    // Before the response started, and while it was sent.
    for fate in [Fate::LoseRequest, Fate::LoseAnswer, Fate::CutAfterChunks(0), Fate::CutAfterChunks(4)] {
        server.proxy.rule(move |passed| if passed.writes() { fate } else { Fate::Pass });
        let error = server.run(&["evict"]).await.unwrap_err();
        assert_eq!(error.class(), Class::Transient, "{fate:?}: {error}");
        if matches!(fate, Fate::CutAfterChunks(_)) {
            assert!(error.to_string().contains("was disconnected before it ended"), "{fate:?}: {error}");
        }
        assert_eq!(server.ran().len(), usize::from(fate != Fate::LoseRequest), "{fate:?}");
    }
    server.proxy.rule(|_| Fate::Pass);
    assert_eq!(server.run(&["evict"]).await.unwrap(), says("evicted"));
}

#[tokio::test]
async fn a_command_that_does_not_end_has_the_deadline_of_a_request() {
    let server = Server::with_deadline(Answer::default(), Duration::from_secs(1)).await;
    let writes = |fate: Fate| move |passed: &Passed| if passed.writes() { fate } else { Fate::Pass };
    server.proxy.rule(writes(Fate::Silence));
    let error = server.run(&["/bin/serve"]).await.unwrap_err().to_string();
    assert_eq!(error, format!("serve in Pod {}/server-0 did not end within 1s", server.stage.namespace));
    server.proxy.rule(writes(Fate::Hang));
    let error = server.run(&["/bin/serve"]).await.unwrap_err().to_string();
    assert_eq!(error, "the API server did not respond to connect pods/exec within 1s");
}

#[tokio::test]
async fn a_command_is_not_run_in_another_pod_of_that_name_or_in_one_that_is_going() {
    let server = Server::answering(Answer::says("evicted")).await;
    let (pods, now) = (server.stage.pods(), DeleteParams::default().grace_period(0));
    pods.delete("server-0", &now).await.unwrap();
    assert_eq!(server.run(&["evict"]).await.unwrap(), Outcome::Gone);
    let mut held = crate::executing::server();
    held.metadata.finalizers = Some(vec!["example.opcore.dev/held".to_owned()]);
    let held = pods.create(&PostParams::default(), &held).await.unwrap();
    assert_ne!(held.uid(), server.pod.uid());
    assert_eq!(server.run(&["evict"]).await.unwrap(), Outcome::Gone);
    pods.delete("server-0", &now).await.unwrap();
    assert_eq!(run(&server.client, &held, &["evict"]).await.unwrap(), Outcome::Gone, "it is going");
    assert_eq!(server.ran(), [[""; 0]; 0]);
    let free = json!({"metadata": {"finalizers": null}});
    pods.patch("server-0", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
}

#[tokio::test]
async fn a_command_that_is_not_allowed_is_refused_with_the_right_that_is_missing() {
    let stage = Stage::new("exec").await;
    let pod = stage.pods().create(&PostParams::default(), &server()).await.unwrap();
    let person = format!("{}-operator", stage.namespace);
    let client = Client::try_from(as_person(&stage.config, &person)).unwrap();
    let roles: Api<Role> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let bindings: Api<RoleBinding> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let role = json!({
        "metadata": {"name": "operator"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "create", "delete"]}],
    });
    let binding = json!({
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": person}],
    });
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    // The API server takes a moment to apply the role.
    let refusal = until(&client, &pod, |outcome| match outcome {
        Ok(Outcome::Refused(refusal)) if refusal.message.contains("pods/exec") => Some(refusal.clone()),
        _ => None,
    })
    .await;
    assert_eq!(refusal.reason, RefusalReason::Forbidden);
    for words in [
        format!("list in Pod {}/server-0 was not run: pods \"server-0\" is forbidden", stage.namespace),
        "Grant this operator get and create of pods/exec".to_owned(),
    ] {
        assert!(refusal.message.contains(&words), "{}", refusal.message);
    }

    let more = json!([{"op": "add", "path": "/rules/0/resources/-", "value": "pods/exec"}]);
    let more = Patch::<()>::Json(serde_json::from_value(more).unwrap());
    roles.patch("operator", &PatchParams::default(), &more).await.unwrap();
    // With the right, the command gets as far as it can without a node, which is a transient error.
    let error =
        until(&client, &pod, |outcome| outcome.as_ref().err().map(|error| (error.class(), error.to_string()))).await;
    let words = format!(
        "list in Pod {}/server-0 could not be run: pod server-0 does not have a host assigned",
        stage.namespace
    );
    assert_eq!(error, (Class::Transient, words));
}

/// Runs a command until it has the expected result: there is no watch on rights.
async fn until<T>(client: &Client, pod: &Pod, found: impl Fn(&Result<Outcome, Error>) -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(found) = found(&run(client, pod, &["list"]).await) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("rights that were granted are in force")
}

#[tokio::test]
async fn what_keeps_a_command_from_being_run_is_sorted_by_what_helps() {
    let server = Server::answering(Answer::default()).await;
    for (code, class) in [(404, Class::Conflict), (400, Class::Transient), (500, Class::Transient)] {
        server.proxy.rule(move |passed| if passed.writes() { Fate::Answer(code) } else { Fate::Pass });
        let error = server.run(&["list"]).await.unwrap_err();
        assert_eq!(error.class(), class, "{code}: {error}");
    }
    let error = server.run(&[]).await.unwrap_err();
    assert_eq!(error.class(), Class::Bug, "{error}");
}

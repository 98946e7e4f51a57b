//! Values of fields must not be printed anywhere, whatever error occurs.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use opcore::act::{self, RefusalReason};
use opcore::conditions::{self, READY, Summary};
use opcore::ownership::Claimant;
use opcore::{Context, Decision, Error, Operator, Write, Writes};
use opcore_testing::running::without_contract;
use serde_json::json;

use crate::notebook::{Notebook, Notebooks};
use crate::stage::{Settings, Stage, event, eventually, start};

#[tokio::test]
async fn a_secret_that_the_api_server_refuses_is_named_without_its_values() {
    let stage = Stage::new("secrecy").await;
    let claimant = Claimant { operator: "notebook-operator".to_owned(), owner: None };
    let context = without_contract("notebook-operator", stage.client.clone());
    for (field, value) in [
        ("stringData", json!({"pin": 4711})),
        ("data", json!({"pin": "4711 is no base64"})),
        ("immutable", json!("4711")),
    ] {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "front", "namespace": stage.namespace},
        });
        secret[field] = value;
        let secret = serde_json::from_value(secret).unwrap();
        let write = Write::apply_dynamic(ApiResource::erase::<Secret>(&()), secret);
        let writes = Writes::from_iter([write]);
        let done = act::run(&context.actor(&claimant).unwrap(), None, &writes).await.whole().unwrap();
        let refusal = done.refusal().unwrap_or_else(|| panic!("{field} was not refused: {:?}", done.attempts));
        assert_eq!(refusal.reason, RefusalReason::Invalid, "{refusal:?}");
        assert!(refusal.message.contains("Secret") && !refusal.message.contains("4711"), "{}", refusal.message);
    }
}

/// A value that must not be printed.
const CANARY: &str = "canary-4711";

/// A Secret, parsed as another type.
#[derive(Clone, Debug, serde::Deserialize, kube::Resource)]
#[resource(inherit = Secret)]
struct Misread {
    metadata: kube::core::ObjectMeta,
    #[expect(dead_code, reason = "it cannot be read")]
    data: Vec<u8>,
}

/// Creates a Secret for each notebook, some of which cannot be created, and reads Secrets that cannot be parsed.
struct Keeper;

impl Operator for Keeper {
    type Object = Notebook;
    type Observed = ();
    type Claims = ();

    const FINALIZER: &'static str = Notebooks::FINALIZER;

    async fn observe(&self, notebook: &Notebook, context: &Context) -> Result<(), Error> {
        if notebook.name_any() == "misread" {
            let secrets = context.reader().namespaced::<Misread>(&notebook.namespace().unwrap_or_default());
            secrets.get_opt("theirs").await?;
        }
        Ok(())
    }

    fn decide(&self, notebook: &Notebook, (): &(), now: jiff::Timestamp) -> Decision<Notebook> {
        let text = notebook.spec.pages.get("monday").cloned().unwrap_or_default();
        let data = if notebook.name_any() == "rejected" { json!({"text": [text]}) } else { json!({"text": text}) };
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"name": notebook.name_any(), "namespace": notebook.namespace()},
        });
        let secret = serde_json::from_value(secret).unwrap();
        let write = Write::apply_dynamic(ApiResource::erase::<Secret>(&()), secret);
        let mut status = notebook.status.clone().unwrap_or_default();
        Summary::ready("Kept", "It is kept.").write(&mut status, notebook.metadata.generation, now);
        Decision { writes: Writes::from_iter([write]), ..Decision::say(status) }
    }

    fn tear_down(&self, notebook: &Notebook, (): &(), now: jiff::Timestamp) -> Decision<Notebook> {
        self.decide(notebook, &(), now)
    }
}

/// A log that the test can read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_value_of_a_spec_or_a_secret_is_printed_anywhere_whatever_becomes_of_it() {
    let stage = Stage::new("secrecy").await;
    let (log, filter) = (Log::default(), "debug,opcore=trace,kube_client::client=error");
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || writer.clone()).finish();
    let _logs = tracing::subscriber::set_default(subscriber);

    let theirs = json!({"metadata": {"name": "theirs"}, "stringData": {"text": CANARY}});
    let secrets: Api<Secret> = Api::namespaced(stage.client.clone(), &stage.namespace);
    secrets.create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
    let running = start(Keeper, stage.config.clone(), &stage.namespace, Settings::default());
    let resource = ApiResource::erase::<Notebook>(&());
    let odd = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "odd"},
        "spec": {"pages": CANARY},
    });
    let odds: Api<DynamicObject> = Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource);
    odds.create(&PostParams::default(), &serde_json::from_value(odd).unwrap()).await.unwrap();
    for name in ["kept", "rejected", "misread"] {
        stage.write(name, &[("monday", CANARY)]).await;
    }
    stage.ready("kept").await;
    let said = |notebook: &Notebook| {
        let ready = notebook.status.as_ref().and_then(|status| conditions::find(&status.conditions, READY));
        ready.is_some_and(|ready| ready.status == "False")
    };
    eventually(&stage.notebooks(), "rejected", "reported as rejected", said).await;
    eventually(&stage.notebooks(), "misread", "reported as unreadable", said).await;
    event(&stage, "odd", "Unreadable").await;
    event(&stage, "rejected", "Invalid").await;
    let metrics = running.metrics.text();
    running.stop().await;

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for word in ["rejected", "misread", "odd", "done"] {
        assert!(log.contains(word), "the log says nothing of {word}:\n{log}");
    }
    let mut events = Vec::new();
    for name in ["kept", "rejected", "misread", "odd"] {
        events.extend(crate::stage::events(&stage, name).await);
    }
    let statuses: Vec<_> = odds.list(&ListParams::default()).await.unwrap().items;
    let statuses = statuses.iter().map(|notebook| notebook.data["status"].to_string()).collect::<String>();
    for (place, reported) in
        [("log", log), ("Events", format!("{events:?}")), ("status", statuses), ("metrics", metrics)]
    {
        assert!(!reported.is_empty() && !reported.contains(CANARY), "the {place} contains it: {reported}");
    }
}

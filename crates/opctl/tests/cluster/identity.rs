//! `opctl identity`: a stack that is looked at, taken down, backed up and restored, as far as the API server knows it.
//!
//! No operator runs here: statuses stay as they are written, and the tests publish what an operator would. There is one
//! stack in a cluster, so the tests take turns.

use std::fmt::Debug;
use std::process::Stdio;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ClusterResourceScope;
use kube::{Api, CustomResourceExt, Resource, ResourceExt};
use lifecycle_operator::api::v1alpha1::{
    BACKUP_ANNOTATION, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer,
    ZeroTrustWorkloadIdentityManager as Ztwim,
};
use opcore::finalizer::FORCE_ANNOTATION;
use opcore_testing::wait::{eventually, gone, install};
use sandbox::Sandbox;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio::time::timeout;

use crate::user::{Answer, PATIENCE, User};

const STACK: &str = include_str!("../statuses/identity.yaml");
const READY: &str = include_str!("../statuses/identity-ready.yaml");
const DELETING: &str = include_str!("../statuses/identity-deleting.yaml");

static TURN: Mutex<()> = Mutex::const_new(());
static KINDS: OnceCell<()> = OnceCell::const_new();

async fn install_all(user: &User) {
    let all = [
        Ztwim::crd(),
        SpireServer::crd(),
        SpireAgent::crd(),
        SpiffeCSIDriver::crd(),
        SpireOIDCDiscoveryProvider::crd(),
    ];
    for definition in all {
        install(&user.client, &definition).await;
    }
}

/// A cluster without a stack, until a test makes one.
struct Scene {
    user: User,
    namespace: String,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    async fn new() -> Self {
        let turn = TURN.lock().await;
        let sandbox = Sandbox::shared().await.expect("a control plane");
        let user = User::of(sandbox).await;
        KINDS.get_or_init(|| install_all(&user)).await;
        let scene = Self { user, namespace: sandbox.namespace("identity").await.unwrap(), _turn: turn };
        scene.wipe().await;
        scene
    }

    /// Removes what an earlier test left.
    async fn wipe(&self) {
        Box::pin(self.drop_all::<Ztwim>()).await;
        Box::pin(self.drop_all::<SpireServer>()).await;
        Box::pin(self.drop_all::<SpireAgent>()).await;
        Box::pin(self.drop_all::<SpiffeCSIDriver>()).await;
        Box::pin(self.drop_all::<SpireOIDCDiscoveryProvider>()).await;
        let ours = ListParams::default().labels("app.kubernetes.io/part-of=spire");
        let claims: Api<PersistentVolumeClaim> = Api::all(self.user.client.clone());
        for claim in claims.list(&ours).await.unwrap() {
            let namespace = claim.namespace().unwrap();
            let there: Api<PersistentVolumeClaim> = Api::namespaced(self.user.client.clone(), &namespace);
            let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            there.patch(&claim.name_any(), &PatchParams::default(), &free).await.unwrap();
            there.delete(&claim.name_any(), &DeleteParams::default()).await.unwrap();
            gone(&there, &claim.name_any(), &claim.uid().unwrap()).await;
        }
    }

    async fn drop_all<K>(&self)
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let all: Api<K> = self.all();
        for object in all.list(&ListParams::default()).await.unwrap() {
            let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            all.patch(&object.name_any(), &PatchParams::default(), &free).await.unwrap();
            let _ = all.delete(&object.name_any(), &DeleteParams::default()).await;
            gone(&all, &object.name_any(), &object.uid().unwrap()).await;
        }
    }

    fn all<K: Resource<DynamicType = (), Scope = ClusterResourceScope>>(&self) -> Api<K> {
        Api::all(self.user.client.clone())
    }

    /// Makes the stack of the fixture, with these statuses, and a finalizer on each object.
    async fn stack(&self, statuses: &str) {
        for document in serde_yaml::Deserializer::from_str(STACK) {
            let mut object = Value::deserialize(document).unwrap();
            object["metadata"]["finalizers"] = json!(["ztwim.io/tests"]);
            match object["kind"].as_str().unwrap() {
                "SpireServer" => self.create::<SpireServer>(object).await,
                "SpireAgent" => self.create::<SpireAgent>(object).await,
                "SpiffeCSIDriver" => self.create::<SpiffeCSIDriver>(object).await,
                "SpireOIDCDiscoveryProvider" => self.create::<SpireOIDCDiscoveryProvider>(object).await,
                _ => self.create::<Ztwim>(object).await,
            }
        }
        let statuses: Value = serde_yaml::from_str(statuses).unwrap();
        for (kind, status) in statuses.as_object().unwrap() {
            match kind.as_str() {
                "SpireServer" => self.publish::<SpireServer>(status).await,
                "SpireAgent" => self.publish::<SpireAgent>(status).await,
                "SpiffeCSIDriver" => self.publish::<SpiffeCSIDriver>(status).await,
                "SpireOIDCDiscoveryProvider" => self.publish::<SpireOIDCDiscoveryProvider>(status).await,
                _ => self.publish::<Ztwim>(status).await,
            }
        }
    }

    async fn create<K>(&self, mut object: Value)
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + Debug
            + serde::Serialize
            + DeserializeOwned,
    {
        // Operands belong to their parent, which is made first.
        if let Some(parent) = self.all::<Ztwim>().get_opt("cluster").await.unwrap() {
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "operator.openshift.io/v1alpha1", "kind": "ZeroTrustWorkloadIdentityManager",
                "name": "cluster", "uid": parent.uid(), "controller": true, "blockOwnerDeletion": true,
            }]);
        }
        let object: K = serde_json::from_value(object).unwrap();
        self.all::<K>().create(&PostParams::default(), &object).await.unwrap();
    }

    /// Publishes a status in the operator's place, or a part of one.
    async fn publish<K>(&self, status: &Value)
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let patch = Patch::Merge(json!({ "status": status }));
        self.all::<K>().patch_status("cluster", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Deletes an object; its finalizer holds it.
    async fn delete<K>(&self)
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.all::<K>().delete("cluster", &DeleteParams::background()).await.unwrap();
    }

    /// Lets an object go, in the operator's place.
    async fn release<K>(&self)
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        self.all::<K>().patch("cluster", &PatchParams::default(), &free).await.unwrap();
    }

    /// A claim of the server, in this phase.
    async fn claim(&self, name: &str, phase: &str) {
        let claim = json!({
            "metadata": { "name": name, "labels": { "app.kubernetes.io/part-of": "spire" } },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } }, "storageClassName": "none" },
        });
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.user.client.clone(), &self.namespace);
        claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
        let status = Patch::Merge(json!({ "status": { "phase": phase } }));
        claims.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }

    /// Runs `opctl identity`.
    async fn run(&self, line: &str) -> Answer {
        self.user.run(&format!("identity {line}")).await
    }

    async fn annotation<K>(&self, key: &str) -> Option<String>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
    {
        self.all::<K>().get("cluster").await.unwrap().annotations().get(key).cloned()
    }
}

#[tokio::test]
async fn a_stack_is_shown_to_people_and_to_programs() {
    let scene = Scene::new().await;
    let refused = scene.run("status").await.refusal();
    let words = "There is no ZeroTrustWorkloadIdentityManager and no operand: create one, e.g. with kubectl apply -f.";
    assert_eq!(refused, words);

    scene.stack(READY).await;
    let text = scene.run("status").await.good();
    assert!(
        text.starts_with("ZeroTrustWorkloadIdentityManager cluster   Ready   trust domain example.org\n"),
        "{text}"
    );
    assert!(text.contains("clusterName       production                           Own         SpireAgent\n"), "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");
    let told: Value = serde_json::from_str(&scene.run("status -o json").await.good()).unwrap();
    assert_eq!((&told["ready"], &told["deleting"], &told["needsHelp"]), (&json!(true), &json!(false), &json!(false)));
    assert_eq!(told["parent"]["status"]["trustDomain"], "example.org");
    assert_eq!(told["operands"].as_array().unwrap().len(), 4);
    assert!(
        scene.run("status --watch").await.good().contains("ZeroTrustWorkloadIdentityManager  Ready  All 4 operands")
    );

    let stalled = json!({ "conditions": [
        { "type": "Ready", "status": "False", "reason": "RestoreFailed", "message": "Backup b is damaged.", "lastTransitionTime": "2026-01-01T12:00:00Z" },
        { "type": "Stalled", "status": "True", "reason": "RestoreFailed", "message": "Backup b is damaged.", "lastTransitionTime": "2026-01-01T12:00:00Z" },
    ]});
    scene.publish::<SpireServer>(&stalled).await;
    assert!(scene.run("status").await.bad().contains("RestoreFailed"), "someone must act");
    assert!(scene.run("status --watch").await.bad().contains("Backup b is damaged."));
    scene.wipe().await;
}

#[tokio::test]
async fn a_deletion_is_followed_until_the_stack_is_gone() {
    let scene = Scene::new().await;
    scene.stack(DELETING).await;
    scene.delete::<Ztwim>().await;
    scene.delete::<SpiffeCSIDriver>().await;
    assert!(scene.run("status").await.bad().contains("  volumes        Overdue"), "it takes too long");

    let mut child = scene.user.command("identity status --watch").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut read = Vec::new();
    while !read
        .last()
        .is_some_and(|line: &String| line.contains("TeardownBlocked  The teardown waits for SpiffeCSIDriver"))
    {
        read.push(timeout(PATIENCE, lines.next_line()).await.unwrap_or_else(|_| panic!("{read:#?}")).unwrap().unwrap());
    }
    for released in ["oidc", "csi", "agent", "server", "parent"] {
        match released {
            "oidc" => (
                scene.delete::<SpireOIDCDiscoveryProvider>().await,
                scene.release::<SpireOIDCDiscoveryProvider>().await,
            ),
            "csi" => ((), scene.release::<SpiffeCSIDriver>().await),
            "agent" => (scene.delete::<SpireAgent>().await, scene.release::<SpireAgent>().await),
            "server" => (scene.delete::<SpireServer>().await, scene.release::<SpireServer>().await),
            _ => ((), scene.release::<Ztwim>().await),
        };
    }
    let mut rest = Vec::new();
    while let Some(line) = timeout(PATIENCE, lines.next_line()).await.unwrap_or_else(|_| panic!("{rest:#?}")).unwrap() {
        rest.push(line);
    }
    assert!(rest.last().is_some_and(|line| line.ends_with("The stack is gone.")), "{rest:#?}");
    assert!(rest.iter().any(|line| line.ends_with("SpiffeCSIDriver  gone")), "{rest:#?}");
    assert_eq!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_plan_names_the_pods_that_would_block_what_stays_and_changes_nothing() {
    let scene = Scene::new().await;
    scene.stack(READY).await;
    scene.claim("spire-data-spire-server-0", "Bound").await;
    let pod = |name: &str, driver: &str| {
        json!({
            "metadata": { "name": name },
            "spec": {
                "containers": [{ "name": "main", "image": "nowhere/nothing" }],
                "volumes": [{ "name": "identity", "csi": { "driver": driver, "readOnly": true } }],
            },
        })
    };
    let pods: Api<Pod> = Api::namespaced(scene.user.client.clone(), &scene.namespace);
    for (name, driver) in [("web", "csi.spiffe.io"), ("other", "csi.example.com"), ("done", "csi.spiffe.io")] {
        pods.create(&PostParams::default(), &serde_json::from_value(pod(name, driver)).unwrap()).await.unwrap();
    }
    let over = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    pods.patch_status("done", &PatchParams::default(), &over).await.unwrap();
    let before = scene.all::<SpireServer>().get("cluster").await.unwrap().resource_version();

    let text = scene.run("teardown plan").await.bad();
    let namespace = &scene.namespace;
    assert!(text.contains(&format!("Blocked by  Pod {namespace}/web uses the CSI driver\n")), "{text}");
    assert!(!text.contains("other") || !text.contains(&format!("{namespace}/other")), "{text}");
    assert!(!text.contains(&format!("{namespace}/done")), "a pod that is over blocks nothing: {text}");
    let words = format!(
        "Stays       PersistentVolumeClaim {namespace}/spire-data-spire-server-0: spec.persistence.deletionPolicy is Retain\n"
    );
    assert!(text.contains(&words), "{text}");
    let told: Value = serde_json::from_str(&scene.run("teardown plan Server -o json").await.good()).unwrap();
    let steps: Vec<_> =
        told["operands"][0]["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(steps, ["drain", "backup", "volume", "objects"], "nothing goes before it");
    assert_eq!(told["operandTimeout"], "30s");
    let after = scene.all::<SpireServer>().get("cluster").await.unwrap();
    assert_eq!((after.resource_version(), after.metadata.deletion_timestamp), (before, None));
    for name in ["web", "other", "done"] {
        pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    scene.wipe().await;
}

#[tokio::test]
async fn a_step_is_given_up_only_when_someone_means_it() {
    let scene = Scene::new().await;
    scene.stack(DELETING).await;
    let refused = scene.run("force csi volumes --yes").await.refusal();
    assert!(
        refused.starts_with("SpiffeCSIDriver cluster is not being deleted: there is nothing to give up"),
        "{refused}"
    );
    scene.delete::<SpiffeCSIDriver>().await;

    let answer = scene.run("force csi volumes").await;
    assert!(
        answer.out.contains("volumes (blocked by Pod shop/web): pods that use the driver, and stay Terminating"),
        "{}",
        answer.out
    );
    let words =
        "Nobody can be asked whether to give up volumes of the teardown of SpiffeCSIDriver cluster: say so with --yes.";
    assert_eq!(answer.refusal(), words);
    assert_eq!(scene.annotation::<SpiffeCSIDriver>(FORCE_ANNOTATION).await, None, "nothing is written");

    let refused = scene.run("force csi --yes --timeout 1s").await;
    assert!(
        refused.err.contains("The operator did not do it within 1s: is lifecycle-operator running?"),
        "{}",
        refused.err
    );
    assert_eq!(scene.annotation::<SpiffeCSIDriver>(FORCE_ANNOTATION).await.as_deref(), Some("all"));

    let child = scene.user.command("identity force csi volumes --yes").stdout(Stdio::piped()).spawn().unwrap();
    let asked =
        |driver: &SpiffeCSIDriver| driver.annotations().get(FORCE_ANNOTATION).is_some_and(|value| value == "volumes");
    eventually(&scene.all::<SpiffeCSIDriver>(), "cluster", "asked to give up", asked).await;
    let leaked = json!({ "teardown": { "startedAt": "2026-01-01T12:09:10Z", "steps": [
        { "name": "volumes", "phase": "Leaked", "message": "given up by annotation: blocked by Pod shop/web" },
    ]}});
    scene.publish::<SpiffeCSIDriver>(&leaked).await;
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let words = "Step volumes of SpiffeCSIDriver cluster: given up by annotation: blocked by Pod shop/web\n";
    assert!(output.status.success() && said.ends_with(words), "{said}");
    let refused = scene.run("force csi volumes --yes").await.refusal();
    assert!(
        refused.starts_with("Step volumes of SpiffeCSIDriver cluster was given up already: given up by annotation"),
        "{refused}"
    );
    scene.wipe().await;
}

#[tokio::test]
async fn giving_up_all_that_is_left_waits_until_the_object_is_gone() {
    let scene = Scene::new().await;
    scene.stack(DELETING).await;
    scene.delete::<SpiffeCSIDriver>().await;
    let child = scene.user.command("identity force SpiffeCSIDriver --yes").stdout(Stdio::piped()).spawn().unwrap();
    let asked =
        |driver: &SpiffeCSIDriver| driver.annotations().get(FORCE_ANNOTATION).is_some_and(|value| value == "all");
    eventually(&scene.all::<SpiffeCSIDriver>(), "cluster", "asked to give up", asked).await;
    scene.release::<SpiffeCSIDriver>().await;
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && said.contains("SpiffeCSIDriver cluster is gone. What was left behind is in Events"),
        "{said}"
    );
    scene.wipe().await;
}

#[tokio::test]
async fn what_was_meant_for_one_object_never_reaches_the_one_that_took_its_place() {
    let scene = Scene::new().await;
    scene.stack(DELETING).await;
    scene.delete::<SpiffeCSIDriver>().await;
    let drivers = scene.all::<SpiffeCSIDriver>();
    let old = drivers.get("cluster").await.unwrap();
    // `script` gives its command a real terminal, on which somebody can be asked.
    let line = format!("'{}' identity force csi volumes", env!("CARGO_BIN_EXE_opctl"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("KUBECONFIG", &scene.user.kubeconfig);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let (mut person, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("[y/N]") {
        let read = timeout(PATIENCE, screen.read_buf(&mut shown)).await.expect("a question").unwrap();
        assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&shown));
    }
    scene.release::<SpiffeCSIDriver>().await;
    gone(&drivers, "cluster", &old.uid().unwrap()).await;
    scene.create::<SpiffeCSIDriver>(json!({ "metadata": { "name": "cluster" }, "spec": {} })).await;
    person.write_all(b"y\n").await.unwrap();
    timeout(PATIENCE, screen.read_to_end(&mut shown)).await.expect("it ends").unwrap();
    let text = String::from_utf8_lossy(&shown);
    let words = "SpiffeCSIDriver cluster was deleted and created again meanwhile: look at it, and try again.";
    assert!(text.contains(words), "{text}");
    assert_eq!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code(), Some(1));
    assert_eq!(scene.annotation::<SpiffeCSIDriver>(FORCE_ANNOTATION).await, None);
    scene.wipe().await;
}

/// Answers a request for a backup in the operator's place: with these fields of the volume.
async fn answer(scene: &Scene, volume: Value) -> String {
    let asked = |server: &SpireServer| {
        let value = server.annotations().get(BACKUP_ANNOTATION);
        value.is_some_and(|value| {
            Some(value) != server.status.as_ref().and_then(|status| status.volume.as_ref()?.backup_request.as_ref())
        })
    };
    let server = eventually(&scene.all::<SpireServer>(), "cluster", "asked for a backup", asked).await;
    let request = server.annotations()[BACKUP_ANNOTATION].clone();
    let mut volume = volume;
    volume["backupRequest"] = json!(request);
    scene.publish::<SpireServer>(&json!({ "volume": volume })).await;
    request
}

#[tokio::test]
async fn a_backup_is_asked_for_awaited_and_shown() {
    let scene = Scene::new().await;
    scene.stack(READY).await;
    let child = scene.user.command("identity backup").stdout(Stdio::piped()).spawn().unwrap();
    let work = json!({ "kind": "Backup", "backup": "manual-20260101-121000", "startedAt": "2026-01-01T12:10:00Z" });
    let request = answer(&scene, json!({ "work": work })).await;
    assert!(request.starts_with("20"), "{request}");
    let made = json!({
        "name": "manual-20260101-121000", "claim": "spire-backups", "takenAt": "2026-01-01T12:10:03Z", "files": 3,
        "bytes": 139_264, "manifestSha256": "abc123", "trustDomain": "example.org",
    });
    scene.publish::<SpireServer>(&json!({ "volume": { "work": null, "lastBackup": made } })).await;
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.starts_with("The backup is complete, and was verified.\nmanual-20260101-121000, "), "{said}");
    assert!(
        said.contains(
            ", 3 files, 136.0 KiB, in PersistentVolumeClaim spire-backups\nSHA-256 of its list of files: abc123\n"
        ),
        "{said}"
    );
    scene.wipe().await;
}

#[tokio::test]
async fn a_backup_that_failed_says_why() {
    let scene = Scene::new().await;
    scene.stack(READY).await;
    let child = scene.user.command("identity backup").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let asked = |server: &SpireServer| server.annotations().contains_key(BACKUP_ANNOTATION);
    let server = eventually(&scene.all::<SpireServer>(), "cluster", "asked for a backup", asked).await;
    let about = opcore::events::Events::new(scene.user.client.clone(), "lifecycle-operator");
    let words = "There is no backup manual-20260101-121000: keys.json could not be read.";
    about.emit(&server.object_ref(&()), &opcore::Note::warning("BackupFailed", words)).await;
    answer(&scene, json!({ "work": null })).await;
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, format!("opctl: There is no new backup of the volume of SpireServer cluster: {words}\n"));
    assert_eq!(output.status.code(), Some(1));
    let events: Api<Event> = Api::namespaced(scene.user.client.clone(), "default");
    events
        .delete_collection(&DeleteParams::default(), &ListParams::default().fields("reason=BackupFailed"))
        .await
        .unwrap();
    scene.wipe().await;
}

#[tokio::test]
async fn a_backup_is_never_restored_over_data() {
    let scene = Scene::new().await;
    scene.stack(READY).await;
    scene.claim("spire-data-spire-server-0", "Bound").await;
    scene.claim("spire-backups", "Bound").await;
    let before = scene.all::<SpireServer>().get("cluster").await.unwrap().resource_version();
    let answer = scene.run("restore manual-20260101-100000").await;
    let delete =
        format!("kubectl --namespace {} delete persistentvolumeclaim spire-data-spire-server-0\n", scene.namespace);
    assert!(answer.out.contains(&delete), "{}", answer.out);
    let words = "Nothing was done: SpireServer cluster has data, and a backup is restored into the empty volume of a new \
                 server only.";
    assert_eq!(answer.refusal(), words);
    assert_eq!(scene.all::<SpireServer>().get("cluster").await.unwrap().resource_version(), before);
    scene.wipe().await;
}

#[tokio::test]
async fn a_server_that_has_not_begun_starts_from_a_backup() {
    let scene = Scene::new().await;
    scene.claim("spire-backups", "Bound").await;
    let refused = scene.run("restore latest").await.refusal();
    let words = "There is no SpireServer cluster: create one with restoreFrom: { claim: spire-backups, name: latest } in its spec.";
    assert_eq!(refused, words);

    scene.create::<SpireServer>(json!({ "metadata": { "name": "cluster" }, "spec": {} })).await;
    let child = scene.user.command("identity restore manual-20260101-100000").stdout(Stdio::piped()).spawn().unwrap();
    let asked = |server: &SpireServer| {
        let from = server.spec.restore_from.as_ref();
        from.is_some_and(|from| from.name == "manual-20260101-100000" && from.claim == "spire-backups")
    };
    eventually(&scene.all::<SpireServer>(), "cluster", "to be restored", asked).await;
    scene.publish::<SpireServer>(&json!({ "volume": { "restored": "manual-20260101-100000" } })).await;
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(
        said.ends_with(
            "Backup manual-20260101-100000 is restored: the server starts from it, with the CA that it holds.\n"
        ),
        "{said}"
    );
    let said = scene.run("restore manual-20260101-100000").await.good();
    assert_eq!(said, "Backup manual-20260101-100000 was restored already.\n");
    scene.wipe().await;
}

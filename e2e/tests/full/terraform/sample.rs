//! The sample, from `kubectl apply` to `kubectl delete`.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use e2e::terraform::{self, event, install, left_of, texts};
use e2e::{PATIENCE, Stage, first, gone, scenario, until};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde_json::json;
use terraform_runner_operator::api::v1alpha1::{Run, SimpleResource, TerraformWorkspace, WorkspacePhase};

const SAMPLE: &str = include_str!("../../../../docs/samples/simpleresource.yaml");
const NAME: &str = "simpleresource-sample";
const OUTPUTS: &str = "simpleresource-sample-simple-outputs";

#[tokio::test]
async fn the_sample_becomes_a_secret_stays_as_it_is_is_replaced_and_leaves_nothing() -> anyhow::Result<()> {
    scenario("the_sample_becomes_a_secret_stays_as_it_is_is_replaced_and_leaves_nothing", async |stage| {
        // A typed kind needs no more than authors may use by default.
        install(stage, json!({ "authors": { "modules": "Builtin" } })).await?;
        let sample = Sample::new(stage)?;
        sample.apply().await?;
        let job = sample.job().await?;
        for (key, value) in [("app", "terraform"), ("action", "apply"), ("infra.opr8r/simpleresource", NAME)] {
            ensure!(job.labels().get(key).is_some_and(|found| found == value), "{key}: {:?}", job.labels());
        }
        let ready = sample.ready(None).await?;
        let outputs = sample.outputs().await?;
        tells_what_it_made(&ready, &outputs)?;
        ensure!(outputs["length"] == "16" && outputs["random_value"].chars().count() == 16, "{outputs:?}");
        ensure!(outputs["file_content"] == format!("test{}", outputs["random_value"]), "{outputs:?}");
        ensure!(outputs["file_path"] == "/tmp/opr8r-default-simpleresource-sample.txt", "{outputs:?}");
        event(&sample.events, "simpleresource-sample-simple", "Applied").await?;

        sample.the_same_again_changes_nothing(&ready).await?;

        let longer = json!({ "spec": { "length": 24 } });
        sample.all.patch(NAME, &PatchParams::default(), &Patch::Merge(&longer)).await?;
        let hash = ready.status.and_then(|status| status.last_applied_hash);
        let replaced = sample.ready(hash.as_deref()).await?;
        let other = sample.outputs().await?;
        tells_what_it_made(&replaced, &other)?;
        ensure!(other["length"] == "24" && other["random_value"].chars().count() == 24, "{other:?}");
        ensure!(other["random_value"] != outputs["random_value"], "it was not replaced");

        sample.all.delete(NAME, &DeleteParams::default()).await?;
        gone(&sample.all, NAME, replaced.uid().as_deref(), PATIENCE).await?;
        gone(&sample.secrets, OUTPUTS, None, PATIENCE).await?;
        let left = left_of(&stage.client, "default", "simpleresource-sample-simple").await?;
        ensure!(left.is_empty(), "it left {left:?}");
        Ok(())
    })
    .await
}

/// The namespace of the sample.
struct Sample {
    object: SimpleResource,
    all: Api<SimpleResource>,
    workspaces: Api<TerraformWorkspace>,
    secrets: Api<Secret>,
    jobs: Api<Job>,
    events: Api<Event>,
}

impl Sample {
    fn new(stage: &Stage) -> anyhow::Result<Self> {
        let object: SimpleResource = serde_yaml::from_str(SAMPLE)?;
        let namespace = object.namespace().context("it names one")?;
        let client = &stage.client;
        Ok(Self {
            object,
            all: Api::namespaced(client.clone(), &namespace),
            workspaces: Api::namespaced(client.clone(), &namespace),
            secrets: Api::namespaced(client.clone(), &namespace),
            jobs: Api::namespaced(client.clone(), &namespace),
            events: Api::namespaced(client.clone(), &namespace),
        })
    }

    async fn apply(&self) -> anyhow::Result<SimpleResource> {
        Ok(self.all.patch(NAME, &PatchParams::apply("e2e"), &Patch::Apply(&self.object)).await?)
    }

    /// Its first Job.
    async fn job(&self) -> anyhow::Result<Job> {
        let which = watcher::Config::default().labels(&format!("infra.opr8r/simpleresource={NAME}"));
        first(&self.jobs, which, "Job of the sample", PATIENCE, |_| true).await
    }

    /// Waits until it is ready, with inputs that do not have this hash.
    async fn ready(&self, but: Option<&str>) -> anyhow::Result<SimpleResource> {
        let is_ready = |resource: &SimpleResource| {
            resource.status.as_ref().is_some_and(|status| {
                status.phase == WorkspacePhase::Ready
                    && status.observed_generation == resource.metadata.generation
                    && status.last_applied_hash.as_deref() != but
            })
        };
        until(&self.all, NAME, "Ready", PATIENCE, is_ready).await
    }

    async fn outputs(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let outputs = texts(&self.secrets, OUTPUTS).await?;
        let keys: Vec<&str> = outputs.keys().map(String::as_str).collect();
        ensure!(keys == ["file_content", "file_path", "length", "random_value"], "{keys:?}");
        Ok(outputs)
    }

    /// `kubectl apply` again, and a request that does not change the spec: nothing is written, and no Job runs.
    async fn the_same_again_changes_nothing(&self, ready: &SimpleResource) -> anyhow::Result<()> {
        let workspace = "simpleresource-sample-simple";
        // The last run is cleaned up first.
        let quiet = |workspace: &TerraformWorkspace| {
            workspace.status.as_ref().is_some_and(|status| status.run.as_ref().is_some_and(Run::is_over))
        };
        until(&self.workspaces, workspace, "quiet", PATIENCE, quiet).await?;
        let before = self.versions().await?;
        let again = self.apply().await?;
        ensure!(again.resource_version() == ready.resource_version(), "{again:#?}");
        let nudge = json!({ "metadata": { "annotations": { "example.com/seen": "yes" } } });
        let nudged = self.all.patch(NAME, &PatchParams::default(), &Patch::Merge(&nudge)).await?;
        let nudged_workspace = self.workspaces.patch(workspace, &PatchParams::default(), &Patch::Merge(&nudge)).await?;
        // An object that was created after them has been reconciled, and so have these.
        let bystander = json!({
            "apiVersion": "infra.opr8r/v1alpha1", "kind": "TerraformWorkspace", "metadata": { "name": "bystander" },
            "spec": { "module": { "builtin": "simple" }, "suspend": true },
        });
        self.workspaces.patch("bystander", &PatchParams::apply("e2e"), &Patch::Apply(&bystander)).await?;
        let reconciled = |workspace: &TerraformWorkspace| {
            workspace.status.as_ref().is_some_and(|status| status.phase == WorkspacePhase::Suspended)
        };
        let bystander = until(&self.workspaces, "bystander", "Suspended", PATIENCE, reconciled).await?;
        self.workspaces.delete("bystander", &DeleteParams::default()).await?;
        gone(&self.workspaces, "bystander", bystander.uid().as_deref(), PATIENCE).await?;

        ensure!(self.all.get(NAME).await?.resource_version() == nudged.resource_version(), "its status was written");
        let now = self.workspaces.get(workspace).await?;
        ensure!(now.resource_version() == nudged_workspace.resource_version(), "its workspace was written");
        let after = self.versions().await?;
        ensure!(before == after, "something was written: {before:?} → {after:?}");
        Ok(())
    }

    /// The resource versions of its objects.
    async fn versions(&self) -> anyhow::Result<BTreeMap<String, Option<String>>> {
        let ours = ListParams::default().labels(&terraform::selector("simpleresource-sample-simple"));
        let secrets = self.secrets.list(&ours).await?;
        let jobs = self.jobs.list(&ours).await?;
        let secrets = secrets.iter().map(|secret| (format!("Secret {}", secret.name_any()), secret.resource_version()));
        // Its Job is also written by Kubernetes.
        let jobs = jobs.iter().map(|job| (format!("Job {}", job.name_any()), job.uid()));
        Ok(secrets.chain(jobs).collect())
    }
}

fn tells_what_it_made(resource: &SimpleResource, outputs: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let status = resource.status.as_ref().context("it has a status")?;
    ensure!(status.random_value.as_ref() == outputs.get("random_value"), "{status:#?}\n{outputs:?}");
    ensure!(status.file_path.as_ref() == outputs.get("file_path"), "{status:#?}\n{outputs:?}");
    ensure!(!status.message.is_empty() && status.last_applied_hash.is_some(), "{status:#?}");
    Ok(())
}

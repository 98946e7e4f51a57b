//! An operator uses all rights that its chart grants, and requests no others.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, ensure};
use e2e::{PATIENCE, Release, Stage, gone, holds, not_run, notebook, scenario, until};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

const NAME: &str = "the_rights_that_the_chart_grants_are_exactly_those_that_are_used";

/// Verb, group and resource, for example `patch example.opcore.dev/notebooks/status`.
type Rights = BTreeSet<String>;

#[tokio::test]
async fn the_rights_that_the_chart_grants_are_exactly_those_that_are_used() -> anyhow::Result<()> {
    scenario(NAME, async |stage| {
        let Some(audit_log) = stage.audit_log() else {
            not_run(NAME, "requests are logged in a sandbox only, one that was started with --audit");
            return Ok(());
        };
        // Contracts are listed in any case, and watched if the kind exists.
        opcore_testing::contract::install(&stage.client).await;
        let release = notebook::install(stage, json!({ "replicaCount": 2 })).await?;
        everything_it_can_do(stage).await?;

        let (used, refused) = requests(&fs::read_to_string(audit_log)?, stage)?;
        ensure!(refused.is_empty(), "the chart grants too little; refused: {}", list(&refused));
        let mut idle = granted(stage, &release).await?;
        // An apply that creates an object is a patch for which the API server also requires the right to create.
        idle.retain(|right| !used.contains(right) && !used.contains(&right.replacen("create ", "patch ", 1)));
        ensure!(idle.is_empty(), "the chart grants what nobody used: {}; used: {}", list(&idle), list(&used));
        Ok(())
    })
    .await
}

/// Uses every function: pages are created, changed, removed, and belong to someone else, and all are deleted.
async fn everything_it_can_do(stage: &Stage) -> anyhow::Result<()> {
    let diary = notebook::written(stage, "diary", &["monday", "tuesday"]).await?;
    notebook::written(stage, "diary", &["monday", "wednesday"]).await?;
    // The same Event twice: the second one is counted in the first.
    for _ in 0..2 {
        let foreign: ConfigMap = serde_json::from_value(json!({
            "metadata": { "name": "diary-friday", "labels": { "app.kubernetes.io/managed-by": "Helm" } },
        }))?;
        stage.api().create(&PostParams::default(), &foreign).await?;
        notebook::write(stage, "diary", &["monday", "friday"]).await?;
        until(&notebook::notebooks(stage), "diary", "Stalled", PATIENCE, |diary| holds(diary, "Stalled")).await?;
        stage.api::<ConfigMap>().delete("diary-friday", &DeleteParams::default()).await?;
        notebook::ready(stage, "diary").await?;
        notebook::written(stage, "diary", &["monday"]).await?;
    }
    notebook::notebooks(stage).delete("diary", &DeleteParams::default()).await?;
    gone(&notebook::notebooks(stage), "diary", diary.uid().as_deref(), PATIENCE).await?;
    let renewed = |lease: &Lease| lease.spec.as_ref().is_some_and(|spec| spec.renew_time > spec.acquire_time);
    until(&stage.api::<Lease>(), notebook::RELEASE, "renewed", PATIENCE, renewed).await?;
    Ok(())
}

/// The requests of the operator that its own roles allowed, and those that were refused.
fn requests(audit_log: &str, stage: &Stage) -> anyhow::Result<(Rights, Rights)> {
    let account = format!("system:serviceaccount:{}:{}", stage.namespace, notebook::RELEASE);
    let (mut used, mut refused) = (Rights::new(), Rights::new());
    // The last line may be incomplete.
    for request in audit_log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if request["user"]["username"] != account.as_str() {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let about = &request["objectRef"];
        let resource = match text(&about["subresource"]) {
            none if none.is_empty() => text(&about["resource"]),
            subresource => format!("{}/{subresource}", text(&about["resource"])),
        };
        let right = right(&text(&request["verb"]), &text(&about["apiGroup"]), &resource);
        match request["annotations"]["authorization.k8s.io/decision"].as_str() {
            Some("allow")
                if text(&request["annotations"]["authorization.k8s.io/reason"]).contains(&words_of_binding(stage)) =>
            {
                used.insert(right);
            }
            // Rights of every account, such as getting the version.
            Some("allow") => {}
            _ => {
                refused.insert(format!("{right}: {request}"));
            }
        }
    }
    ensure!(!used.is_empty(), "no request of {account} is in the audit log");
    Ok((used, refused))
}

/// How the reason of a decision names a binding to this account.
fn words_of_binding(stage: &Stage) -> String {
    format!("to ServiceAccount \"{}/{}\"", notebook::RELEASE, stage.namespace)
}

async fn granted(stage: &Stage, release: &Release) -> anyhow::Result<Rights> {
    let own = ListParams::default().labels(&release.selector());
    let in_namespace = stage.api::<Role>().list(&own).await?.items.into_iter().filter_map(|role| role.rules);
    let everywhere = Api::<ClusterRole>::all(stage.client.clone()).list(&own).await?.items.into_iter();
    // Roles that are aggregated to the roles of users are not the operator's.
    let everywhere = everywhere.filter(|role| role.labels().keys().all(|label| !label.contains("aggregate-to")));
    let rules: Vec<PolicyRule> = in_namespace.chain(everywhere.filter_map(|role| role.rules)).flatten().collect();
    let mut rights = Rights::new();
    for rule in rules {
        let resources = rule.resources.as_ref().context("a rule names resources")?;
        for group in rule.api_groups.iter().flatten() {
            for resource in resources {
                ensure!(
                    !rule.verbs.iter().chain([group, resource]).any(|word| word == "*"),
                    "{rule:?} names everything"
                );
                rights.extend(rule.verbs.iter().map(|verb| right(verb, group, resource)));
            }
        }
    }
    Ok(rights)
}

fn right(verb: &str, group: &str, resource: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    format!("{verb} {group}/{resource}")
}

fn list(rights: &Rights) -> String {
    rights.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

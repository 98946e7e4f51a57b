//! The kinds that a part works on: the cluster has them before it starts.

use std::fs;
use std::time::Duration;

use anyhow::{Context, anyhow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Client};

use super::Place;
use crate::golang::DEFINITIONS;
use crate::node::manifests;

/// Installs them, and returns when the API server has them.
pub(crate) async fn install<F>(place: &Place<'_>, client: impl FnOnce() -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<Client>>,
{
    let programs = place.part.definition().definitions;
    if programs.is_empty() {
        return Ok(());
    }
    let client = client().await?;
    for program in programs {
        // A build has them beside its programs.
        let folder = place.binaries.get(program)?.with_file_name("..").join(DEFINITIONS);
        let files = fs::read_dir(&folder).with_context(|| {
            format!("The kinds of {program} are not in {}: let the sandbox build it", folder.display())
        })?;
        for file in files {
            manifests::apply(&client, &fs::read_to_string(file?.path())?, &[]).await?;
        }
    }
    let established = async {
        loop {
            // An error here is a cluster that is busy: asked again until the deadline.
            if all_established(&client).await.unwrap_or_default() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), established)
        .await
        .map_err(|_| anyhow!("The kinds of {} are not established after 60 s.", place.part))
}

async fn all_established(client: &Client) -> kube::Result<bool> {
    let all = Api::<CustomResourceDefinition>::all(client.clone()).list(&ListParams::default()).await?;
    Ok(all.iter().all(|definition| {
        let conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    }))
}

//! Keeps the ConfigMap from which the admission policies know the trust domains of all operands: see [`crate::policies`].

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use opcore::backoff::Backoff;
use opcore::ownership::Claimant;
use opcore::{Context, Error, Write, Writes, act};
use tokio::sync::Notify;

use crate::config::Field;
use crate::observe::peers;
use crate::operand::Peer;
use crate::policies::{SUMMARY, SUMMARY_KEY};
use crate::render::PART_OF;

/// Knows when the summary may have changed. Cheap to clone.
#[derive(Clone, Default)]
pub struct Summary(Arc<Notify>);

impl Summary {
    /// An operand may have changed, or gone.
    pub fn changed(&self) {
        self.0.notify_one();
    }

    /// Keeps the ConfigMap up to date until the process is asked to stop.
    ///
    /// # Errors
    ///
    /// Never: what fails is logged, and tried again.
    pub async fn keep(&self, context: &Context, namespace: &str) -> Result<(), Error> {
        let mut backoff = Backoff::default();
        let (stopping, contract) = (context.stopping(), context.follow_contract());
        tokio::pin!(stopping, contract);
        tokio::select! {
            () = &mut stopping => return Ok(()),
            () = &mut contract => {}
            () = context.contract_asked() => {}
        }
        loop {
            let retry = match write(context, namespace).await {
                Ok(()) => {
                    backoff.succeeded(&());
                    None
                }
                Err(error) => {
                    tracing::debug!(%error, "ConfigMap {SUMMARY} could not be written; trying again");
                    Some(backoff.failed(&()))
                }
            };
            tokio::select! {
                () = &mut stopping => return Ok(()),
                () = &mut contract => {}
                () = self.0.notified() => {}
                () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => {}
            }
        }
    }
}

async fn write(context: &Context, namespace: &str) -> Result<(), Error> {
    let map = rendered(&peers(context).await?, namespace);
    let write = Write::apply(&map).map_err(|error| Error::Bug(error.to_string()))?;
    let claimant = Claimant { operator: context.operator().to_owned(), owner: None };
    let writes = Writes::from_iter([write]);
    let done = act::run(&context.actor(&claimant)?, None, &writes).await.whole()?;
    match done.refusal() {
        None => Ok(()),
        Some(refusal) => Err(Error::Outside(refusal.message.clone())),
    }
}

/// One line for each operand that has a trust domain of its own.
fn rendered(peers: &[Peer], namespace: &str) -> ConfigMap {
    let line = |peer: &Peer| Some(format!("{} {}", peer.kind, peer.config.own(Field::TrustDomain)?));
    let lines: Vec<_> = peers.iter().filter_map(line).collect();
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(SUMMARY.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([("app.kubernetes.io/part-of".to_owned(), PART_OF.to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(SUMMARY_KEY.to_owned(), lines.join("\n"))])),
        ..ConfigMap::default()
    }
}

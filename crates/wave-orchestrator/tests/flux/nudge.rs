//! A member that is nudged reconciles when its wave starts, not when Flux next looks by itself.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use opcore_testing::wait::within;

use crate::fleet;
use crate::fleet::{LENGTH, name, waves};
use crate::operator::{is_ready, plan};

/// Flux by itself looks again after 30 s: two minutes for the chain. One hop of that would not pass.
const LIMIT: Duration = Duration::from_secs(25);

#[tokio::test]
async fn a_chain_of_kustomizations_does_not_wait_for_flux_to_look_again() -> anyhow::Result<()> {
    let fleet = fleet("nudge").await?;
    let namespace = fleet.namespace.clone();
    let started = Instant::now();
    fleet.chain().await?;
    let plans = plan(&fleet.client, &namespace, &waves(&namespace)).await?;
    within(LIMIT, &plans, &namespace, "Ready", is_ready).await;
    println!("{LENGTH} Kustomizations took {:.1} s", started.elapsed().as_secs_f64());

    for number in 1..=LENGTH {
        let kustomization = fleet.kustomizations().get(&name(number)).await?;
        let asked = kustomization.annotations().get("reconcile.fluxcd.io/requestedAt");
        assert!(asked.is_some(), "{} was not asked", name(number));
        let answered = kustomization.data["status"]["lastHandledReconcileAt"].as_str();
        assert_eq!(answered, asked.map(String::as_str), "{} was ready before it had answered", name(number));
    }
    Ok(())
}

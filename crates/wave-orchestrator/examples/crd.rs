//! Prints the definition of `WavePlan`, as the chart installs it.

use kube::CustomResourceExt;
use wave_orchestrator::api::v1alpha1::WavePlan;

fn main() -> anyhow::Result<()> {
    print!("{}", serde_yaml::to_string(&WavePlan::crd())?);
    Ok(())
}

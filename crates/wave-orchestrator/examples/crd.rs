//! Prints the CustomResourceDefinition of `WavePlan`, as the chart installs it. JSON is YAML: `… | kubectl apply -f -`.

use kube::CustomResourceExt;
use wave_orchestrator::api::v1alpha1::WavePlan;

fn main() {
    println!("{:#}", serde_json::json!(WavePlan::crd()));
}

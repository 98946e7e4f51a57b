//! Prints the definition of a kind, as the chart installs it: `crd spireservers`. JSON is YAML.

use kube::CustomResourceExt;
use lifecycle_operator::api::v1alpha1::{
    SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer, ZeroTrustWorkloadIdentityManager,
};

fn main() {
    let crd = match std::env::args().nth(1).as_deref() {
        Some("spireservers") => SpireServer::crd(),
        Some("spireagents") => SpireAgent::crd(),
        Some("spiffecsidrivers") => SpiffeCSIDriver::crd(),
        Some("spireoidcdiscoveryproviders") => SpireOIDCDiscoveryProvider::crd(),
        _ => ZeroTrustWorkloadIdentityManager::crd(),
    };
    println!("{:#}", serde_json::json!(crd));
}

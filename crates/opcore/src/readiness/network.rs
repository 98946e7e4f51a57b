//! Service and Ingress.

use super::view::View;
use super::{Case, Readiness};

pub(super) fn service(case: &Case<'_>) -> Readiness {
    let object = case.object;
    let kind = object.text("spec.type").unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return Readiness::ready("ExternalName", format!("{object} is an alias for an external name."));
    }
    // A headless service has the address "None".
    if object.text("spec.clusterIP").is_none() {
        return Readiness::in_progress("NoClusterAddress", format!("{object} has no cluster address yet."));
    }
    if kind == "LoadBalancer" && case.options.load_balancer_address && !has_address(object) {
        return no_address(case, "load balancers");
    }
    Readiness::ready("AddressAssigned", format!("{object} has its external address."))
}

pub(super) fn ingress(case: &Case<'_>) -> Readiness {
    let object = case.object;
    if case.options.ingress_address && !has_address(object) {
        return no_address(case, "this ingress class");
    }
    Readiness::ready("Exists", format!("{object} exists."))
}

fn no_address(case: &Case<'_>, of_what: &str) -> Readiness {
    Readiness::in_progress(
        "NoExternalAddress",
        format!("{} has no external address yet; check that a controller for {of_what} is running.", case.object),
    )
}

fn has_address(object: View<'_>) -> bool {
    object
        .list("status.loadBalancer.ingress")
        .iter()
        .map(View::of)
        .any(|entry| entry.text("ip").or(entry.text("hostname")).is_some())
}

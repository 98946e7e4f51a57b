//! Service and Ingress.

use super::view::View;
use super::{Case, Verdict};

pub(super) fn service(case: &Case<'_>) -> Verdict {
    let object = case.object;
    let kind = object.text("spec.type").unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return Verdict::ready("ExternalName", format!("{object} is a name for another host."));
    }
    // A headless service has the address "None".
    if object.text("spec.clusterIP").is_none() {
        return Verdict::in_progress("NoClusterAddress", format!("{object} has no cluster address yet."));
    }
    if kind == "LoadBalancer" && case.options.load_balancer_address && !has_address(object) {
        return no_address(case, "load balancers");
    }
    Verdict::ready("AddressAssigned", format!("{object} has its address."))
}

pub(super) fn ingress(case: &Case<'_>) -> Verdict {
    let object = case.object;
    if case.options.ingress_address && !has_address(object) {
        return no_address(case, "this ingress class");
    }
    Verdict::ready("Exists", format!("{object} exists."))
}

fn no_address(case: &Case<'_>, of_what: &str) -> Verdict {
    Verdict::in_progress(
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

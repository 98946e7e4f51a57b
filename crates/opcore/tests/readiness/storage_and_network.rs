//! PersistentVolumeClaim, PersistentVolume, Service, Ingress.

use crate::common::object;

#[test]
fn a_claim_is_ready_when_bound() {
    object("persistentvolumeclaim").is_ready("Bound");
    object("persistentvolumeclaim").but("status: {phase: Pending}").is_in_progress("NotBound");
    object("persistentvolumeclaim").but("status: null").is_in_progress("NotBound");
}

#[test]
fn a_lost_claim_has_failed() {
    object("persistentvolumeclaim").but("status: {phase: Lost}").has_failed("Lost");
}

#[test]
fn a_claim_that_waits_for_its_first_consumer_is_ready_if_the_caller_accepts_it() {
    let waiting =
        object("persistentvolumeclaim").but("spec: {volumeName: null}\nstatus: {phase: Pending, capacity: null}");
    let verdict = waiting.is_in_progress("NotBound");
    assert!(verdict.message.contains("first consumer"), "{verdict:?}");

    let accepted = waiting.options(|options| options.claim_waits_for_consumer = true);
    accepted.is_ready("WaitsForFirstConsumer");
    // Once a pod uses it, it has to bind like any other claim.
    accepted.but("metadata: {annotations: {volume.kubernetes.io/selected-node: worker-1}}").is_in_progress("NotBound");
}

#[test]
fn a_volume_is_ready_unless_pending_or_failed() {
    for phase in ["Available", "Bound", "Released"] {
        object("persistentvolume").but(&format!("status: {{phase: {phase}}}")).is_ready(phase);
    }
    object("persistentvolume").but("status: {phase: Pending}").is_in_progress("VolumePending");
    object("persistentvolume").but("status: {phase: Failed, message: cannot delete}").has_failed("VolumeFailed");
}

#[test]
fn a_service_is_ready_with_its_cluster_address() {
    object("service").is_ready("AddressAssigned");
    object("service").but("spec: {clusterIP: null}").is_in_progress("NoClusterAddress");
}

#[test]
fn a_headless_service_and_an_external_name_need_no_address() {
    object("service").but("spec: {clusterIP: None}").is_ready("AddressAssigned");
    object("service")
        .but("spec: {type: ExternalName, clusterIP: null, externalName: db.example.com}")
        .is_ready("ExternalName");
}

#[test]
fn a_load_balancer_needs_only_its_cluster_address_by_default() {
    object("service").but("spec: {type: LoadBalancer}").is_ready("AddressAssigned");
    object("service").but("spec: {type: LoadBalancer, clusterIP: null}").is_in_progress("NoClusterAddress");
}

#[test]
fn a_load_balancer_needs_its_external_address_if_the_caller_demands_it() {
    let demanded =
        object("service").but("spec: {type: LoadBalancer}").options(|options| options.load_balancer_address = true);
    demanded.is_in_progress("NoExternalAddress");
    for address in ["ip: 192.0.2.10", "hostname: lb.example.com"] {
        demanded
            .clone()
            .but(&format!("status: {{loadBalancer: {{ingress: [{{{address}}}]}}}}"))
            .is_ready("AddressAssigned");
    }
    demanded.but("status: {loadBalancer: {ingress: [{}]}}").is_in_progress("NoExternalAddress");
}

#[test]
fn the_demand_for_an_external_address_concerns_load_balancers_only() {
    object("service").options(|options| options.load_balancer_address = true).is_ready("AddressAssigned");
}

#[test]
fn an_ingress_is_ready_by_existing_unless_the_caller_demands_an_address() {
    object("ingress").is_ready("Exists");
    let demanded = object("ingress").options(|options| options.ingress_address = true);
    demanded.is_in_progress("NoExternalAddress");
    demanded.but("status: {loadBalancer: {ingress: [{hostname: lb.example.com}]}}").is_ready("Exists");
}

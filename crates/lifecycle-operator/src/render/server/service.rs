//! The Services in front of the server, and of the webhook beside it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;

use super::{NAME, config, controller_manager, federation, workload};
use crate::api::v1alpha1::SpireServer;
use crate::render::common::{Part, service_port};

/// What agents and other trust domains talk to.
pub(super) fn server(server: &SpireServer, part: &Part<'_>) -> Service {
    let mut ports = vec![service_port(workload::GRPC, 443), service_port(workload::METRICS, config::METRICS)];
    let federation = server.spec.federation.as_ref();
    if federation.is_some() {
        ports.push(service_port(federation::PORT_NAME, federation::PORT));
    }
    let mut service = part.service(NAME, ports);
    let cert = federation.and_then(federation::serving_cert);
    if cert.is_some_and(|cert| federation::secret(cert).is_none()) {
        let secret = ("service.beta.openshift.io/serving-cert-secret-name", federation::OPENSHIFT_SECRET);
        service.metadata.annotations = Some(BTreeMap::from([(secret.0.to_owned(), secret.1.to_owned())]));
    }
    service
}

/// What the API server asks about ClusterSPIFFEIDs.
pub(super) fn webhook(part: &Part<'_>) -> Service {
    part.service(controller_manager::WEBHOOK, vec![service_port(workload::WEBHOOK, 443)])
}

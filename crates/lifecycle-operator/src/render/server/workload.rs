//! The pod: the server, and its controller manager, which talks to it over a socket in a volume that both have.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{Container, PersistentVolumeClaimVolumeSource, PodTemplateSpec, Probe, Volume};

use super::{CONTAINER, DATA_DIRECTORY, NAME, Needs, config, controller_manager, datastore, federation, upstream};
use crate::api::v1alpha1::SpireServer;
use crate::render::common::{Part, config_volume, container_port, empty_volume, http_probe, mount, read_only, words};
use crate::render::volume::DATA_CLAIM;

/// The names of ports: of the whole pod, so that no two are the same.
pub(super) const GRPC: &str = "grpc";
pub(super) const METRICS: &str = "metrics";
pub(super) const WEBHOOK: &str = "webhook";
const HEALTH: &str = "server-health";
const MANAGER_HEALTH: &str = "manager-health";
const MANAGER_METRICS: &str = "manager-metrics";
/// The program of the server.
const PROGRAM: &str = "/opt/spire/bin/spire-server";
/// Where the configurations are.
const SERVER_CONFIG: &str = "/run/spire/config";
const MANAGER_CONFIG: &str = "/run/spire/controller-manager";
/// A new version may change a large database before it answers for the first time: 10 minutes, in periods of a second.
const STARTS_WITHIN: i32 = 600;

/// The workload. Its pod is replaced when `config_hash` changes.
pub(super) fn stateful_set(server: &SpireServer, part: &Part<'_>, config_hash: String, running: bool) -> StatefulSet {
    let spec = StatefulSetSpec {
        replicas: Some(i32::from(running)),
        service_name: Some(NAME.to_owned()),
        selector: part.label_selector(),
        // With the other policy, a pod that cannot start is never replaced by one that could.
        pod_management_policy: Some("Parallel".to_owned()),
        template: template(server, part, config_hash),
        ..StatefulSetSpec::default()
    };
    StatefulSet { metadata: part.meta(NAME), spec: Some(spec), ..StatefulSet::default() }
}

fn template(server: &SpireServer, part: &Part<'_>, config_hash: String) -> PodTemplateSpec {
    let spec = &server.spec;
    let mut needs = datastore::needs(&spec.datastore);
    needs.add(spec.upstream_authority.as_ref().map(upstream::needs).unwrap_or_default());
    needs.add(spec.federation.as_ref().map(federation::needs).unwrap_or_default());
    let mut volumes = vec![
        data_volume(),
        empty_volume("server-socket"),
        empty_volume("server-tmp"),
        empty_volume("manager-tmp"),
        config_volume("server-config", NAME),
        config_volume("manager-config", controller_manager::NAME),
    ];
    volumes.append(&mut needs.volumes);
    let containers = vec![server_container(server, part, needs), manager_container(part)];
    part.template(Some(config_hash), part.pod(Some(NAME), containers, volumes))
}

/// By its name, a StatefulSet that another operator made with a template for the claim has the same volume.
fn data_volume() -> Volume {
    let claim = PersistentVolumeClaimVolumeSource { claim_name: DATA_CLAIM.to_owned(), read_only: None };
    Volume { name: "spire-data".to_owned(), persistent_volume_claim: Some(claim), ..Volume::default() }
}

fn server_container(server: &SpireServer, part: &Part<'_>, needs: Needs) -> Container {
    let expands = datastore::has_variables(&server.spec.datastore).then_some("-expandEnv");
    let file = format!("{SERVER_CONFIG}/{}", config::FILE);
    let mut ports = vec![
        container_port(GRPC, config::GRPC),
        container_port(HEALTH, config::HEALTH),
        container_port(METRICS, config::METRICS),
    ];
    if server.spec.federation.is_some() {
        ports.push(container_port(federation::PORT_NAME, federation::PORT));
    }
    let mut mounts = vec![
        mount("spire-data", DATA_DIRECTORY),
        read_only("server-config", SERVER_CONFIG),
        mount("server-tmp", "/tmp"),
        mount("server-socket", controller_manager::SOCKET_DIRECTORY),
    ];
    mounts.extend(needs.mounts);
    Container {
        command: words([PROGRAM, "run"]),
        args: words(expands.into_iter().chain(["-config", &file])),
        env: Some(needs.env).filter(|env| !env.is_empty()),
        ports: Some(ports),
        resources: part.resources(),
        volume_mounts: Some(mounts),
        startup_probe: Some(Probe {
            period_seconds: Some(1),
            failure_threshold: Some(STARTS_WITHIN),
            ..http_probe("/live", HEALTH)
        }),
        liveness_probe: Some(Probe {
            period_seconds: Some(30),
            timeout_seconds: Some(5),
            failure_threshold: Some(3),
            ..http_probe("/live", HEALTH)
        }),
        readiness_probe: Some(Probe { period_seconds: Some(2), ..http_probe("/ready", HEALTH) }),
        ..part.container(CONTAINER, &part.settings.images.server)
    }
}

fn manager_container(part: &Part<'_>) -> Container {
    let file = format!("--config={MANAGER_CONFIG}/{}", controller_manager::FILE);
    Container {
        args: words([file.as_str()]),
        ports: Some(vec![
            container_port(WEBHOOK, controller_manager::WEBHOOK_PORT),
            container_port(MANAGER_HEALTH, controller_manager::HEALTH),
            container_port(MANAGER_METRICS, controller_manager::METRICS),
        ]),
        volume_mounts: Some(vec![
            read_only("server-socket", controller_manager::SOCKET_DIRECTORY),
            read_only("manager-config", MANAGER_CONFIG),
            mount("manager-tmp", "/tmp"),
        ]),
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(15),
            period_seconds: Some(30),
            timeout_seconds: Some(5),
            ..http_probe("/healthz", MANAGER_HEALTH)
        }),
        readiness_probe: Some(Probe { period_seconds: Some(2), ..http_probe("/readyz", MANAGER_HEALTH) }),
        ..part.container(controller_manager::NAME, &part.settings.images.controller_manager)
    }
}

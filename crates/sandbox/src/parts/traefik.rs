//! Traefik, which leads requests from outside to Services by the rules of Ingresses.

use super::{Definition, Pods, Work};

pub(super) const PART: Definition = Definition {
    name: "traefik",
    about: "Traefik; serves Ingresses at the node's address",
    programs: &["traefik"],
    packages: &[],
    definitions: &[],
    needs_node: true,
    prepare: |_| Ok(()),
    work: Work::Pods(Pods {
        program: "traefik",
        image: "sandbox.opcore.dev/traefik:v1",
        manifests: include_str!("traefik.yaml"),
        namespace: "traefik",
        deployment: "traefik",
    }),
    facts: |place| {
        let url = place.network.map(|network| format!("http://{}", network.node()));
        url.map(|url| ("OPCORE_INGRESS_URL", url)).into_iter().collect()
    },
};

//! SPIRE: the images of its server and its agent, of what goes with them, and the kinds of its controller manager. The
//! lifecycle-operator makes pods of them.

use super::{Definition, NodeImage, Work};

pub(super) const PART: Definition = Definition {
    name: "spire",
    about: "images of SPIRE for the node, and the kinds of its controller manager",
    programs: &[
        "spire-server",
        "spire-agent",
        "oidc-discovery-provider",
        "spire-controller-manager",
        "spiffe-csi-driver",
        "csi-registrar",
    ],
    packages: &[],
    definitions: &["spire-controller-manager"],
    needs_node: true,
    prepare: |_| Ok(()),
    work: Work::Images(&IMAGES),
    facts: |_| IMAGES.iter().map(|image| (image.variable, image.name.to_owned())).collect(),
};

/// Programs, places, arguments and users are those of SPIRE's own images.
const IMAGES: [NodeImage; 6] = [
    NodeImage {
        variable: "OPCORE_IMAGE_SPIRE_SERVER",
        name: "opcore.dev/spire-server:1.15.3",
        program: "spire-server",
        place: "/opt/spire/bin/spire-server",
        arguments: &["run"],
        user: 1000,
    },
    NodeImage {
        variable: "OPCORE_IMAGE_SPIRE_AGENT",
        name: "opcore.dev/spire-agent:1.15.3",
        program: "spire-agent",
        place: "/opt/spire/bin/spire-agent",
        arguments: &["run"],
        user: 0,
    },
    NodeImage {
        variable: "OPCORE_IMAGE_OIDC_PROVIDER",
        name: "opcore.dev/oidc-discovery-provider:1.15.3",
        program: "oidc-discovery-provider",
        place: "/opt/spire/bin/oidc-discovery-provider",
        arguments: &[],
        user: 1000,
    },
    NodeImage {
        variable: "OPCORE_IMAGE_CONTROLLER_MANAGER",
        name: "opcore.dev/spire-controller-manager:0.6.2",
        program: "spire-controller-manager",
        place: "/spire-controller-manager",
        arguments: &[],
        user: 0,
    },
    NodeImage {
        variable: "OPCORE_IMAGE_CSI_DRIVER",
        name: "opcore.dev/spiffe-csi-driver:0.2.6",
        program: "spiffe-csi-driver",
        place: "/spiffe-csi-driver",
        arguments: &[],
        user: 0,
    },
    // In the place of Kubernetes' own, which takes the same flags.
    NodeImage {
        variable: "OPCORE_IMAGE_CSI_REGISTRAR",
        name: "opcore.dev/csi-registrar:1.0.0",
        program: "csi-registrar",
        place: "/csi-node-driver-registrar",
        arguments: &[],
        user: 0,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_called_as_the_components_that_they_hold() -> anyhow::Result<()> {
        let catalogue = crate::catalogue::Catalogue::load()?;
        for image in &IMAGES {
            let version = &catalogue.find(image.program)?.version;
            assert_eq!(image.name, format!("opcore.dev/{}:{}", image.program, version.trim_start_matches('v')));
        }
        Ok(())
    }
}

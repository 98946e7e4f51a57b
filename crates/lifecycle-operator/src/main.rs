//! The operator's program; the library has the code.

use clap::Args;
use lifecycle_operator::api::v1alpha1::{SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer};
use lifecycle_operator::controller::{Operands, Shared, Stack};
use lifecycle_operator::render::{Images, Settings};

/// What this operator has beyond the flags of all.
#[derive(Args, Clone, Debug)]
struct StackFlags {
    /// The namespace in which the operands run.
    #[arg(long, env = "OPCORE_OPERAND_NAMESPACE", default_value = "spire")]
    operand_namespace: String,

    /// The class of ClusterSPIFFEIDs that the controller manager serves.
    #[arg(long, env = "OPCORE_CLASS_NAME", default_value = "zero-trust-workload-identity-manager-spire")]
    class_name: String,

    /// Whether conflicting configuration is also refused when it is written, by admission policies.
    #[arg(long, env = "OPCORE_CONFLICT_POLICIES", default_value_t = true, action = clap::ArgAction::Set)]
    conflict_policies: bool,

    /// The image of the SPIRE server.
    #[arg(long, env = "OPCORE_IMAGE_SPIRE_SERVER", default_value = "ghcr.io/spiffe/spire-server:1.15.3")]
    image_spire_server: String,

    /// The image of SPIRE's controller manager.
    #[arg(
        long,
        env = "OPCORE_IMAGE_CONTROLLER_MANAGER",
        default_value = "ghcr.io/spiffe/spire-controller-manager:0.6.2"
    )]
    image_controller_manager: String,

    /// The image of the SPIRE agent.
    #[arg(long, env = "OPCORE_IMAGE_SPIRE_AGENT", default_value = "ghcr.io/spiffe/spire-agent:1.15.3")]
    image_spire_agent: String,

    /// The image of the SPIFFE CSI driver.
    #[arg(long, env = "OPCORE_IMAGE_CSI_DRIVER", default_value = "ghcr.io/spiffe/spiffe-csi-driver:0.2.12")]
    image_csi_driver: String,

    /// The image of the program that registers the driver with the kubelet.
    #[arg(
        long,
        env = "OPCORE_IMAGE_CSI_REGISTRAR",
        default_value = "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.15.0"
    )]
    image_csi_registrar: String,

    /// The image of the OIDC discovery provider.
    #[arg(long, env = "OPCORE_IMAGE_OIDC_PROVIDER", default_value = "ghcr.io/spiffe/oidc-discovery-provider:1.15.3")]
    image_oidc_provider: String,

    /// The image of the program that works on the server's volume.
    #[arg(long, env = "OPCORE_IMAGE_SPIRE_VOLUME", default_value = concat!("ghcr.io/opcore-dev/spire-volume:", env!("CARGO_PKG_VERSION")))]
    image_spire_volume: String,

    /// When images are pulled.
    #[arg(long, env = "OPCORE_OPERAND_PULL_POLICY", default_value = "IfNotPresent", value_parser = ["Always", "IfNotPresent", "Never"])]
    operand_pull_policy: String,

    /// Secrets in the namespace of the operands with which images are pulled.
    #[arg(long, env = "OPCORE_OPERAND_PULL_SECRETS", value_delimiter = ',', value_name = "NAME,…")]
    operand_pull_secrets: Vec<String>,
}

impl StackFlags {
    fn settings(self) -> Settings {
        Settings {
            namespace: self.operand_namespace,
            images: Images {
                server: self.image_spire_server,
                controller_manager: self.image_controller_manager,
                agent: self.image_spire_agent,
                csi_driver: self.image_csi_driver,
                csi_registrar: self.image_csi_registrar,
                oidc: self.image_oidc_provider,
                volume: self.image_spire_volume,
            },
            pull_policy: self.operand_pull_policy,
            // A value of the environment that is empty is a list of nothing.
            pull_secrets: self.operand_pull_secrets.into_iter().filter(|name| !name.is_empty()).collect(),
            class_name: self.class_name,
        }
    }
}

#[global_allocator]
static ALLOCATOR: opcore::Allocator = opcore::Allocator;

fn main() -> std::process::ExitCode {
    opcore::runtime::run_with(opcore::build_info!(), |context, flags: StackFlags| async move {
        let conflict_policies = flags.conflict_policies;
        let shared = Shared::new(&context, flags.settings());
        futures::try_join!(
            context.controller(Stack::new(&shared)),
            context.controller(Operands::<SpireServer>::new(&shared)),
            context.controller(Operands::<SpireAgent>::new(&shared)),
            context.controller(Operands::<SpiffeCSIDriver>::new(&shared)),
            context.controller(Operands::<SpireOIDCDiscoveryProvider>::new(&shared)),
            shared.policies().keep(&context, conflict_policies),
        )
        .map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: StackFlags,
    }

    #[test]
    fn without_a_chart_the_operands_are_those_of_the_chart() {
        let text = include_str!("../../../charts/lifecycle-operator/own/values.yaml");
        let values: Value = serde_yaml::from_str(text).unwrap();
        let Settings { namespace, images, class_name, pull_policy, .. } =
            Program::try_parse_from(["lifecycle-operator"]).unwrap().flags.settings();
        let operands = &values["operands"];
        assert_eq!(operands["namespace"]["name"], namespace);
        assert_eq!(operands["pullPolicy"], pull_policy);
        assert_eq!(values["className"], class_name);
        let image = |name: &str| {
            let image = &operands["images"][name];
            let tag = image["tag"].as_str().unwrap();
            let tag = if tag.is_empty() { env!("CARGO_PKG_VERSION") } else { tag };
            format!("{}:{tag}", image["repository"].as_str().unwrap())
        };
        for (name, default) in [
            ("spireServer", images.server),
            ("spireAgent", images.agent),
            ("oidcDiscoveryProvider", images.oidc),
            ("spireControllerManager", images.controller_manager),
            ("spiffeCsiDriver", images.csi_driver),
            ("csiNodeDriverRegistrar", images.csi_registrar),
            ("spireVolume", images.volume),
        ] {
            assert_eq!(image(name), default);
        }
    }
}

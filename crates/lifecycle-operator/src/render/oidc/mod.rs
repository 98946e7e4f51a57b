//! The OIDC discovery provider.

use super::{Config, Error, Objects, Platform, Settings};
use crate::api::v1alpha1::SpireOIDCDiscoveryProvider;

/// The name of the provider's objects in the namespace.
pub const NAME: &str = "spire-spiffe-oidc-discovery-provider";
/// The component of its pods, by the label `app.kubernetes.io/component`.
pub const COMPONENT: &str = "discovery";
/// The ClusterSPIFFEID that gives it its identity.
pub const IDENTITY: &str = "zero-trust-workload-identity-manager-spire-oidc-discovery-provider";

/// All objects of the provider.
///
/// # Errors
///
/// When an object cannot be rendered.
pub fn objects(
    provider: &SpireOIDCDiscoveryProvider,
    config: &Config,
    settings: &Settings,
    platform: &Platform,
) -> Result<Objects, Error> {
    let _ = (provider, config, settings, platform);
    Ok(Objects::default())
}

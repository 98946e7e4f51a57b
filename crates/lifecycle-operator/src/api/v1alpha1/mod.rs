//! `operator.openshift.io/v1alpha1`: types only. Their comments are the API reference.
//!
//! The names of fields are those of OpenShift's operator for the same kinds, so that its manifests apply unchanged.

mod agent;
mod common;
mod csi;
mod oidc;
mod server;
mod status;
mod ztwim;

pub use agent::*;
pub use common::*;
pub use csi::*;
pub use oidc::*;
pub use server::*;
pub use status::*;
pub use ztwim::*;

/// The name that every object of these kinds has: there is one of each in a cluster.
pub const SINGLETON: &str = "cluster";
/// On an operand: the fields of its spec that come from the ZeroTrustWorkloadIdentityManager, separated by commas.
pub const INHERITED_ANNOTATION: &str = "ztwim.io/inherited";
/// On a SpireServer: asks for a backup. A new value is a new request.
pub const BACKUP_ANNOTATION: &str = "ztwim.io/backup-requested-at";
/// On the volume of a server: the trust domain of the data.
pub const TRUST_DOMAIN_ANNOTATION: &str = "ztwim.io/trust-domain";
/// On a pod template: the digest of the configuration that the pods read when they start.
pub const CONFIG_HASH_ANNOTATION: &str = "ztwim.io/config-hash";

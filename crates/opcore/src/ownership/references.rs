//! Owner references that Kubernetes honours. An invalid one is worse than none: the garbage collector treats an owner
//! that it cannot find as gone, and deletes the dependant.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use thiserror::Error;

/// Why an owner reference must not be set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IllegalReference {
    /// A cluster-scoped object cannot be owned by a namespaced one.
    #[error("{owner} is in namespace {namespace} and cannot own a cluster-scoped object")]
    ClusterScopedDependant {
        /// The owner as text.
        owner: String,
        /// Its namespace.
        namespace: String,
    },
    /// Owner references do not cross namespaces.
    #[error("{owner} is in namespace {namespace} and cannot own an object in namespace {dependant}")]
    OtherNamespace {
        /// The owner as text.
        owner: String,
        /// Its namespace.
        namespace: String,
        /// The dependant's namespace.
        dependant: String,
    },
    /// The owner was never created in the API server.
    #[error("{0} has no UID yet and cannot own anything")]
    NotStored(String),
}

/// A controller reference to `owner` for a dependant in `namespace` (none for a cluster-scoped one).
///
/// # Errors
///
/// When Kubernetes would not honour the reference.
pub fn owner_reference<K>(owner: &K, namespace: Option<&str>) -> Result<OwnerReference, IllegalReference>
where
    K: Resource<DynamicType = ()>,
{
    let words = format!("{} {}", K::kind(&()), owner.name_any());
    match (owner.namespace(), namespace) {
        (Some(of_owner), None) => {
            return Err(IllegalReference::ClusterScopedDependant { owner: words, namespace: of_owner });
        }
        (Some(of_owner), Some(dependant)) if of_owner != dependant => {
            return Err(IllegalReference::OtherNamespace {
                owner: words,
                namespace: of_owner,
                dependant: dependant.to_owned(),
            });
        }
        _ => {}
    }
    owner.controller_owner_ref(&()).ok_or(IllegalReference::NotStored(words))
}

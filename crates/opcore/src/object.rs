//! Identifies objects by kind and name, without the version of the kind.

use std::fmt;

use kube::api::ApiResource;
use kube::{Resource, ResourceExt};

/// A kind without its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// Empty for the core group.
    pub group: String,
    /// For example `Deployment`.
    pub kind: String,
}

impl GroupKind {
    /// The kind of an API resource.
    pub fn of(resource: &ApiResource) -> Self {
        Self { group: resource.group.clone(), kind: resource.kind.clone() }
    }

    /// The kind that a manifest names with `apiVersion` and `kind`.
    pub fn written(api_version: &str, kind: &str) -> Self {
        Self { group: group_of(api_version).to_owned(), kind: kind.to_owned() }
    }
}

/// The API group of an `apiVersion`; the core group is empty.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// An object by its kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// Its kind.
    pub kind: GroupKind,
    /// None for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl ObjectId {
    /// Identifies an object of this kind that was read or is to be written.
    pub fn new(resource: &ApiResource, object: &impl Resource) -> Self {
        Self { kind: GroupKind::of(resource), namespace: object.namespace(), name: object.name_any() }
    }

    /// Identifies an object whose kind is known at compile time.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self::named::<K>(object.namespace().as_deref(), &object.name_any())
    }

    /// Identifies an object by this kind, namespace and name.
    pub fn named<K: Resource<DynamicType = ()>>(namespace: Option<&str>, name: &str) -> Self {
        let kind = GroupKind { group: K::group(&()).into_owned(), kind: K::kind(&()).into_owned() };
        Self { kind, namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectId {
    /// `Kind namespace/name`, or `Kind name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind.kind, self.name),
            None => write!(f, "{} {}", self.kind.kind, self.name),
        }
    }
}

/// Whether a name or a namespace can be part of the path of a request as it is. Requests are made from names that users
/// write: with some of them they could not be sent, with others they would be about something else. No object has such a
/// name, except for a few kinds, such as roles, of which nothing here needs one.
pub fn is_path_segment(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
    !matches!(text, "" | "." | "..") && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;

    #[test]
    fn an_object_is_named_as_a_person_would_look_it_up() {
        let deployment = ObjectId::named::<Deployment>(Some("shop"), "front");
        assert_eq!(deployment.to_string(), "Deployment shop/front");
        assert_eq!(deployment.kind, GroupKind::written("apps/v1", "Deployment"));
        assert_eq!(ObjectId::named::<Namespace>(None, "shop").to_string(), "Namespace shop");
    }
}

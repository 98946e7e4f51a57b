//! The central config: which values are in effect for an operand, where each comes from, and which contradict each
//! other.
//!
//! A value that an operand has of its own must equal the parent's. A value that it has from the parent is *inherited*:
//! it follows the parent, and is never in conflict with it. Server-side apply tells the two apart: a field is inherited
//! when nobody but this operator manages it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::Value;

use crate::api::v1alpha1::{
    EffectiveValue, INHERITED_ANNOTATION, OperandKind, Provenance, SINGLETON, ZeroTrustWorkloadIdentityManager,
};
use crate::render::Config;

/// A field of the central config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The trust domain.
    TrustDomain,
    /// The name of the cluster.
    ClusterName,
    /// The ConfigMap with the trust bundle.
    BundleConfigMap,
    /// The issuer of JWT-SVIDs.
    JwtIssuer,
}

impl Field {
    /// All fields.
    pub const ALL: [Self; 4] = [Self::TrustDomain, Self::ClusterName, Self::BundleConfigMap, Self::JwtIssuer];

    /// Its name in a spec.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TrustDomain => "trustDomain",
            Self::ClusterName => "clusterName",
            Self::BundleConfigMap => "bundleConfigMap",
            Self::JwtIssuer => "jwtIssuer",
        }
    }

    /// The fields that concern an operand. A change of any other field does not reach it.
    pub fn of(kind: OperandKind) -> &'static [Self] {
        match kind {
            OperandKind::SpireServer => &Self::ALL,
            OperandKind::SpireAgent => &[Self::TrustDomain, Self::ClusterName, Self::BundleConfigMap],
            OperandKind::SpiffeCSIDriver => &[],
            OperandKind::SpireOIDCDiscoveryProvider => &[Self::TrustDomain, Self::JwtIssuer],
        }
    }

    /// Its value in the spec of the central config; none if it is empty.
    pub fn asked(self, parent: &ZeroTrustWorkloadIdentityManager) -> Option<&str> {
        let spec = &parent.spec;
        let value = match self {
            Self::TrustDomain => &spec.trust_domain,
            Self::ClusterName => &spec.cluster_name,
            Self::BundleConfigMap => &spec.bundle_config_map,
            Self::JwtIssuer => &spec.jwt_issuer,
        };
        value.as_deref().filter(|value| !value.is_empty())
    }

    /// Its value in the central config that is in effect: a new trust domain is in effect only when the migration to it
    /// has got that far.
    pub fn central(self, parent: &ZeroTrustWorkloadIdentityManager) -> Option<&str> {
        let asked = self.asked(parent)?;
        let in_effect = parent.status.as_ref().and_then(|status| status.trust_domain.as_deref());
        Some(if self == Self::TrustDomain { in_effect.unwrap_or(asked) } else { asked })
    }

    /// The value when nobody sets one. The trust domain has none: it must be chosen.
    fn default(self, trust_domain: Option<&str>) -> Option<String> {
        match self {
            Self::TrustDomain => None,
            Self::ClusterName => Some("cluster".to_owned()),
            Self::BundleConfigMap => Some("spire-bundle".to_owned()),
            Self::JwtIssuer => Some(format!("https://oidc-discovery.{}", trust_domain?)),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The values of the central config that an operand's spec has, and which of them are inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperandConfig {
    /// The values in its spec.
    pub values: BTreeMap<Field, String>,
    /// Those of them that come from the parent.
    pub inherited: BTreeSet<Field>,
}

impl OperandConfig {
    /// Reads them from a spec. What is inherited is read from the annotation that the parent sets.
    pub fn of(kind: OperandKind, spec: &Value, meta: &ObjectMeta) -> Self {
        let value = |field: &Field| {
            let value = spec.get(field.as_str())?.as_str().filter(|value| !value.is_empty())?;
            Some((*field, value.to_owned()))
        };
        let values: BTreeMap<_, _> = Field::of(kind).iter().filter_map(value).collect();
        let said = meta.annotations.as_ref().and_then(|all| all.get(INHERITED_ANNOTATION));
        let is_said = |field: &Field| said.is_some_and(|said| said.split(',').any(|name| name == field.as_str()));
        let inherited = values.keys().copied().filter(is_said).collect();
        Self { values, inherited }
    }

    /// The value that was set on the operand itself.
    pub fn own(&self, field: Field) -> Option<&str> {
        self.values.get(&field).filter(|_| !self.inherited.contains(&field)).map(String::as_str)
    }
}

/// The fields of an operand's spec that nobody but `manager` manages, as server-side apply records it.
pub fn managed_alone(kind: OperandKind, meta: &ObjectMeta, manager: &str) -> BTreeSet<Field> {
    let has_field = |entry: &Value, field: Field| entry.pointer(&format!("/f:spec/f:{field}")).is_some();
    let entries: Vec<_> = meta.managed_fields.iter().flatten().collect();
    let by_us = |field: &Field, ours: bool| {
        entries.iter().any(|entry| {
            (entry.manager.as_deref() == Some(manager)) == ours
                && entry.fields_v1.as_ref().is_some_and(|fields| has_field(&fields.0, *field))
        })
    };
    Field::of(kind).iter().copied().filter(|field| by_us(field, true) && !by_us(field, false)).collect()
}

/// Two values that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The field.
    pub field: Field,
    /// The kind of the first object, and its value.
    pub one: (String, String),
    /// The kind of the second object, and its value.
    pub other: (String, String),
}

impl fmt::Display for Conflict {
    /// Names both values and both objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, (one, this), (other, that)) = (self.field, &self.one, &self.other);
        write!(
            f,
            "spec.{field} of {one} {SINGLETON} is {this:?}, but spec.{field} of {other} {SINGLETON} is {that:?}. Make \
             them equal, or remove the one of {other}, which then follows {one}."
        )
    }
}

/// The name of the parent's kind.
pub const PARENT: &str = "ZeroTrustWorkloadIdentityManager";

/// The conflicts between the parent and one operand.
pub fn conflicts(
    parent: &ZeroTrustWorkloadIdentityManager,
    kind: OperandKind,
    operand: &OperandConfig,
) -> Vec<Conflict> {
    let conflict = |field: &Field| {
        let (central, own) = (field.central(parent)?, operand.own(*field)?);
        (central != own).then(|| Conflict {
            field: *field,
            one: (PARENT.to_owned(), central.to_owned()),
            other: (kind.as_str().to_owned(), own.to_owned()),
        })
    };
    Field::of(kind).iter().filter_map(conflict).collect()
}

/// The operands that disagree with each other about a field.
pub fn disagreements(operands: &[(OperandKind, &OperandConfig)]) -> Vec<Conflict> {
    let disagreement = |field: &Field| {
        let mut having = operands.iter().filter_map(|(kind, config)| Some((kind, config.own(*field)?)));
        let (first, value) = having.next()?;
        let (other, differs) = having.find(|(_, other)| *other != value)?;
        Some(Conflict {
            field: *field,
            one: (first.as_str().to_owned(), value.to_owned()),
            other: (other.as_str().to_owned(), differs.to_owned()),
        })
    };
    Field::ALL.iter().filter_map(disagreement).collect()
}

/// The values that an empty central config takes over from the operands that exist: each field that is empty there and
/// on which the operands that have it agree.
pub fn adopted(
    parent: &ZeroTrustWorkloadIdentityManager,
    operands: &[(OperandKind, &OperandConfig)],
) -> BTreeMap<Field, String> {
    let disputed: BTreeSet<_> = disagreements(operands).into_iter().map(|conflict| conflict.field).collect();
    let value = |field: &Field| {
        if field.asked(parent).is_some() || disputed.contains(field) {
            return None;
        }
        let own = operands.iter().find_map(|(_, config)| config.own(*field))?;
        Some((*field, own.to_owned()))
    };
    Field::ALL.iter().filter_map(value).collect()
}

/// Why no config is in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The trust domain is set nowhere.
    NoTrustDomain,
    /// Values contradict each other.
    Conflict(Conflict),
}

impl Unusable {
    /// The reason, for a condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoTrustDomain => "MissingTrustDomain",
            Self::Conflict(_) => "ConfigConflict",
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTrustDomain => {
                write!(f, "You must specify a trust domain: set spec.trustDomain of {PARENT} {SINGLETON}.")
            }
            Self::Conflict(conflict) => conflict.fmt(f),
        }
    }
}

/// The config that is in effect for an operand, with the provenance of each of its values.
///
/// # Errors
///
/// When a value is missing or in conflict: then nothing of the operand may be changed.
pub fn effective(
    kind: OperandKind,
    operand: &OperandConfig,
    parent: Option<&ZeroTrustWorkloadIdentityManager>,
) -> Result<(Config, Vec<EffectiveValue>), Unusable> {
    if let Some(conflict) = parent.and_then(|parent| conflicts(parent, kind, operand).into_iter().next()) {
        return Err(Unusable::Conflict(conflict));
    }
    let mut values: Vec<EffectiveValue> = Vec::new();
    for field in Field::of(kind) {
        let central = parent.and_then(|parent| field.central(parent));
        let trust_domain = values.iter().find(|value| value.name == Field::TrustDomain.as_str());
        let found = match (operand.own(*field), central, operand.values.get(field)) {
            (Some(own), ..) => Some((own.to_owned(), Provenance::Own)),
            (None, Some(central), _) => Some((central.to_owned(), Provenance::Inherited)),
            // The parent is gone, or has none any more: what it left in the spec still holds.
            (None, None, Some(left)) => Some((left.clone(), Provenance::Inherited)),
            (None, None, None) => {
                let default = field.default(trust_domain.map(|value| value.value.as_str()));
                default.map(|default| (default, Provenance::Default))
            }
        };
        match found {
            Some((value, from)) => values.push(EffectiveValue { name: field.as_str().to_owned(), value, from }),
            None => return Err(Unusable::NoTrustDomain),
        }
    }
    let value = |field: Field| {
        let found = values.iter().find(|value| value.name == field.as_str());
        found.map(|value| value.value.clone()).unwrap_or_default()
    };
    let config = Config {
        trust_domain: value(Field::TrustDomain),
        cluster_name: value(Field::ClusterName),
        bundle_config_map: value(Field::BundleConfigMap),
        jwt_issuer: value(Field::JwtIssuer),
    };
    Ok((config, values))
}

/// Whether an object carries an owner reference to this UID.
pub fn is_owned_by(meta: &ObjectMeta, uid: &str) -> bool {
    meta.owner_references.iter().flatten().any(|reference| reference.uid == uid)
}

/// Whether Kubernetes is still releasing the dependants of an object that is deleted with `--cascade=orphan`.
pub fn is_orphaning(object: &impl ResourceExt) -> bool {
    object.finalizers().iter().any(|finalizer| finalizer == "orphan")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parent(spec: &Value) -> ZeroTrustWorkloadIdentityManager {
        let object = json!({ "metadata": { "name": "cluster" }, "spec": spec });
        serde_json::from_value(object).unwrap()
    }

    fn operand(kind: OperandKind, spec: &Value, inherited: &str) -> OperandConfig {
        let annotations = [(INHERITED_ANNOTATION.to_owned(), inherited.to_owned())];
        let meta = ObjectMeta { annotations: Some(annotations.into()), ..ObjectMeta::default() };
        OperandConfig::of(kind, spec, &meta)
    }

    const SERVER: OperandKind = OperandKind::SpireServer;
    const AGENT: OperandKind = OperandKind::SpireAgent;

    #[test]
    fn values_that_match_are_the_operands_own() {
        let server = operand(SERVER, &json!({ "trustDomain": "new.io" }), "");
        let (config, values) = effective(SERVER, &server, Some(&parent(&json!({ "trustDomain": "new.io" })))).unwrap();
        assert_eq!(config.trust_domain, "new.io");
        assert_eq!(values[0].from, Provenance::Own);
    }

    #[test]
    fn values_that_differ_are_a_conflict_that_names_both_values_and_both_objects() {
        let server = operand(SERVER, &json!({ "trustDomain": "old.io" }), "");
        let conflict = effective(SERVER, &server, Some(&parent(&json!({ "trustDomain": "new.io" })))).unwrap_err();
        assert_eq!(conflict.reason(), "ConfigConflict");
        let words = conflict.to_string();
        for part in ["ZeroTrustWorkloadIdentityManager cluster", "\"new.io\"", "SpireServer cluster", "\"old.io\""] {
            assert!(words.contains(part), "{words}");
        }
    }

    #[test]
    fn an_inherited_value_follows_the_parent_and_is_never_in_conflict() {
        let server = operand(SERVER, &json!({ "trustDomain": "old.io", "clusterName": "c" }), "trustDomain");
        let (config, values) = effective(SERVER, &server, Some(&parent(&json!({ "trustDomain": "new.io" })))).unwrap();
        assert_eq!((config.trust_domain.as_str(), config.cluster_name.as_str()), ("new.io", "c"));
        assert_eq!(
            values.iter().map(|value| value.from).collect::<Vec<_>>(),
            [Provenance::Inherited, Provenance::Own, Provenance::Default, Provenance::Default]
        );
        assert_eq!(config.jwt_issuer, "https://oidc-discovery.new.io");
    }

    #[test]
    fn an_operand_whose_parent_is_gone_keeps_what_it_inherited() {
        let agent = operand(AGENT, &json!({ "trustDomain": "old.io" }), "trustDomain");
        assert_eq!(effective(AGENT, &agent, None).unwrap().0.trust_domain, "old.io");
    }

    #[test]
    fn without_a_trust_domain_anywhere_the_user_must_specify_one() {
        let nothing = operand(AGENT, &json!({}), "");
        let error = effective(AGENT, &nothing, Some(&parent(&json!({})))).unwrap_err();
        assert!(error.to_string().starts_with("You must specify a trust domain"), "{error}");
    }

    #[test]
    fn an_empty_central_config_adopts_what_the_operands_agree_on() {
        let server = operand(SERVER, &json!({ "trustDomain": "existing.io", "clusterName": "a" }), "");
        let agent = operand(AGENT, &json!({ "trustDomain": "existing.io", "clusterName": "b" }), "");
        let operands = [(SERVER, &server), (AGENT, &agent)];
        let found = adopted(&parent(&json!({})), &operands);
        assert_eq!(found, BTreeMap::from([(Field::TrustDomain, "existing.io".to_owned())]));
        let disputed = disagreements(&operands);
        assert_eq!(disputed.len(), 1);
        assert!(disputed[0].to_string().contains("SpireServer cluster is \"a\""), "{}", disputed[0]);
        assert!(disputed[0].to_string().contains("SpireAgent cluster is \"b\""), "{}", disputed[0]);
    }

    #[test]
    fn the_csi_driver_is_not_concerned_by_any_of_it() {
        let driver = operand(OperandKind::SpiffeCSIDriver, &json!({}), "");
        let (config, values) = effective(OperandKind::SpiffeCSIDriver, &driver, None).unwrap();
        assert_eq!((config, values), (Config::default(), Vec::new()));
    }

    #[test]
    fn a_field_that_someone_else_manages_too_is_not_inherited() {
        let entry = |manager: &str, fields: Value| {
            json!({ "manager": manager, "operation": "Apply", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": fields } })
        };
        let meta: ObjectMeta = serde_json::from_value(json!({ "managedFields": [
            entry("lifecycle-operator", json!({ "f:trustDomain": {}, "f:clusterName": {} })),
            entry("kubectl", json!({ "f:clusterName": {}, "f:jwtIssuer": {} })),
        ]}))
        .unwrap();
        let alone = managed_alone(SERVER, &meta, "lifecycle-operator");
        assert_eq!(alone, BTreeSet::from([Field::TrustDomain]));
    }
}

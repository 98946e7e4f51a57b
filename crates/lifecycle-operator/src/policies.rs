//! The conflict matrix as admission policies: the API server itself refuses values that contradict each other.
//!
//! | Written | Found | Answer |
//! |---|---|---|
//! | parent with a value | operand with the same | allowed |
//! | parent with a value | operand with another of its own | refused; names both values and both objects |
//! | parent with a value | operand without one | allowed; the controller fills it in |
//! | operand with a value | parent with another | refused; names both |
//! | parent without a trust domain | operands that agree | allowed; the controller takes theirs over, once |
//! | parent without a trust domain | operands that disagree | refused; names both |
//! | parent without a trust domain | none anywhere | refused: a trust domain must be specified |
//!
//! No pod takes part, so that a stopped operator refuses nobody. Nothing that is being deleted is refused. The
//! controller repeats every check, so that nothing depends on these policies.
//!
//! A policy can read one other object. What it takes to know of all operands at once, to judge a parent without a trust
//! domain, the controller keeps in a ConfigMap ([`SUMMARY`]).

use opcore::admission::{Message, Params, Policy, Requests, Response, Rule};

use crate::api::v1alpha1::{INHERITED_ANNOTATION, OperandKind, SINGLETON};
use crate::config::{Field, PARENT};

/// The ConfigMap in which the values of all operands are kept for the policies.
pub const SUMMARY: &str = "ztwim-operands";
/// Its key for the trust domains of the operands: one line each, the kind and the value.
pub const SUMMARY_KEY: &str = "trustDomains";

const GROUP: &str = "operator.openshift.io";
const API_VERSION: &str = "operator.openshift.io/v1alpha1";

/// All policies; none if they are switched off.
pub fn all(enabled: bool, namespace: &str) -> Vec<Policy> {
    if !enabled {
        return Vec::new();
    }
    let kinds = OperandKind::ALL.into_iter().filter(|kind| !Field::of(*kind).is_empty());
    let pairs = kinds.flat_map(|kind| [of_parent(kind), of_operand(kind)]);
    pairs.chain([bootstrap(namespace)]).collect()
}

fn plural(kind: OperandKind) -> &'static str {
    match kind {
        OperandKind::SpireServer => "spireservers",
        OperandKind::SpireAgent => "spireagents",
        OperandKind::SpiffeCSIDriver => "spiffecsidrivers",
        OperandKind::SpireOIDCDiscoveryProvider => "spireoidcdiscoveryproviders",
    }
}

fn writes_to(resource: &str) -> Vec<Requests> {
    vec![Requests {
        group: GROUP.to_owned(),
        versions: vec!["v1alpha1".to_owned()],
        resources: vec![resource.to_owned()],
        operations: vec!["CREATE".to_owned(), "UPDATE".to_owned()],
    }]
}

/// A field of a spec, empty if it is not set.
fn field(of: &str, field: Field) -> String {
    format!("{of}.spec.?{field}.orValue('')")
}

/// Whether an operand says that it has a field from its parent.
fn inherits(of: &str, field: Field) -> String {
    format!(
        "{of}.metadata.?annotations['{INHERITED_ANNOTATION}'].orValue('').split(',').exists(name, name == '{field}')"
    )
}

/// The sentence that names both values and both objects.
fn conflict(field: Field, one: (&str, &str), other: (&str, &str)) -> Message {
    let ((kind, this), (other, that)) = (one, other);
    Message::Computed(format!(
        "'spec.{field} of {kind} {SINGLETON} is \"' + {this} + '\", but spec.{field} of {other} {SINGLETON} is \"' + {that} \
         + '\". Conflict with {PARENT} config: make them equal, or remove the one of {}, which then follows {PARENT}.'",
        if kind == PARENT { other } else { kind },
    ))
}

/// Writing the parent, with an operand that exists.
fn of_parent(kind: OperandKind) -> Policy {
    let rule = |field: &Field| {
        let (asked, had, own) =
            (self::field("object", *field), self::field("oldObject", *field), self::field("params", *field));
        Rule {
            // What was accepted before is not refused later, because of a value that does not change.
            expression: format!(
                "{asked} == '' || {own} == '' || {asked} == {own} || {} || (oldObject != null && {had} == {asked})",
                inherits("params", *field),
            ),
            message: conflict(*field, (PARENT, &asked), (kind.as_str(), &own)),
        }
    };
    Policy {
        name: format!("ztwim-agrees-with-{}", plural(kind)),
        requests: writes_to("zerotrustworkloadidentitymanagers"),
        rules: Field::of(kind).iter().map(rule).collect(),
        params: Some(Params {
            api_version: API_VERSION.to_owned(),
            kind: kind.as_str().to_owned(),
            namespace: None,
            name: SINGLETON.to_owned(),
        }),
        response: Response::Deny,
        ..Policy::default()
    }
}

/// Writing an operand, with a parent that exists.
fn of_operand(kind: OperandKind) -> Policy {
    let rule = |field: &Field| {
        let (own, had, asked) =
            (self::field("object", *field), self::field("oldObject", *field), self::field("params", *field));
        // While a migration is under way, the old trust domain is still in effect.
        let in_effect = match field {
            Field::TrustDomain => format!("{own} == params.?status.trustDomain.orValue('')"),
            _ => "false".to_owned(),
        };
        Rule {
            expression: format!(
                "{own} == '' || {asked} == '' || {own} == {asked} || {in_effect} || (oldObject != null && {had} == {own})"
            ),
            message: conflict(*field, (kind.as_str(), &own), (PARENT, &asked)),
        }
    };
    Policy {
        name: format!("{}-agree-with-ztwim", plural(kind)),
        requests: writes_to(plural(kind)),
        rules: Field::of(kind).iter().map(rule).collect(),
        params: Some(Params {
            api_version: API_VERSION.to_owned(),
            kind: PARENT.to_owned(),
            name: SINGLETON.to_owned(),
            namespace: None,
        }),
        response: Response::Deny,
        ..Policy::default()
    }
}

/// Creating a parent without a trust domain.
fn bootstrap(namespace: &str) -> Policy {
    let asked = field("object", Field::TrustDomain);
    let lines = format!("params.data.?{SUMMARY_KEY}.orValue('').split('\\n').filter(line, line != '')");
    let value = "split(' ')[1]";
    Policy {
        name: "ztwim-has-a-trust-domain".to_owned(),
        requests: writes_to("zerotrustworkloadidentitymanagers"),
        variables: vec![("operands".to_owned(), lines)],
        rules: vec![
            Rule {
                expression: format!("{asked} != '' || size(variables.operands) > 0"),
                message: Message::Fixed(format!(
                    "You must specify a trust domain: set spec.trustDomain of {PARENT} {SINGLETON}. No operand has one, either."
                )),
            },
            Rule {
                expression: format!(
                    "{asked} != '' || variables.operands.all(line, line.{value} == variables.operands[0].{value})"
                ),
                message: Message::Computed(format!(
                    "'The operands disagree about the trust domain: ' + variables.operands.join(', ') + '. Make them equal, or \
                     specify spec.trustDomain of {PARENT} {SINGLETON} and remove theirs.'"
                )),
            },
        ],
        params: Some(Params {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            name: SUMMARY.to_owned(),
            namespace: Some(namespace.to_owned()),
        }),
        response: Response::Deny,
        ..Policy::default()
    }
}

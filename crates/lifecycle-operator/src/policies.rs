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
//! A policy can read one other object. To judge a parent without a trust domain, all operands must be known at once: the
//! controller knows them, and has the policy that refuses such a parent only as long as it would be refused
//! ([`Keeper`]). What the operands have could also stand in a ConfigMap for the policy to read; but the API server goes
//! on with an old copy of it, for ever, once the last policy that reads a ConfigMap was deleted and is there again.

use std::sync::Arc;

use opcore::admission::{self, Message, Params, Policy, Requests, Response, Rule};
use opcore::backoff::Backoff;
use opcore::{Context, Error};
use tokio::sync::{Notify, watch};

use crate::api::v1alpha1::{INHERITED_ANNOTATION, OperandKind, SINGLETON};
use crate::config::{Field, PARENT};
use crate::observe::peers;
use crate::operand::Peer;

const GROUP: &str = "operator.openshift.io";
const API_VERSION: &str = "operator.openshift.io/v1alpha1";

/// All policies, while the operands have these trust domains to offer to a parent without one.
pub fn all(offered: &[(OperandKind, String)]) -> Vec<Policy> {
    let kinds = OperandKind::ALL.into_iter().filter(|kind| !Field::of(*kind).is_empty());
    let pairs = kinds.flat_map(|kind| [of_parent(kind), of_operand(kind)]);
    pairs.chain(bootstrap(offered)).collect()
}

fn plural(kind: OperandKind) -> &'static str {
    match kind {
        OperandKind::SpireServer => "spireservers",
        OperandKind::SpireAgent => "spireagents",
        OperandKind::SpiffeCSIDriver => "spiffecsidrivers",
        OperandKind::SpireOIDCDiscoveryProvider => "spireoidcdiscoveryproviders",
    }
}

fn requests(operations: &[&str], resource: &str) -> Vec<Requests> {
    vec![Requests {
        group: GROUP.to_owned(),
        versions: vec!["v1alpha1".to_owned()],
        resources: vec![resource.to_owned()],
        operations: operations.iter().map(|operation| (*operation).to_owned()).collect(),
    }]
}

fn writes_to(resource: &str) -> Vec<Requests> {
    requests(&["CREATE", "UPDATE"], resource)
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

/// Creating a parent without a trust domain, while the operands have none to take over, or several. A parent that
/// exists was accepted, and can be edited.
fn bootstrap(offered: &[(OperandKind, String)]) -> Option<Policy> {
    let message = match offered {
        [] => format!(
            "You must specify a trust domain: set spec.trustDomain of {PARENT} {SINGLETON}. No operand has one, either."
        ),
        [(_, first), others @ ..] if others.iter().all(|(_, other)| other == first) => return None,
        several => {
            let each: Vec<_> =
                several.iter().map(|(kind, value)| format!("that of {kind} {SINGLETON} is \"{value}\"")).collect();
            format!(
                "The operands disagree about the trust domain: {}. Make them equal, or specify spec.trustDomain of \
                 {PARENT} {SINGLETON} and remove theirs.",
                each.join(", ")
            )
        }
    };
    let expression = format!("{} != ''", field("object", Field::TrustDomain));
    Some(Policy {
        name: "ztwim-has-a-trust-domain".to_owned(),
        requests: requests(&["CREATE"], "zerotrustworkloadidentitymanagers"),
        rules: vec![Rule { expression, message: Message::Fixed(message) }],
        response: Response::Deny,
        ..Policy::default()
    })
}

/// Keeps the policies, and knows when those may have changed. Cheap to clone.
#[derive(Clone, Default)]
pub struct Keeper(Arc<Notify>);

impl Keeper {
    /// An operand may have changed, or gone.
    pub fn changed(&self) {
        self.0.notify_one();
    }

    /// Keeps the policies until the process is asked to stop; none of them if they are switched off.
    ///
    /// # Errors
    ///
    /// Those of [`admission::keep`].
    pub async fn keep(&self, context: &Context, enabled: bool) -> Result<(), Error> {
        if !enabled {
            return admission::keep(context, &[]).await;
        }
        let stopping = context.stopping();
        tokio::pin!(stopping);
        let current = tokio::select! {
            () = &mut stopping => return Ok(()),
            current = self.current(context) => current,
        };
        let (current, kept) = watch::channel(current);
        let follow = async {
            loop {
                self.0.notified().await;
                let now = self.current(context).await;
                current.send_if_modified(|before| {
                    let differs = *before != now;
                    *before = now;
                    differs
                });
            }
        };
        tokio::select! {
            kept = admission::keep_current(context, kept) => kept,
            () = follow => Ok(()),
        }
    }

    /// The policies for the operands as they are now.
    async fn current(&self, context: &Context) -> Vec<Policy> {
        let mut backoff = Backoff::default();
        loop {
            match peers(context).await {
                Ok(peers) => return all(&peers.iter().filter_map(offer).collect::<Vec<_>>()),
                Err(error) => {
                    tracing::debug!(%error, "the operands could not be read; trying again");
                    tokio::time::sleep(backoff.failed(&())).await;
                }
            }
        }
    }
}

fn offer(peer: &Peer) -> Option<(OperandKind, String)> {
    Some((peer.kind, peer.offered().own(Field::TrustDomain)?.to_owned()))
}

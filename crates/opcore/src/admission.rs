//! Admission policies as data: rules that the API server itself enforces, so that no pod of ours has to be available.
//!
//! # Guarantees
//!
//! - A policy that someone edits or deletes is restored. One that another tool owns is left alone, and this is
//!   reported. One that is no longer wanted is deleted.
//! - Nothing that is being deleted is ever refused: a finalizer can always be removed.
//! - Members of a break-glass group are exempt.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ParamKind, ParamRef, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
    Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::{ApiResource, ListParams};
use kube::{Api, Client, ResourceExt};
use tokio::sync;

use crate::act::{self, Refusal};
use crate::backoff::Backoff;
use crate::controller::Context;
use crate::error::Error;
use crate::ownership::{Claimant, OPERATOR_LABEL, OWNER_LABEL};
use crate::watch::{self, Scope};
use crate::writes::{Write, Writes};

/// A rule that the API server enforces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The name of the policy and of its binding.
    pub name: String,
    /// The requests that it checks.
    pub requests: Vec<Requests>,
    /// Values that the rules share: name and CEL expression, used as `variables.name`.
    pub variables: Vec<(String, String)>,
    /// The conditions that must be true.
    pub rules: Vec<Rule>,
    /// An object that the rules may read as `params`.
    pub params: Option<Params>,
    /// What happens when a rule is broken.
    pub response: Response,
    /// Only namespaces with these labels; empty for all namespaces.
    pub namespaces: BTreeMap<String, String>,
    /// Members of this group are exempt.
    pub break_glass: Option<String>,
}

/// Requests that a policy checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// API group; the core group is empty.
    pub group: String,
    /// API versions.
    pub versions: Vec<String>,
    /// Plural names of resources.
    pub resources: Vec<String>,
    /// `CREATE`, `UPDATE`, `DELETE`.
    pub operations: Vec<String>,
}

/// A condition that must be true, and the message if it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A CEL expression.
    pub expression: String,
    /// The message when it is false.
    pub message: Message,
}

/// The message for a refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A sentence.
    Fixed(String),
    /// A CEL expression that returns the sentence.
    Computed(String),
}

/// An object that the rules of a policy may read. While it does not exist, the policy allows everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace, unless it is cluster-scoped.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// What happens when a rule is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Response {
    /// The request is allowed with a warning, and is marked in the audit log.
    Warn,
    /// The request is refused.
    #[default]
    Deny,
}

impl Policy {
    /// The writes for the objects with which the API server enforces this policy.
    ///
    /// # Errors
    ///
    /// When they cannot be represented as JSON, which does not happen.
    pub fn writes(&self) -> Result<[Write; 2], serde_json::Error> {
        Ok([Write::apply(&self.policy())?, Write::apply(&self.binding())?])
    }

    fn policy(&self) -> ValidatingAdmissionPolicy {
        let mut conditions = vec![condition(
            "not-being-deleted",
            "object == null || !has(object.metadata.deletionTimestamp)".to_owned(),
        )];
        if let Some(group) = &self.break_glass {
            conditions.push(condition("not-break-glass", format!("!({} in request.userInfo.groups)", quoted(group))));
        }
        let validations = self.rules.iter().map(|rule| {
            let (message, message_expression) = match &rule.message {
                Message::Fixed(text) => (Some(text.clone()), None),
                Message::Computed(expression) => (None, Some(expression.clone())),
            };
            Validation { expression: rule.expression.clone(), message, message_expression, reason: None }
        });
        let rules = self.requests.iter().map(|requests| NamedRuleWithOperations {
            api_groups: Some(vec![requests.group.clone()]),
            api_versions: Some(requests.versions.clone()),
            resources: Some(requests.resources.clone()),
            operations: Some(requests.operations.clone()),
            // The defaults are spelled out: a value that is owned as a whole is compared as a whole.
            scope: Some("*".to_owned()),
            resource_names: None,
        });
        let variables = self.variables.iter();
        ValidatingAdmissionPolicy {
            metadata: self.metadata(),
            spec: Some(ValidatingAdmissionPolicySpec {
                failure_policy: Some("Fail".to_owned()),
                match_conditions: Some(conditions),
                match_constraints: Some(MatchResources { resource_rules: Some(rules.collect()), ..everywhere() }),
                param_kind: self.params.as_ref().map(|params| ParamKind {
                    api_version: Some(params.api_version.clone()),
                    kind: Some(params.kind.clone()),
                }),
                validations: Some(validations.collect()),
                variables: (!self.variables.is_empty()).then(|| {
                    variables
                        .map(|(name, expression)| Variable { name: name.clone(), expression: expression.clone() })
                        .collect()
                }),
                ..ValidatingAdmissionPolicySpec::default()
            }),
            status: None,
        }
    }

    fn binding(&self) -> ValidatingAdmissionPolicyBinding {
        let actions: &[&str] = match self.response {
            Response::Warn => &["Warn", "Audit"],
            Response::Deny => &["Deny"],
        };
        ValidatingAdmissionPolicyBinding {
            metadata: self.metadata(),
            spec: Some(ValidatingAdmissionPolicyBindingSpec {
                policy_name: Some(self.name.clone()),
                validation_actions: Some(actions.iter().map(|action| (*action).to_owned()).collect()),
                param_ref: self.params.as_ref().map(|params| ParamRef {
                    name: Some(params.name.clone()),
                    namespace: params.namespace.clone(),
                    // With Deny, deleting the object would block every request that the policy checks.
                    parameter_not_found_action: Some("Allow".to_owned()),
                    ..ParamRef::default()
                }),
                match_resources: (!self.namespaces.is_empty()).then(|| MatchResources {
                    namespace_selector: Some(LabelSelector {
                        match_labels: Some(self.namespaces.clone()),
                        ..LabelSelector::default()
                    }),
                    ..everywhere()
                }),
            }),
        }
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() }
    }
}

/// What the API server stores for an empty constraint.
fn everywhere() -> MatchResources {
    MatchResources {
        match_policy: Some("Equivalent".to_owned()),
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(LabelSelector::default()),
        ..MatchResources::default()
    }
}

fn condition(name: &str, expression: String) -> MatchCondition {
    MatchCondition { name: name.to_owned(), expression }
}

/// A CEL string literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Applies policies, and restores them when someone changes or deletes them, until the process is asked to stop.
/// Policies are independent: one that cannot be applied does not prevent the others. Policies that this operator
/// created and that are no longer in the list are deleted.
///
/// # Assumptions
///
/// The list contains all policies that this operator keeps in the cluster.
///
/// # Errors
///
/// Only when the policies cannot be represented at all. Errors of the API server are logged, and the write is retried.
pub async fn keep(context: &Context, policies: &[Policy]) -> Result<(), Error> {
    let (_always_the_same, policies) = sync::watch::channel(policies.to_vec());
    keep_current(context, policies).await
}

/// As [`keep`], for a list of policies that changes.
///
/// # Errors
///
/// Those of [`keep`].
pub async fn keep_current(context: &Context, mut policies: sync::watch::Receiver<Vec<Policy>>) -> Result<(), Error> {
    let claimant = Claimant { operator: context.operator().to_owned(), owner: None };
    let labels = format!("{OPERATOR_LABEL}={},!{OWNER_LABEL}", context.operator());
    let changes = |resource: ApiResource| {
        let scope = Scope { resource, namespace: None, labels: Some(labels.clone()), lives: context.limits().watch };
        Box::pin(watch::metadata(context.client(), &scope, context.metrics()))
    };
    // All changes that have arrived by now need one pass, not one each.
    let mut changes = futures::stream::select(
        changes(ApiResource::erase::<ValidatingAdmissionPolicy>(&())),
        changes(ApiResource::erase::<ValidatingAdmissionPolicyBinding>(&())),
    )
    .ready_chunks(1024);
    let mut backoff = Backoff::default();
    let (stopping, contract) = (context.stopping(), context.follow_contract());
    tokio::pin!(stopping, contract);
    tokio::select! {
        () = &mut stopping => return Ok(()),
        () = &mut contract => {}
        () = context.contract_asked() => {}
    }
    loop {
        let current = policies.borrow_and_update().clone();
        let mut all_kept = true;
        for policy in &current {
            let writes = policy.writes().map_err(|error| Error::Bug(format!("a policy that is no JSON: {error}")))?;
            all_kept &= is_done(run(context, &claimant, &Writes::from_iter(writes)).await);
        }
        let dropped = async { run(context, &claimant, &dropped(context.client(), &labels, &current).await?).await };
        all_kept &= is_done(dropped.await);
        let retry = if all_kept { None } else { Some(backoff.failed(&())) };
        if retry.is_none() {
            backoff.succeeded(&());
        }
        tokio::select! {
            () = &mut stopping => return Ok(()),
            () = &mut contract => {}
            Some(_) = changes.next() => {}
            // When nobody can change the list any more, it stays as it is.
            Ok(()) = policies.changed() => {}
            () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => {}
        }
    }
}

/// Carries out the writes. Returns the refusal, if there was one.
async fn run(context: &Context, claimant: &Claimant, writes: &Writes) -> Result<Option<Refusal>, Error> {
    let done = act::run(&context.actor(claimant)?, None, writes).await.whole()?;
    Ok(done.refusal().cloned())
}

fn is_done(refused: Result<Option<Refusal>, Error>) -> bool {
    match refused {
        Ok(None) => true,
        Ok(Some(refusal)) => {
            tracing::warn!(
                reason = refusal.reason.as_str(),
                "an admission policy could not be restored: {}",
                refusal.message
            );
            false
        }
        Err(error) => {
            tracing::warn!(%error, "an admission policy could not be checked; retrying");
            false
        }
    }
}

/// The deletes for policies that this operator created and no longer wants.
async fn dropped(client: &Client, labels: &str, policies: &[Policy]) -> Result<Writes, Error> {
    let ours = ListParams::default().labels(labels);
    let dropped = |name: &str| !policies.iter().any(|policy| policy.name == name);
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone()).list(&ours).await?;
    let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone()).list(&ours).await?;
    let mut writes = Writes::new();
    // The binding first: without its policy it would cause a warning in the API server's log.
    writes.together(bindings.iter().filter(|one| dropped(&one.name_any())).map(Write::delete));
    writes.together(policies.iter().filter(|one| dropped(&one.name_any())).map(Write::delete));
    Ok(writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_a_quote_in_its_name_is_data_and_not_code() {
        let policy = Policy { break_glass: Some("it's' || true".to_owned()), ..Policy::default() };
        let conditions = policy.policy().spec.unwrap().match_conditions.unwrap();
        assert_eq!(conditions[1].expression, r"!('it\'s\' || true' in request.userInfo.groups)");
    }
}

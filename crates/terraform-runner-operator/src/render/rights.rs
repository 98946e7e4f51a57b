//! What the pods of a workspace may do: access exactly its own Secrets and its own Lease, by name.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use opcore::Write;

use super::{metadata, names};
use crate::api::v1alpha1::TerraformWorkspace;
use crate::store;

/// The ServiceAccount, unless the workspace names one, and its Role.
///
/// `places` covers every existing version of the state: the history may have become shorter since. The Secret in
/// `adopted` may be read until the state is adopted.
pub fn rights(workspace: &TerraformWorkspace, places: usize, adopted: Option<&str>) -> Vec<Write> {
    let names = names(workspace);
    let by_name = |group: &str, resource: &str, names: Vec<String>, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: Some(names),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let all = ["create", "get", "patch", "update"];
    let mut rules = vec![
        by_name("", "secrets", names.writable_secrets(places), &all),
        by_name("coordination.k8s.io", "leases", vec![names.lease()], &all),
    ];
    rules.extend(adopted.map(|secret| by_name("", "secrets", store::adopted::secrets(secret), &["get"])));
    let role = Role { metadata: metadata(workspace, names.stem().to_owned(), "rights"), rules: Some(rules) };
    let account = service_account(workspace);
    let made = (account == names.stem()).then(|| ServiceAccount {
        metadata: metadata(workspace, account, "rights"),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    });
    let writes = [made.map(|account| Write::apply(&account)), Some(Write::apply(&role))];
    writes.into_iter().flatten().filter_map(Result::ok).collect()
}

/// The binding of the Role to the ServiceAccount. It must be written after the API server knows the Role: otherwise the
/// API server refuses to grant rights that it cannot compare with ours.
pub fn binding(workspace: &TerraformWorkspace) -> Option<Write> {
    let names = names(workspace);
    let binding = RoleBinding {
        metadata: metadata(workspace, names.stem().to_owned(), "rights"),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: names.stem().to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: service_account(workspace),
            namespace: workspace.metadata.namespace.clone(),
            ..Subject::default()
        }]),
    };
    Write::apply(&binding).ok()
}

/// The ServiceAccount of the pods.
pub(super) fn service_account(workspace: &TerraformWorkspace) -> String {
    let template = workspace.spec.runner.pod_template.as_ref();
    let named = template.and_then(|template| template.spec.service_account_name.clone());
    named.unwrap_or_else(|| names(workspace).stem().to_owned())
}

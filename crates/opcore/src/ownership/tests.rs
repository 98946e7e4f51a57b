//! Objects as tools leave them, and their relation to us.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::contract::{Contract, Enforcement, OwnerSpec, Rule, Selector};
use super::*;

const US: &str = "wave-orchestrator";

fn claimant() -> Claimant {
    Claimant {
        operator: US.to_owned(),
        owner: Some(Owner { uid: "uid-of-fleet".to_owned(), words: "WavePlan/fleet".to_owned() }),
    }
}

fn meta(yaml: &str) -> ObjectMeta {
    serde_yaml::from_str(&format!("name: front\nnamespace: shop\n{yaml}")).unwrap()
}

fn verdict(yaml: &str) -> OwnershipVerdict {
    judge(Subject { group: "apps", kind: "Deployment", meta: &meta(yaml) }, &claimant(), None)
}

fn managed(manager: &str, operation: &str, fields: &str) -> String {
    format!("managedFields:\n- {{manager: {manager}, operation: {operation}, fieldsV1: {fields}}}\n")
}

#[test]
fn marks_of_every_tool_make_an_object_foreign_and_name_it() {
    let spec = "{'f:spec': {'f:replicas': {}}}";
    for (marks, words) in [
        (
            "labels: {kustomize.toolkit.fluxcd.io/name: apps, kustomize.toolkit.fluxcd.io/namespace: flux-system}",
            "Flux Kustomization flux-system/apps (label kustomize.toolkit.fluxcd.io/name)",
        ),
        (
            "labels: {helm.toolkit.fluxcd.io/name: web, helm.toolkit.fluxcd.io/namespace: flux-system}",
            "Flux HelmRelease flux-system/web (label helm.toolkit.fluxcd.io/name)",
        ),
        (
            "annotations: {meta.helm.sh/release-name: web, meta.helm.sh/release-namespace: shop}",
            "Helm release shop/web (annotation meta.helm.sh/release-name)",
        ),
        ("labels: {app.kubernetes.io/managed-by: Helm}", "Helm release (label app.kubernetes.io/managed-by)"),
        (
            "annotations: {argocd.argoproj.io/tracking-id: 'web:apps/Deployment:shop/front'}",
            "Argo CD application web (annotation argocd.argoproj.io/tracking-id)",
        ),
        ("labels: {app.kubernetes.io/managed-by: pulumi}", "Pulumi (label app.kubernetes.io/managed-by)"),
        ("labels: {kapp.k14s.io/app: '1700000000'}", "kapp app 1700000000 (label kapp.k14s.io/app)"),
        ("labels: {kluctl.io/discriminator: prod}", "kluctl deployment prod (label kluctl.io/discriminator)"),
        (&managed("kustomize-controller", "Apply", spec), "Flux Kustomization kustomize-controller (managed fields)"),
        (&managed("pulumi-kubernetes-1a2b3c4d", "Apply", spec), "Pulumi pulumi-kubernetes-1a2b3c4d (managed fields)"),
        (&managed("pulumi-kubernetes", "Update", spec), "Pulumi pulumi-kubernetes (managed fields)"),
        (&managed("Terraform", "Apply", spec), "Terraform Terraform (managed fields)"),
        (&managed("some-operator", "Apply", spec), "field manager some-operator (managed fields)"),
    ] {
        let verdict = verdict(marks);
        assert_eq!(verdict.ownership, Ownership::Foreign, "{marks}");
        assert_eq!(verdict.to_string(), format!("it belongs to {words}"), "{marks}");
    }
}

#[test]
fn a_helm_release_made_by_flux_is_a_chain_with_flux_in_charge() {
    let marks = "labels: {helm.toolkit.fluxcd.io/name: web, app.kubernetes.io/managed-by: Helm}\n\
                 annotations: {meta.helm.sh/release-name: web, meta.helm.sh/release-namespace: shop}\n";
    let tools: Vec<Tool> = verdict(marks).evidence.into_iter().map(|evidence| evidence.tool).collect();
    assert_eq!(tools, [Tool::FluxHelmRelease, Tool::Helm]);
}

#[test]
fn an_argo_tracking_id_that_names_another_object_says_nothing() {
    for id in ["web:apps/Deployment:shop/back", "web:/Deployment:shop/front", "web", "web:apps/Deployment:front"] {
        assert_eq!(
            verdict(&format!("annotations: {{argocd.argoproj.io/tracking-id: '{id}'}}")).ownership,
            Ownership::Unowned,
            "{id}"
        );
    }
}

#[test]
fn a_tool_that_wrote_only_status_or_an_annotation_owns_nothing() {
    for fields in ["{'f:status': {'f:ready': {}}}", "{'f:metadata': {'f:annotations': {'f:requestedAt': {}}}}"] {
        assert_eq!(
            verdict(&managed("kustomize-controller", "Update", fields)).ownership,
            Ownership::Unowned,
            "{fields}"
        );
    }
}

#[test]
fn what_a_person_made_by_kubectl_is_unowned() {
    for manager in ["kubectl-client-side-apply", "kubectl", "kubectl-edit", "before-first-apply"] {
        let marks = managed(manager, "Apply", "{'f:spec': {'f:replicas': {}}}");
        assert_eq!(verdict(&marks).ownership, Ownership::Unowned, "{manager}");
    }
}

#[test]
fn a_controller_reference_decides_over_every_mark() {
    let reference = |uid: &str| {
        format!(
            "ownerReferences: [{{apiVersion: v1, kind: WavePlan, name: fleet, uid: {uid}, controller: true}}]\n\
             labels: {{app.kubernetes.io/managed-by: Helm}}\n"
        )
    };
    assert_eq!(verdict(&reference("uid-of-fleet")).ownership, Ownership::Ours);
    let other = verdict(&reference("another-uid"));
    assert_eq!(other.ownership, Ownership::Foreign);
    assert_eq!(other.to_string(), "it belongs to controller WavePlan fleet (controller reference)");
}

#[test]
fn our_marks_make_an_object_ours_by_uid_and_never_by_name() {
    let marks = |operator: &str, uid: &str, owner: &str| {
        format!(
            "labels: {{opcore.dev/operator: {operator}, opcore.dev/owner-uid: {uid}}}\n\
             annotations: {{opcore.dev/owner: {owner}}}\n"
        )
    };
    assert_eq!(verdict(&marks(US, "uid-of-fleet", "WavePlan/fleet")).ownership, Ownership::Ours);
    // The same name with another UID: the object that created it is gone, and we may adopt it.
    assert_eq!(verdict(&marks(US, "old-uid", "WavePlan/fleet")).ownership, Ownership::Adoptable);
    // Another object of the same operator.
    assert_eq!(verdict(&marks(US, "old-uid", "WavePlan/other")).ownership, Ownership::Foreign);
    // Another of our operators.
    assert_eq!(verdict(&marks("preview-env-operator", "x", "Project/shop/a")).ownership, Ownership::Foreign);
}

#[test]
fn our_own_work_whose_labels_someone_removed_can_be_reclaimed() {
    let work = managed(US, "Apply", "{'f:spec': {'f:replicas': {}}}");
    assert_eq!(
        verdict(&format!("{work}annotations: {{opcore.dev/owner: WavePlan/fleet}}")).ownership,
        Ownership::Adoptable
    );
    assert_eq!(
        verdict(&format!("{work}annotations: {{opcore.dev/owner: WavePlan/other}}")).ownership,
        Ownership::Unowned
    );
    assert_eq!(verdict(&work).ownership, Ownership::Unowned);
}

#[test]
fn a_person_can_hand_over_what_nobody_owns_but_not_what_a_tool_owns() {
    assert_eq!(verdict("annotations: {opcore.dev/adopt: 'true'}").ownership, Ownership::Adoptable);
    assert_eq!(verdict("annotations: {opcore.dev/adopt: wave-orchestrator}").ownership, Ownership::Adoptable);
    assert_eq!(verdict("annotations: {opcore.dev/adopt: preview-env-operator}").ownership, Ownership::Unowned);
    let marks = "annotations: {opcore.dev/adopt: 'true'}\nlabels: {app.kubernetes.io/managed-by: Helm}";
    assert_eq!(verdict(marks).ownership, Ownership::Foreign);
}

#[test]
fn nothing_known_is_unowned_and_not_ours() {
    assert_eq!(verdict("").ownership, Ownership::Unowned);
}

/// A contract that is enforced.
fn contract() -> Contract {
    Contract {
        owners: vec![OwnerSpec {
            name: "rollouts".to_owned(),
            field_managers: vec!["wave-*".to_owned()],
            ..OwnerSpec::default()
        }],
        rules: vec![
            Rule {
                name: "shop-is-flux".to_owned(),
                select: Selector {
                    namespaces: vec!["shop*".to_owned()],
                    kinds: vec!["Service".to_owned()],
                    ..Selector::default()
                },
                owner: "flux".to_owned(),
            },
            Rule {
                name: "shop-is-ours".to_owned(),
                select: Selector { namespaces: vec!["shop*".to_owned()], ..Selector::default() },
                owner: "rollouts".to_owned(),
            },
        ],
        enforcement: Enforcement::Deny,
        ..Contract::default()
    }
}

#[test]
fn the_contract_decides_over_every_mark_and_its_first_matching_rule_counts() {
    let judged =
        |kind: &str, yaml: &str| judge(Subject { group: "", kind, meta: &meta(yaml) }, &claimant(), Some(&contract()));
    let service = judged("Service", "labels: {opcore.dev/owner-uid: uid-of-fleet}");
    assert_eq!(service.to_string(), "it belongs to flux (contract rule shop-is-flux)");
    assert_eq!(judged("ConfigMap", "labels: {app.kubernetes.io/managed-by: Helm}").ownership, Ownership::Adoptable);
    assert_eq!(judged("ConfigMap", "labels: {opcore.dev/owner-uid: uid-of-fleet}").ownership, Ownership::Ours);
}

#[test]
fn even_a_contract_that_gives_a_kind_to_our_operator_does_not_give_it_anothers_object() {
    let marks = "labels: {opcore.dev/operator: wave-orchestrator, opcore.dev/owner-uid: x}\n\
                 annotations: {opcore.dev/owner: WavePlan/other}";
    let verdict = judge(Subject { group: "", kind: "ConfigMap", meta: &meta(marks) }, &claimant(), Some(&contract()));
    assert_eq!(verdict.ownership, Ownership::Foreign);
}

#[test]
fn a_contract_does_not_give_away_what_a_controller_made_for_another_object() {
    let pod = "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: front, uid: x, controller: true}]";
    let verdict = judge(Subject { group: "", kind: "Pod", meta: &meta(pod) }, &claimant(), Some(&contract()));
    assert_eq!(verdict.ownership, Ownership::Foreign);
}

#[test]
fn what_is_merely_offered_may_be_taken_over_but_not_deleted() {
    let predecessor = "labels: {opcore.dev/operator: wave-orchestrator, opcore.dev/owner-uid: old-uid}\n\
                       annotations: {opcore.dev/owner: WavePlan/fleet}";
    assert!(verdict(predecessor).may_delete());
    assert!(verdict("labels: {opcore.dev/owner-uid: uid-of-fleet}").may_delete());
    assert!(!verdict("annotations: {opcore.dev/adopt: 'true'}").may_delete());
    let of_another = "labels: {opcore.dev/operator: wave-orchestrator, opcore.dev/owner-uid: x}\n\
                      annotations: {opcore.dev/owner: WavePlan/other, opcore.dev/adopt: 'true'}";
    let offered = verdict(of_another);
    assert!(offered.ownership == Ownership::Adoptable && !offered.may_delete());
    assert!(!verdict("").may_delete());
    let given = judge(Subject { group: "", kind: "ConfigMap", meta: &meta("") }, &claimant(), Some(&contract()));
    assert!(given.ownership == Ownership::Adoptable && !given.may_delete());
}

#[test]
fn what_carries_the_uid_of_our_object_is_ours_to_delete_whatever_a_contract_says_by_now() {
    let judged =
        |marks: &str| judge(Subject { group: "", kind: "Service", meta: &meta(marks) }, &claimant(), Some(&contract()));
    let given_away = judged("labels: {opcore.dev/owner-uid: uid-of-fleet}");
    assert!(given_away.ownership == Ownership::Foreign && given_away.may_delete());
    assert!(!judged("labels: {opcore.dev/owner-uid: another-uid}").may_delete());
    let of_a_controller = "labels: {opcore.dev/owner-uid: uid-of-fleet}\n\
                           ownerReferences: [{apiVersion: v1, kind: Other, name: o, uid: x, controller: true}]";
    assert!(!judged(of_a_controller).may_delete(), "a label that was copied along makes nothing ours");
}

#[test]
fn what_a_contract_gives_to_another_is_not_made_either() {
    let judged = |kind: &str, namespace: &str| {
        let meta = ObjectMeta { namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
        judge_new(Subject { group: "", kind, meta: &meta }, &claimant(), Some(&contract()))
    };
    assert_eq!(judged("Service", "shop-a").unwrap().to_string(), "it belongs to flux (contract rule shop-is-flux)");
    assert_eq!(judged("ConfigMap", "shop-a"), None, "it is given to us");
    assert_eq!(judged("Service", "bank"), None, "no rule speaks of it");
}

#[test]
fn a_contract_that_only_reports_or_warns_blocks_nothing_and_gives_nothing() {
    for enforcement in [Enforcement::Report, Enforcement::Warn] {
        let contract = Contract { enforcement, ..contract() };
        let judged = |kind: &str, marks: &str| {
            judge(Subject { group: "", kind, meta: &meta(marks) }, &claimant(), Some(&contract)).ownership
        };
        assert_eq!(judged("Service", "labels: {opcore.dev/owner-uid: uid-of-fleet}"), Ownership::Ours);
        assert_eq!(judged("ConfigMap", "labels: {app.kubernetes.io/managed-by: Helm}"), Ownership::Foreign);
    }
}

#[test]
fn selectors_leave_cluster_scoped_objects_out_when_they_name_namespaces() {
    let select = Selector { namespaces: vec!["*".to_owned()], ..Selector::default() };
    let meta = ObjectMeta { name: Some("front".to_owned()), ..ObjectMeta::default() };
    assert!(!select.matches(Subject { group: "", kind: "Namespace", meta: &meta }));
}

#[test]
fn patterns_match_as_people_expect() {
    for (pattern, text, fits) in [
        ("gitops-flux-*", "gitops-flux-7f3a", true),
        ("gitops-flux-*", "gitops-flux", false),
        ("*-controller", "source-controller", true),
        ("*", "", true),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c-b", false),
        ("a*a", "a", false),
        ("exact", "exactly", false),
    ] {
        assert_eq!(contract::matches(pattern, text), fits, "{pattern} against {text}");
    }
}

#[test]
fn owner_references_that_kubernetes_would_not_honour_are_refused() {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
    let stored = |namespace: Option<&str>| ObjectMeta {
        name: Some("owner".to_owned()),
        namespace: namespace.map(str::to_owned),
        uid: Some("uid".to_owned()),
        ..ObjectMeta::default()
    };
    let namespaced = ConfigMap { metadata: stored(Some("shop")), ..ConfigMap::default() };
    let cluster = Namespace { metadata: stored(None), ..Namespace::default() };
    let refused = |namespace| owner_reference(&namespaced, namespace).unwrap_err().to_string();
    assert!(owner_reference(&namespaced, Some("shop")).unwrap().controller == Some(true));
    assert_eq!(refused(None), "ConfigMap owner is in namespace shop and cannot own a cluster-scoped object");
    assert_eq!(
        refused(Some("bank")),
        "ConfigMap owner is in namespace shop and cannot own an object in namespace bank"
    );
    assert!(owner_reference(&cluster, Some("shop")).is_ok());
    assert!(owner_reference(&cluster, None).is_ok());
    assert!(owner_reference(&ConfigMap::default(), None).is_err(), "an object that was never stored cannot own");
}

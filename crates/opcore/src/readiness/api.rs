//! Kinds that extend or govern the API: CustomResourceDefinition, APIService, Namespace, budgets, autoscalers.

use super::view::{Condition, View};
use super::{Case, Readiness, ReadinessState, judged, not_reported};

pub(super) fn namespace(case: &Case<'_>) -> Readiness {
    let object = case.object;
    if object.text("status.phase") == Some("Terminating") {
        return Readiness::new(ReadinessState::Terminating, "Terminating", format!("{object} is being deleted."));
    }
    Readiness::ready("Active", format!("{object} exists."))
}

/// The order matters: if `Established` were checked first, as in the list of conditions, names that a later change made
/// invalid would go unnoticed.
pub(super) fn definition(case: &Case<'_>) -> Readiness {
    let object = case.object;
    if let Some(names) = object.current("NamesAccepted").filter(Condition::is_false) {
        return Readiness::failed(
            names.reason_or("NamesNotAccepted"),
            format!("{object} uses names that another definition already uses; remove one of the two{}", names.words()),
        );
    }
    let Some(established) = object.current("Established") else {
        return not_reported(case, "Established");
    };
    if established.is_true() && !has_its_names(object) {
        return Readiness::in_progress(
            "NamesPending",
            format!("{object} was changed, and its new names are not accepted yet."),
        );
    }
    if established.is_false() && !matches!(established.reason, Some("Installing" | "NotAccepted")) {
        return Readiness::failed(
            established.reason_or("NotEstablished"),
            format!("{object} cannot be served{}", established.words()),
        );
    }
    judged(case, &established, "Established")
}

/// A definition reports no generation, but repeats the names it serves.
fn has_its_names(object: View<'_>) -> bool {
    object.at("status.acceptedNames").is_none()
        || ["plural", "singular", "kind", "shortNames"]
            .into_iter()
            .all(|name| object.at(&format!("spec.names.{name}")) == object.at(&format!("status.acceptedNames.{name}")))
}

pub(super) fn service(case: &Case<'_>) -> Readiness {
    match case.object.condition("Available") {
        Some(available) => judged(case, &available, "Available"),
        None => not_reported(case, "Available"),
    }
}

pub(super) fn disruption_budget(case: &Case<'_>) -> Readiness {
    let object = case.object;
    if object.observed_generation().is_none() {
        return Readiness::in_progress(
            "GenerationNotObserved",
            format!("{object} has not been observed by its controller yet."),
        );
    }
    match object.current("DisruptionAllowed") {
        Some(condition) if condition.reason == Some("SyncFailed") => {
            Readiness::in_progress("SyncFailed", format!("{object} cannot be computed{}", condition.words()))
        }
        // If no disruption is allowed right now, the budget works as intended.
        _ => Readiness::ready("Computed", format!("{object} is in force.")),
    }
}

/// Missing metrics are not a failure here: the workload runs, with the replicas it has.
pub(super) fn autoscaler(case: &Case<'_>) -> Readiness {
    let object = case.object;
    match object.current("AbleToScale").filter(Condition::is_false) {
        Some(unable) => Readiness::in_progress(
            unable.reason_or("NotAbleToScale"),
            format!("{object} cannot scale its target{}", unable.words()),
        ),
        None => Readiness::ready("Exists", format!("{object} exists.")),
    }
}

//! The steps of a teardown as data, for people who want to know what a deletion does before they ask for it, and what
//! is left behind when a step is given up.

use super::stack;
use super::teardown::{OTHERS, TakenDown};
use crate::api::v1alpha1::{OperandKind, SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer};
use crate::render;

/// How an operand is taken down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The operand.
    pub kind: OperandKind,
    /// The name of its step in the teardown of the whole stack.
    pub name: &'static str,
    /// The steps of that teardown that come before it.
    pub after: &'static [&'static str],
    /// The operands that it waits for while they are being deleted, too.
    pub before: &'static [OperandKind],
    /// Its own steps.
    pub steps: Vec<OutlineStep>,
}

/// A step of an operand's teardown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutlineStep {
    /// Its name.
    pub name: &'static str,
    /// The steps that it comes after.
    pub after: &'static [&'static str],
    /// Whether it waits for other operands: it has no deadline of its own then.
    pub waits_for_others: bool,
    /// The component whose pods it stops, by the label `app.kubernetes.io/component`.
    pub stops: Option<&'static str>,
    /// What it does.
    pub does: &'static str,
    /// What may be left behind when it is given up.
    pub leaves: &'static str,
}

/// The teardown of the whole stack: the operands in the order in which they go.
pub fn of_stack() -> Vec<Outline> {
    stack::STEPS.iter().map(|(_, kind, _)| of(*kind)).collect()
}

/// The teardown of one operand.
pub fn of(kind: OperandKind) -> Outline {
    match kind {
        OperandKind::SpireServer => outline::<SpireServer>(),
        OperandKind::SpireAgent => outline::<SpireAgent>(),
        OperandKind::SpiffeCSIDriver => outline::<SpiffeCSIDriver>(),
        OperandKind::SpireOIDCDiscoveryProvider => outline::<SpireOIDCDiscoveryProvider>(),
    }
}

fn outline<K: TakenDown>() -> Outline {
    let in_stack = stack::STEPS.iter().find(|(_, kind, _)| *kind == K::KIND);
    let (name, after) = in_stack.map_or(("", &[][..]), |(name, _, after)| (*name, *after));
    let steps = K::STEPS.iter().map(|(name, after)| {
        let (does, leaves) = words(K::KIND, name);
        OutlineStep { name, after, waits_for_others: *name == OTHERS, stops: stops(K::KIND, name), does, leaves }
    });
    Outline { kind: K::KIND, name, after, before: K::BEFORE, steps: steps.collect() }
}

/// The component whose pods a step stops.
fn stops(kind: OperandKind, step: &str) -> Option<&'static str> {
    match (kind, step) {
        (OperandKind::SpireOIDCDiscoveryProvider, "drain") => Some(render::oidc::COMPONENT),
        (OperandKind::SpiffeCSIDriver, "driver") => Some(render::csi::COMPONENT),
        (OperandKind::SpireAgent, "clients") => Some(render::agent::COMPONENT),
        (OperandKind::SpireServer, "drain") => Some(render::server::COMPONENT),
        _ => None,
    }
}

/// What a step does, and what may be left behind when it is given up.
fn words(kind: OperandKind, step: &str) -> (&'static str, &'static str) {
    match (kind, step) {
        (_, OTHERS) => ("waits for the operands that go first", "the operands that should have gone first"),
        (OperandKind::SpireOIDCDiscoveryProvider, "routes") => {
            ("deletes what makes the provider reachable", "an Ingress, Route or HTTPRoute that leads nowhere")
        }
        (OperandKind::SpireOIDCDiscoveryProvider, "drain") => {
            ("deletes the Service, then the pods, which finish their requests", "the Service and pods of the provider")
        }
        (OperandKind::SpiffeCSIDriver, "volumes") => (
            "waits for the pods that use the driver; none is evicted",
            "pods that use the driver, and stay Terminating: without it, their volumes cannot be unmounted",
        ),
        (OperandKind::SpiffeCSIDriver, "driver") => ("deletes the pods of the driver", "pods of the driver"),
        (OperandKind::SpiffeCSIDriver, "registration") => {
            ("deletes the CSIDriver, and waits until no kubelet knows it", "the CSIDriver, or kubelets that know it")
        }
        (OperandKind::SpireAgent, "clients") => {
            ("deletes the agents' pods, after which workloads get no new identities", "agents that run")
        }
        (OperandKind::SpireAgent, "sockets") => ("removes the agents' sockets from the nodes", "sockets on the nodes"),
        (OperandKind::SpireAgent, "evict") => (
            "evicts the agents on the server, so that their certificates cannot be renewed",
            "agents that the server knows, and whose certificates can be renewed until they expire",
        ),
        (OperandKind::SpireServer, "drain") => ("deletes the server's pod", "the server's pod"),
        (OperandKind::SpireServer, "backup") => (
            "backs up the volume, and verifies the backup",
            "a volume without a backup of this deletion, which is not deleted, whatever the policy",
        ),
        (OperandKind::SpireServer, "volume") => {
            ("keeps or deletes the volume, as spec.persistence.deletionPolicy says", "the volume")
        }
        _ => ("deletes what else belongs to it", "accounts, roles and configuration of the operand"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_goes_in_the_reverse_order_of_its_start() {
        let kinds: Vec<_> = of_stack().iter().map(|outline| outline.kind).collect();
        let mut reverse = OperandKind::ALL.to_vec();
        reverse.reverse();
        assert_eq!(kinds, reverse);
        for outline in of_stack() {
            assert!(!outline.name.is_empty(), "{} is a step of the stack's teardown", outline.kind);
        }
    }

    #[test]
    fn every_step_but_the_last_says_what_it_does_in_words_of_its_own() {
        for outline in of_stack() {
            let last = outline.steps.last().unwrap().does;
            let told: Vec<_> = outline.steps.iter().filter(|step| step.does == last).map(|step| step.name).collect();
            assert_eq!(told, ["objects"], "{}", outline.kind);
        }
    }

    #[test]
    fn one_step_of_each_operand_stops_its_pods() {
        for outline in of_stack() {
            assert_eq!(outline.steps.iter().filter(|step| step.stops.is_some()).count(), 1, "{}", outline.kind);
        }
    }
}

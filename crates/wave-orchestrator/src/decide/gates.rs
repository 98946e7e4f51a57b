//! Which objects are held suspended: recorded before they are suspended, and released whatever happens to the spec.

use std::collections::BTreeSet;

use opcore::Write;
use serde_json::json;

use crate::api::v1alpha1::{HeldObject, Mode, WavePhase, WavePlan, WavePlanSpec, WavePlanStatus, WaveStatus};
use crate::index::ObservedGate;
use crate::observe::Observed;

/// Whether the gates of a wave must be closed.
pub(super) fn is_held_back(wave: &WaveStatus) -> bool {
    wave.started_at.is_none() && wave.phase != WavePhase::Skipped
}

/// Whether it was published that this object may be held, so that it is found again after a crash or a change of the
/// spec.
pub(super) fn is_recorded(old: &WavePlanStatus, gate: &ObservedGate) -> bool {
    let id = HeldObject::of(&gate.target).id();
    old.held.iter().any(|held| held.id() == id)
}

/// The objects that are held, and those about to be. `waves` are in the order of the spec.
pub(super) fn record(old: &WavePlanStatus, observed: &Observed, waves: &[WaveStatus]) -> Vec<HeldObject> {
    let of_waves = waves.iter().zip(&observed.snapshot.waves).flat_map(|(wave, snapshot)| {
        snapshot
            .gates
            .iter()
            .filter(move |gate| gate.held || is_held_back(wave))
            .map(|gate| HeldObject::of(&gate.target))
    });
    let forgotten = observed.snapshot.held.iter().filter(|gate| gate.held).map(|gate| HeldObject::of(&gate.target));
    // An object is removed from the record only when it is certain that it is not held.
    let uncertain = old.held.iter().filter(|_| !observed.snapshot.complete).cloned();
    of_waves.chain(forgotten).chain(uncertain).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Releases what the spec no longer gates. A gate whose wave cannot be carried out stays closed.
pub(super) fn give_back<'a>(plan: &'a WavePlan, observed: &'a Observed) -> impl Iterator<Item = Write> + 'a {
    let forgotten = observed.snapshot.held.iter().filter(|gate| gate.held && !is_gated(&plan.spec, gate));
    forgotten.map(release)
}

/// The write with which we no longer manage any field of the object.
pub(super) fn release(gate: &ObservedGate) -> Write {
    Write::Claim { target: gate.target.clone(), fields: json!({}) }
}

fn is_gated(spec: &WavePlanSpec, gate: &ObservedGate) -> bool {
    let held = HeldObject::of(&gate.target).id();
    let members = spec.waves.iter().flat_map(|wave| &wave.members).filter(|member| member.mode() == Mode::Gate);
    members.filter_map(|member| member.reference.as_ref()).any(|reference| reference.id() == held)
}

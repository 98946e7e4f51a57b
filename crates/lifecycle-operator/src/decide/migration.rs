//! A change of the trust domain, step by step.
//!
//! SPIRE does not start on data of another trust domain. So the agents and the server are stopped, the data is backed
//! up, the volume is emptied, and everything starts anew in the new trust domain. The phase in the parent's status says
//! how far it is; every operand reads it there.
//!
//! ```text
//! Draining ─▶ BackingUp ─▶ Clearing ─▶ Switching ─▶ Restarting ─▶ Done
//!  agents and   the data     volume      operands     all is
//!  server stop  is safe      is empty    inherit      ready
//! ```

use jiff::Timestamp;

use crate::api::v1alpha1::{Migration, MigrationPhase, OperandKind, ZeroTrustWorkloadIdentityManager};
use crate::observe::Observed;
use crate::operand::Peer;

/// The migration that is under way, if there is one.
pub fn of(parent: Option<&ZeroTrustWorkloadIdentityManager>) -> Option<&Migration> {
    let migration = parent?.status.as_ref()?.migration.as_ref()?;
    (migration.phase != MigrationPhase::Done).then_some(migration)
}

/// Whether agents and server are stopped for a migration.
pub fn stops(parent: Option<&ZeroTrustWorkloadIdentityManager>) -> bool {
    of(parent).is_some_and(|migration| migration.phase < MigrationPhase::Switching)
}

/// A migration that begins now.
pub fn begin(from: &str, to: &str, now: Timestamp) -> Migration {
    let backup = super::volume::backup_name("migration", now);
    Migration {
        from: from.to_owned(),
        to: to.to_owned(),
        phase: MigrationPhase::Draining,
        backup: Some(backup),
        started_at: now,
        finished_at: None,
    }
}

/// The next phase, once what the current one stands for is observed.
pub fn advance(migration: &Migration, observed: &Observed, now: Timestamp) -> Migration {
    let mut next = migration.clone();
    let volume = observed.peer(OperandKind::SpireServer).and_then(|server| server.status.volume.as_ref());
    let is_drained = || {
        let pods = || {
            observed.pods_of(crate::render::server::COMPONENT).chain(observed.pods_of(crate::render::agent::COMPONENT))
        };
        pods().next().is_none()
    };
    let is_backed_up = || {
        let last = volume.and_then(|volume| volume.last_backup.as_ref());
        last.map(|backup| &backup.name) == migration.backup.as_ref()
    };
    let is_cleared = || volume.and_then(|volume| volume.cleared.as_ref()) == migration.backup.as_ref();
    let in_effect = |peer: &&Peer| {
        let has = peer.status.config.iter().find(|value| value.name == "trustDomain");
        has.is_none_or(|value| value.value == migration.to)
    };
    match migration.phase {
        MigrationPhase::Draining if is_drained() => next.phase = MigrationPhase::BackingUp,
        MigrationPhase::BackingUp if is_backed_up() => next.phase = MigrationPhase::Clearing,
        MigrationPhase::Clearing if is_cleared() => next.phase = MigrationPhase::Switching,
        MigrationPhase::Switching if observed.peers.iter().all(|peer| in_effect(&peer)) => {
            next.phase = MigrationPhase::Restarting;
        }
        MigrationPhase::Restarting if observed.peers.iter().all(Peer::is_ready) => {
            next.phase = MigrationPhase::Done;
            next.finished_at = Some(now);
        }
        _ => {}
    }
    next
}

/// What a phase waits for, for people.
pub fn message(migration: &Migration) -> String {
    let doing = match migration.phase {
        MigrationPhase::Draining => "agents and server are being stopped",
        MigrationPhase::BackingUp => "the data of the old trust domain is being backed up",
        MigrationPhase::Clearing => "entries, agents and keys of the old trust domain are being removed",
        MigrationPhase::Switching => "the operands are being switched",
        MigrationPhase::Restarting => "server, agents and providers are starting",
        MigrationPhase::Done => "it is done",
    };
    format!("Migrating from trust domain {} to {}: {doing}.", migration.from, migration.to)
}

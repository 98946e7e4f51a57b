//! The metrics of the identity stack, in addition to the common metrics of every operator. There is one stack in a
//! cluster, so all series together are few.

use std::sync::Arc;

use jiff::Timestamp;
use opcore::conditions::{READY, STALLED, is_true};
use opcore::metrics::{Kind, Metric, Metrics};
use prometheus::IntGaugeVec;

use crate::api::v1alpha1::{MigrationPhase, OperandKind, OperandStatus, ZeroTrustWorkloadIdentityManagerStatus};
use crate::decide::teardown::DELETION_BLOCKED;

/// Whether an operand is ready.
pub const READY_OPERANDS: Metric = Metric {
    name: "opcore_identity_operand_ready",
    kind: Kind::Gauge,
    labels: &["operand"],
    help: "1 while an operand is ready, else 0.",
};
/// Whether an operand waits for a person.
pub const STALLED_OPERANDS: Metric = Metric {
    name: "opcore_identity_operand_stalled",
    kind: Kind::Gauge,
    labels: &["operand"],
    help: "1 while an operand cannot go on without a person: a conflict, a failed backup, an invalid spec.",
};
/// Whether a deletion is blocked.
pub const BLOCKED: Metric = Metric {
    name: "opcore_identity_deletion_blocked",
    kind: Kind::Gauge,
    labels: &["operand"],
    help: "1 while the deletion of an operand is blocked by what uses it; its condition DeletionBlocked names it.",
};
/// Since when an operand is being taken down.
pub const TEARDOWN_STARTED: Metric = Metric {
    name: "opcore_identity_teardown_started_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["operand"],
    help: "When the teardown of an operand, or of the stack, began; there only while it lasts.",
};
/// Steps that are overdue.
pub const OVERDUE: Metric = Metric {
    name: "opcore_identity_teardown_overdue_steps",
    kind: Kind::Gauge,
    labels: &["operand"],
    help: "Steps of a teardown whose deadline has passed.",
};
/// When the last backup was made.
pub const BACKUP: Metric = Metric {
    name: "opcore_identity_last_backup_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "When the last verified backup of the server's volume was made; 0 if there is none.",
};
/// Whether a migration is under way.
pub const MIGRATING: Metric = Metric {
    name: "opcore_identity_migration_started_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "When the migration to another trust domain that is under way began; 0 if there is none.",
};
/// All metrics that only this operator has.
pub const ALL: &[Metric] = &[READY_OPERANDS, STALLED_OPERANDS, BLOCKED, TEARDOWN_STARTED, OVERDUE, BACKUP, MIGRATING];

/// The name of the stack among the operands in labels.
const STACK: &str = "ZeroTrustWorkloadIdentityManager";

/// The metrics that only this operator has.
pub struct StackMetrics {
    ready: IntGaugeVec,
    stalled: IntGaugeVec,
    blocked: IntGaugeVec,
    started: IntGaugeVec,
    overdue: IntGaugeVec,
    backup: IntGaugeVec,
    migrating: IntGaugeVec,
}

impl StackMetrics {
    /// Creates and registers the metrics; none if that fails, which names that are fixed prevent.
    pub fn new(metrics: &Metrics) -> Option<Arc<Self>> {
        let gauge = |metric: &Metric| {
            let gauge = IntGaugeVec::new(metric.into(), metric.labels).ok()?;
            metrics.registry().register(Box::new(gauge.clone())).ok()?;
            Some(gauge)
        };
        Some(Arc::new(Self {
            ready: gauge(&READY_OPERANDS)?,
            stalled: gauge(&STALLED_OPERANDS)?,
            blocked: gauge(&BLOCKED)?,
            started: gauge(&TEARDOWN_STARTED)?,
            overdue: gauge(&OVERDUE)?,
            backup: gauge(&BACKUP)?,
            migrating: gauge(&MIGRATING)?,
        }))
    }

    /// Shows the published status of an operand.
    pub fn operand(&self, kind: OperandKind, status: &OperandStatus, _: Timestamp) {
        let labels = [kind.as_str()];
        self.ready.with_label_values(&labels).set(is_true(&status.conditions, READY).into());
        self.stalled.with_label_values(&labels).set(is_true(&status.conditions, STALLED).into());
        self.blocked.with_label_values(&labels).set(is_true(&status.conditions, DELETION_BLOCKED).into());
        self.teardown(kind.as_str(), status.teardown.as_ref());
        if kind == OperandKind::SpireServer {
            let last = status.volume.as_ref().and_then(|volume| volume.last_backup.as_ref()?.taken_at);
            self.backup.with_label_values(&[] as &[&str]).set(last.map_or(0, Timestamp::as_second));
        }
    }

    /// Shows the published status of the stack.
    pub fn stack(&self, status: &ZeroTrustWorkloadIdentityManagerStatus, _: Timestamp) {
        let migration = status.migration.as_ref().filter(|migration| migration.phase != MigrationPhase::Done);
        let started = migration.map_or(0, |migration| migration.started_at.as_second());
        self.migrating.with_label_values(&[] as &[&str]).set(started);
        self.ready.with_label_values(&[STACK]).set(is_true(&status.conditions, READY).into());
        self.stalled.with_label_values(&[STACK]).set(is_true(&status.conditions, STALLED).into());
        self.blocked.with_label_values(&[STACK]).set(is_true(&status.conditions, DELETION_BLOCKED).into());
        self.teardown(STACK, status.teardown.as_ref());
    }

    fn teardown(&self, name: &str, record: Option<&opcore::finalizer::TeardownRecord>) {
        let Some(record) = record else { return };
        self.started.with_label_values(&[name]).set(record.started_at.as_second());
        let overdue = record.steps.iter().filter(|step| step.overdue).count();
        self.overdue.with_label_values(&[name]).set(i64::try_from(overdue).unwrap_or(i64::MAX));
    }

    /// Removes the series of an operand that is gone.
    pub fn forget(&self, kind: OperandKind) {
        self.drop_series(kind.as_str());
    }

    /// Removes the series of a stack that is gone.
    pub fn forget_stack(&self) {
        self.drop_series(STACK);
    }

    fn drop_series(&self, name: &str) {
        // A series that was never set cannot be removed.
        for gauge in [&self.ready, &self.stalled, &self.blocked, &self.started, &self.overdue] {
            let _ = gauge.remove_label_values(&[name]);
        }
    }
}

//! A teardown in progress: its steps, how long they have taken, and what blocks them.

use jiff::Timestamp;
use lifecycle_operator::api::v1alpha1::{OperandKind, TeardownPolicy};
use lifecycle_operator::decide::outline;
use opcore::duration::Span;
use opcore::finalizer::{StepPhase, StepRecord, TeardownRecord};

use super::stack::{OperandName, Stack, View};
use crate::output::{Paint, age, table};
use crate::phrases::{printable, since};

/// The steps of all teardowns in progress, those of an operand below its step in the teardown of the stack; none if
/// nothing is being deleted.
pub(super) fn lines(stack: &Stack, view: &View) -> Vec<String> {
    let policy = stack.policy();
    let mut rows = Vec::new();
    let of_parent = stack.teardowns().find_map(|(kind, record)| kind.is_none().then_some(record));
    for outline in outline::of_stack() {
        let own = stack.teardowns().find_map(|(kind, record)| (kind == Some(outline.kind)).then_some(record));
        let in_stack = of_parent.and_then(|record| record.step(outline.name));
        match in_stack {
            Some(step) => rows.push(row(step, "", None, view)),
            None if own.is_some() => rows.push(vec![outline.name.to_owned()]),
            None => {}
        }
        let steps = own.map_or(&[][..], |record| &record.steps);
        rows.extend(steps.iter().map(|step| row(step, "  ", deadline(outline.kind, step, &policy), view)));
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let mut lines = table(&["TEARDOWN", "STATUS", "TIME", "DEADLINE", "MESSAGE"], &rows);
    if let Some(header) = lines.first_mut() {
        *header = view.paint.faint(&*header);
    }
    if let Some(record) = of_parent {
        lines.push(whole(record, &policy, view));
    }
    lines.extend(remedies(stack));
    lines
}

/// The deadline of a running step.
fn deadline(kind: OperandKind, step: &StepRecord, policy: &TeardownPolicy) -> Option<Timestamp> {
    let outline = outline::of(kind);
    let is_timed = outline.steps.iter().any(|known| known.name == step.name && !known.waits_for_others);
    let started = step.started_at.filter(|_| is_timed && step.phase == StepPhase::Running)?;
    Some(policy.operand_timeout.after(started))
}

fn row(step: &StepRecord, indent: &str, deadline: Option<Timestamp>, view: &View) -> Vec<String> {
    let time = match (step.started_at, step.finished_at) {
        (Some(started), Some(finished)) => since(started, finished),
        (Some(started), None) => since(started, view.now),
        (None, _) => String::new(),
    };
    let deadline = match deadline {
        Some(at) if at > view.now => format!("in {}", since(view.now, at)),
        Some(at) => view.paint.bad(format!("{} ago", since(at, view.now))),
        None => String::new(),
    };
    let message = step.message.as_deref().map(printable).unwrap_or_default();
    let phase = in_colour(step, view.paint);
    vec![format!("{indent}{}", step.name), phase, time, deadline, message]
}

fn in_colour(step: &StepRecord, paint: Paint) -> String {
    match step.phase {
        StepPhase::Waiting => paint.faint("Waiting"),
        StepPhase::Running if step.overdue => paint.bad("Overdue"),
        StepPhase::Running => paint.busy("Running"),
        StepPhase::Done => paint.good("Done"),
        StepPhase::Leaked => paint.odd("Leaked"),
    }
}

/// How long the whole teardown has taken, and may take.
fn whole(record: &TeardownRecord, policy: &TeardownPolicy, view: &View) -> String {
    let taken = Span::between(record.started_at, view.now);
    let (length, most) = (age(taken.as_duration()), age(policy.timeout.as_duration()));
    let words = format!("The whole has taken {length} of {most} (spec.teardown.timeout).");
    if taken > policy.timeout { view.paint.bad(words) } else { words }
}

/// How to give up each step that takes too long.
fn remedies(stack: &Stack) -> Vec<String> {
    let mut lines = Vec::new();
    for (kind, record) in stack.teardowns() {
        let overdue = record.steps.iter().filter(|step| step.phase == StepPhase::Running && step.overdue);
        // The steps of the stack wait for operands, each of which says what it waits for itself.
        let Some(kind) = kind else { continue };
        lines.extend(overdue.map(|step| {
            let operand = OperandName::of(kind);
            format!("Remove what is in the way, or give it up: opctl identity force {operand} {}", step.name)
        }));
    }
    lines
}

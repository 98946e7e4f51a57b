//! `opctl identity status`.

use std::process::ExitCode;

use clap::Args;
use kube::api::ObjectMeta;
use lifecycle_operator::api::v1alpha1::{
    Backup, EffectiveValue, MigrationPhase, OperandKind, OperandStatus, SINGLETON, SpiffeCSIDriver, SpireAgent,
    SpireOIDCDiscoveryProvider, SpireServer, VolumeStatus, ZeroTrustWorkloadIdentityManagerStatus,
};
use lifecycle_operator::config::{Field, PARENT};
use lifecycle_operator::controller;
use lifecycle_operator::decide::migration;
use lifecycle_operator::decide::teardown::DELETION_BLOCKED;
use lifecycle_operator::operand::{Operand, Peer};
use opcore::Operator;
use opcore::conditions::{STALLED, find, is_true};
use serde::Serialize;

use super::progress;
use super::stack::{CHART, Kinds, Stack, View};
use crate::follow::{self, Followed, Following};
use crate::output::{self, Format, Line, Output, Paint, table};
use crate::phrases::{ago, count, printable, since, size};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    following: Following,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn status(kinds: &Kinds, flags: &Flags) -> anyhow::Result<ExitCode> {
    let stack = kinds.stack().await?;
    if flags.following.watch {
        let (format, timeout) = (flags.output.output, flags.following.timeout);
        return follow::follow("The stack", kinds.follow(), format, timeout).await;
    }
    match flags.output.output {
        Format::Json => output::print_json(&Whole::of(&stack))?,
        Format::Text => output::print_lines(&page(&stack, &View::now()))?,
    }
    let is_well = !stack.needs_help() && !stack.is_overdue();
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Followed for Stack {
    fn drawn(&self, _: bool) -> Vec<Line> {
        let line = |text: String| Line { text, spare: false };
        page(self, &View::now()).into_iter().map(line).collect()
    }

    fn news(&self, before: Option<&Self>) -> Vec<String> {
        news(self, before, &View::now())
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Whole::of(self))
    }

    fn ended(&self) -> Option<ExitCode> {
        outcome(self)
    }
}

/// How following a stack ends, once it does: when it is ready, when it is gone, or when someone must act.
pub(super) fn outcome(stack: &Stack) -> Option<ExitCode> {
    if stack.is_gone() || stack.is_ready() {
        return Some(ExitCode::SUCCESS);
    }
    (stack.is_current() && stack.needs_help()).then_some(ExitCode::FAILURE)
}

/// A stack with its statuses, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Whole<'a> {
    ready: bool,
    deleting: bool,
    needs_help: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conflicts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<Entry<'a, ZeroTrustWorkloadIdentityManagerStatus>>,
    operands: Vec<Entry<'a, OperandStatus>>,
}

/// An object of the stack.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a, S> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<i64>,
    deleting: bool,
    finalizers: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a S>,
}

impl<'a, S> Entry<'a, S> {
    fn of(kind: &'static str, meta: &'a ObjectMeta, status: Option<&'a S>) -> Self {
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        Self { kind, generation: meta.generation, deleting: meta.deletion_timestamp.is_some(), finalizers, status }
    }
}

impl<'a> Whole<'a> {
    fn of(stack: &'a Stack) -> Self {
        let operand = |peer: &'a Peer| Entry::of(peer.kind.as_str(), &peer.meta, Some(&peer.status));
        Self {
            ready: stack.is_ready(),
            deleting: stack.is_deleting(),
            needs_help: stack.needs_help(),
            conflicts: stack.conflicts().iter().map(ToString::to_string).collect(),
            parent: stack.parent.as_ref().map(|parent| Entry::of(PARENT, &parent.metadata, parent.status.as_ref())),
            operands: stack.operands.iter().map(operand).collect(),
        }
    }
}

/// A stack, as people read it.
pub(super) fn page(stack: &Stack, view: &View) -> Vec<String> {
    if stack.is_gone() {
        return vec!["The stack is gone.".to_owned()];
    }
    let mut lines = head(stack, view);
    lines.push(String::new());
    lines.extend(operands(stack, view));
    let config = config(stack, view);
    if !config.is_empty() {
        lines.push(String::new());
        lines.extend(config);
    }
    let facts = facts(stack, view);
    if !facts.is_empty() {
        lines.push(String::new());
    }
    for (title, words) in facts {
        lines.push(format!("{}{words}", view.paint.faint(format!("{title:<11}"))));
    }
    let teardown = progress::lines(stack, view);
    if !teardown.is_empty() {
        lines.push(String::new());
        lines.extend(teardown);
    }
    lines
}

/// The lines about the stack as a whole.
fn head(stack: &Stack, view: &View) -> Vec<String> {
    let paint = view.paint;
    let Some(parent) = &stack.parent else {
        let words = format!("There is no {PARENT}: each operand stands for itself.");
        return vec![paint.strong("SPIRE stack"), words];
    };
    let name = paint.strong(format!("{PARENT} {SINGLETON}"));
    let Some((status, ready)) = parent.status.as_ref().zip(stack.ready()) else {
        let words = format!("The operator has not reconciled it yet: is {CHART} running?");
        return vec![format!("{name}   {}", paint.odd("Unknown")), words];
    };
    let reason = in_colour(&ready.reason, &ready.status, is_true(&status.conditions, STALLED), paint);
    let domain = status.trust_domain.as_ref().map(|domain| format!("   trust domain {domain}")).unwrap_or_default();
    let mut lines = vec![format!("{name}   {reason}{domain}")];
    lines.extend(Some(printable(&ready.message)).filter(|message| !message.is_empty()));
    if !stack.is_current() {
        lines.push(paint.odd("The spec has changed, and the operator has not reconciled the change yet."));
    }
    lines
}

/// A reason in the colour of the state that it is about.
fn in_colour(reason: &str, ready: &str, stalled: bool, paint: Paint) -> String {
    match (ready, stalled) {
        ("True", _) => paint.good(reason),
        (_, true) => paint.bad(reason),
        _ => paint.busy(reason),
    }
}

/// A row for each kind of operand, whether it exists or not.
fn operands(stack: &Stack, view: &View) -> Vec<String> {
    let row = |kind: OperandKind| {
        let (name, none) = (kind.to_string(), || "-".to_owned());
        let Some(peer) = stack.operand(kind) else {
            let words = match &stack.parent {
                Some(parent) if parent.metadata.deletion_timestamp.is_some() => "it is gone",
                Some(parent) if parent.spec.operands.contains(&kind) => "it does not exist yet",
                _ => "it is not asked for",
            };
            return vec![name, none(), none(), none(), view.paint.faint(words)];
        };
        let status = match peer.ready() {
            Some(ready) => {
                in_colour(&ready.reason, &ready.status, is_true(&peer.status.conditions, STALLED), view.paint)
            }
            None => view.paint.odd("Unknown"),
        };
        let ready = if peer.is_ready() { "True" } else { "False" };
        let age = peer.meta.creation_timestamp.as_ref().map_or_else(none, |created| since(created.0, view.now));
        vec![name, ready.to_owned(), status, age, said(peer)]
    };
    let rows: Vec<Vec<String>> = OperandKind::ALL.into_iter().map(row).collect();
    let mut lines = table(&["OPERAND", "READY", "STATUS", "AGE", "MESSAGE"], &rows);
    if let Some(header) = lines.first_mut() {
        *header = view.paint.faint(&*header);
    }
    lines
}

/// The message of an operand, unless it is ready.
fn said(peer: &Peer) -> String {
    let Some(ready) = peer.ready() else {
        return format!("the operator has not reconciled it yet: is {CHART} running?");
    };
    let message = if peer.is_ready() { String::new() } else { printable(&ready.message) };
    let stale = peer.status.observed_generation != peer.meta.generation;
    if stale { format!("the spec has changed since: {message}") } else { message }
}

/// The values of the central config that are in effect, with where each comes from.
fn config(stack: &Stack, view: &View) -> Vec<String> {
    let mut rows: Vec<(&EffectiveValue, Vec<&str>)> = Vec::new();
    for field in Field::ALL {
        for peer in &stack.operands {
            for value in peer.status.config.iter().filter(|value| value.name == field.as_str()) {
                match rows.iter_mut().find(|(known, _)| *known == value) {
                    Some((_, kinds)) => kinds.push(peer.kind.as_str()),
                    None => rows.push((value, vec![peer.kind.as_str()])),
                }
            }
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let row = |(value, kinds): &(&EffectiveValue, Vec<&str>)| {
        vec![value.name.clone(), value.value.clone(), format!("{:?}", value.from), kinds.join(", ")]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    let mut lines = table(&["CONFIG", "VALUE", "FROM", "OPERANDS"], &rows);
    if let Some(header) = lines.first_mut() {
        *header = view.paint.faint(&*header);
    }
    lines
}

/// Further facts, each with a title.
fn facts(stack: &Stack, view: &View) -> Vec<(&'static str, String)> {
    let paint = view.paint;
    let mut facts = Vec::new();
    facts.extend(stack.conflicts().iter().map(|conflict| ("Conflict", paint.bad(conflict))));
    for peer in &stack.operands {
        let warning = find(&peer.status.conditions, "ConfigurationWarning");
        facts.extend(warning.map(|warning| {
            ("Warning", paint.odd(format!("{} {SINGLETON}: {}", peer.kind, printable(&warning.message))))
        }));
        let blocked = find(&peer.status.conditions, DELETION_BLOCKED).filter(|blocked| blocked.status == "True");
        facts.extend(blocked.map(|blocked| {
            ("Blocked", paint.bad(format!("{} {SINGLETON}: {}", peer.kind, printable(&blocked.message))))
        }));
    }
    facts.extend(migration_words(stack, view).map(|words| ("Migration", words)));
    if let Some(volume) = stack.volume() {
        facts.extend(volume_facts(volume, view));
    }
    facts.extend(held(stack).into_iter().map(|words| ("Held", paint.odd(words))));
    facts
}

fn migration_words(stack: &Stack, view: &View) -> Option<String> {
    let migration = stack.parent.as_ref()?.status.as_ref()?.migration.as_ref()?;
    let words = match (migration.phase, migration.finished_at) {
        (MigrationPhase::Done, Some(at)) => {
            let took = since(migration.started_at, at);
            format!("from {} to {}, done {}, took {took}", migration.from, migration.to, ago(at, view.now))
        }
        (phase, _) => {
            let phase = view.paint.busy(format!("{phase:?}"));
            let message = migration::message(migration);
            format!("{phase}, for {}: {message}", since(migration.started_at, view.now))
        }
    };
    let backup = migration.backup.as_ref().map(|name| format!(" Backup of the old data: {name}.")).unwrap_or_default();
    Some(format!("{words}{backup}"))
}

fn volume_facts(volume: &VolumeStatus, view: &View) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(work) = &volume.work {
        let why = work.message.as_deref().map(|message| format!(": {}", printable(message))).unwrap_or_default();
        let words = format!("{:?} {}, for {}{why}", work.kind, work.backup, since(work.started_at, view.now));
        facts.push(("Volume", view.paint.busy(words)));
    }
    if let Some(name) = &volume.restored {
        facts.push(("Restored", format!("from backup {name}")));
    }
    facts.push((
        "Backup",
        volume.last_backup.as_ref().map_or_else(|| "none".to_owned(), |last| backup_words(last, view)),
    ));
    facts
}

/// A backup, in a line.
pub(super) fn backup_words(backup: &Backup, view: &View) -> String {
    let taken = backup.taken_at.map(|at| format!(", {}", ago(at, view.now))).unwrap_or_default();
    let (files, bytes) = (signed(backup.files), signed(backup.bytes));
    format!(
        "{}{taken}, {}, {}, in PersistentVolumeClaim {}",
        backup.name,
        count(files, "file"),
        size(bytes),
        backup.claim
    )
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Objects that are being deleted, and that only finalizers of others hold: the operator has released them.
fn held(stack: &Stack) -> Vec<String> {
    let held = |kind: &str, own: &str, meta: &ObjectMeta| {
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        let is_held = meta.deletion_timestamp.is_some() && !finalizers.iter().any(|finalizer| finalizer == own);
        (is_held && !finalizers.is_empty()).then(|| {
            let finalizers = finalizers.join(", ");
            format!("{kind} {SINGLETON} is held only by finalizers of others, {finalizers}: whoever set them must remove them")
        })
    };
    let parent = stack.parent.as_ref().and_then(|parent| held(PARENT, controller::Stack::FINALIZER, &parent.metadata));
    let operands = stack.operands.iter().filter_map(|peer| held(peer.kind.as_str(), finalizer(peer.kind), &peer.meta));
    parent.into_iter().chain(operands).collect()
}

/// The operator's own finalizer on an operand.
fn finalizer(kind: OperandKind) -> &'static str {
    match kind {
        OperandKind::SpireServer => SpireServer::FINALIZER,
        OperandKind::SpireAgent => SpireAgent::FINALIZER,
        OperandKind::SpiffeCSIDriver => SpiffeCSIDriver::FINALIZER,
        OperandKind::SpireOIDCDiscoveryProvider => SpireOIDCDiscoveryProvider::FINALIZER,
    }
}

/// A line for each object whose state has changed.
pub(super) fn news(stack: &Stack, before: Option<&Stack>, view: &View) -> Vec<String> {
    let time = view.paint.faint(format!("{:.0}", view.now));
    if stack.is_gone() {
        return vec![format!("{time}  The stack is gone.")];
    }
    let mut lines = Vec::new();
    for kind in OperandKind::ALL {
        let now = stack.operand(kind).map(|peer| gist(peer, view.paint));
        let then = before.and_then(|before| before.operand(kind)).map(|peer| gist(peer, view.paint));
        match (now, then) {
            (now, then) if now == then => {}
            (Some(words), _) => lines.push(format!("{time}  {kind}  {words}")),
            (None, _) => lines.push(format!("{time}  {kind}  gone")),
        }
    }
    let summary = |stack: &Stack| {
        let ready = stack.ready()?;
        Some(format!("{}  {}", ready.reason, printable(&ready.message)))
    };
    if let Some(words) = summary(stack).filter(|words| before.and_then(summary).as_ref() != Some(words)) {
        lines.push(format!("{time}  {PARENT}  {words}"));
    }
    lines
}

fn gist(peer: &Peer, paint: Paint) -> String {
    let Some(ready) = peer.ready() else { return paint.odd("Unknown") };
    let reason = in_colour(&ready.reason, &ready.status, is_true(&peer.status.conditions, STALLED), paint);
    let message = if peer.is_ready() { String::new() } else { format!("  {}", printable(&ready.message)) };
    format!("{reason}{message}")
}

//! The chain of waves that determines how long the whole rollout takes.

use jiff::Timestamp;
use opcore::duration::Span;

use super::graph::Graph;
use crate::api::v1alpha1::{CriticalPath, Slack, WavePhase, WavePlanSpec, WaveStatus};

/// How long each wave takes: measured if it is through, else its usual duration, else its timeout.
fn length(spec: &WavePlanSpec, number: usize, wave: &WaveStatus, now: Timestamp) -> Span {
    let expected =
        || wave.usual.unwrap_or_else(|| spec.waves.get(number).map_or(Span::default(), |w| spec.timeout_of(w)));
    match (wave.phase, wave.started_at) {
        (WavePhase::Skipped, _) => Span::default(),
        (WavePhase::Ready, _) => wave.duration.unwrap_or_default(),
        // The wave cannot take less than it has already taken.
        (WavePhase::Running, Some(started)) => expected().max(Span::between(started, now).rounded()),
        _ => expected(),
    }
}

/// The critical path of a plan whose waves have these statuses; `waves` in the order of the spec.
pub fn critical_path(
    spec: &WavePlanSpec,
    graph: &Graph,
    waves: &[WaveStatus],
    started_at: Option<Timestamp>,
    now: Timestamp,
) -> CriticalPath {
    let lengths: Vec<Span> = waves.iter().enumerate().map(|(n, wave)| length(spec, n, wave, now)).collect();
    let order: Vec<usize> = graph.order.iter().copied().filter(|n| !graph.broken.contains_key(n)).collect();
    // When each wave can end at the earliest, and the dependency that it then waited for last.
    let mut ends = vec![Span::default(); waves.len()];
    let mut via: Vec<Option<usize>> = vec![None; waves.len()];
    for &number in &order {
        let last = graph.before[number]
            .iter()
            .copied()
            .filter(|n| order.contains(n))
            .max_by_key(|n| (ends[*n], usize::MAX - n));
        via[number] = last;
        ends[number] = last.map_or(Span::default(), |last| ends[last]) + lengths[number];
    }
    let total = order.iter().map(|n| ends[*n]).max().unwrap_or_default();
    // When each wave must end at the latest.
    let mut latest = vec![total; waves.len()];
    for &number in order.iter().rev() {
        for &first in &graph.before[number] {
            latest[first] = latest[first].min(latest[number] - lengths[number]);
        }
    }
    let mut path = Vec::new();
    let mut step = order.iter().copied().rev().filter(|n| ends[*n] == total).min_by_key(|n| *n);
    while let Some(number) = step {
        path.push(waves[number].name.clone());
        step = via[number];
    }
    path.reverse();
    CriticalPath {
        waves: path,
        total,
        elapsed: started_at.map_or(Span::default(), |started| Span::between(started, now).rounded()),
        remaining: remaining(graph, &order, waves, &lengths, now),
        slack: order.iter().map(|n| Slack { wave: waves[*n].name.clone(), slack: latest[*n] - ends[*n] }).collect(),
    }
}

/// The longest path from now to the end, over waves that are not through.
fn remaining(graph: &Graph, order: &[usize], waves: &[WaveStatus], lengths: &[Span], now: Timestamp) -> Span {
    let mut ends = vec![Span::default(); waves.len()];
    for &number in order {
        let wave = &waves[number];
        if wave.phase.is_through() {
            continue;
        }
        let begins = graph.before[number].iter().map(|first| ends[*first]).max().unwrap_or_default();
        let spent = wave
            .started_at
            .filter(|_| wave.phase == WavePhase::Running)
            .map_or(Span::default(), |at| Span::between(at, now));
        ends[number] = begins + (lengths[number] - spent).rounded();
    }
    order.iter().map(|number| ends[*number]).max().unwrap_or_default()
}

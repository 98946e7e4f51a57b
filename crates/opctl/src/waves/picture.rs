//! A plan at a moment: the graph of its waves, the status of each, and the critical path as of now.

use std::time::Duration;

use jiff::Timestamp;
use opcore::duration::Span;
use wave_orchestrator::api::v1alpha1::{CriticalPath, Wave, WavePlan, WaveStatus};
use wave_orchestrator::decide::{Graph, critical_path, graph};

/// A plan at a moment. Waves are known by their place in the spec.
pub(super) struct Picture<'a> {
    pub plan: &'a WavePlan,
    pub graph: Graph,
    /// The status of each wave; one without a status waits.
    pub statuses: Vec<WaveStatus>,
    /// The critical path by what is known now.
    pub path: CriticalPath,
    /// The critical path by the timeouts alone, before anything is measured.
    pub planned: CriticalPath,
}

impl<'a> Picture<'a> {
    pub(super) fn of(plan: &'a WavePlan, now: Timestamp) -> Self {
        let graph = graph(&plan.spec.waves);
        let status = plan.status.as_ref();
        let statuses: Vec<WaveStatus> = plan
            .spec
            .waves
            .iter()
            .map(|wave| match status.and_then(|status| status.wave(&wave.name)) {
                Some(known) => known.clone(),
                None => WaveStatus { name: wave.name.clone(), ..WaveStatus::default() },
            })
            .collect();
        let rollout = status.and_then(|status| status.rollout.as_ref());
        let ended = rollout.and_then(|rollout| rollout.finished_at).unwrap_or(now);
        let path = critical_path(&plan.spec, &graph, &statuses, rollout.map(|rollout| rollout.started_at), ended);
        let nothing: Vec<WaveStatus> =
            statuses.iter().map(|wave| WaveStatus { name: wave.name.clone(), ..WaveStatus::default() }).collect();
        let planned = critical_path(&plan.spec, &graph, &nothing, None, now);
        Self { plan, graph, statuses, path, planned }
    }

    /// The wave at this place.
    pub(super) fn wave(&self, number: usize) -> &'a Wave {
        &self.plan.spec.waves[number]
    }

    /// How long a wave may take.
    pub(super) fn timeout(&self, number: usize) -> Duration {
        self.plan.spec.timeout_of(self.wave(number)).as_duration()
    }

    pub(super) fn is_critical(&self, number: usize) -> bool {
        self.path.waves.contains(&self.wave(number).name)
    }

    pub(super) fn is_planned_critical(&self, number: usize) -> bool {
        self.planned.waves.contains(&self.wave(number).name)
    }

    /// How much longer a wave could take before it delayed the whole.
    pub(super) fn slack(&self, number: usize) -> Option<Span> {
        self.path.slack.iter().find(|slack| slack.wave == self.wave(number).name).map(|slack| slack.slack)
    }

    /// The wave under which a tree shows this one: of those that it depends on, the one before it on the planned
    /// critical path, which does not change while people watch, else the last. Waves that wait for each other stand
    /// under what comes before them, so that a tree stays a tree.
    pub(super) fn parent(&self, number: usize) -> Option<usize> {
        let place = |wave: &usize| self.graph.order.iter().position(|other| other == wave);
        let name = &self.wave(number).name;
        let before_on_path = self.planned.waves.windows(2).find(|pair| &pair[1] == name).map(|pair| pair[0].as_str());
        self.graph.before[number]
            .iter()
            .copied()
            .filter(|first| place(first) < place(&number))
            .max_by_key(|first| (Some(self.wave(*first).name.as_str()) == before_on_path, place(first)))
    }

    /// The waves in layers: each stands right after the last layer that holds one that it depends on.
    pub(super) fn layers(&self) -> Vec<Vec<usize>> {
        let mut layer_of = vec![0; self.statuses.len()];
        let mut layers: Vec<Vec<usize>> = Vec::new();
        for &number in &self.graph.order {
            let layer = self.graph.before[number].iter().map(|first| layer_of[*first] + 1).max().unwrap_or_default();
            layer_of[number] = layer;
            if layers.len() <= layer {
                layers.resize(layer + 1, Vec::new());
            }
            layers[layer].push(number);
        }
        layers
    }
}

//! When something happened, in seconds since the start.

use std::collections::BTreeMap;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;

/// The prefix of lines in a log at which a step starts.
pub const STEP: &str = "── ";

/// When each event happened for the first time, by its name.
pub struct Moments {
    began: Timestamp,
    first: BTreeMap<String, f64>,
}

impl Moments {
    /// Starts now.
    pub fn begin() -> Self {
        Self { began: Timestamp::now(), first: BTreeMap::new() }
    }

    /// This happened at that time; only the first time counts.
    pub fn note(&mut self, what: &str, at: Timestamp) {
        let seconds = at.duration_since(self.began).as_secs_f64();
        self.first.entry(what.to_owned()).or_insert(seconds);
    }

    /// The same, this much later than another event.
    pub fn after(&mut self, what: &str, before: &str, milliseconds: u64) -> anyhow::Result<()> {
        #[expect(clippy::cast_precision_loss, reason = "a run takes seconds")]
        let seconds = self.at(before)? + milliseconds as f64 / 1000.0;
        self.first.entry(what.to_owned()).or_insert(seconds);
        Ok(())
    }

    /// Whether it happened.
    pub fn has(&self, what: &str) -> bool {
        self.first.contains_key(what)
    }

    pub fn at(&self, what: &str) -> anyhow::Result<f64> {
        self.first.get(what).copied().with_context(|| format!("{what} was not observed"))
    }

    /// Reads the steps from the log of the pod's Terraform: the container runtime records the time of each line,
    /// whereas the status of a pod has only whole seconds, and is late.
    pub async fn read(&mut self, pods: &Api<Pod>, pod: &str) -> anyhow::Result<()> {
        let params = LogParams { container: Some("terraform".to_owned()), timestamps: true, ..LogParams::default() };
        let log = pods.logs(pod, &params).await?;
        for (time, words) in log.lines().filter_map(|line| line.split_once(' ')) {
            if let Some(step) = words.strip_prefix(STEP) {
                self.note(step, time.parse().with_context(|| format!("no time: {time}"))?);
            }
        }
        Ok(())
    }
}

/// The median.
pub fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

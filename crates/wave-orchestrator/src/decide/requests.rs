//! What users request of a plan by annotation.

use std::collections::BTreeSet;

use opcore::annotations;
use opcore::operator::REQUESTED_AT_ANNOTATION;

use crate::api::v1alpha1::{
    FORCE_ANNOTATION, Handled, PAUSE_ANNOTATION, RESUME_ANNOTATION, RETRY_ANNOTATION, SKIP_ANNOTATION, WavePlan,
};

/// Requests that have not been carried out yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests {
    /// Waves to retry; `*` means all that failed.
    retry: BTreeSet<String>,
    /// Waves to start now.
    force: BTreeSet<String>,
    /// Waves to skip.
    skip: BTreeSet<String>,
    /// Waves to skip whose request has not been checked yet.
    newly_skipped: BTreeSet<String>,
    /// Start no more waves.
    pub paused: bool,
    /// Continue after a failure that paused the plan.
    pub resume: bool,
}

impl Requests {
    /// The requests, and those that will have been carried out when this decision is published.
    pub(super) fn of(plan: &WavePlan) -> (Self, Handled) {
        let handled = plan.status.as_ref().map(|status| status.handled.clone()).unwrap_or_default();
        let asked = |key: &str| annotations::value(plan, key).map(str::to_owned);
        let new =
            |key: &str, before: &Option<String>| annotations::request(plan, key, before.as_deref()).map(str::to_owned);
        let waves = |value: Option<String>| {
            value.map(|value| list(value.split('@').next().unwrap_or_default())).unwrap_or_default()
        };
        let requests = Self {
            retry: waves(new(RETRY_ANNOTATION, &handled.retry)),
            force: waves(new(FORCE_ANNOTATION, &handled.force)),
            skip: waves(asked(SKIP_ANNOTATION)),
            newly_skipped: waves(new(SKIP_ANNOTATION, &handled.skip)),
            paused: annotations::is_true(plan, PAUSE_ANNOTATION),
            resume: new(RESUME_ANNOTATION, &handled.resume).is_some(),
        };
        let handled = Handled {
            retry: asked(RETRY_ANNOTATION),
            force: asked(FORCE_ANNOTATION),
            skip: asked(SKIP_ANNOTATION),
            resume: asked(RESUME_ANNOTATION),
            requested_at: asked(REQUESTED_AT_ANNOTATION),
        };
        (requests, handled)
    }

    /// Whether this wave must be retried; `*` means those in trouble.
    pub(super) fn retries(&self, wave: &str, in_trouble: bool) -> bool {
        self.retry.contains(wave) || (in_trouble && self.retry.contains("*"))
    }

    /// Whether this wave must start now.
    pub(super) fn forces(&self, wave: &str) -> bool {
        self.force.contains(wave)
    }

    /// Whether this wave must be skipped.
    pub(super) fn skips(&self, wave: &str) -> bool {
        self.skip.contains(wave)
    }

    /// Names that are not waves of the plan: probably typing errors.
    pub(super) fn unknown<'a>(&'a self, is_wave: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = &'a str> {
        let all = self.retry.iter().chain(&self.force).chain(&self.newly_skipped).map(String::as_str);
        all.filter(move |name| *name != "*" && !is_wave(name))
    }
}

fn list(text: &str) -> BTreeSet<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

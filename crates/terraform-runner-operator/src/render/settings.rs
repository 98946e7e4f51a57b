//! The operator's settings for runs.

use opcore::duration::Span;

use super::authors::Authors;
use super::inputs::Problem;
use crate::api::v1alpha1::{TerraformWorkspaceSpec, Timeouts};

/// The operator's settings for runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The image with the runner and OpenTofu.
    pub image: String,
    /// When it is pulled.
    pub pull_policy: String,
    /// How long a pod may take to start before its run gives up its turn.
    pub start_within: Span,
    /// How long each part of a run may take at most.
    pub longest: Longest,
    /// What authors of workspaces may ask for.
    pub authors: Authors,
}

/// How long each part of a run may take at most, whatever the spec says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// Fetching providers and modules, and planning.
    pub plan: Span,
    /// Applying.
    pub apply: Span,
    /// Destroying.
    pub destroy: Span,
}

impl Settings {
    /// The settings with this image and pull policy, and the defaults of the flags otherwise.
    pub fn new(image: impl Into<String>, pull_policy: impl Into<String>) -> Self {
        let hours = |hours: u64| Span::from_secs(hours * 3600);
        Self {
            image: image.into(),
            pull_policy: pull_policy.into(),
            start_within: Span::from_secs(600),
            longest: Longest { plan: hours(1), apply: hours(4), destroy: hours(4) },
            authors: Authors::default(),
        }
    }

    /// Whether the spec asks only for what is allowed.
    ///
    /// # Errors
    ///
    /// What is not allowed, with the field, and who can change that.
    pub fn permit(&self, spec: &TerraformWorkspaceSpec) -> Result<(), Problem> {
        self.authors.permit(spec)?;
        self.longest.permit(&spec.timeouts)
    }
}

impl Longest {
    fn permit(&self, timeouts: &Timeouts) -> Result<(), Problem> {
        let parts = [
            ("plan", timeouts.plan, self.plan),
            ("apply", timeouts.apply, self.apply),
            ("destroy", timeouts.destroy, self.destroy),
        ];
        let Some((part, asked, most)) = parts.into_iter().find(|(_, asked, most)| asked > most) else { return Ok(()) };
        let message = format!(
            "{asked} is longer than the maximum of {most}; reduce it, or have an administrator increase runs.maxTimeouts.{part} of the chart"
        );
        Err(Problem::wrong(format!("spec.timeouts.{part}"), message))
    }

    /// These timeouts, limited to the longest allowed.
    pub(super) fn clamp(&self, timeouts: Timeouts) -> Timeouts {
        Timeouts {
            plan: timeouts.plan.min(self.plan),
            apply: timeouts.apply.min(self.apply),
            destroy: timeouts.destroy.min(self.destroy),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(more: &serde_json::Value) -> TerraformWorkspaceSpec {
        let mut spec = json!({ "module": { "builtin": "simple" } });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn a_timeout_that_is_longer_than_runs_may_take_is_refused_with_the_value_that_allows_it() {
        let settings = Settings::new("runner", "Never");
        assert_eq!(settings.permit(&spec(&json!({ "timeouts": { "plan": "1h", "apply": "4h" } }))), Ok(()));
        let problem = settings.permit(&spec(&json!({ "timeouts": { "apply": "4h1m" } }))).unwrap_err();
        assert!(!problem.may_come);
        let words = problem.to_string();
        assert!(
            words.starts_with("spec.timeouts.apply: 4h 1m is longer than the maximum of 4h")
                || words.contains("spec.timeouts.apply"),
            "{words}"
        );
        assert!(words.contains("runs.maxTimeouts.apply of the chart"), "{words}");
    }
}

//! `SimpleResource`: the module `simple`.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::json;

use super::{Shown, Typed};
use crate::api::v1alpha1::{
    Drift, DriftAction, Module, SIMPLE_LABEL, SimpleResource, SimpleResourceStatus, TerraformWorkspaceSpec,
};

impl Typed for SimpleResource {
    const SUFFIX: &'static str = "simple";
    const LABEL: &'static str = SIMPLE_LABEL;

    fn workspace(&self) -> TerraformWorkspaceSpec {
        let variables = BTreeMap::from([
            ("name".to_owned(), json!(self.name_any())),
            ("namespace".to_owned(), json!(self.namespace())),
            ("length".to_owned(), json!(self.spec.length)),
            ("prefix".to_owned(), json!(self.spec.prefix)),
            ("vars".to_owned(), json!(self.spec.vars)),
            ("sleep".to_owned(), json!(self.spec.vars.get("sleep").map_or("0s", String::as_str))),
        ]);
        TerraformWorkspaceSpec {
            module: Module { builtin: Some("simple".to_owned()), ..Module::default() },
            variables,
            // The file is in the pod's own file system and is deleted with it: every comparison would report it as
            // missing.
            drift: Drift { action: DriftAction::Off, ..Drift::default() },
            ..TerraformWorkspaceSpec::default()
        }
    }

    fn show(status: &mut SimpleResourceStatus, shown: &Shown<'_>) {
        status.phase = shown.phase;
        shown.message.clone_into(&mut status.message);
        if let Some(outputs) = shown.outputs {
            status.random_value = outputs.get("random_value").cloned();
            status.file_path = outputs.get("file_path").cloned();
        }
        status.last_applied_hash = shown.applied.map(str::to_owned).or(status.last_applied_hash.take());
    }
}

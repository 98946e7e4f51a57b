//! What authors of workspaces may ask for: anyone who may write a workspace decides what runs in the pods of its
//! namespace.
//!
//! The chart has the API server refuse everything else. It is refused here as well: a policy may be missing, and
//! objects written before the policy remain.

use serde_json::Value;

use super::inputs::Problem;
use crate::api::v1alpha1::{PodTemplateSpec, TerraformWorkspaceSpec};

/// Variables with which Terraform runs a program that somebody names, or takes providers from where somebody says. They do
/// as much as a module of one's own.
const RUN_PROGRAMS: [&str; 5] =
    ["HOME", "TERRAFORM_CONFIG", "TF_ENCRYPTION", "TF_PLUGIN_CACHE_*", "TF_REATTACH_PROVIDERS"];
/// Directories in which images have programs and their settings, or Terraform has its files. What is mounted there may
/// take the place of Terraform.
const PROGRAM_DIRECTORIES: [&str; 15] = [
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib*",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "sys",
    "tf-runner",
    "tmp",
    "usr",
];
/// The directories of a run in `/run`, which may be in `/var/run` as well.
const RUN_DIRECTORIES: [&str; 4] = ["inputs", "previous", "tools", "work"];

/// What authors may ask for. Names are compared exactly, or by prefix if they end with `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authors {
    /// Images for Terraform, in addition to the runner's own.
    pub images: Vec<String>,
    /// ServiceAccounts, in addition to those that are created for workspaces.
    pub service_accounts: Vec<String>,
    /// Types of volumes.
    pub volume_types: Vec<String>,
    /// Priority classes.
    pub priority_classes: Vec<String>,
    /// Runtime classes.
    pub runtime_classes: Vec<String>,
    /// Whether they may use their own modules.
    pub own_modules: bool,
}

impl Default for Authors {
    /// The defaults of the flags: only modules that the operator brings along, and nothing that reaches beyond the pod.
    fn default() -> Self {
        let volumes = ["configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"];
        Self {
            images: Vec::new(),
            service_accounts: Vec::new(),
            volume_types: volumes.map(str::to_owned).into(),
            priority_classes: Vec::new(),
            runtime_classes: Vec::new(),
            own_modules: false,
        }
    }
}

impl Authors {
    /// Everything, for a cluster whose authors are trusted.
    pub fn trusted() -> Self {
        let any = || vec!["*".to_owned()];
        Self {
            images: any(),
            service_accounts: any(),
            volume_types: any(),
            priority_classes: any(),
            runtime_classes: any(),
            own_modules: true,
        }
    }

    /// Whether the spec asks only for what is allowed.
    ///
    /// # Errors
    ///
    /// What is not allowed, with the field, and who can change that.
    pub fn permit(&self, spec: &TerraformWorkspaceSpec) -> Result<(), Problem> {
        if !self.own_modules && spec.module.builtin.is_none() {
            let message = "only modules that are part of the operator (spec.module.builtin) are allowed; use one of them, or have an administrator set authors.modules to Any, or authors.trusted to true, in the values of the chart";
            return Err(Problem::wrong("spec.module", message));
        }
        let runs_programs = |name: &str| is_among(name, RUN_PROGRAMS.iter());
        if let Some(env) = spec.env.iter().filter(|_| !self.own_modules).find(|env| runs_programs(&env.name)) {
            let message = format!("Terraform may run other programs because of it, {}", opened_by_modules());
            return Err(Problem::wrong(format!("spec.env[{:?}]", env.name), message));
        }
        self.permit_pods(spec)
    }

    /// Whether the requested properties of its pods are allowed: this includes the pods of a destroy.
    ///
    /// # Errors
    ///
    /// What is not allowed, with the field, and who can change that.
    pub fn permit_pods(&self, spec: &TerraformWorkspaceSpec) -> Result<(), Problem> {
        among(spec.engine.image.as_deref(), &self.images, "spec.engine.image", "images")?;
        let Some(template) = &spec.runner.pod_template else { return Ok(()) };
        let pod = &template.spec;
        let field = |name: &str| format!("spec.runner.podTemplate.spec.{name}");
        let account = pod.service_account_name.as_deref();
        among(account, &self.service_accounts, &field("serviceAccountName"), "serviceAccounts")?;
        let priority = pod.priority_class_name.as_deref();
        among(priority, &self.priority_classes, &field("priorityClassName"), "priorityClasses")?;
        among(pod.runtime_class_name.as_deref(), &self.runtime_classes, &field("runtimeClassName"), "runtimeClasses")?;
        for (number, volume) in pod.volumes.iter().enumerate() {
            let types = volume.as_object().into_iter().flat_map(|volume| volume.keys()).filter(|key| *key != "name");
            for kind in types.filter(|kind| volume.get(*kind) != Some(&Value::Null)) {
                among(Some(kind), &self.volume_types, &field(&format!("volumes[{number}]")), "volumeTypes")?;
            }
        }
        if self.own_modules { Ok(()) } else { permit_mounts(pod) }
    }
}

/// Whether no volume takes the place of a program.
fn permit_mounts(pod: &PodTemplateSpec) -> Result<(), Problem> {
    let hides = |mount: &Value| mount.get("mountPath").is_some_and(|path| path.as_str().is_none_or(may_hide_a_program));
    let Some(number) = pod.volume_mounts.iter().position(hides) else { return Ok(()) };
    let field = format!("spec.runner.podTemplate.spec.volumeMounts[{number}].mountPath");
    let message = format!("a program may be there, so that a volume could replace it, {}", opened_by_modules());
    Err(Problem::wrong(field, message))
}

fn may_hide_a_program(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_plain = path.starts_with('/') && parts.iter().all(|part| !matches!(*part, "." | ".."));
    !is_plain
        || match parts.as_slice() {
            [] | ["var"] | ["var", "run"] => true,
            ["var", "run", first, ..] => RUN_DIRECTORIES.contains(first),
            [first, ..] => is_among(first, PROGRAM_DIRECTORIES.iter()),
        }
}

/// What opens the powers of those who may use modules of their own.
fn opened_by_modules() -> &'static str {
    "which is allowed to those who may use modules of their own: choose another one, or have an administrator set authors.modules to Any, or authors.trusted to true, in the values of the chart"
}

/// Whether a requested value is allowed.
fn among(asked: Option<&str>, allowed: &[String], field: &str, key: &str) -> Result<(), Problem> {
    let Some(asked) = asked else { return Ok(()) };
    if is_among(asked, allowed.iter()) {
        return Ok(());
    }
    let message = format!(
        "{asked} is not allowed; remove it, or have an administrator add it to authors.{key}, or set authors.trusted to true, in the values of the chart"
    );
    Err(Problem::wrong(field, message))
}

/// Compares exactly, or by prefix with names that end with `*`.
fn is_among<T: AsRef<str>>(asked: &str, mut names: impl Iterator<Item = T>) -> bool {
    names.any(|name| match name.as_ref().strip_suffix('*') {
        Some(begin) => asked.starts_with(begin),
        None => asked == name.as_ref(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(engine: &Value, pod: &Value) -> TerraformWorkspaceSpec {
        let spec = json!({
            "module": { "inline": { "files": { "main.tf": "" } } }, "engine": engine,
            "runner": { "podTemplate": { "spec": pod } },
        });
        serde_json::from_value(spec).unwrap()
    }

    fn refused(authors: &Authors, engine: &Value, pod: &Value) -> String {
        authors.permit_pods(&spec(engine, pod)).unwrap_err().to_string()
    }

    #[test]
    fn by_default_only_built_in_modules_are_allowed_and_nothing_that_reaches_beyond_the_pod() {
        let (strict, none) = (Authors::default(), json!({}));
        let volume = |kind: &str| json!({ "volumes": [{ "name": "a", "emptyDir": {} }, { "name": "b", kind: {} }] });
        for kind in ["hostPath", "secret", "projected", "csi", "nfs"] {
            let words = refused(&strict, &none, &volume(kind));
            let begin = format!("spec.runner.podTemplate.spec.volumes[1]: {kind} is not allowed");
            assert!(words.starts_with(&begin) && words.contains("authors.volumeTypes"), "{words}");
        }
        let cases = [
            ("serviceAccountName", "serviceAccounts"),
            ("priorityClassName", "priorityClasses"),
            ("runtimeClassName", "runtimeClasses"),
        ];
        for (field, value) in cases {
            let words = refused(&strict, &none, &json!({ field: "mine" }));
            assert!(words.starts_with(&format!("spec.runner.podTemplate.spec.{field}: mine is not")), "{words}");
            assert!(words.contains(&format!("add it to authors.{value}")), "{words}");
        }
        let words = refused(&strict, &json!({ "image": "registry.example.com/tofu:1" }), &none);
        assert!(words.starts_with("spec.engine.image: registry.example.com/tofu:1 is not"), "{words}");
        let fine = json!({ "volumes": [{ "name": "bare" }, { "name": "disk", "persistentVolumeClaim": { "claimName": "d" } }] });
        assert_eq!(strict.permit_pods(&spec(&none, &fine)), Ok(()));
        let builtin = serde_json::from_value(json!({ "module": { "builtin": "simple" } })).unwrap();
        assert_eq!(strict.permit(&builtin), Ok(()));
        let message = strict.permit(&spec(&none, &none)).unwrap_err().to_string();
        assert!(message.starts_with("spec.module: only modules that are part of the operator"), "{message}");
        assert!(message.contains("authors.modules to Any") && message.contains("authors.trusted to true"), "{message}");
    }

    #[test]
    fn whoever_may_use_no_module_of_their_own_cannot_put_another_program_in_the_place_of_terraform() {
        let strict = Authors::default();
        let builtin = |more: &Value| {
            let mut spec = json!({ "module": { "builtin": "simple" } });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<TerraformWorkspaceSpec>(spec).unwrap()
        };
        let env = |name: &str| builtin(&json!({ "env": [{ "name": "AWS_REGION" }, { "name": name }] }));
        for name in ["TF_ENCRYPTION", "TF_REATTACH_PROVIDERS", "TF_PLUGIN_CACHE_DIR", "TERRAFORM_CONFIG", "HOME"] {
            let words = strict.permit(&env(name)).unwrap_err().to_string();
            assert!(words.starts_with(&format!("spec.env[{name:?}]: Terraform may run other programs")), "{words}");
            assert!(words.contains("authors.modules to Any"), "{words}");
            let any = Authors { own_modules: true, ..Authors::default() };
            assert_eq!((any.permit(&env(name)), strict.permit_pods(&env(name))), (Ok(()), Ok(())), "{name}");
        }
        for name in ["TF_LOG", "AWS_PROFILE", "HTTPS_PROXY"] {
            assert_eq!(strict.permit(&env(name)), Ok(()), "{name}");
        }
        let mount = |path: &Value| {
            let pod = json!({ "volumes": [{ "name": "a", "emptyDir": {} }], "volumeMounts": [{ "name": "a", "mountPath": path }] });
            builtin(&json!({ "runner": { "podTemplate": { "spec": pod } } }))
        };
        let replacing = [
            "/",
            "/usr/local/bin",
            "//usr",
            "/srv/../usr",
            "usr/local",
            "/etc",
            "/lib64",
            "/tf-runner",
            "/run/work",
            "/var/run/tools",
            "/var/run",
            "/tmp/a",
            "/opt/",
            "",
        ];
        for path in replacing.map(|path| json!(path)).into_iter().chain([json!(7)]) {
            let words = strict.permit_pods(&mount(&path)).unwrap_err().to_string();
            let begin = "spec.runner.podTemplate.spec.volumeMounts[0].mountPath: a program may be there";
            assert!(words.starts_with(begin), "{path}: {words}");
            let any = Authors { own_modules: true, ..Authors::default() };
            assert_eq!(any.permit_pods(&mount(&path)), Ok(()), "{path}");
        }
        for path in ["/data", "/srv/greeting", "/var/run/identity", "/var/lib/states", "/users", "/srv/...a"] {
            assert_eq!(strict.permit_pods(&mount(&json!(path))), Ok(()), "{path}");
        }
    }

    #[test]
    fn for_trusted_authors_everything_is_allowed() {
        let pod = json!({
            "serviceAccountName": "any", "priorityClassName": "any", "runtimeClassName": "any",
            "volumes": [{ "name": "node", "hostPath": { "path": "/" } }, { "name": "all", "projected": {} }],
        });
        let everything = spec(&json!({ "image": "registry.example.com/tofu:1" }), &pod);
        assert_eq!(Authors::trusted().permit(&everything), Ok(()));
    }

    #[test]
    fn what_is_named_is_allowed_and_a_star_stands_for_the_rest() {
        let authors = Authors {
            images: vec!["registry.example.com/tofu/*".to_owned(), "tofu:1".to_owned()],
            service_accounts: vec!["*".to_owned()],
            ..Authors::default()
        };
        let pod = json!({ "serviceAccountName": "any" });
        for image in ["registry.example.com/tofu/aws:1", "tofu:1"] {
            assert_eq!(authors.permit_pods(&spec(&json!({ "image": image }), &pod)), Ok(()), "{image}");
        }
        for image in ["registry.example.com/tofu", "tofu:12", "registry.example.com.evil/tofu/a"] {
            assert!(authors.permit_pods(&spec(&json!({ "image": image }), &pod)).is_err(), "{image}");
        }
    }
}

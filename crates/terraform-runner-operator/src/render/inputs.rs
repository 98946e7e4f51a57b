//! From a spec and what it refers to, to the inputs of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Number, Value};

use super::{CHUNKS_ANNOTATION, backend, job, lasting, module, names};
use crate::api::v1alpha1::{
    Binary, CustomBackend, EnvVar, Form, KeyRef, Module, TerraformWorkspace, TerraformWorkspaceSpec, VariablesFrom,
};
use crate::run::bundle::{BackendBundle, Bundle, check_files, check_setting, is_configuration};
use crate::run::order;
use crate::store;

/// Longer inputs are refused: a spec cannot hold them, and ConfigMaps that can are no place for a module of that size.
const LARGEST: usize = 8 * 1024 * 1024;
/// Longer values of the environment are refused: Linux hands on no more than 128 KiB of each, with its name.
const LARGEST_ENV: usize = 120 * 1024;
/// Nor more than some 2 MiB of all, with the arguments.
const LARGEST_ENVIRONMENT: usize = 1024 * 1024;

/// An object that a spec refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        })
    }
}

/// An object that a spec refers to, by name.
pub type Reference = (Source, String);
/// What it holds; none when it does not exist.
pub type Found = Option<BTreeMap<String, Vec<u8>>>;
/// Everything that a spec refers to.
pub type Sources = BTreeMap<Reference, Found>;

/// The inputs of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// What stands for them.
    pub hash: String,
    /// The bundle, in compressed chunks.
    pub chunks: Vec<Vec<u8>>,
    /// Where the state is.
    pub backend: String,
}

/// Why there are no inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, as a path into the spec.
    pub field: String,
    /// A clause that says what is wrong, and the cure.
    pub message: String,
    /// Whether it may go away without a change of the spec.
    pub may_come: bool,
}

impl Problem {
    pub(super) fn wrong(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into(), may_come: false }
    }

    pub(super) fn missing(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into(), may_come: true }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}.", self.field, self.message)
    }
}

/// Everything that a spec refers to.
pub fn references(spec: &TerraformWorkspaceSpec) -> BTreeSet<Reference> {
    let mut all = BTreeSet::new();
    let mut refer = |source: Source, name: &str| {
        all.insert((source, name.to_owned()));
    };
    if let Some(reference) = &spec.module.config_map_ref {
        refer(Source::ConfigMap, &reference.name);
    }
    for from in &spec.variables_from {
        from.secret_ref.iter().for_each(|reference| refer(Source::Secret, &reference.name));
        from.config_map_ref.iter().for_each(|reference| refer(Source::ConfigMap, &reference.name));
    }
    for from in spec.env.iter().filter_map(|env| env.value_from.as_ref()) {
        from.secret_key_ref.iter().for_each(|reference| refer(Source::Secret, &reference.name));
        from.config_map_key_ref.iter().for_each(|reference| refer(Source::ConfigMap, &reference.name));
    }
    if let Some(from) = spec.backend.custom.as_ref().and_then(|custom| custom.config_from.as_ref()) {
        refer(Source::Secret, &from.secret_ref.name);
    }
    all
}

/// The inputs that a spec asks for.
///
/// # Errors
///
/// When something that it refers to is missing or cannot be used; names the field.
pub fn inputs(spec: &TerraformWorkspaceSpec, sources: &Sources) -> Result<Inputs, Problem> {
    if let Some((field, name)) = job::reserved(spec) {
        let message = format!("the runner has a volume {name:?} of its own: choose another name");
        return Err(Problem::wrong(field, message));
    }
    if let Some(name) = spec.outputs.taken() {
        let message =
            format!("workspaces keep their states, plans and inputs in Secrets like {name}: choose another name");
        return Err(Problem::wrong("spec.outputs.secretName", message));
    }
    let mut gathering = Gathering { sources, bundle: Bundle::default(), confidential: BTreeSet::new() };
    gathering.module(&spec.module, spec.engine.binary)?;
    for (number, from) in spec.variables_from.iter().enumerate() {
        gathering.variables_from(&format!("spec.variablesFrom[{number}]"), from)?;
    }
    for (name, value) in &spec.variables {
        variable_name(name).map_err(|message| Problem::wrong(format!("spec.variables[{name:?}]"), message))?;
        gathering.bundle.variables.insert(name.clone(), value.clone());
    }
    for env in &spec.env {
        gathering.env(env)?;
    }
    let env_size: usize = gathering.bundle.env.values().map(String::len).sum();
    if env_size > LARGEST_ENVIRONMENT {
        let (size, most) = (env_size.div_ceil(1024), LARGEST_ENVIRONMENT / 1024);
        let message = format!("all values have at most {most} KiB together, and these have {size}");
        return Err(Problem::wrong("spec.env", message));
    }
    if let Some(custom) = &spec.backend.custom {
        gathering.backend(custom, spec)?;
    }
    if spec.backend.custom.is_none() && gathering.bundle.env.contains_key(backend::WORKSPACE_VARIABLE) {
        let field = format!("spec.env[{:?}]", backend::WORKSPACE_VARIABLE);
        return Err(Problem::wrong(
            field,
            "a state that is kept in the cluster is one: make another TerraformWorkspace",
        ));
    }
    let engine = &spec.engine;
    gathering.bundle.engine = format!("{} {}", engine.binary.program(), engine.image.as_deref().unwrap_or_default());
    gathering.finish()
}

struct Gathering<'a> {
    sources: &'a Sources,
    bundle: Bundle,
    confidential: BTreeSet<String>,
}

impl<'a> Gathering<'a> {
    fn module(&mut self, module: &Module, binary: Binary) -> Result<(), Problem> {
        let field_of: fn(&str) -> String = if let Some(inline) = &module.inline {
            self.bundle.files.clone_from(&inline.files);
            |path| format!("spec.module.inline.files[{path:?}]")
        } else if let Some(reference) = &module.config_map_ref {
            let field = "spec.module.configMapRef";
            for (path, bytes) in self.find(field, Source::ConfigMap, &reference.name)? {
                let text = self.text(field, path, bytes, false)?;
                self.bundle.files.insert(path.clone(), text);
            }
            |path| format!("spec.module.configMapRef: key {path:?}")
        } else if let Some(name) = &module.builtin {
            self.bundle.files =
                module::builtin(name).map_err(|message| Problem::wrong("spec.module.builtin", message))?;
            |_| "spec.module.builtin".to_owned()
        } else {
            return Err(Problem::wrong("spec.module", "name one of inline, configMapRef and builtin"));
        };
        check_files(&self.bundle.files).map_err(|(path, why)| Problem::wrong(field_of(path), why))?;
        // Of a root without configuration a plan would destroy everything.
        if self.bundle.files.keys().any(|path| is_configuration(path, binary)) {
            return Ok(());
        }
        let (endings, more) = match binary {
            Binary::Tofu => (".tf, .tofu, .tf.json or .tofu.json", ""),
            Binary::Terraform => (".tf or .tf.json", ", and Terraform does not read .tofu files"),
        };
        let root = "file in the root of the module; hidden files and overrides do not count";
        Err(Problem::wrong("spec.module", format!("there is no {endings} {root}{more}")))
    }

    fn backend(&mut self, custom: &CustomBackend, spec: &TerraformWorkspaceSpec) -> Result<(), Problem> {
        if backend::forgets(&custom.kind) {
            let message = format!("a backend {} forgets the state with each run: name another", custom.kind);
            return Err(Problem::wrong("spec.backend.custom.type", message));
        }
        let of_config = |name: &str| format!("spec.backend.custom.config[{name:?}]");
        let from_secret = "spec.backend.custom.configFrom.secretRef";
        let of_secret = |name: &str| format!("{from_secret}: key {name:?}");
        let mut config = custom.config.clone();
        for name in config.keys() {
            check_setting(name).map_err(|message| Problem::wrong(of_config(name), message))?;
        }
        let mut secret: BTreeSet<&str> = BTreeSet::new();
        if let Some(from) = &custom.config_from {
            for (key, bytes) in self.find(from_secret, Source::Secret, &from.secret_ref.name)? {
                check_setting(key).map_err(|message| Problem::missing(of_secret(key), message))?;
                let text = self.text(from_secret, key, bytes, true)?;
                config.insert(key.clone(), Value::String(text));
                secret.insert(key);
            }
        }
        self.bundle.backend = Some(BackendBundle { kind: custom.kind.clone(), config });
        let Some(setting) = backend::fleeting(spec, &self.bundle) else { return Ok(()) };
        let message = "the state would be lost with the pod: name an absolute path below the mountPath of a volume \
                       that outlasts it, in spec.runner.podTemplate.spec.volumeMounts";
        Err(if secret.contains(setting) {
            Problem::missing(of_secret(setting), message)
        } else {
            Problem::wrong(of_config(setting), message)
        })
    }

    fn variables_from(&mut self, field: &str, from: &VariablesFrom) -> Result<(), Problem> {
        let (source, reference) = match (&from.secret_ref, &from.config_map_ref) {
            (Some(reference), _) => (Source::Secret, reference),
            (_, Some(reference)) => (Source::ConfigMap, reference),
            _ => return Err(Problem::wrong(field, "name one of secretRef and configMapRef")),
        };
        if from.optional && self.sources.get(&(source, reference.name.clone())).is_none_or(Option::is_none) {
            return Ok(());
        }
        let found = self.find(field, source, &reference.name)?;
        if let Some(key) = from.keys.iter().find(|key| !found.contains_key(*key)).filter(|_| !from.optional) {
            return Err(Problem::missing(field, format!("{source} {} has no key {key:?}", reference.name)));
        }
        for (key, bytes) in found.iter().filter(|(key, _)| from.keys.is_empty() || from.keys.contains(key)) {
            let of_key = format!("{field}: key {key:?}");
            variable_name(key).map_err(|message| Problem::wrong(&of_key, message))?;
            let text = self.text(&of_key, key, bytes, source == Source::Secret)?;
            let value = match from.form {
                Form::Text => Value::String(text),
                // What is wrong is not told in full: it may be a Secret's.
                Form::Json => serde_json::from_str(&text).map_err(|error| {
                    let place = format!("line {}, column {}", error.line(), error.column());
                    Problem::missing(&of_key, format!("{source} {}: not JSON at {place}", reference.name))
                })?,
            };
            self.bundle.variables.insert(key.clone(), value);
        }
        Ok(())
    }

    fn env(&mut self, env: &EnvVar) -> Result<(), Problem> {
        let field = format!("spec.env[{:?}]", env.name);
        if let Some(why) = order::reserved_env(&env.name) {
            return Err(Problem::wrong(field, why));
        }
        let value = match (&env.value, &env.value_from) {
            (Some(value), _) => {
                env_value(value).map_err(|message| Problem::wrong(field, message))?;
                Some(value.clone())
            }
            (None, Some(from)) => match (&from.secret_key_ref, &from.config_map_key_ref) {
                (Some(key), _) => self.key(&field, Source::Secret, key)?,
                (_, Some(key)) => self.key(&field, Source::ConfigMap, key)?,
                _ => None,
            },
            (None, None) => Some(String::new()),
        };
        if let Some(value) = value {
            self.bundle.env.insert(env.name.clone(), value);
        }
        Ok(())
    }

    fn key(&mut self, field: &str, source: Source, key: &KeyRef) -> Result<Option<String>, Problem> {
        let found = self.sources.get(&(source, key.name.clone())).and_then(Option::as_ref);
        match found.and_then(|found| found.get(&key.key)) {
            Some(bytes) => {
                let text = self.text(field, &key.key, bytes, source == Source::Secret)?;
                let of_key = |message| format!("{source} {}, key {:?}: {message}", key.name, key.key);
                env_value(&text).map_err(|message| Problem::missing(field, of_key(message)))?;
                Ok(Some(text))
            }
            None if key.optional => Ok(None),
            None if found.is_none() => Err(Problem::missing(field, format!("{source} {} does not exist", key.name))),
            None => Err(Problem::missing(field, format!("{source} {} has no key {:?}", key.name, key.key))),
        }
    }

    fn find(&self, field: &str, source: Source, name: &str) -> Result<&'a BTreeMap<String, Vec<u8>>, Problem> {
        let found = self.sources.get(&(source, name.to_owned())).and_then(Option::as_ref);
        found.ok_or_else(|| Problem::missing(field, format!("{source} {name} does not exist")))
    }

    fn text(&mut self, field: &str, key: &str, bytes: &[u8], confidential: bool) -> Result<String, Problem> {
        let text = String::from_utf8(bytes.to_vec());
        let text = text.map_err(|_| Problem::missing(field, format!("the value of {key:?} is no UTF-8 text")))?;
        if confidential {
            // Terraform knows what is in JSON value by value, and so it would tell it.
            leaves(&text, &mut self.confidential);
            self.confidential.insert(text.clone());
        }
        Ok(text)
    }

    fn finish(mut self) -> Result<Inputs, Problem> {
        self.bundle.confidential = self.confidential.into_iter().collect();
        let bytes = self.bundle.bytes().map_err(|error| Problem::wrong("spec.variables", error.to_string()))?;
        if bytes.len() > LARGEST {
            let size = bytes.len() / 1024;
            let message = format!("module and variables have {size} KiB together; {} are allowed", LARGEST / 1024);
            return Err(Problem::wrong("spec.module", message));
        }
        Ok(Inputs {
            hash: Bundle::hash(&bytes),
            chunks: store::inputs::chunks(&bytes),
            backend: backend::place(&self.bundle),
        })
    }
}

/// Whether a process can be given this value.
fn env_value(value: &str) -> Result<(), String> {
    if value.contains('\0') {
        return Err("a value of the environment cannot hold a NUL".to_owned());
    }
    if value.len() > LARGEST_ENV {
        let size = value.len().div_ceil(1024);
        return Err(format!(
            "a value of the environment has at most {} KiB, and this one has {size}; large values can be variables",
            LARGEST_ENV / 1024
        ));
    }
    Ok(())
}

/// The strings and numbers in JSON, and in JSON that its strings hold. There may be several values, one after another,
/// and other text after them, in which whole lines may be JSON again.
fn leaves(text: &str, into: &mut BTreeSet<String>) {
    let rest = documents(text.trim_start_matches('\u{feff}'), into);
    for line in rest.lines().skip(1).filter(|line| line.starts_with(['{', '['])) {
        documents(line, into);
    }
}

/// Reads JSON as long as there is some, and answers what is left.
fn documents<'a>(text: &'a str, into: &mut BTreeSet<String>) -> &'a str {
    // Only where they end: values have no room for long numbers, nor for what is nested deep.
    let mut all = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let mut begin = 0;
    while let Some(Ok(IgnoredAny)) = all.next() {
        let end = all.byte_offset();
        let json = text.get(begin..end).unwrap_or_default().trim_start();
        // A number by itself is looked for as the text that it is; and YAML has keys in quotes.
        if json.starts_with(['{', '[', '"']) && !is_key(text.get(end..).unwrap_or_default()) {
            tokens(json, into);
        }
        begin = end;
    }
    text.get(begin..).unwrap_or_default()
}

/// The strings and numbers in one JSON value, but for keys.
fn tokens(json: &str, into: &mut BTreeSet<String>) {
    let mut rest = json;
    while let Some(begin) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        let (_, from) = rest.split_at(begin);
        let is_text = from.starts_with('"');
        let (token, after) = from.split_at(if is_text { text_end(from) } else { number_end(from) });
        rest = after;
        if !is_text {
            // As a module reads it, and as we would hand it on.
            into.extend(serde_json::from_str::<Number>(token).ok().map(|number| number.to_string()));
            into.insert(token.to_owned());
        } else if !is_key(after)
            && let Ok(text) = serde_json::from_str::<String>(token)
        {
            leaves(&text, into);
            into.insert(text);
        }
    }
}

/// Where a string ends, quotes included.
fn text_end(json: &str) -> usize {
    let mut escaped = false;
    let quote = json.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    quote.map_or(json.len(), |quote| quote + 2)
}

fn number_end(json: &str) -> usize {
    json.find(|c: char| !c.is_ascii_digit() && !matches!(c, '+' | '-' | '.' | 'e' | 'E')).unwrap_or(json.len())
}

/// Whether what comes before this is the key of something.
fn is_key(after: &str) -> bool {
    after.trim_start().starts_with(':')
}

/// What Terraform accepts as the name of a variable.
fn variable_name(name: &str) -> Result<(), String> {
    let mut letters = name.chars();
    let begins = letters.next().is_some_and(|c| c.is_alphabetic() || c == '_');
    if begins && letters.all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
        Ok(())
    } else {
        Err("no variable can be called so: use letters, digits, '_' and '-', and begin with a letter".to_owned())
    }
}

/// The Secrets that keep the inputs. They have no owner: a destroy may need them when nothing else is left.
pub fn input_secrets(workspace: &TerraformWorkspace, inputs: &Inputs) -> Vec<Secret> {
    let names = names(workspace);
    let secrets = inputs.chunks.iter().enumerate().map(|(number, chunk)| {
        let mut metadata = lasting(workspace, names.inputs_chunk(&inputs.hash, number), "inputs");
        let count = inputs.chunks.len().to_string();
        metadata.annotations = Some(BTreeMap::from([(CHUNKS_ANNOTATION.to_owned(), count)]));
        let data = BTreeMap::from([("chunk".to_owned(), ByteString(chunk.clone()))]);
        Secret { metadata, data: Some(data), immutable: Some(true), ..Secret::default() }
    });
    secrets.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: Value) -> TerraformWorkspaceSpec {
        serde_json::from_value(value).unwrap()
    }

    fn module() -> Value {
        json!({ "inline": { "files": { "main.tf": "variable \"a\" {}" } } })
    }

    fn source(source: Source, name: &str, pairs: &[(&str, &str)]) -> (Reference, Found) {
        let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        ((source, name.to_owned()), Some(data))
    }

    fn refused(value: Value, sources: &Sources) -> String {
        inputs(&spec(value), sources).unwrap_err().to_string()
    }

    #[test]
    fn the_same_inputs_have_the_same_hash_and_others_have_another() {
        let of = |value: &str| {
            inputs(&spec(json!({ "module": module(), "variables": { "a": value } })), &Sources::new()).unwrap().hash
        };
        assert_eq!(of("x"), of("x"));
        assert_ne!(of("x"), of("y"));
    }

    #[test]
    fn a_path_that_leads_out_of_the_module_is_refused_by_name() {
        for path in ["../main.tf", "/etc/passwd", "a/../../b.tf", "", "a//b.tf", "a\\b.tf", "./main.tf", ".terraform/x"]
        {
            let files = json!({ "main.tf": "", path: "x" });
            let error = refused(json!({ "module": { "inline": { "files": files } } }), &Sources::new());
            assert!(error.starts_with(&format!("spec.module.inline.files[{path:?}]")), "{path}: {error}");
        }
    }

    #[test]
    fn what_is_missing_is_told_with_its_field() {
        let none = Sources::new();
        let case = |value: Value, expected: &str| assert_eq!(refused(value, &none), expected);
        case(
            json!({ "module": { "configMapRef": { "name": "m" } } }),
            "spec.module.configMapRef: ConfigMap m does not exist.",
        );
        case(
            json!({ "module": module(), "variablesFrom": [{ "secretRef": { "name": "creds" } }] }),
            "spec.variablesFrom[0]: Secret creds does not exist.",
        );
        case(
            json!({ "module": module(), "env": [{ "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
            "spec.env[\"TOKEN\"]: Secret s does not exist.",
        );
        case(
            json!({ "module": { "builtin": "nothing" } }),
            "spec.module.builtin: there is no built-in module \"nothing\"; there is simple.",
        );
        case(
            json!({ "module": { "inline": { "files": { "README.md": "x" } } } }),
            "spec.module: there is no .tf, .tofu, .tf.json or .tofu.json file in the root of the module; hidden files \
             and overrides do not count.",
        );
    }

    #[test]
    fn what_is_optional_may_be_missing() {
        let value =
            json!({ "module": module(), "variablesFrom": [{ "secretRef": { "name": "creds" }, "optional": true }] });
        assert!(inputs(&spec(value), &Sources::new()).is_ok());
    }

    #[test]
    fn the_environment_of_the_runner_cannot_be_changed() {
        for name in ["TF_HTTP_ADDRESS", "PATH", "LD_PRELOAD", "TF_CLI_ARGS_apply", "TF_VAR_a"] {
            let error =
                refused(json!({ "module": module(), "env": [{ "name": name, "value": "x" }] }), &Sources::new());
            assert!(error.contains(name) && error.contains("runner sets this"), "{error}");
        }
    }

    #[test]
    fn what_no_process_can_be_given_in_its_environment_is_refused_by_name() {
        let long = "x".repeat(LARGEST_ENV + 1);
        let sources = Sources::from([source(Source::Secret, "s", &[("k", &long)])]);
        let refused = |env: Value| refused(json!({ "module": module(), "env": env }), &sources);
        let most =
            "a value of the environment has at most 120 KiB, and this one has 121; large values can be variables.";
        assert_eq!(refused(json!([{ "name": "BIG", "value": long }])), format!("spec.env[\"BIG\"]: {most}"));
        let from = json!({ "secretKeyRef": { "name": "s", "key": "k" } });
        let expected = format!("spec.env[\"BIG\"]: Secret s, key \"k\": {most}");
        assert_eq!(refused(json!([{ "name": "BIG", "valueFrom": from }])), expected);
        assert_eq!(
            refused(json!([{ "name": "NUL", "value": "a\0" }])),
            "spec.env[\"NUL\"]: a value of the environment cannot hold a NUL."
        );
        let several: Vec<Value> =
            (0..10).map(|n| json!({ "name": format!("E{n}"), "value": "x".repeat(LARGEST_ENV) })).collect();
        assert_eq!(
            refused(json!(several)),
            "spec.env: all values have at most 1024 KiB together, and these have 1200."
        );
    }

    #[test]
    fn a_volume_of_the_runner_can_neither_be_replaced_nor_mounted() {
        let refused = |part: &str, name: &str| {
            let template = json!({ "spec": { part: [{ "name": "mine" }, { "name": name }] } });
            refused(json!({ "module": module(), "runner": { "podTemplate": template } }), &Sources::new())
        };
        for name in ["inputs", "work", "tmp", "token", "tools"] {
            for part in ["volumes", "volumeMounts"] {
                let field = format!("spec.runner.podTemplate.spec.{part}[1].name");
                let expected = format!("{field}: the runner has a volume {name:?} of its own: choose another name.");
                assert_eq!(refused(part, name), expected);
            }
        }
    }

    #[test]
    fn json_from_a_secret_that_is_none_is_told_without_its_value() {
        let sources = Sources::from([source(Source::Secret, "creds", &[("list", "hunter2")])]);
        let value =
            json!({ "module": module(), "variablesFrom": [{ "secretRef": { "name": "creds" }, "as": "Json" }] });
        let error = refused(value, &sources);
        assert!(error.contains("list") && error.contains("not JSON") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn what_is_in_json_from_a_secret_is_confidential_value_by_value() {
        let text = r#"{ "users": [{ "name": "alice", "password": "hunter2\nsecond" }], "pin": 471108, "on": true }"#;
        let sources = Sources::from([source(Source::Secret, "creds", &[("json", text)])]);
        let from = json!([{ "secretRef": { "name": "creds" }, "as": "Json" }]);
        let env =
            json!([{ "name": "CREDENTIALS", "valueFrom": { "secretKeyRef": { "name": "creds", "key": "json" } } }]);
        for value in [json!({ "module": module(), "variablesFrom": from }), json!({ "module": module(), "env": env })] {
            let inputs = inputs(&spec(value), &sources).unwrap();
            let bundle = Bundle::parse(&store::inputs::join(&inputs.chunks).unwrap()).unwrap();
            assert_eq!(bundle.confidential, ["471108", "alice", "hunter2\nsecond", text]);
        }
    }

    /// What is said of a module with these files in its root, which this program runs.
    fn refused_files(binary: &str, files: &[&str]) -> String {
        let files: BTreeMap<&str, &str> = files.iter().map(|path| (*path, "")).collect();
        let value = json!({ "module": { "inline": { "files": files } }, "engine": { "binary": binary } });
        inputs(&spec(value), &Sources::new()).map_or_else(|problem| problem.to_string(), |_| String::new())
    }

    #[test]
    fn an_override_that_would_be_read_after_ours_is_refused_by_name() {
        for path in [
            "zzzz_opcore_override.tf.json",
            "zzzz_opcore_override.tofu",
            "zzzz_opcore_override.tofu.json",
            "zzzzz_override.tf",
            "{_override.tf.json",
            "über_override.tofu",
        ] {
            for binary in ["tofu", "terraform"] {
                let error = refused_files(binary, &["main.tf", path]);
                let field = format!("spec.module.inline.files[{path:?}]: ");
                assert!(error.starts_with(&field) && error.contains("rename"), "{path}: {error}");
            }
        }
        for path in ["override.tf", "override.tf.json", "zz_override.tofu", "a/zzzzz_override.tf", "zzzzz.tf"] {
            assert_eq!(refused_files("tofu", &["main.tf", path]), "");
        }
    }

    #[test]
    fn values_that_would_win_over_those_of_the_spec_are_refused_by_name() {
        for path in ["zz_opcore.auto.tfvars.json", "zzz.auto.tfvars", "zzz.auto.tfvars.json", "ü.auto.tfvars"] {
            let error = refused_files("tofu", &["main.tf", path]);
            let field = format!("spec.module.inline.files[{path:?}]: ");
            assert!(error.starts_with(&field) && error.contains("rename"), "{path}: {error}");
        }
        for path in ["terraform.tfvars", "a.auto.tfvars", "zz_opcore.auto.tfvars", "zzz.tfvars", "a/zzz.auto.tfvars"] {
            assert_eq!(refused_files("tofu", &["main.tf", path]), "");
        }
    }

    #[test]
    fn a_root_without_configuration_of_its_engine_is_refused_before_it_plans_a_destruction() {
        for path in ["main.tf", "main.tf.json"] {
            for binary in ["tofu", "terraform"] {
                assert_eq!(refused_files(binary, &[path]), "");
            }
        }
        for path in ["main.tofu", "main.tofu.json"] {
            assert_eq!(refused_files("tofu", &[path]), "");
            assert_eq!(
                refused_files("terraform", &[path, "a/main.tf"]),
                "spec.module: there is no .tf or .tf.json file in the root of the module; hidden files and overrides \
                 do not count, and Terraform does not read .tofu files."
            );
        }
        for path in
            [".main.tf", "main.tf~", "#main.tf#", "override.tf", "a_override.tf.json", "override.tofu", "a/main.tf"]
        {
            assert_eq!(
                refused_files("tofu", &[path]),
                "spec.module: there is no .tf, .tofu, .tf.json or .tofu.json file in the root of the module; hidden \
                 files and overrides do not count."
            );
        }
    }

    #[test]
    fn what_cannot_be_written_in_the_pod_is_refused_by_name() {
        let long = format!("a/{}", "x".repeat(256));
        let deep = ["x"; 600].join("/");
        for path in [
            long.as_str(),
            &deep,
            "errored.tfstate",
            "errored.tfstate/a",
            "zz_opcore.auto.tfvars.json/a",
            "zzzz_opcore_override.tf.json/a",
            "terraform.tfstate",
            "terraform.tfstate.d/a/terraform.tfstate",
            "main.tf/a",
        ] {
            let error = refused_files("tofu", &["main.tf", path]);
            assert!(error.starts_with(&format!("spec.module.inline.files[{path:?}]: ")), "{path}: {error}");
        }
        let fit = "x".repeat(255);
        for path in
            [&fit, ".terraform.lock.hcl", "terraform.tfstate.backup", "a/errored.tfstate", "a/terraform.tfstate"]
        {
            assert_eq!(refused_files("tofu", &["main.tf", path]), "");
        }
        let sources = Sources::from([source(Source::ConfigMap, "m", &[("main.tf", ""), ("errored.tfstate", "")])]);
        let error = refused(json!({ "module": { "configMapRef": { "name": "m" } } }), &sources);
        assert_eq!(
            error,
            "spec.module.configMapRef: key \"errored.tfstate\": the runner uses this name: rename the file."
        );
    }

    /// What is said of a custom backend, in pods with this template.
    fn refused_backend(custom: &Value, template: &Value, sources: &Sources) -> String {
        let value = json!({
            "module": module(), "backend": { "custom": custom }, "runner": { "podTemplate": { "spec": template } },
        });
        inputs(&spec(value), sources).map_or_else(|problem| problem.to_string(), |_| String::new())
    }

    #[test]
    fn a_state_that_would_be_lost_with_the_pod_is_refused() {
        let none = Sources::new();
        let error = refused_backend(&json!({ "type": "inmem" }), &json!({}), &none);
        assert!(error.starts_with("spec.backend.custom.type: ") && error.contains("another"), "{error}");
        let template = json!({
            "volumes": [
                { "name": "states", "persistentVolumeClaim": { "claimName": "states" } },
                { "name": "scratch", "emptyDir": {} },
                { "name": "unnamed" },
            ],
            "volumeMounts": [
                { "name": "states", "mountPath": "/states" },
                { "name": "states", "mountPath": "/run" },
                { "name": "scratch", "mountPath": "/scratch" },
                { "name": "scratch", "mountPath": "/states/scratch" },
                { "name": "unnamed", "mountPath": "/unnamed" },
            ],
        });
        let local = |config: Value| refused_backend(&json!({ "type": "local", "config": config }), &template, &none);
        for fit in ["/states/a.tfstate", "/states/a/b.tfstate", "/run/states/a.tfstate"] {
            assert_eq!(local(json!({ "path": fit })), "");
        }
        for unfit in [
            json!({}),
            json!({ "path": 1 }),
            json!({ "path": "a.tfstate" }),
            json!({ "path": "states/a.tfstate" }),
            json!({ "path": "/a.tfstate" }),
            json!({ "path": "/states" }),
            json!({ "path": "/states-of-others/a.tfstate" }),
            json!({ "path": "/states/../a.tfstate" }),
            json!({ "path": "/scratch/a.tfstate" }),
            json!({ "path": "/states/scratch/a.tfstate" }),
            json!({ "path": "/unnamed/a.tfstate" }),
            json!({ "path": "/run/work/a.tfstate" }),
            json!({ "path": "/tmp/a.tfstate" }),
        ] {
            let error = local(unfit.clone());
            assert!(error.starts_with("spec.backend.custom.config[\"path\"]: "), "{unfit}: {error}");
            assert!(error.contains("spec.runner.podTemplate.spec.volumeMounts"), "{unfit}: {error}");
        }
    }

    #[test]
    fn where_another_workspace_of_a_local_state_is_outlasts_the_pod_too() {
        let refused = |config: Value| {
            let mounts = json!([{ "name": "states", "mountPath": "/states" }]);
            let value = json!({
                "module": module(),
                "backend": { "custom": { "type": "local", "config": config } },
                "env": [{ "name": "TF_WORKSPACE", "value": "staging" }],
                "runner": { "podTemplate": { "spec": { "volumeMounts": mounts } } },
            });
            inputs(&spec(value), &Sources::new()).map_or_else(|problem| problem.to_string(), |_| String::new())
        };
        let error = refused(json!({ "path": "/states/a" }));
        assert!(error.starts_with("spec.backend.custom.config[\"workspace_dir\"]: "), "{error}");
        assert_eq!(refused(json!({ "path": "/states/a", "workspace_dir": "/states/all" })), "");
    }

    #[test]
    fn a_setting_of_a_backend_that_is_no_name_is_refused_with_its_key() {
        let none = Sources::new();
        for key in ["a b", "tls.crt", "1a", "", "a = 1\nb", "größe"] {
            let custom = json!({ "type": "s3", "config": { key: "x" } });
            let error = refused_backend(&custom, &json!({}), &none);
            assert!(error.starts_with(&format!("spec.backend.custom.config[{key:?}]: ")), "{error}");
        }
        let custom = json!({ "type": "s3", "config": { "_a-1": "x" }, "configFrom": { "secretRef": { "name": "s" } } });
        let of = |key: &str| Sources::from([source(Source::Secret, "s", &[(key, "x")])]);
        let error = refused_backend(&custom, &json!({}), &of("tls.crt"));
        assert!(error.starts_with("spec.backend.custom.configFrom.secretRef: key \"tls.crt\": "), "{error}");
        assert_eq!(refused_backend(&custom, &json!({}), &of("secret_key")), "");
        let local = json!({ "type": "local", "configFrom": { "secretRef": { "name": "s" } } });
        let error = refused_backend(&local, &json!({}), &of("path"));
        assert!(error.starts_with("spec.backend.custom.configFrom.secretRef: key \"path\": "), "{error}");
    }

    #[test]
    fn outputs_cannot_go_where_a_workspace_keeps_something() {
        let refused = |name: &str| {
            let value = json!({ "module": module(), "outputs": { "secretName": name } });
            inputs(&spec(value), &Sources::new()).map_or_else(|problem| problem.to_string(), |_| String::new())
        };
        let of = crate::run::names::Names::of("my.network-1", "u");
        let inputs = of.inputs_chunk(&"0123456789".repeat(7), 2);
        for name in [of.state(), of.state_chunk(7, 3), of.plan(), of.plan_chunk(3), of.report(), inputs] {
            let error = refused(&name);
            assert!(error.starts_with("spec.outputs.secretName: ") && error.contains("another name"), "{error}");
        }
        for name in ["network", "tf-network-outputs", "tf-network-0123456x-state", "tf-01234567-state", "tf-a-01234567"]
        {
            assert_eq!(refused(name), "");
        }
    }

    /// What is kept out of sight of a Secret with this value.
    fn confidential(text: &str) -> Vec<String> {
        let sources = Sources::from([source(Source::Secret, "creds", &[("text", text)])]);
        let value = json!({ "module": module(), "variablesFrom": [{ "secretRef": { "name": "creds" } }] });
        let inputs = inputs(&spec(value), &sources).unwrap();
        let mut all = Bundle::parse(&store::inputs::join(&inputs.chunks).unwrap()).unwrap().confidential;
        all.retain(|found| found != text);
        all
    }

    #[test]
    fn json_within_json_is_confidential_value_by_value() {
        let inner = json!({ "password": "hunter2" }).to_string();
        let list = json!(["alice", inner]).to_string();
        assert_eq!(confidential(&json!({ "a": list }).to_string()), [list.as_str(), "alice", "hunter2", &inner]);
        assert_eq!(confidential(&json!("\"quoted\"").to_string()), ["\"quoted\"", "quoted"]);
        assert_eq!(
            confidential(r#"[" [4711]\nand\n{\"a\":\"alice\"}"]"#),
            [" [4711]\nand\n{\"a\":\"alice\"}", "4711", "alice"]
        );
    }

    #[test]
    fn of_several_json_values_and_of_json_among_other_text_each_is_confidential_value_by_value() {
        assert_eq!(confidential("{\"a\": \"alice\"}\n{\"b\": \"bob\"}\n[\"carol\"]"), ["alice", "bob", "carol"]);
        assert_eq!(confidential("{\"a\": \"alice\"} and so on"), ["alice"]);
        assert_eq!(confidential("{\"a\": \"alice\"}\nnot this\n{\"b\": \"bob\"}"), ["alice", "bob"]);
        assert_eq!(confidential("\u{feff}{\"a\": \"alice\"}"), ["alice"]);
        let none: [&str; 0] = [];
        for text in ["hunter2", "2024 was a year", "\"password\": \"as in YAML\"", "[section]\nport = 5432", ""] {
            assert_eq!(confidential(text), none);
        }
        let deep = format!("{}\"alice\"{}", "[".repeat(500), "]".repeat(500));
        assert_eq!(confidential(&deep), ["alice"]);
    }

    #[test]
    fn a_number_is_confidential_as_it_is_written_and_as_it_is_read() {
        let found = confidential(r#"{ "a": 123456789012345678901234567890, "b": [1.50, -4711, 2e10], "4711": true }"#);
        let expected = ["-4711", "1.2345678901234568e+29", "1.5", "1.50", "123456789012345678901234567890"];
        assert_eq!(found, [expected.as_slice(), &["20000000000.0", "2e10"]].concat());
    }

    #[test]
    fn inputs_too_large_to_be_kept_are_refused_by_name() {
        let sources = Sources::from([source(Source::ConfigMap, "m", &[("main.tf", &"x".repeat(9 << 20))])]);
        let error = refused(json!({ "module": { "configMapRef": { "name": "m" } } }), &sources);
        assert!(error.starts_with("spec.module: module and variables have"), "{error}");
    }
}

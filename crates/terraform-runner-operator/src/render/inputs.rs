//! Turns a spec and what it refers to into the inputs of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Number, Value};

use super::{CHUNKS_ANNOTATION, backend, job, lasting, metadata, module, names};
use crate::api::v1alpha1::{
    Binary, CustomBackend, EnvVar, Form, KeyRef, Module, TerraformWorkspace, TerraformWorkspaceSpec, VariablesFrom,
};
use crate::run::bundle::{BackendBundle, Bundle, check_files, check_setting, is_configuration};
use crate::run::order;
use crate::store;

/// The limit for inputs: a spec cannot hold more, and ConfigMaps that can are not suitable for a module of that size.
const LARGEST: usize = 8 * 1024 * 1024;
/// The most Secrets and ConfigMaps that are read.
const MOST_REFERENCES: usize = 64;
/// The longest value of an environment variable: Linux passes on at most 128 KiB for each, including its name.
const LARGEST_ENV: usize = 120 * 1024;
/// The largest environment in total: Linux allows about 2 MiB, including the arguments.
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
/// Its contents; none if it does not exist.
pub type Found = Option<BTreeMap<String, Vec<u8>>>;
/// Everything that a spec refers to.
pub type Sources = BTreeMap<Reference, Found>;

/// Everything that a spec refers to, with the keys that it uses; none if it uses all.
pub type Wanted = BTreeMap<Reference, Option<BTreeSet<String>>>;

/// The inputs of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// A hash that identifies them.
    pub hash: String,
    /// The bundle, in compressed chunks.
    pub chunks: Vec<Vec<u8>>,
    /// The place of the state.
    pub backend: String,
    /// The same place as versions without a key for places recorded it.
    pub unkeyed_backend: String,
}

/// The key for the hashes of inputs.
#[derive(Clone, Default)]
pub struct Key {
    /// Random digits; empty if there is no key.
    pub salt: String,
    /// Hashes that are already known for the workspace.
    pub known: Vec<String>,
}

impl Key {
    /// The bytes of a bundle that contains the key, and their hash. A bundle that was kept before keys were introduced
    /// and is otherwise equal stays as it is, because nothing has changed.
    fn hashed(&self, bundle: &mut Bundle) -> Result<(Vec<u8>, String), Problem> {
        let mut with = |salt: &str| -> Result<(Vec<u8>, String), Problem> {
            salt.clone_into(&mut bundle.salt);
            let bytes = bundle.bytes().map_err(|error| Problem::wrong("spec.variables", error.to_string()))?;
            let hash = Bundle::hash(&bytes);
            Ok((bytes, hash))
        };
        let keyed = with(&self.salt)?;
        if self.known.is_empty() || self.known.contains(&keyed.1) {
            return Ok(keyed);
        }
        let plain = with("")?;
        if self.known.contains(&plain.1) {
            return Ok(plain);
        }
        self.salt.clone_into(&mut bundle.salt);
        Ok(keyed)
    }
}

/// The entry of the Secret that holds the key for hashes.
const KEY_KEY: &str = "key";

/// The Secret with the key for the hashes of inputs. It is deleted with the workspace.
pub fn key_secret(workspace: &TerraformWorkspace, salt: &str) -> Secret {
    let data = BTreeMap::from([(KEY_KEY.to_owned(), ByteString(salt.as_bytes().to_vec()))]);
    let metadata = metadata(workspace, names(workspace).key(), "key");
    Secret { metadata, type_: Some("Opaque".to_owned()), data: Some(data), ..Secret::default() }
}

/// The key in that Secret, if it is valid.
pub fn key_of(secret: &Secret) -> Option<String> {
    let salt = String::from_utf8(secret.data.as_ref()?.get(KEY_KEY)?.0.clone()).ok()?;
    (salt.len() >= 32 && salt.len() <= 128).then_some(salt)
}

/// Why there are no inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, as a path into the spec.
    pub field: String,
    /// A clause that says what is wrong, and the remedy.
    pub message: String,
    /// Whether the problem may go away without a change of the spec.
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
    wanted(spec).into_keys().collect()
}

/// Everything that a spec refers to, with the keys that it uses; none if it uses all.
pub fn wanted(spec: &TerraformWorkspaceSpec) -> Wanted {
    let mut all = Wanted::new();
    let mut refer = |source: Source, name: &str, keys: Option<Vec<String>>| {
        let known = all.entry((source, name.to_owned())).or_insert_with(|| Some(BTreeSet::new()));
        *known = known.take().zip(keys).map(|(known, keys)| known.into_iter().chain(keys).collect());
    };
    if let Some(reference) = &spec.module.config_map_ref {
        refer(Source::ConfigMap, &reference.name, None);
    }
    for from in &spec.variables_from {
        let keys = || (!from.keys.is_empty()).then(|| from.keys.clone());
        from.secret_ref.iter().for_each(|reference| refer(Source::Secret, &reference.name, keys()));
        from.config_map_ref.iter().for_each(|reference| refer(Source::ConfigMap, &reference.name, keys()));
    }
    for from in spec.env.iter().filter_map(|env| env.value_from.as_ref()) {
        let key = |reference: &KeyRef| Some(vec![reference.key.clone()]);
        from.secret_key_ref.iter().for_each(|reference| refer(Source::Secret, &reference.name, key(reference)));
        from.config_map_key_ref.iter().for_each(|reference| refer(Source::ConfigMap, &reference.name, key(reference)));
    }
    if let Some(from) = spec.backend.custom.as_ref().and_then(|custom| custom.config_from.as_ref()) {
        refer(Source::Secret, &from.secret_ref.name, None);
    }
    all
}

/// Checks the number of references.
///
/// # Errors
///
/// When there are too many to read.
pub fn few_enough(references: usize) -> Result<(), Problem> {
    if references <= MOST_REFERENCES {
        return Ok(());
    }
    let message = format!(
        "it refers to {references} Secrets and ConfigMaps, but may refer to at most {MOST_REFERENCES}; combine some of them"
    );
    Err(Problem::wrong("spec", message))
}

/// Checks the total size of the referenced data. `last` is the object that was read last.
///
/// # Errors
///
/// When it is more than inputs may have in total.
pub fn small_enough(bytes: usize, last: &Reference) -> Result<(), Problem> {
    if bytes <= LARGEST {
        return Ok(());
    }
    let (source, name) = last;
    let message = format!(
        "the Secrets and ConfigMaps that it refers to have more than {} KiB in total, counted up to {source} {name}; refer only to the required keys",
        LARGEST / 1024
    );
    Err(Problem::missing("spec", message))
}

/// The inputs that a spec asks for.
///
/// # Errors
///
/// When something that it refers to is missing or cannot be used. The error names the field.
pub fn keyed_inputs(spec: &TerraformWorkspaceSpec, sources: &Sources, key: &Key) -> Result<Inputs, Problem> {
    if let Some((field, name)) = job::reserved(spec) {
        let message = format!("the volume name {name:?} is reserved for the runner; choose another name");
        return Err(Problem::wrong(field, message));
    }
    if let Some(name) = spec.outputs.taken() {
        let message = format!(
            "{name} is reserved for the Secrets in which workspaces store states, plans and inputs; choose another name"
        );
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
        gathering.bundle.expected.insert(name.clone());
    }
    for env in &spec.env {
        gathering.env(env)?;
    }
    let env_size: usize = gathering.bundle.env.values().map(String::len).sum();
    if env_size > LARGEST_ENVIRONMENT {
        let (size, most) = (env_size.div_ceil(1024), LARGEST_ENVIRONMENT / 1024);
        let message = format!("all values may have at most {most} KiB in total, but have {size}");
        return Err(Problem::wrong("spec.env", message));
    }
    if let Some(custom) = &spec.backend.custom {
        gathering.backend(custom, spec)?;
    }
    if spec.backend.custom.is_none() && gathering.bundle.env.contains_key(backend::WORKSPACE_VARIABLE) {
        let field = format!("spec.env[{:?}]", backend::WORKSPACE_VARIABLE);
        return Err(Problem::wrong(
            field,
            "a state in the cluster has no Terraform workspaces; create another TerraformWorkspace instead",
        ));
    }
    let engine = &spec.engine;
    gathering.bundle.engine = format!("{} {}", engine.binary.program(), engine.image.as_deref().unwrap_or_default());
    gathering.finish(key)
}

/// The same, without a key.
///
/// # Errors
///
/// As above.
pub fn inputs(spec: &TerraformWorkspaceSpec, sources: &Sources) -> Result<Inputs, Problem> {
    keyed_inputs(spec, sources, &Key::default())
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
            return Err(Problem::wrong("spec.module", "set one of inline, configMapRef and builtin"));
        };
        check_files(&self.bundle.files).map_err(|(path, why)| Problem::wrong(field_of(path), why))?;
        // With a root module without configuration, a plan would destroy everything.
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
            let message =
                format!("a backend of type {} does not store the state between runs; set another type", custom.kind);
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
        let message = "the state would be lost with the pod; set an absolute path below the mountPath of a volume \
                       in spec.runner.podTemplate.spec.volumeMounts that outlives the pod";
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
            _ => return Err(Problem::wrong(field, "set one of secretRef and configMapRef")),
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
                // The error is not reported in full: it may contain a part of a Secret.
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
        let text = text.map_err(|_| Problem::missing(field, format!("the value of {key:?} is not valid UTF-8")))?;
        if confidential {
            // Terraform knows the individual values in JSON, and would print them individually.
            leaves(&text, &mut self.confidential);
            self.confidential.insert(text.clone());
        }
        Ok(text)
    }

    fn finish(mut self, key: &Key) -> Result<Inputs, Problem> {
        self.bundle.confidential = self.confidential.into_iter().collect();
        let (bytes, hash) = key.hashed(&mut self.bundle)?;
        if bytes.len() > LARGEST {
            let size = bytes.len() / 1024;
            let message = format!(
                "the module and the variables have {size} KiB in total, but may have at most {}",
                LARGEST / 1024
            );
            return Err(Problem::wrong("spec.module", message));
        }
        let backend = backend::place(&self.bundle);
        let unkeyed_backend = backend::unkeyed_place(&self.bundle);
        Ok(Inputs { hash, chunks: store::inputs::chunks(&bytes), backend, unkeyed_backend })
    }
}

/// Whether a process can receive this value in its environment.
fn env_value(value: &str) -> Result<(), String> {
    if value.contains('\0') {
        return Err("the value of an environment variable cannot contain a NUL character".to_owned());
    }
    if value.len() > LARGEST_ENV {
        let size = value.len().div_ceil(1024);
        return Err(format!(
            "the value of an environment variable may have at most {} KiB, but has {size}; pass large values as variables",
            LARGEST_ENV / 1024
        ));
    }
    Ok(())
}

/// The strings and numbers in JSON, and in JSON inside its strings. The text may contain several values in sequence,
/// and other text between them, in which whole lines may be JSON again.
fn leaves(text: &str, into: &mut BTreeSet<String>) {
    let rest = documents(text.trim_start_matches('\u{feff}'), into);
    for line in rest.lines().skip(1).filter(|line| line.starts_with(['{', '['])) {
        documents(line, into);
    }
}

/// Reads JSON values as long as there are any, and returns the remaining text.
fn documents<'a>(text: &'a str, into: &mut BTreeSet<String>) -> &'a str {
    // Only determines where the values end: a parsed value could not represent long numbers or deep nesting.
    let mut all = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let mut begin = 0;
    while let Some(Ok(IgnoredAny)) = all.next() {
        let end = all.byte_offset();
        let json = text.get(begin..end).unwrap_or_default().trim_start();
        // A number by itself is searched for as plain text; and in YAML, quoted text may be a key.
        if json.starts_with(['{', '[', '"']) && !is_key(text.get(end..).unwrap_or_default()) {
            tokens(json, into);
        }
        begin = end;
    }
    text.get(begin..).unwrap_or_default()
}

/// The strings and numbers in one JSON value, except keys.
fn tokens(json: &str, into: &mut BTreeSet<String>) {
    let mut rest = json;
    while let Some(begin) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        let (_, from) = rest.split_at(begin);
        let is_text = from.starts_with('"');
        let (token, after) = from.split_at(if is_text { text_end(from) } else { number_end(from) });
        rest = after;
        if !is_text {
            // The number as a module reads it, and as it would be passed on.
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

/// The position at which a string ends, quotes included.
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

/// Whether the text before this is a key.
fn is_key(after: &str) -> bool {
    after.trim_start().starts_with(':')
}

/// Checks the name of a variable by Terraform's rules.
fn variable_name(name: &str) -> Result<(), String> {
    let mut letters = name.chars();
    let begins = letters.next().is_some_and(|c| c.is_alphabetic() || c == '_');
    if begins && letters.all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
        Ok(())
    } else {
        Err("the name is not valid for a variable; use letters, digits, '_' and '-', and start with a letter"
            .to_owned())
    }
}

/// The Secrets that keep the inputs. They have no owner: a destroy may need them when everything else is gone.
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
mod tests;

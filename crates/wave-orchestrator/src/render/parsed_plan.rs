//! A plan parsed into items, before the API server is asked which kinds it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use kube::core::DynamicObject;
use opcore::digest;

use super::rollback_secret::{KEPT_AT_MOST, kept_text};
use super::{Stage, parse};
use crate::api::v1alpha1::{
    ConfigMapKey, HealthCheck, Manifests, Member, Mode, OnFailure, Parallelism, Probe, WAVE_LABEL, Wave, WavePlanSpec,
};
use crate::expression::Expression;

/// A Job's name is a label of its pods.
const LONGEST_JOB_NAME: usize = 63;

/// The contents of a ConfigMap; none if it does not exist.
pub type Source = Option<Arc<BTreeMap<String, String>>>;

/// The contents of the ConfigMaps that a plan names, by namespace and name.
pub type Sources = BTreeMap<(String, String), Source>;

/// A parsed plan.
#[derive(Debug, Default)]
pub struct ParsedPlan {
    /// One per wave of the spec, in its order.
    pub waves: Vec<ParsedWave>,
    /// The kinds that it mentions, as written: `apiVersion` and `kind`.
    pub kinds: BTreeSet<(String, String)>,
    /// A digest of the spec and of the contents of its sources.
    pub revision: String,
}

impl ParsedPlan {
    /// The kinds of the objects that it applies, as written.
    pub fn applied_kinds(&self) -> impl Iterator<Item = (String, String)> {
        let items = self.waves.iter().flat_map(|wave| &wave.items);
        let applied = items.filter(|item| matches!(item.task, ParsedTask::Apply(_)));
        applied.map(|item| (item.api_version.clone(), item.kind.clone()))
    }
}

/// A parsed wave.
#[derive(Debug, Default)]
pub struct ParsedWave {
    /// Its name.
    pub name: String,
    /// The items in the order in which they start.
    pub items: Vec<ParsedItem>,
    /// The endpoints to probe.
    pub probes: Vec<Probe>,
    /// Why the wave cannot be carried out, if so.
    pub problem: Option<String>,
    /// Its manifests, if they must be kept for a rollback.
    pub to_keep: Option<Arc<String>>,
}

/// One object, or a selection of objects, that must be ready.
#[derive(Clone, Debug)]
pub struct ParsedItem {
    /// The member it is from; health checks come after all members.
    pub member: usize,
    /// The stage of its member or its wave in which it starts.
    pub stage: Stage,
    /// Its kind.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// The object or objects.
    pub subject: ParsedSubject,
    /// What is done with it.
    pub task: ParsedTask,
    /// Whether a health check of the same wave defines its readiness: its own status does not count then.
    pub checked: bool,
}

/// The object or objects of an item.
#[derive(Clone, Debug)]
pub enum ParsedSubject {
    /// One object, by name.
    Named {
        /// As written; none for a cluster-scoped kind.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// All objects with certain labels.
    Selected {
        /// None: all namespaces.
        namespace: Option<String>,
        /// The labels.
        selector: LabelSelector,
    },
}

/// What is done with an item.
#[derive(Clone, Debug)]
pub enum ParsedTask {
    /// Someone else creates it.
    Observe(Mode),
    /// It is applied.
    Apply(Box<DynamicObject>),
    /// It is checked with CEL.
    Check(Arc<Check>),
}

/// The definition of readiness for an object whose own status does not show it.
#[derive(Debug)]
pub struct Check {
    /// Ready when true.
    pub ready: Expression,
    /// Failed when true.
    pub failed: Option<Expression>,
}

/// Parses a plan.
///
/// # Guarantees
///
/// Total: a wave that cannot be carried out has a problem, and the others are not affected.
pub fn parsed(spec: &WavePlanSpec, sources: &Sources) -> ParsedPlan {
    parse_with(spec, sources, &BTreeMap::new())
}

/// Parses a plan in which the named waves have other manifests than those in the spec.
pub fn parse_with(spec: &WavePlanSpec, sources: &Sources, instead: &BTreeMap<String, Arc<String>>) -> ParsedPlan {
    let revision = revision(spec, sources);
    let one = |wave: &Wave| wave_of(wave, sources, &revision, instead.get(&wave.name).map(|text| text.as_str()));
    let waves: Vec<ParsedWave> = spec.waves.iter().map(one).collect();
    let items = waves.iter().flat_map(|wave| &wave.items);
    let kinds = items.map(|item| (item.api_version.clone(), item.kind.clone())).collect();
    ParsedPlan { waves, kinds, revision }
}

fn wave_of(wave: &Wave, sources: &Sources, revision: &str, instead: Option<&str>) -> ParsedWave {
    let mut parsed = ParsedWave { name: wave.name.clone(), probes: wave.probes.clone(), ..ParsedWave::default() };
    let taken = match instead {
        None => items(wave, sources, revision),
        Some(text) => items(&with_manifests(wave, text), sources, revision),
    };
    match taken {
        Ok(items) => parsed.items = items,
        Err(problem) => parsed.problem = Some(problem),
    }
    if wave.on_failure == OnFailure::Rollback && parsed.problem.is_none() {
        let text = kept_text(&parsed.items);
        if text.len() > KEPT_AT_MOST {
            let words =
                "its manifests are too large to be stored for onFailure: Rollback; split them into several waves";
            parsed.problem = Some(words.to_owned());
        }
        parsed.to_keep = Some(text).filter(|text| !text.is_empty()).map(Arc::new);
    }
    parsed
}

/// The wave with other manifests; objects that others create are unchanged.
fn with_manifests(wave: &Wave, text: &str) -> Wave {
    let manifests = Manifests { inline: Some(text.to_owned()), ..Manifests::default() };
    let kept = Member { name: Some("kept".to_owned()), manifests: Some(manifests), ..Member::default() };
    let others = wave.members.iter().filter(|member| member.reference.is_some()).cloned();
    Wave { members: others.chain([kept]).collect(), hooks: None, ..wave.clone() }
}

fn items(wave: &Wave, sources: &Sources, revision: &str) -> Result<Vec<ParsedItem>, String> {
    // Hooks are treated like members before the first and after the last.
    let (first, checked, last) = (1, wave.members.len() + 1, wave.members.len() + 2);
    let checks = wave.health_checks.iter().enumerate().map(|(n, check)| check_of(n, checked, check));
    let mut checks = checks.collect::<Result<Vec<_>, _>>()?;
    let mut items = Vec::new();
    let hooks = wave.hooks.as_ref();
    let before = hooks.and_then(|hooks| Some(("hooks.before", Stage::Before, 0, hooks.before.as_ref()?)));
    let after = hooks.and_then(|hooks| Some(("hooks.after", Stage::After, last, hooks.after.as_ref()?)));
    for (place, stage, member, manifests) in before.into_iter().chain(after) {
        let mut hook = applied(&wave.name, member, place, manifests, sources)?;
        for item in &mut hook {
            item.stage = stage;
            run_again(item, revision).map_err(|why| format!("{place}: {why}"))?;
        }
        items.extend(hook);
    }
    for (number, member) in wave.members.iter().enumerate() {
        let place = match &member.name {
            Some(name) => format!("member {name}"),
            None => format!("members[{number}]"),
        };
        match (&member.reference, &member.manifests) {
            (Some(reference), None) => items.push(ParsedItem {
                member: first + number,
                stage: Stage::Rest,
                api_version: reference.api_version.clone(),
                kind: reference.kind.clone(),
                subject: ParsedSubject::Named { namespace: reference.namespace.clone(), name: reference.name.clone() },
                task: ParsedTask::Observe(member.mode()),
                checked: false,
            }),
            (None, Some(manifests)) => items.extend(applied(&wave.name, first + number, &place, manifests, sources)?),
            _ => return Err(format!("{place}: set exactly one of ref and manifests")),
        }
    }
    // A health check with CEL overrides the object's own readiness. An object to be asked to reconcile or to be applied
    // still is.
    for item in &mut items {
        item.checked = checks.iter().any(|check| names_the_same(item, check));
    }
    // Health checks of a hook are evaluated in the hook's stage.
    for check in &mut checks {
        if let Some(hook) = items.iter().find(|item| item.stage.is_hook() && names_the_same(item, check)) {
            (check.stage, check.member) = (hook.stage, hook.member);
        }
    }
    items.retain(|item| !(item.checked && matches!(item.task, ParsedTask::Observe(Mode::Observe))));
    items.extend(checks);
    match wave.parallelism {
        Parallelism::Concurrent => items.sort_by_key(|item| (item.stage, item.member)),
        Parallelism::Sequential => items.sort_by_key(|item| (item.member, item.stage)),
    }
    Ok(items)
}

fn applied(
    wave: &str,
    member: usize,
    place: &str,
    manifests: &Manifests,
    sources: &Sources,
) -> Result<Vec<ParsedItem>, String> {
    let mut items = Vec::new();
    for (origin, text) in texts(manifests, sources).map_err(|why| format!("{place}: {why}"))? {
        let parsed =
            parse(&text).map_err(|problem| format!("{place}: {origin}, line {}: {}", problem.line, problem.message))?;
        for manifest in parsed {
            let mut object = manifest.object;
            let (api_version, kind) =
                object.types.as_ref().map(|types| (types.api_version.clone(), types.kind.clone())).unwrap_or_default();
            object.data.as_object_mut().map(|fields| fields.remove("status"));
            if object.metadata.namespace.is_none() {
                object.metadata.namespace.clone_from(&manifests.namespace);
            }
            object.metadata.labels.get_or_insert_default().insert(WAVE_LABEL.to_owned(), wave.to_owned());
            items.push(ParsedItem {
                member,
                stage: manifest.stage,
                api_version,
                kind,
                subject: ParsedSubject::Named { namespace: object.namespace(), name: object.name_any() },
                task: ParsedTask::Apply(Box::new(object)),
                checked: false,
            });
        }
    }
    if items.is_empty() {
        return Err(format!("{place}: there is no object in it; nothing is pruned because of an empty manifest"));
    }
    Ok(items)
}

/// A finished Job does not run again: each rollout creates one of its own.
fn run_again(item: &mut ParsedItem, revision: &str) -> Result<(), String> {
    let (ParsedTask::Apply(object), ParsedSubject::Named { name, .. }) = (&mut item.task, &mut item.subject) else {
        return Ok(());
    };
    if item.kind != "Job" || !item.api_version.starts_with("batch/") {
        return Ok(());
    }
    let new = format!("{name}-{revision}");
    if new.len() > LONGEST_JOB_NAME {
        let most = LONGEST_JOB_NAME - revision.len() - 1;
        return Err(format!(
            "the name of Job {name} is too long: it may have {most} characters, because the digest of the rollout is appended"
        ));
    }
    object.metadata.name = Some(new.clone());
    *name = new;
    Ok(())
}

/// The texts of a member, each with a description of its origin.
fn texts(manifests: &Manifests, sources: &Sources) -> Result<Vec<(String, String)>, String> {
    match (&manifests.inline, &manifests.config_map_ref) {
        (Some(inline), None) => Ok(vec![("inline".to_owned(), inline.clone())]),
        (None, Some(reference)) => from_config_map(reference, sources),
        _ => Err("set exactly one of inline and configMapRef".to_owned()),
    }
}

fn from_config_map(reference: &ConfigMapKey, sources: &Sources) -> Result<Vec<(String, String)>, String> {
    let ConfigMapKey { namespace, name, key } = reference;
    let found = sources.get(&(namespace.clone(), name.clone())).and_then(Option::as_deref);
    let data = found.ok_or_else(|| format!("ConfigMap {namespace}/{name} does not exist"))?;
    match key {
        None => Ok(data
            .iter()
            .map(|(key, text)| (format!("key {key} of ConfigMap {namespace}/{name}"), text.clone()))
            .collect()),
        Some(key) => match data.get(key) {
            Some(text) => Ok(vec![(format!("key {key} of ConfigMap {namespace}/{name}"), text.clone())]),
            None => Err(format!("ConfigMap {namespace}/{name} has no key {key}")),
        },
    }
}

fn check_of(number: usize, members: usize, check: &HealthCheck) -> Result<ParsedItem, String> {
    let compile = |field: &str, text: &str| {
        Expression::compile(text).map_err(|why| format!("healthChecks[{number}].{field} does not compile: {why}"))
    };
    let target = &check.target;
    let subject = match (&target.name, &target.selector) {
        (Some(name), None) => ParsedSubject::Named { namespace: target.namespace.clone(), name: name.clone() },
        (None, Some(selector)) => {
            ParsedSubject::Selected { namespace: target.namespace.clone(), selector: selector.clone() }
        }
        _ => return Err(format!("healthChecks[{number}].target: set exactly one of name and selector")),
    };
    let ready = compile("ready", &check.ready)?;
    let failed = check.failed.as_deref().map(|text| compile("failed", text)).transpose()?;
    Ok(ParsedItem {
        member: members,
        stage: Stage::Rest,
        api_version: target.api_version.clone(),
        kind: target.kind.clone(),
        subject,
        task: ParsedTask::Check(Arc::new(Check { ready, failed })),
        checked: false,
    })
}

fn names_the_same(one: &ParsedItem, other: &ParsedItem) -> bool {
    let group =
        |item: &ParsedItem| item.api_version.split_once('/').map_or(String::new(), |(group, _)| group.to_owned());
    match (&one.subject, &other.subject) {
        (
            ParsedSubject::Named { namespace: a, name: one_name },
            ParsedSubject::Named { namespace: b, name: other_name },
        ) => a == b && one_name == other_name && one.kind == other.kind && group(one) == group(other),
        _ => false,
    }
}

/// A digest of the spec and of the contents of its sources.
pub fn revision(spec: &WavePlanSpec, sources: &Sources) -> String {
    let timeouts: Vec<String> = spec.waves.iter().map(|wave| spec.timeout_of(wave).to_string()).collect();
    let sources: Vec<_> = sources.iter().map(|(name, source)| (name, source.as_deref())).collect();
    // Both can always be represented as JSON.
    let text = serde_json::to_vec(&(&spec.waves, timeouts, sources)).unwrap_or_default();
    digest::short(&digest::of_bytes(&text), 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(yaml: &str) -> WavePlanSpec {
        serde_yaml::from_str(yaml).unwrap()
    }

    fn problem(yaml: &str, sources: &Sources) -> String {
        parsed(&spec(yaml), sources).waves.iter().find_map(|wave| wave.problem.clone()).unwrap_or_default()
    }

    #[test]
    fn what_cannot_be_carried_out_is_reported_with_the_place_and_the_other_waves_stay() {
        let sources = Sources::from([
            (("core".to_owned(), "gone".to_owned()), None),
            (
                ("core".to_owned(), "there".to_owned()),
                Some(Arc::new(BTreeMap::from([("a.yaml".to_owned(), "kind: Pod".to_owned())]))),
            ),
        ]);
        for (wave, words) in [
            (
                "members: [{name: base, manifests: {inline: \"a: [1\"}}]",
                "member base: inline, line 1: this is not YAML",
            ),
            ("members: [{manifests: {inline: \"# nothing\"}}]", "members[0]: there is no object in it"),
            (
                "members: [{manifests: {configMapRef: {namespace: core, name: gone}}}]",
                "ConfigMap core/gone does not exist",
            ),
            ("members: [{manifests: {configMapRef: {namespace: core, name: there, key: b}}}]", "has no key b"),
            (
                "members: [{manifests: {configMapRef: {namespace: core, name: there}}}]",
                "key a.yaml of ConfigMap core/there, line 1",
            ),
            (
                "healthChecks: [{target: {apiVersion: v1, kind: Pod, namespace: a, name: b}, ready: \"status.phase ==\"}]",
                "healthChecks[0].ready does not compile: 1:16",
            ),
        ] {
            let yaml = format!(
                "waves:\n- name: bad\n  {wave}\n- name: good\n  members: [{{ref: {{apiVersion: v1, kind: Pod, name: p, namespace: n}}}}]\n"
            );
            let found = problem(&yaml, &sources);
            assert!(found.contains(words), "{wave}: {found}");
            assert_eq!(parsed(&spec(&yaml), &sources).waves[1].items.len(), 1);
        }
    }

    #[test]
    fn a_check_in_cel_overrules_what_the_member_itself_says() {
        let parsed = parsed(
            &spec(
                "waves:\n- name: db\n  members: [{ref: {apiVersion: e.io/v1, kind: Database, namespace: db, name: main}}]\n  healthChecks: [{target: {apiVersion: e.io/v1, kind: Database, namespace: db, name: main}, ready: \"status.phase == 'Ready'\"}]\n",
            ),
            &Sources::new(),
        );
        assert_eq!(parsed.waves[0].items.len(), 1);
        assert!(matches!(parsed.waves[0].items[0].task, ParsedTask::Check(_)));
    }

    #[test]
    fn hooks_come_first_and_last_and_a_job_of_a_hook_is_one_of_its_rollout() {
        let job = "{apiVersion: batch/v1, kind: Job, metadata: {name: migrate, namespace: n}}";
        let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: done, namespace: n}}";
        let member = "{manifests: {inline: '{apiVersion: v1, kind: Namespace, metadata: {name: n}}'}}";
        for parallelism in ["Concurrent", "Sequential"] {
            let yaml = format!(
                "waves: [{{name: db, parallelism: {parallelism}, members: [{member}], hooks: {{before: {{inline: '{job}'}}, after: {{inline: '{map}'}}}}}}]"
            );
            let parsed = parsed(&spec(&yaml), &Sources::new());
            let names: Vec<String> = parsed.waves[0]
                .items
                .iter()
                .map(|item| match &item.task {
                    ParsedTask::Apply(object) => object.name_any(),
                    _ => String::new(),
                })
                .collect();
            assert_eq!(names, [format!("migrate-{}", parsed.revision), "n".to_owned(), "done".to_owned()]);
        }
        let long = format!(
            "waves: [{{name: a, hooks: {{before: {{inline: '{}'}}}}}}]",
            job.replace("migrate", &"m".repeat(60))
        );
        assert!(
            problem(&long, &Sources::new()).contains("it may have 50 characters"),
            "{}",
            problem(&long, &Sources::new())
        );
    }

    #[test]
    fn the_revision_follows_the_waves_and_their_sources_and_nothing_else() {
        let yaml = "waves: [{name: a, members: [{manifests: {configMapRef: {namespace: n, name: c}}}]}]";
        let source = |text: &str| {
            Sources::from([(
                ("n".to_owned(), "c".to_owned()),
                Some(Arc::new(BTreeMap::from([("k".to_owned(), text.to_owned())]))),
            )])
        };
        let one = parsed(&spec(yaml), &source("x")).revision;
        assert_eq!(one, parsed(&spec(&format!("suspend: true\n{yaml}")), &source("x")).revision);
        assert_ne!(one, parsed(&spec(yaml), &source("y")).revision);
    }
}

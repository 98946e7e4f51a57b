//! `opctl waves graph`: the graph of a plan as layers, for Graphviz, for Mermaid or as JSON; and the errors in it.

use std::collections::BTreeSet;
use std::io::{stderr, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use kube::ResourceExt;
use opcore::duration::Span;
use serde::{Deserialize, Serialize};
use wave_orchestrator::api::v1alpha1::{Dependency, Gate, WavePlan};

use super::Which;
use super::picture::Picture;
use super::plans::Plans;
use crate::cluster::listed;
use crate::output::{self, Paint, age, table};

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    which: Which,
    /// Read the plan from a YAML file, or from - for the standard input; no cluster is needed
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// The output format
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t)]
    output: Form,
}

/// An output format of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// Layers of waves: those of one layer can run at the same time
    #[default]
    Text,
    /// For programs
    Json,
    /// For Graphviz
    Dot,
    /// For Mermaid, which Markdown pages show as a picture
    Mermaid,
}

pub(super) async fn of_cluster(plans: &Plans, flags: &Flags) -> anyhow::Result<ExitCode> {
    show(&plans.choose(flags.which.name.as_deref()).await?, flags.output)
}

pub(super) fn of_file(file: &Path, flags: &Flags) -> anyhow::Result<ExitCode> {
    show(&read(file, flags.which.name.as_deref())?, flags.output)
}

/// The plan of a file that may hold other objects, too.
fn read(file: &Path, name: Option<&str>) -> anyhow::Result<WavePlan> {
    let (text, file) = if file == Path::new("-") {
        (std::io::read_to_string(stdin()), "The standard input".to_owned())
    } else {
        (std::fs::read_to_string(file), file.display().to_string())
    };
    let text = text.map_err(|why| anyhow!("{file} cannot be read ({why}): name another file."))?;
    let mut plans = Vec::new();
    // Twice: other objects are skipped, and an error in a plan is reported with its line in the file.
    let kinds = serde_yaml::Deserializer::from_str(&text).map(Kind::deserialize);
    for (kind, document) in kinds.zip(serde_yaml::Deserializer::from_str(&text)) {
        let wrong = |error: serde_yaml::Error| anyhow!("{file} does not hold a valid WavePlan: {error}.");
        if kind.map_err(wrong)?.is_plan() {
            plans.push(WavePlan::deserialize(document).map_err(wrong)?);
        }
    }
    let names: Vec<String> = plans.iter().map(ResourceExt::name_any).collect();
    match (name, plans.pop()) {
        (_, None) => {
            bail!("{file} does not hold a WavePlan (apiVersion waves.opcore.dev/v1alpha1): name another file.")
        }
        (None, Some(plan)) if plans.is_empty() => Ok(plan),
        (None, Some(_)) => bail!("{file} holds several WavePlans: name one of {}.", listed(&names)),
        (Some(name), Some(last)) => plans
            .into_iter()
            .chain([last])
            .find(|plan| plan.name_any() == name)
            .with_context(|| format!("{file} does not hold a WavePlan {name}: it holds {}.", listed(&names))),
    }
}

/// The fields that distinguish a plan from other objects.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kind {
    api_version: String,
    kind: String,
}

impl Kind {
    fn is_plan(&self) -> bool {
        self.kind == "WavePlan" && self.api_version.starts_with("waves.opcore.dev/")
    }
}

fn show(plan: &WavePlan, form: Form) -> anyhow::Result<ExitCode> {
    let picture = Picture::of(plan, Timestamp::now());
    let problems = problems(&picture);
    match form {
        Form::Json => output::print_json(&Json::of(&picture, &problems))?,
        _ if !problems.is_empty() => {}
        Form::Text => output::print_lines(&text(&picture))?,
        Form::Dot => output::print_lines(&dot(&picture))?,
        Form::Mermaid => output::print_lines(&mermaid(&picture))?,
    }
    for problem in &problems {
        eprintln!("{} {}: {problem}.", Paint::detect(&stderr()).error("opctl:"), plan.name_any());
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The errors of a plan, each once, although it may concern several waves.
pub(super) fn problems(picture: &Picture<'_>) -> Vec<String> {
    let spec = &picture.plan.spec;
    let mut problems = BTreeSet::new();
    for (number, why) in &picture.graph.broken {
        // A path names its waves itself.
        let names_its_waves = why.starts_with("these waves");
        problems.insert(if names_its_waves {
            why.clone()
        } else {
            format!("wave {}: {why}", picture.wave(*number).name)
        });
    }
    if let Some(profile) = spec.profile.as_ref().filter(|profile| !spec.profiles.contains_key(*profile)) {
        problems.insert(format!("spec.profile is {profile}, which is not in spec.profiles"));
    }
    problems.into_iter().collect()
}

pub(super) fn text(picture: &Picture<'_>) -> Vec<String> {
    let mut rows = Vec::new();
    for (layer, numbers) in picture.layers().iter().enumerate() {
        for (place, &number) in numbers.iter().enumerate() {
            let wave = picture.wave(number);
            let star = if picture.is_planned_critical(number) { " ★" } else { "" };
            rows.push(vec![
                if place == 0 { (layer + 1).to_string() } else { String::new() },
                format!("{}{star}", wave.name),
                age(picture.timeout(number)),
                wave.depends_on.iter().map(dependency).collect::<Vec<_>>().join(", "),
            ]);
        }
    }
    let mut lines = table(&["LAYER", "WAVE", "TIMEOUT", "AFTER"], &rows);
    lines.push(String::new());
    lines.push(format!("★ critical path, {} in all", age(picture.planned.total.as_duration())));
    lines
}

fn dependency(dependency: &Dependency) -> String {
    match dependency.gate {
        Gate::Always => dependency.wave.clone(),
        Gate::FirstRollout => format!("{} (first rollout only)", dependency.wave),
    }
}

/// The edges of the graph: from, to, and whether it counts in the first rollout only.
fn edges(picture: &Picture<'_>) -> Vec<(usize, usize, bool)> {
    let of_wave = |number: &usize| {
        let (number, wave) = (*number, picture.wave(*number));
        let gates = wave.depends_on.iter().map(|dependency| dependency.gate == Gate::FirstRollout);
        picture.graph.before[number].iter().zip(gates).map(move |(first, gate)| (*first, number, gate))
    };
    picture.graph.order.iter().flat_map(of_wave).collect()
}

pub(super) fn dot(picture: &Picture<'_>) -> Vec<String> {
    let mut lines = vec![format!("digraph {:?} {{", picture.plan.name_any())];
    lines.extend(["  rankdir=LR", "  node [shape=box]"].map(str::to_owned));
    for &number in &picture.graph.order {
        let wave = picture.wave(number);
        let style = if picture.is_planned_critical(number) { ", style=bold" } else { "" };
        let timeout = age(picture.timeout(number));
        lines.push(format!("  {:?} [label=\"{}\\n{timeout}\"{style}]", wave.name, wave.name));
    }
    for (first, then, first_rollout) in edges(picture) {
        let style = if first_rollout { " [style=dashed]" } else { "" };
        lines.push(format!("  {:?} -> {:?}{style}", picture.wave(first).name, picture.wave(then).name));
    }
    lines.push("}".to_owned());
    lines
}

pub(super) fn mermaid(picture: &Picture<'_>) -> Vec<String> {
    let mut lines = vec!["graph LR".to_owned()];
    for &number in &picture.graph.order {
        let wave = picture.wave(number);
        let style = if picture.is_planned_critical(number) { ":::critical" } else { "" };
        let timeout = age(picture.timeout(number));
        lines.push(format!("  w{number}[\"{}<br/>{timeout}\"]{style}", wave.name));
    }
    for (first, then, first_rollout) in edges(picture) {
        let arrow = if first_rollout { "-.->" } else { "-->" };
        lines.push(format!("  w{first} {arrow} w{then}"));
    }
    lines.push("  classDef critical stroke-width:3px".to_owned());
    lines
}

/// A graph for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Json<'a> {
    name: String,
    waves: Vec<JsonWave<'a>>,
    critical_path: &'a [String],
    total: Span,
    problems: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonWave<'a> {
    name: &'a str,
    layer: usize,
    timeout: Span,
    critical: bool,
    depends_on: &'a [Dependency],
}

impl<'a> Json<'a> {
    fn of(picture: &'a Picture<'_>, problems: &'a [String]) -> Self {
        let layers = picture.layers();
        let waves = layers.iter().enumerate().flat_map(|(layer, numbers)| {
            numbers.iter().map(move |&number| {
                let wave = picture.wave(number);
                JsonWave {
                    name: &wave.name,
                    layer: layer + 1,
                    timeout: picture.plan.spec.timeout_of(wave),
                    critical: picture.is_planned_critical(number),
                    depends_on: &wave.depends_on,
                }
            })
        });
        Self {
            name: picture.plan.name_any(),
            waves: waves.collect(),
            critical_path: &picture.planned.waves,
            total: picture.planned.total,
            problems,
        }
    }
}

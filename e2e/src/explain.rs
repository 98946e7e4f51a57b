//! Explains a failure: the pods and why they do not run, the Events, the logs, and the conditions of every object.
//! Written for someone who did not watch the test, and read from the top.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use anyhow::Context;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Event, Pod};
use kube::api::{DynamicObject, ListParams, LogParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

/// No part of an explanation is longer than this, so that all parts are read.
const LONGEST_PART: usize = 12_000;
const LONGEST_LINE: usize = 600;
const LINES_OF_LOG: i64 = 60;

/// Everything in a namespace that helps to explain a failure. What cannot be read is named, and does not hide the rest.
pub(crate) async fn namespace(client: &Client, namespace: &str) -> String {
    let mut text = format!("What is in namespace {namespace}:\n");
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods_found = pods.list(&ListParams::default()).await.map(|list| list.items);
    let parts = [
        ("Pods", pods_found.as_deref().map(states).map_err(ToString::to_string)),
        ("Events, oldest first", events(client, namespace).await.map_err(|error| format!("{error:#}"))),
        ("Logs", Ok(logs(&pods, pods_found.as_deref().unwrap_or_default()).await)),
        ("Objects", objects(client, namespace).await.map_err(|error| format!("{error:#}"))),
    ];
    for (title, part) in parts {
        let part = part.unwrap_or_else(|error| format!("cannot be read: {error}\n"));
        let part = if part.is_empty() { "none\n" } else { &part };
        let _ = write!(text, "\n--- {title}\n{}", bounded(part));
    }
    text
}

/// The end of a long text, because what happened last explains most.
fn bounded(part: &str) -> String {
    let mut kept = Vec::new();
    let mut size = 0;
    let lines: Vec<&str> = part.lines().collect();
    for line in lines.iter().rev() {
        let line: String = match line.char_indices().nth(LONGEST_LINE) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => (*line).to_owned(),
        };
        size += line.len() + 1;
        if size > LONGEST_PART {
            break;
        }
        kept.push(line);
    }
    let left_out = lines.len() - kept.len();
    let mut text = if left_out > 0 { format!("… {left_out} lines before are left out\n") } else { String::new() };
    for line in kept.iter().rev() {
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn states(pods: &[Pod]) -> String {
    let mut text = String::new();
    for pod in pods {
        let status = pod.status.clone().unwrap_or_default();
        let phase = status.phase.as_deref().unwrap_or("without a phase");
        let deleted = if pod.metadata.deletion_timestamp.is_some() { ", being deleted" } else { "" };
        let _ = writeln!(text, "{}: {phase}{deleted}{}", pod.name_any(), said(status.reason, status.message));
        // The containers show whether the pod is ready; the other conditions are printed if they are not True.
        for condition in status.conditions.iter().flatten().filter(|c| c.status != "True" && !c.type_.contains("Ready"))
        {
            let words = said(condition.reason.clone(), condition.message.clone());
            let _ = writeln!(text, "  {}={}{words}", condition.type_, condition.status);
        }
        let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        for container in containers {
            let _ = writeln!(text, "  container {}: {}", container.name, state(container));
        }
    }
    text
}

fn state(container: &ContainerStatus) -> String {
    let mut text = now(container.state.as_ref());
    if container.state.as_ref().is_some_and(|state| state.running.is_some()) && !container.ready {
        text.push_str(", not ready");
    }
    if container.restart_count > 0 {
        let _ = write!(text, "; restarted {} times", container.restart_count);
    }
    if let Some(before) = container.last_state.as_ref().filter(|state| state.terminated.is_some()) {
        let _ = write!(text, "; before that {}", now(Some(before)));
    }
    text
}

fn now(state: Option<&ContainerState>) -> String {
    match state {
        Some(ContainerState { running: Some(_), .. }) => "running".to_owned(),
        Some(ContainerState { waiting: Some(waiting), .. }) => {
            format!("waiting{}", said(waiting.reason.clone(), waiting.message.clone()))
        }
        Some(ContainerState { terminated: Some(ended), .. }) => {
            format!("ended with code {}{}", ended.exit_code, said(ended.reason.clone(), ended.message.clone()))
        }
        _ => "unknown".to_owned(),
    }
}

/// `: Reason: message`, without the parts that are missing.
fn said(reason: Option<String>, message: Option<String>) -> String {
    let message = message.map(|message| message.trim().replace('\n', " "));
    let parts = [reason, message].into_iter().flatten().filter(|part| !part.is_empty());
    parts.fold(String::new(), |text, part| format!("{text}: {part}"))
}

async fn events(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    let found = api.list(&ListParams::default()).await?;
    // Events of the same second, in the order in which they were written.
    let version = |event: &Event| event.resource_version().and_then(|version| version.parse::<u64>().ok());
    let mut found: Vec<_> = found.into_iter().map(|event| (time(&event), version(&event), event)).collect();
    found.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
    Ok(found.into_iter().fold(String::new(), |text, (time, _, event)| text + &time + " " + &event_line(event) + "\n"))
}

/// When it last happened, in UTC, in a form that sorts chronologically.
fn time(event: &Event) -> String {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let first = event.event_time.as_ref().map(|time| time.0);
    let created = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let time = series.or(last).or(first).or(created).unwrap_or_default();
    format!("{time:.0}")
}

fn event_line(event: Event) -> String {
    let about = event.involved_object;
    let about = format!("{}/{}", about.kind.unwrap_or_default(), about.name.unwrap_or_default());
    let times = event.count.filter(|count| *count > 1).map(|count| format!(" ({count} times)")).unwrap_or_default();
    format!("{:<7} {about}{}{times}", event.type_.unwrap_or_default(), said(event.reason, event.message))
}

async fn logs(api: &Api<Pod>, pods: &[Pod]) -> String {
    let mut text = String::new();
    for pod in pods {
        let status = pod.status.clone().unwrap_or_default();
        for container in status.init_container_statuses.iter().chain(&status.container_statuses).flatten() {
            // A container that never ran has no log.
            if container.restart_count > 0 {
                text += &log(api, &pod.name_any(), &container.name, true).await;
            }
            if container.started == Some(true) || container.state.as_ref().is_some_and(|s| s.terminated.is_some()) {
                text += &log(api, &pod.name_any(), &container.name, false).await;
            }
        }
    }
    text
}

async fn log(api: &Api<Pod>, pod: &str, container: &str, previous: bool) -> String {
    let which = LogParams {
        container: Some(container.to_owned()),
        previous,
        tail_lines: Some(LINES_OF_LOG),
        ..LogParams::default()
    };
    let said = api.logs(pod, &which).await.unwrap_or_else(|error| format!("cannot be read: {error}"));
    let when = if previous { ", before its last restart" } else { "" };
    let said = if said.is_empty() { "nothing" } else { &said };
    format!("{pod}, container {container}{when}:\n{}", indented(said))
}

fn indented(text: impl Display) -> String {
    text.to_string().lines().fold(String::new(), |text, line| text + "  " + line + "\n")
}

/// All objects of all kinds: those with conditions one by one, the others by name.
async fn objects(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let kinds = Discovery::new(client.clone()).run().await.context("which kinds there are is unknown")?;
    let mut text = String::new();
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (resource, capabilities) in kinds.groups().flat_map(kube::discovery::ApiGroup::recommended_resources) {
        let is_of_interest = !["Event", "PodMetrics"].contains(&resource.kind.as_str());
        if capabilities.scope != Scope::Namespaced || !capabilities.supports_operation(verbs::LIST) || !is_of_interest {
            continue;
        }
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let found = match api.list(&ListParams::default()).await {
            Ok(found) => found,
            Err(error) => {
                let _ = writeln!(text, "{}: cannot be listed: {error}", resource.kind);
                continue;
            }
        };
        for object in found {
            match conditions(&object.data) {
                lines if lines.is_empty() => names.entry(resource.kind.clone()).or_default().push(object.name_any()),
                lines => {
                    let deleted = object.metadata.deletion_timestamp.is_some();
                    let finalizers = object.finalizers().join(", ");
                    let deleted =
                        if deleted { format!(", being deleted, held by {finalizers}") } else { String::new() };
                    let _ = write!(text, "{}/{}{deleted}\n{lines}", resource.kind, object.name_any());
                }
            }
        }
    }
    for (kind, names) in names {
        let _ = writeln!(text, "{kind}: {}", names.join(", "));
    }
    Ok(text)
}

fn conditions(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let word = |condition: &Value, field: &str| condition[field].as_str().map(str::to_owned);
    conditions.iter().fold(String::new(), |mut text, condition| {
        let state = [word(condition, "type"), word(condition, "status")].map(Option::unwrap_or_default).join("=");
        let _ = writeln!(text, "  {state}{}", said(word(condition, "reason"), word(condition, "message")));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_much_the_last_is_shown_and_what_is_left_out_is_said() {
        let many: Vec<String> = (0..10_000).map(|number| format!("line {number}")).collect();
        let shown = bounded(&many.join("\n"));
        assert!(shown.len() < LONGEST_PART + 100, "{} bytes", shown.len());
        assert!(shown.ends_with("line 9999\n"), "{shown}");
        let kept = shown.lines().count() - 1;
        assert!(shown.starts_with(&format!("… {} lines before are left out\n", 10_000 - kept)), "{shown}");
        assert_eq!(bounded("one\ntwo\n"), "one\ntwo\n");
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let shown = bounded(&"ö".repeat(100_000));
        assert_eq!(shown, format!("{}…\n", "ö".repeat(LONGEST_LINE)));
    }
}

//! What pods say about why they do not run, in the words of whoever knows: the program that ended, the kubelet, the
//! scheduler.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use kube::ResourceExt;
use serde_json::Value;

use crate::api::v1alpha1::OperandKind;
use crate::observe::Observed;
use crate::render;

/// Longer messages are cut.
const WORDS: usize = 600;

/// Why the pods of an operand do not run, as one of them says.
pub fn trouble_of(kind: OperandKind, observed: &Observed) -> Option<String> {
    let component = match kind {
        OperandKind::SpireServer => render::server::COMPONENT,
        OperandKind::SpireAgent => render::agent::COMPONENT,
        OperandKind::SpiffeCSIDriver => render::csi::COMPONENT,
        OperandKind::SpireOIDCDiscoveryProvider => render::oidc::COMPONENT,
    };
    observed.pods_of(component).filter(|pod| pod.metadata.deletion_timestamp.is_none()).find_map(trouble)
}

/// Why a pod does not run.
pub fn trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let statuses = || status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    // In the order of the spec: what comes first is what others rely on, and fail without.
    let spec = pod.spec.as_ref();
    let named = spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let in_order = named.filter_map(|container| statuses().find(|status| status.name == container.name));
    let of_containers = in_order.filter(|container| !container.ready).find_map(of_container);
    let unscheduled = || {
        let conditions = status.conditions.iter().flatten();
        let mut said = conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
        said.find_map(|condition| condition.message.clone())
    };
    let message = of_containers.or_else(unscheduled)?;
    Some(format!("Pod {} does not run: {}", pod.name_any(), message.trim()))
}

/// Why a container that is not ready does not run. One that waits to be started again says why it ended.
fn of_container(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref();
    let before = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref()).or(before).filter(|ended| ended.exit_code != 0);
    if let Some(ended) = ended {
        let name = &container.name;
        return Some(format!("container {name} ended with exit code {}{}", ended.exit_code, last_words(ended)));
    }
    let waiting = state?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().filter(|it| !["ContainerCreating", "PodInitializing"].contains(it))?;
    Some(format!("{reason} {}", waiting.message.as_deref().unwrap_or_default()))
}

/// The last error that a program wrote, or else its last line: what made it end.
fn last_words(ended: &ContainerStateTerminated) -> String {
    let lines =
        || ended.message.iter().flat_map(|message| message.lines()).map(str::trim).filter(|line| !line.is_empty());
    // After an error some print where in their code that was.
    let error = lines().rfind(|line| line.to_ascii_lowercase().contains("error"));
    let Some(line) = error.or_else(|| lines().next_back()) else { return ".".to_owned() };
    let cut: String = without_time(line).chars().take(WORDS).collect();
    format!(": {cut}")
}

/// A line of a log, in any of the formats of SPIRE's programs, without the time: the same failure gives the same words.
fn without_time(line: &str) -> String {
    if let Ok(line) = serde_json::from_str::<Value>(line) {
        let words = [&line["msg"], &line["error"]].into_iter().filter_map(Value::as_str);
        return words.collect::<Vec<_>>().join(": ");
    }
    let start = ["msg=", "ERROR\t"].iter().find_map(|mark| line.find(mark));
    start.and_then(|start| line.get(start..)).unwrap_or(line).replace('\t', " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(status: &Value) -> Option<String> {
        let containers = [json!({ "name": "spire-server" }), json!({ "name": "manager" })];
        let pod = json!({
            "metadata": { "name": "spire-server-0" }, "spec": { "containers": containers }, "status": status,
        });
        trouble(&serde_json::from_value(pod).unwrap())
    }

    fn ended(container: &str, words: &str) -> Value {
        let ended = json!({ "terminated": { "exitCode": 1, "message": words } });
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 10s" } });
        json!({
            "name": container, "ready": false, "image": "", "imageID": "", "restartCount": 3,
            "state": waiting, "lastState": ended,
        })
    }

    fn crashed(words: &str) -> Option<String> {
        // Its manager, which cannot do without it, has ended, too.
        said(&json!({ "containerStatuses": [ended("manager", "it is away"), ended("spire-server", words)] }))
    }

    #[test]
    fn a_program_that_ends_says_why_and_the_time_is_no_part_of_it() {
        let text = "time=\"1\" level=info msg=\"Opening\"\n\
                    time=\"2\" level=error msg=\"Server crashed\" error=\"no such host\"\n";
        let expected = "Pod spire-server-0 does not run: container spire-server ended with exit code 1: ";
        assert_eq!(crashed(text), Some(format!("{expected}msg=\"Server crashed\" error=\"no such host\"")));
        assert_eq!(crashed(text), crashed(&text.replace('2', "3")));
        let json = r#"{"error":"no such host","level":"error","msg":"Server crashed","time":"2"}"#;
        assert_eq!(crashed(json), Some(format!("{expected}Server crashed: no such host")));
        assert_eq!(crashed("  \n"), Some(format!("{}.", expected.trim_end_matches(": "))));
        let zap = "2026-11-19T20:23:28Z\tERROR\tsetup\tunable to dial\nmain.run\n\truntime/proc.go:290";
        assert_eq!(crashed(zap), Some(format!("{expected}ERROR setup unable to dial")));
        assert!(crashed(&"x".repeat(5000)).is_some_and(|said| said.len() < 1000), "a status is no log");
    }

    #[test]
    fn who_could_not_start_it_says_why() {
        let container = |state: Value| {
            json!({ "containerStatuses": [{
                "name": "manager", "ready": false, "image": "", "imageID": "", "restartCount": 0, "state": state,
            }] })
        };
        let pulling = container(json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } }));
        assert_eq!(said(&pulling).as_deref(), Some("Pod spire-server-0 does not run: ErrImagePull not found"));
        assert_eq!(said(&container(json!({ "waiting": { "reason": "ContainerCreating" } }))), None, "it only begins");
        assert_eq!(said(&container(json!({ "running": {} }))), None, "it is not ready yet");
        let pending = json!({ "conditions": [
            { "type": "PodScheduled", "status": "False", "message": "0/1 nodes are available" },
        ] });
        assert_eq!(said(&pending).as_deref(), Some("Pod spire-server-0 does not run: 0/1 nodes are available"));
    }
}

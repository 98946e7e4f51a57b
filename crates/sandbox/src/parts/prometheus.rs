//! Prometheus, which scrapes the API server, the kubelet, and every pod that asks for it.

use serde_json::{Value, json};

use super::{Definition, Place, Work};
use crate::node::settings::KUBELET_PORT;

pub(super) const PART: Definition = Definition {
    name: "prometheus",
    about: "Prometheus; scrapes pods annotated prometheus.io/scrape: \"true\"",
    programs: &["prometheus"],
    packages: &[],
    definitions: &[],
    needs_node: false,
    prepare: |place| {
        let file = place.dir().join("prometheus.yml");
        crate::pki::write_private(&file, serde_yaml::to_string(&config(place)?)?.as_bytes())
    },
    work: Work::Process {
        call: |place| {
            let dir = place.dir();
            let flags = [
                format!("--config.file={}", dir.join("prometheus.yml").display()),
                format!("--storage.tsdb.path={}", dir.join("data").display()),
                format!("--web.listen-address={}", place.authority()),
            ];
            place.call("prometheus", &flags)
        },
        health: "/-/ready",
    },
    facts: |place| vec![("OPCORE_PROMETHEUS_URL", format!("http://{}", place.authority()))],
};

fn config(place: &Place<'_>) -> anyhow::Result<Value> {
    let pki = place.home.pki();
    let admin = pki.pair("admin");
    let server = crate::kubeconfig::server(&place.home.kubeconfig())?;
    let credentials = |name: &str, target: String| {
        json!({
            "job_name": name,
            "scheme": "https",
            "tls_config": { "ca_file": pki.authority_cert("ca"), "cert_file": admin.cert, "key_file": admin.key },
            "static_configs": [{ "targets": [target] }],
        })
    };
    let mut jobs = vec![credentials("apiserver", server.trim_start_matches("https://").to_owned())];
    if let Some(network) = place.network {
        jobs.push(credentials("kubelet", format!("{}:{KUBELET_PORT}", network.node())));
    }
    jobs.push(pods(place));
    // A test need not wait a minute to see its metrics.
    Ok(json!({ "global": { "scrape_interval": "2s", "scrape_timeout": "2s" }, "scrape_configs": jobs }))
}

/// Pods with the annotations that most installations agree on.
fn pods(place: &Place<'_>) -> Value {
    let annotation = |name: &str| format!("__meta_kubernetes_pod_annotation_prometheus_io_{name}");
    let copy = |source: &str, target: &str| json!({ "source_labels": [source], "target_label": target });
    json!({
        "job_name": "pods",
        "kubernetes_sd_configs": [{ "role": "pod", "kubeconfig_file": place.home.kubeconfig() }],
        "relabel_configs": [
            { "source_labels": [annotation("scrape")], "regex": "true", "action": "keep" },
            { "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Succeeded|Failed", "action": "drop" },
            { "source_labels": [annotation("scheme")], "regex": "(https?)", "target_label": "__scheme__" },
            { "source_labels": [annotation("path")], "regex": "(.+)", "target_label": "__metrics_path__" },
            {
                "source_labels": ["__meta_kubernetes_pod_ip", annotation("port")],
                "separator": ":",
                "regex": "(.+:[0-9]+)",
                "target_label": "__address__",
            },
            copy("__meta_kubernetes_namespace", "namespace"),
            copy("__meta_kubernetes_pod_name", "pod"),
        ],
    })
}

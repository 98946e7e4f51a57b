//! The controllers of Flux that fetch sources and apply what is in them, as processes of this machine.

use std::ffi::OsString;

use super::{Definition, Place, Work};

pub(super) const SOURCE: Definition = Definition {
    name: "source-controller",
    about: "Flux's source-controller: fetches GitRepositories and other sources",
    programs: &["source-controller"],
    packages: &[],
    definitions: &["source-controller"],
    needs_node: false,
    prepare: |place| Ok(std::fs::create_dir_all(place.dir().join("artifacts"))?),
    work: Work::Process {
        call: |place| {
            let flags = [
                format!("--storage-path={}", place.dir().join("artifacts").display()),
                // Where others of this machine fetch what it has fetched.
                format!("--storage-addr={}", place.authority()),
                format!("--storage-adv-addr={}", place.authority()),
                "--health-addr=0".to_owned(),
            ];
            call(place, "source-controller", &flags)
        },
        // What it serves it serves once its controllers run.
        health: "/",
    },
    facts: |place| vec![("OPCORE_FLUX_ARTIFACTS_URL", format!("http://{}", place.authority()))],
};

pub(super) const KUSTOMIZE: Definition = Definition {
    name: "kustomize-controller",
    about: "Flux's kustomize-controller: applies Kustomizations; add source-controller",
    programs: &["kustomize-controller", "source-controller"],
    // It watches the sources, too.
    definitions: &["source-controller", "kustomize-controller"],
    prepare: |_| Ok(()),
    work: Work::Process {
        call: |place| call(place, "kustomize-controller", &[format!("--health-addr={}", place.authority())]),
        health: "/readyz",
    },
    facts: |place| vec![("OPCORE_FLUX_KUSTOMIZE_HEALTH_URL", format!("http://{}", place.authority()))],
    ..SOURCE
};

/// A controller that finds its cluster as it would find it in a pod.
fn call(place: &Place<'_>, program: &str, flags: &[String]) -> anyhow::Result<Vec<OsString>> {
    let mut words: Vec<OsString> = vec!["/usr/bin/env".into(), "RUNTIME_NAMESPACE=flux-system".into()];
    for (variable, path) in [("KUBECONFIG", place.home.kubeconfig()), ("TMPDIR", place.dir())] {
        let mut word = OsString::from(format!("{variable}="));
        word.push(path);
        words.push(word);
    }
    let common = ["--metrics-addr=0", "--events-addr=", "--log-encoding=console"].map(str::to_owned);
    words.extend(place.call(program, &[flags, &common].concat())?);
    Ok(words)
}

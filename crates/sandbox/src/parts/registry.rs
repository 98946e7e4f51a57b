//! An OCI registry (distribution), one for everybody and one that asks for a password.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};

use super::{Definition, PASSWORD, Place, USER, Work};
use crate::pki::write_private;

pub(super) const OPEN: Definition = Definition {
    name: "registry",
    about: "an OCI registry",
    programs: &["registry", "crane"],
    packages: &[],
    definitions: &[],
    needs_node: false,
    prepare: |place| prepare(place, None),
    work: WORK,
    facts: |place| vec![("OPCORE_REGISTRY", place.authority())],
};

pub(super) const WITH_AUTH: Definition = Definition {
    name: "registry-auth",
    about: "an OCI registry that asks for a password",
    prepare: |place| {
        let accounts = place.dir().join("htpasswd");
        write_private(&accounts, format!("{USER}:{HASH}\n").as_bytes())?;
        prepare(place, Some(accounts))
    },
    facts: |place| {
        vec![
            ("OPCORE_REGISTRY_AUTH", place.authority()),
            ("OPCORE_REGISTRY_AUTH_USER", USER.to_owned()),
            ("OPCORE_REGISTRY_AUTH_PASSWORD", PASSWORD.to_owned()),
        ]
    },
    ..OPEN
};

/// That of [`PASSWORD`], hashed with bcrypt, which is all that the registry takes.
const HASH: &str = "$2a$05$GQIn23LOnedFncAXPuZw2Og5pyMHcantXNbKHRJ61r9Vs.5Qb.7/S";

const WORK: Work = Work::Process {
    call: |place| place.call("registry", &["serve".to_owned(), config(place).display().to_string()]),
    // It answers here with or without a password.
    health: "/",
};

fn config(place: &Place<'_>) -> PathBuf {
    place.dir().join("config.yml")
}

fn prepare(place: &Place<'_>, accounts: Option<PathBuf>) -> anyhow::Result<()> {
    let mut document = json!({
        "version": "0.1",
        "log": { "level": "info", "accesslog": { "disabled": true } },
        "storage": { "filesystem": { "rootdirectory": place.dir().join("images") }, "delete": { "enabled": true } },
        "http": { "addr": place.authority() },
    });
    if let Some(accounts) = accounts {
        document["auth"] = json!({ "htpasswd": { "realm": "sandbox", "path": accounts } });
    }
    write_private(&config(place), serde_yaml::to_string::<Value>(&document)?.as_bytes())?;
    if place.network.is_some() {
        // Without this the node would ask for encryption. It is read at every pull.
        let dir = place.home.node_setting("registries").join(place.authority());
        fs::create_dir_all(&dir).with_context(|| format!("Cannot create {}", dir.display()))?;
        let text = format!("[host.\"http://{}\"]\ncapabilities = [\"pull\", \"resolve\"]\n", place.authority());
        write_private(&dir.join("hosts.toml"), text.as_bytes())?;
    }
    Ok(())
}

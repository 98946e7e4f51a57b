//! OpenTofu, with providers that it finds on the disk: nothing is downloaded.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::{Definition, Place, Work};
use crate::image::machine;

/// The providers, and the versions that their sources at the pinned commits are of.
const PROVIDERS: [(&str, &str); 2] = [("local", "2.9.0"), ("random", "3.9.0")];

/// Configurations written for Terraform may name its registry.
const HOSTS: [&str; 2] = ["registry.opentofu.org", "registry.terraform.io"];

pub(super) const PART: Definition = Definition {
    name: "opentofu",
    about: "OpenTofu (`tofu`) with the providers random and local",
    programs: &["tofu", "terraform-provider-local", "terraform-provider-random"],
    packages: &[],
    definitions: &[],
    needs_node: false,
    prepare,
    work: Work::Files,
    facts: |place| vec![("TF_CLI_CONFIG_FILE", config(place).display().to_string())],
};

fn config(place: &Place<'_>) -> PathBuf {
    place.dir().join("tofu.rc")
}

/// Lays the providers out as a mirror, and writes the configuration that names it as the only source.
fn prepare(place: &Place<'_>) -> anyhow::Result<()> {
    let mirror = place.dir().join("providers");
    for (provider, version) in PROVIDERS {
        let program = place.binaries.get(&format!("terraform-provider-{provider}"))?;
        for host in HOSTS {
            let package = mirror.join(format!("{host}/hashicorp/{provider}/{version}/linux_{}", machine()));
            let file = package.join(format!("terraform-provider-{provider}_v{version}"));
            fs::create_dir_all(&package)
                .and_then(|()| fs::copy(program, &file))
                .with_context(|| format!("Cannot write {}", file.display()))?;
        }
    }
    let text = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = {:?}\n  }}\n}}\n",
        mirror.display().to_string()
    );
    crate::pki::write_private(&config(place), text.as_bytes())
}

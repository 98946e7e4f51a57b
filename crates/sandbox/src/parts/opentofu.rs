//! OpenTofu and Terraform, with providers that they find on the disk: nothing is downloaded.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Definition, Place, Work};
use crate::binaries::Binaries;
use crate::image::{Image, machine};

/// The providers, and the versions that their sources at the pinned commits are of.
const PROVIDERS: [(&str, &str); 2] = [("local", "2.9.0"), ("random", "3.9.0")];

/// Configurations written for Terraform may name its registry.
const HOSTS: [&str; 2] = ["registry.opentofu.org", "registry.terraform.io"];

/// Where an image has the mirror and the configuration.
const MIRROR: &str = "/usr/local/share/providers";
const CONFIG: &str = "/etc/tofu.rc";

pub(super) const OPENTOFU: Definition = Definition {
    name: "opentofu",
    about: "OpenTofu (`tofu`) with the providers random and local",
    programs: &["tofu", "terraform-provider-local", "terraform-provider-random"],
    packages: &[],
    definitions: &[],
    needs_node: false,
    prepare,
    work: Work::Files { pack: |image, binaries| pack(image, binaries, "tofu") },
    facts: |place| vec![("TF_CLI_CONFIG_FILE", config(place).display().to_string())],
};

pub(super) const TERRAFORM: Definition = Definition {
    name: "terraform",
    about: "Terraform (`terraform`) with the providers random and local",
    programs: &["terraform", "terraform-provider-local", "terraform-provider-random"],
    work: Work::Files { pack: |image, binaries| pack(image, binaries, "terraform") },
    ..OPENTOFU
};

fn config(place: &Place<'_>) -> PathBuf {
    place.dir().join("tofu.rc")
}

/// The programs of the providers, and where a mirror has them: under each of the hosts.
fn mirror(binaries: &Binaries) -> anyhow::Result<Vec<(&Path, String)>> {
    let mut files = Vec::new();
    for (provider, version) in PROVIDERS {
        let name = format!("terraform-provider-{provider}");
        let program = binaries.get(&name)?;
        files.extend(HOSTS.map(|host| {
            let package = format!("{host}/hashicorp/{provider}/{version}/linux_{}", machine());
            (program, format!("{package}/{name}_v{version}"))
        }));
    }
    Ok(files)
}

/// Lays the mirror out, and writes the configuration that names it as the only source: tests find out at once what they
/// would have to download.
fn prepare(place: &Place<'_>) -> anyhow::Result<()> {
    let dir = place.dir().join("providers");
    for (program, file) in mirror(place.binaries)? {
        let file = dir.join(file);
        fs::create_dir_all(file.parent().unwrap_or(&dir))
            .and_then(|()| fs::copy(program, &file))
            .with_context(|| format!("Cannot write {}", file.display()))?;
    }
    let text = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = {:?}\n  }}\n}}\n",
        dir.display().to_string()
    );
    crate::pki::write_private(&config(place), text.as_bytes())
}

/// Puts a program and the mirror into an image.
fn pack(image: Image, binaries: &Binaries, program: &str) -> anyhow::Result<Image> {
    let mut image = image.file(binaries.get(program)?, &format!("/usr/local/bin/{program}"))?;
    for (program, file) in mirror(binaries)? {
        image = image.file(program, &format!("{MIRROR}/{file}"))?;
    }
    Ok(image.text(config_of_image(), CONFIG)?.env("PATH", "/usr/local/bin:/").env("TF_CLI_CONFIG_FILE", CONFIG))
}

/// In an image the providers of the mirror come from there, and no registry is asked about them. All others come from
/// their registries.
fn config_of_image() -> String {
    let mirrored: String = PROVIDERS
        .iter()
        .flat_map(|(provider, _)| HOSTS.map(|host| format!("      \"{host}/hashicorp/{provider}\",\n")))
        .collect();
    format!(
        "provider_installation {{\n  \
           filesystem_mirror {{\n    path = {MIRROR:?}\n    include = [\n{mirrored}    ]\n  }}\n  \
           direct {{\n    exclude = [\n{mirrored}    ]\n  }}\n\
         }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_an_image_the_providers_of_the_mirror_come_from_there_and_all_others_from_the_network() {
        let providers = r#"[
      "registry.opentofu.org/hashicorp/local",
      "registry.terraform.io/hashicorp/local",
      "registry.opentofu.org/hashicorp/random",
      "registry.terraform.io/hashicorp/random",
    ]"#;
        let expected = format!(
            r#"provider_installation {{
  filesystem_mirror {{
    path = "/usr/local/share/providers"
    include = {providers}
  }}
  direct {{
    exclude = {providers}
  }}
}}
"#
        );
        assert_eq!(config_of_image(), expected);
    }
}

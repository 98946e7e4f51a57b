//! The versions of providers that a workspace works with: Terraform's own `.terraform.lock.hcl`, kept from run to run.
//!
//! A version from a registry is kept with its checksums: they are those of its archives, for every platform. A version
//! that was found unpacked in a mirror belongs to the image: it is kept as long as the image contains it. Its checksum
//! is for one platform and one build of the image, and does not apply to another.

use std::collections::BTreeMap;

/// The file, in the root of the module.
pub const LOCKFILE: &str = ".terraform.lock.hcl";
/// The beginning of an archive's checksum.
const OF_ARCHIVE: &str = "\"zh:";

/// A provider in the file.
struct Provider<'a> {
    address: &'a str,
    lines: Vec<&'a str>,
}

impl Provider<'_> {
    fn is_of_registry(&self) -> bool {
        self.lines.iter().any(|line| line.trim_start().starts_with(OF_ARCHIVE))
    }

    fn version(&self) -> Option<&str> {
        let rest = |line: &&str| line.trim_start().strip_prefix("version").is_some_and(|rest| rest.contains('='));
        self.lines.iter().find(|line| rest(line))?.split('"').nth(1)
    }

    fn text(&self, with_checksums: bool) -> String {
        let mut text = String::new();
        let mut within = false;
        for line in &self.lines {
            let begins = line.trim_start().starts_with("hashes");
            within = within || begins;
            if with_checksums || !within {
                text.push_str(line);
                text.push('\n');
            }
            within = within && !line.trim_end().ends_with(']');
        }
        text
    }
}

/// Parses the file. A program writes it, always in the same form; anything in another form is ignored.
fn providers(lockfile: &str) -> Vec<Provider<'_>> {
    let mut all: Vec<Provider<'_>> = Vec::new();
    let mut within = false;
    for line in lockfile.lines() {
        if let Some(address) = line.strip_prefix("provider \"").and_then(|rest| rest.split('"').next()) {
            within = true;
            all.push(Provider { address, lines: Vec::new() });
        }
        if let Some(provider) = all.last_mut().filter(|_| within) {
            provider.lines.push(line);
        }
        within = within && line != "}";
    }
    all
}

/// The versions with which a run begins: all versions, and the checksums of those from a registry.
pub fn reused(lockfile: &str) -> String {
    let all = providers(lockfile);
    all.iter().map(|provider| provider.text(provider.is_of_registry())).collect::<Vec<_>>().join("\n")
}

/// The same without the versions that belong to an image, which may contain others by now; none if there are no such
/// versions.
pub fn of_registries(lockfile: &str) -> Option<String> {
    let all = providers(lockfile);
    let kept = all.iter().filter(|provider| provider.is_of_registry());
    let kept: Vec<String> = kept.map(|provider| provider.text(true)).collect();
    (kept.len() < all.len()).then(|| kept.join("\n"))
}

/// The versions that have changed, as clauses.
pub fn changed(before: &str, after: &str) -> Vec<String> {
    let (before, after) = (providers(before), providers(after));
    let old: BTreeMap<&str, &str> = before.iter().filter_map(|one| Some((one.address, one.version()?))).collect();
    let new = after.iter().filter_map(|one| Some((one.address, one.version()?)));
    let other = new.filter_map(|(address, version)| Some((address, *old.get(address)?, version)));
    other
        .filter(|(_, old, new)| old != new)
        .map(|(address, old, new)| format!("{address} {new} instead of {old}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"# This file is maintained automatically by "tofu init".
# Manual edits may be lost in future updates.

provider "registry.opentofu.org/hashicorp/aws" {
  version     = "5.1.0"
  constraints = "~> 5.0"
  hashes = [
    "h1:a",
    "zh:b",
  ]
}

provider "registry.opentofu.org/hashicorp/local" {
  version = "2.9.0"
  hashes = [
    "h1:c",
  ]
}
"#;

    #[test]
    fn versions_stay_and_so_do_checksums_that_hold_on_every_platform() {
        let expected = r#"provider "registry.opentofu.org/hashicorp/aws" {
  version     = "5.1.0"
  constraints = "~> 5.0"
  hashes = [
    "h1:a",
    "zh:b",
  ]
}

provider "registry.opentofu.org/hashicorp/local" {
  version = "2.9.0"
}
"#;
        assert_eq!(reused(LOCK), expected);
        assert_eq!(reused(""), "");
    }

    #[test]
    fn only_what_belongs_to_an_image_may_change_with_it() {
        let kept = of_registries(LOCK).unwrap();
        assert!(kept.contains("hashicorp/aws") && !kept.contains("hashicorp/local"), "{kept}");
        assert_eq!(of_registries(&kept), None);
        let newer = LOCK.replace("2.9.0", "2.10.0");
        assert_eq!(changed(LOCK, &newer), ["registry.opentofu.org/hashicorp/local 2.10.0 instead of 2.9.0"]);
        assert!(changed(LOCK, LOCK).is_empty() && changed("", LOCK).is_empty());
    }
}

//! The components that can be built: one folder each, with a `go.mod` that pins every version and a
//! `component.yaml` that says what to build.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// All components, in the order of their names.
#[derive(Debug)]
pub(crate) struct Catalogue {
    recipes: Vec<Recipe>,
}

/// How one component is built.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    /// As `go.mod` pins it, e.g. `v1.34.10`.
    pub(crate) version: String,
    /// The oldest Go that builds it, e.g. `1.25.0`.
    pub(crate) go: String,
    spec: Spec,
}

/// The content of `component.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// The module whose version is the component's.
    module: String,
    /// The version of a program of our own, which no `go.mod` pins.
    version: Option<String>,
    /// Name of the program → package it is built from.
    binaries: BTreeMap<String, String>,
    /// Go variables set when linking; `{version}` stands for the pinned version, `{number}` for it without its `v`, `{major}` and
    /// `{minor}` for its first numbers.
    #[serde(default)]
    variables: BTreeMap<String, String>,
    /// Build tags, which leave out what is not needed.
    #[serde(default)]
    tags: Vec<String>,
    /// Whether it has parts in C. They are linked statically, so that the program runs in an image without libraries.
    #[serde(default)]
    cgo: bool,
    /// The folder of the module that holds the definitions of its kinds.
    definitions: Option<String>,
}

impl Catalogue {
    /// The components of this repository: where `OPCORE_COMPONENTS` says, else `hack/components` of the
    /// directory at hand or one above it, else of the sources that this program was compiled from.
    pub(crate) fn load() -> anyhow::Result<Self> {
        Self::read(&Self::folder()?)
    }

    fn folder() -> anyhow::Result<PathBuf> {
        if let Some(dir) = crate::env_path("OPCORE_COMPONENTS") {
            return Ok(dir);
        }
        let compiled_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let here = std::env::current_dir().unwrap_or_default();
        here.ancestors()
            .chain([compiled_from.as_path()])
            .map(|dir| dir.join("hack/components"))
            .find(|dir| dir.is_dir())
            .ok_or_else(|| {
                anyhow!(
                    "The sources of the components are not found: run this inside the repository, \
                     or set OPCORE_COMPONENTS to its hack/components."
                )
            })
    }

    pub(crate) fn read(folder: &Path) -> anyhow::Result<Self> {
        let entries = fs::read_dir(folder)
            .with_context(|| format!("Cannot read the components in {} (OPCORE_COMPONENTS)", folder.display()))?;
        let mut recipes = Vec::new();
        for entry in entries {
            let dir = entry?.path();
            if dir.join("component.yaml").is_file() {
                recipes.push(Recipe::read(&dir)?);
            }
        }
        if recipes.is_empty() {
            bail!("There is no component in {}.", folder.display());
        }
        recipes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { recipes })
    }

    pub(crate) fn all(&self) -> &[Recipe] {
        &self.recipes
    }

    /// A component by its name or by the name of one of its programs.
    pub(crate) fn find(&self, name: &str) -> anyhow::Result<&Recipe> {
        self.recipes.iter().find(|r| r.name == name || r.spec.binaries.contains_key(name)).ok_or_else(|| {
            let known: Vec<&str> = self.recipes.iter().map(|r| r.name.as_str()).collect();
            anyhow!("There is no component {name:?} to build: choose one of {}.", known.join(", "))
        })
    }
}

impl Recipe {
    pub(crate) fn read(dir: &Path) -> anyhow::Result<Self> {
        let file = dir.join("component.yaml");
        let name = dir
            .file_name()
            .and_then(|n| n.to_str())
            .with_context(|| format!("{} has no usable name", dir.display()))?;
        let text = fs::read_to_string(&file).with_context(|| format!("Cannot read {}", file.display()))?;
        let spec: Spec =
            serde_yaml::from_str(&text).with_context(|| format!("{} is not understood", file.display()))?;
        let go_mod = dir.join("go.mod");
        let pins = fs::read_to_string(&go_mod).with_context(|| format!("Cannot read {}", go_mod.display()))?;
        let version = spec
            .version
            .as_deref()
            .or_else(|| pinned(&pins, &spec.module))
            .with_context(|| format!("{} pins no version of {}", go_mod.display(), spec.module))?;
        let go = pins
            .lines()
            .find_map(|l| l.strip_prefix("go "))
            .with_context(|| format!("{} names no version of Go", go_mod.display()))?;
        Ok(Self {
            name: name.to_owned(),
            dir: dir.to_owned(),
            version: version.to_owned(),
            go: go.trim().to_owned(),
            spec,
        })
    }

    /// Program → package.
    pub(crate) fn binaries(&self) -> &BTreeMap<String, String> {
        &self.spec.binaries
    }

    /// The module whose version is the component's.
    pub(crate) fn module(&self) -> &str {
        &self.spec.module
    }

    /// The folder of the module that holds the definitions of its kinds, where it has some.
    pub(crate) fn definitions(&self) -> Option<&str> {
        self.spec.definitions.as_deref()
    }

    /// The build tags, as Go's `-tags` takes them.
    pub(crate) fn tags(&self) -> String {
        self.spec.tags.join(",")
    }

    /// Whether it has parts in C.
    pub(crate) fn cgo(&self) -> bool {
        self.spec.cgo
    }

    /// The flags for the linker: no symbols, no debug information, and the component's own variables.
    pub(crate) fn linker_flags(&self) -> String {
        let number = self.version.trim_start_matches('v');
        let mut parts = number.split('.');
        let major = parts.next().unwrap_or_default();
        let minor = parts.next().unwrap_or_default();
        let variables = self.spec.variables.iter().map(|(variable, value)| {
            let words =
                [("{version}", self.version.as_str()), ("{number}", number), ("{major}", major), ("{minor}", minor)];
            let value = words.iter().fold(value.clone(), |value, (word, meaning)| value.replace(word, meaning));
            format!(" -X '{variable}={value}'")
        });
        let in_c = self.spec.cgo.then(|| " -linkmode external -extldflags '-static'".to_owned());
        std::iter::once("-s -w".to_owned()).chain(in_c).chain(variables).collect()
    }

    /// A digest of every source file in the folder, by name and content, and of the flags for the linker.
    pub(crate) fn fingerprint(&self) -> anyhow::Result<String> {
        let mut files: Vec<PathBuf> = fs::read_dir(&self.dir)
            .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect())
            .with_context(|| format!("Cannot read {}", self.dir.display()))?;
        files.retain(|path| {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
            path.extension().is_some_and(|e| e == "go") || ["go.mod", "go.sum", "component.yaml"].contains(&name)
        });
        files.sort();
        let mut digest = Sha256::new();
        digest.update(self.linker_flags());
        for file in files {
            let content = fs::read(&file).with_context(|| format!("Cannot read {}", file.display()))?;
            let name = file.file_name().unwrap_or_default().as_encoded_bytes();
            // Lengths keep the end of one field from passing for the beginning of the next.
            for field in [name, &content] {
                digest.update(field.len().to_le_bytes());
                digest.update(field);
            }
        }
        Ok(hex(&digest.finalize()))
    }
}

/// The version that a `go.mod` requires of a module.
fn pinned<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().strip_prefix("require ").unwrap_or(line).split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten().filter(|version| version.starts_with('v'))
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_that_go_mod_requires() {
        let go_mod = "go 1.25.0\n\nrequire a.io/x v1.2.3\n\nrequire (\n\ta.io/y/v2 v2.0.1 // indirect\n)\n\
                      replace a.io/z => a.io/z v9.9.9\n";
        assert_eq!(pinned(go_mod, "a.io/x"), Some("v1.2.3"));
        assert_eq!(pinned(go_mod, "a.io/y/v2"), Some("v2.0.1"));
        assert_eq!(pinned(go_mod, "a.io/z"), None, "a replacement is no requirement");
    }

    #[test]
    fn the_components_of_this_repository_are_complete() -> anyhow::Result<()> {
        let catalogue = Catalogue::load()?;
        for program in crate::binaries::CONTROL_PLANE.into_iter().chain(crate::binaries::NODE) {
            catalogue.find(program)?;
        }
        let kubernetes = catalogue.find("kube-apiserver")?;
        let version = &kubernetes.version;
        assert_eq!(version, &catalogue.find("kubelet")?.version, "the node is of the same version");
        assert!(
            kubernetes.linker_flags().contains(&format!("version.gitVersion={version}")),
            "{}",
            kubernetes.linker_flags()
        );
        Ok(())
    }

    #[test]
    fn an_unknown_component_is_answered_with_those_that_exist() -> anyhow::Result<()> {
        let answer = Catalogue::load()?.find("kubelte").map(|r| r.name.clone());
        let text = answer.expect_err("there is none").to_string();
        for name in ["coredns", "etcd", "helm", "kubernetes-node"] {
            assert!(text.contains(name), "{text}");
        }
        Ok(())
    }
}

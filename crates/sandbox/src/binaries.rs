//! Which program files a sandbox runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cache::Cache;
use crate::catalogue::Catalogue;
use crate::node::requirements;
use crate::progress::Progress;
use crate::{Options, Part, parts};

/// The programs of a control plane, and the one that people talk to it with.
pub(crate) const CONTROL_PLANE: [&str; 5] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];

/// What a node runs beside it, in processes and in pods.
pub(crate) const NODE: [&str; 4] = ["kubelet", "kube-proxy", "coredns", "pause"];

/// Name → file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Binaries(BTreeMap<String, PathBuf>);

impl Binaries {
    /// Those of a sandbox, with or without a node and parts: what `KUBEBUILDER_ASSETS` holds, the rest from the
    /// cache, where what is missing is built.
    ///
    /// # Errors
    /// One cannot be built, or this machine cannot run a node or a part: that is said before anything is built.
    pub(crate) async fn for_sandbox(options: &Options, progress: Progress) -> anyhow::Result<Self> {
        parts::check(&options.with, options.node)?;
        if options.node {
            requirements::check()?;
        }
        let of_node = NODE.into_iter().filter(|_| options.node);
        let of_parts = programs(&options.with);
        Self::ensure(CONTROL_PLANE.into_iter().chain(of_node).chain(of_parts), progress).await
    }

    /// Those of parts that are added to a sandbox which runs: its own programs stay as they are.
    ///
    /// # Errors
    /// One cannot be built, or this machine cannot run a part.
    pub(crate) async fn for_parts(parts: &[Part], node: bool, progress: Progress) -> anyhow::Result<Self> {
        parts::check(parts, node)?;
        Self::ensure(programs(parts), progress).await
    }

    /// Those of these names.
    pub(crate) async fn ensure(names: impl Iterator<Item = &str>, progress: Progress) -> anyhow::Result<Self> {
        let assets = assets()?;
        let mut found = BTreeMap::new();
        let mut built: BTreeMap<String, PathBuf> = BTreeMap::new();
        for name in names {
            let given = assets.as_ref().map(|dir| dir.join(name));
            if let Some(file) = given.filter(|file| file.is_file()) {
                found.insert(name.to_owned(), file);
                continue;
            }
            let catalogue = Catalogue::load()?;
            let recipe = catalogue.find(name)?;
            let dir = match built.get(&recipe.name) {
                Some(dir) => dir.clone(),
                None => Cache::from_env()?.ensure(recipe, progress).await?,
            };
            found.insert(name.to_owned(), dir.join(name));
            built.insert(recipe.name.clone(), dir);
        }
        Ok(Self(found))
    }

    /// Those that are at hand without building anything.
    pub(crate) fn at_hand() -> Self {
        let assets = assets().ok().flatten();
        let find = |name: &str| {
            if let Some(file) = assets.as_ref().map(|dir| dir.join(name))
                && file.is_file()
            {
                return Some(file);
            }
            let catalogue = Catalogue::load().ok()?;
            let cached = Cache::from_env().ok()?;
            let dir = cached.any_good(catalogue.find(name).ok()?).ok()??;
            Some(dir.join(name))
        };
        let found = CONTROL_PLANE.iter().filter_map(|name| Some(((*name).to_owned(), find(name)?)));
        Self(found.collect())
    }

    pub(crate) fn files(&self) -> &BTreeMap<String, PathBuf> {
        &self.0
    }

    pub(crate) fn get(&self, name: &str) -> anyhow::Result<&Path> {
        self.0.get(name).map(PathBuf::as_path).with_context(|| format!("This sandbox has no {name}"))
    }

    /// A search path that finds these programs before all others.
    pub(crate) fn search_path(&self) -> anyhow::Result<std::ffi::OsString> {
        let mut dirs: Vec<PathBuf> = Vec::new();
        for dir in self.0.values().filter_map(|file| file.parent()) {
            if !dirs.iter().any(|known| known == dir) {
                dirs.push(dir.to_owned());
            }
        }
        let inherited = std::env::var_os("PATH").unwrap_or_default();
        dirs.extend(std::env::split_paths(&inherited));
        Ok(std::env::join_paths(dirs)?)
    }
}

impl From<BTreeMap<String, PathBuf>> for Binaries {
    fn from(files: BTreeMap<String, PathBuf>) -> Self {
        Self(files)
    }
}

fn programs(parts: &[Part]) -> impl Iterator<Item = &'static str> {
    parts.iter().flat_map(|part| part.definition().programs).copied()
}

/// The directory that envtest's users know.
fn assets() -> anyhow::Result<Option<PathBuf>> {
    let Some(dir) = crate::env_path("KUBEBUILDER_ASSETS") else {
        return Ok(None);
    };
    for name in ["etcd", "kube-apiserver"] {
        if !dir.join(name).is_file() {
            bail!(
                "KUBEBUILDER_ASSETS is {}, which does not contain {name}: correct it, or unset it to use the \
                 components that the sandbox builds.",
                dir.display()
            );
        }
    }
    Ok(Some(dir))
}

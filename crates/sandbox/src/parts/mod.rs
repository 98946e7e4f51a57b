//! What can be added to a sandbox with `--with`: the real programs that operators work with.
//!
//! A part is data: a file in this directory that says what it is, what it needs and how it is started,
//! and its line in [`ALL`]. Building, starting, waiting, logs, status and the end of it are the same for
//! all, and done elsewhere.

mod definitions;
mod facts;
mod flux;
mod git;
mod images;
mod opentofu;
mod pods;
mod prometheus;
mod registry;
mod spire;
mod traefik;

use std::cmp::Ordering;
use std::ffi::OsString;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::binaries::Binaries;
use crate::home::Home;
use crate::image::Image;
use crate::node::{Network, requirements};

pub(crate) use definitions::install as install_definitions;
pub(crate) use facts::{all as facts_of_all, of as facts_of};
pub(crate) use images::{NodeImage, load_all as load_images};
pub(crate) use pods::{Pods, install as install_pods, run as pods_run};

/// All of them, in the order of their names.
const ALL: [Part; 10] = [
    Part(&git::PART),
    Part(&flux::KUSTOMIZE),
    Part(&opentofu::OPENTOFU),
    Part(&prometheus::PART),
    Part(&registry::OPEN),
    Part(&registry::WITH_AUTH),
    Part(&flux::SOURCE),
    Part(&spire::PART),
    Part(&opentofu::TERRAFORM),
    Part(&traefik::PART),
];

/// What the servers with accounts expect. They show that accounts work, and protect nothing: nobody but
/// this machine and its pods reaches these servers.
pub(crate) const USER: &str = "sandbox";
pub(crate) const PASSWORD: &str = "sandbox";

/// Something real beside Kubernetes: a registry, a git server, Prometheus. Known by its name.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Part(&'static Definition);

/// What a part is.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// What it is there for, in a few words.
    pub(crate) about: &'static str,
    /// The programs of `hack/components` that it needs.
    pub(crate) programs: &'static [&'static str],
    /// The programs of the system that it needs, and the Debian packages that bring them.
    pub(crate) packages: &'static [(&'static str, &'static str)],
    /// The programs whose kinds the cluster must have before it starts.
    pub(crate) definitions: &'static [&'static str],
    pub(crate) needs_node: bool,
    /// Writes the files that it needs into its directory.
    pub(crate) prepare: fn(&Place<'_>) -> anyhow::Result<()>,
    pub(crate) work: Work,
    /// What people and programs must know to use it: variables for `sandbox exec`, the most important first.
    pub(crate) facts: fn(&Place<'_>) -> Vec<(&'static str, String)>,
}

/// What it does once it is prepared.
pub(crate) enum Work {
    /// A process of this machine, which answers at a path when it is ready.
    Process { call: fn(&Place<'_>) -> anyhow::Result<Vec<OsString>>, health: &'static str },
    /// Pods on the node.
    Pods(Pods),
    /// Images on the node, of which others make pods.
    Images(&'static [NodeImage]),
    /// Nothing: it is a program to be called, here or in an image that it is put into.
    Files { pack: Pack },
}

/// Puts a part into an image.
pub(crate) type Pack = fn(Image, &Binaries) -> anyhow::Result<Image>;

/// Where a part is started.
pub(crate) struct Place<'a> {
    pub(crate) part: Part,
    pub(crate) home: &'a Home,
    pub(crate) binaries: &'a Binaries,
    /// That of the node, where there is one.
    pub(crate) network: Option<Network>,
    pub(crate) port: u16,
}

impl Place<'_> {
    /// The directory of the part.
    pub(crate) fn dir(&self) -> PathBuf {
        self.home.part(self.part.name())
    }

    /// Where it listens: on the wire to the node, so that this machine and pods reach it, or on loopback.
    pub(crate) fn address(&self) -> Ipv4Addr {
        address(self.network)
    }

    /// A program of ours and its arguments.
    pub(crate) fn call(&self, program: &str, arguments: &[String]) -> anyhow::Result<Vec<OsString>> {
        let program = self.binaries.get(program)?.into();
        Ok(std::iter::once(program).chain(arguments.iter().map(Into::into)).collect())
    }

    /// Address and port.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.address(), self.port)
    }
}

/// Where parts listen.
pub(crate) fn address(network: Option<Network>) -> Ipv4Addr {
    network.map_or(Ipv4Addr::LOCALHOST, Network::host)
}

impl Part {
    /// All of them, in the order of their names.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.into_iter()
    }

    /// Its name, which is also the name of its log.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// What it is there for, in a few words.
    pub const fn about(self) -> &'static str {
        self.0.about
    }

    /// Why it cannot run on this machine, with the remedy.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(self) -> anyhow::Result<()> {
        for (program, package) in self.0.packages {
            if requirements::lookup(program).is_none() {
                bail!("{self} needs the program {program}, which is not found: install the package {package}.");
            }
        }
        Ok(())
    }

    pub(crate) fn definition(self) -> &'static Definition {
        self.0
    }

    /// Whether it is a process of its own.
    pub(crate) fn is_process(self) -> bool {
        matches!(self.0.work, Work::Process { .. })
    }

    /// Whether it is images, of which others make pods.
    pub(crate) fn is_images(self) -> bool {
        matches!(self.0.work, Work::Images(_))
    }

    /// Its pods, where it has some.
    pub(crate) fn pods(self) -> Option<&'static Pods> {
        match &self.0.work {
            Work::Pods(pods) => Some(pods),
            Work::Process { .. } | Work::Images(_) | Work::Files { .. } => None,
        }
    }

    /// How it is put into an image.
    ///
    /// # Errors
    /// It runs beside others, not in their images.
    pub(crate) fn pack(self) -> anyhow::Result<Pack> {
        match self.0.work {
            Work::Files { pack } => Ok(pack),
            Work::Process { .. } | Work::Pods(_) | Work::Images(_) => {
                let fit = ALL.iter().filter(|part| matches!(part.0.work, Work::Files { .. }));
                let fit: Vec<_> = fit.map(|part| part.name()).collect();
                bail!("{self} cannot be put into an image, only {}.", fit.join(", "))
            }
        }
    }
}

/// Writes the files of a part, and what must be known to use it.
pub(crate) fn prepare(place: &Place<'_>) -> anyhow::Result<()> {
    std::fs::create_dir_all(place.dir()).with_context(|| format!("Cannot create {}", place.dir().display()))?;
    (place.part.definition().prepare)(place)?;
    facts::write(place)
}

/// # Errors
/// One of the parts cannot run on this machine, or not without a node.
pub(crate) fn check(parts: &[Part], node: bool) -> anyhow::Result<()> {
    for part in parts {
        if part.0.needs_node && !node {
            bail!("{part} runs in pods, and they need a node: add --node.");
        }
        part.check()?;
    }
    Ok(())
}

/// Parts by their names; one that is named twice is there once.
pub(crate) fn named(names: &[String]) -> anyhow::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for name in names {
        let part = name.parse()?;
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    Ok(parts)
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        ALL.into_iter().find(|part| part.name() == name).ok_or_else(|| {
            let known = ALL.map(Self::name).join(", ");
            anyhow!("There is no part {name:?} to add to a sandbox: choose from {known}.")
        })
    }
}

impl TryFrom<String> for Part {
    type Error = anyhow::Error;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl From<Part> for String {
    fn from(part: Part) -> Self {
        part.name().to_owned()
    }
}

// Two parts are the same when they have the same name.

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Part {}

impl PartialOrd for Part {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Part {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name().cmp(other.name())
    }
}

impl Hash for Part {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_sorted_and_all_their_programs_can_be_built() -> anyhow::Result<()> {
        assert!(ALL.is_sorted());
        let catalogue = crate::catalogue::Catalogue::load()?;
        for program in ALL.iter().flat_map(|part| part.0.programs) {
            catalogue.find(program)?;
        }
        Ok(())
    }

    #[test]
    fn an_unknown_part_is_answered_with_those_that_exist() {
        let answer = "promethues".parse::<Part>().map_err(|e| e.to_string());
        assert_eq!(
            answer,
            Err("There is no part \"promethues\" to add to a sandbox: choose from git, \
                 kustomize-controller, opentofu, prometheus, registry, registry-auth, source-controller, spire, terraform, traefik."
                .to_owned())
        );
    }

    #[test]
    fn what_runs_beside_others_is_not_put_into_their_images() -> anyhow::Result<()> {
        let answer = "git".parse::<Part>()?.pack().map(drop).map_err(|e| e.to_string());
        assert_eq!(answer, Err("git cannot be put into an image, only opentofu, terraform.".to_owned()));
        Ok(())
    }

    #[test]
    fn pods_without_a_node_are_refused_with_the_remedy() -> anyhow::Result<()> {
        let answer = check(&["traefik".parse()?], false).map_err(|e| e.to_string());
        assert_eq!(answer, Err("traefik runs in pods, and they need a node: add --node.".to_owned()));
        Ok(())
    }
}

//! Parts are added to a sandbox: to one that starts, or to one that runs.

use std::time::Instant;

use anyhow::Context;

use super::{ControlPlane, Ground, Observer};
use crate::binaries::Binaries;
use crate::home::Home;
use crate::launch::Lifetime;
use crate::node::{Enclosure, remains};
use crate::parts::{self, Place, Work};
use crate::{Component, Options, Part};

impl ControlPlane {
    /// Takes hold of one that runs, to add parts to it. Dropped, it ends those that it added, unless it was
    /// detached.
    pub(crate) fn attach(home: Home, binaries: Binaries, options: Options) -> anyhow::Result<Self> {
        let plane = Self::new(home, binaries, options, Lifetime::UntilDown);
        if plane.options.node {
            let found = Enclosure::find(&plane.home).zip(remains::network(&plane.home));
            let (enclosure, network) = found.context("The node of this sandbox does not run")?;
            let _ = plane.ground.set(Ground { enclosure, network });
        }
        Ok(plane)
    }

    /// Adds a part and returns when it does its work.
    pub(crate) async fn add(&self, part: Part, observer: &dyn Observer) -> anyhow::Result<()> {
        let component = Component::Part(part);
        let started = Instant::now();
        parts::install_definitions(&self.place(part), || self.client()).await?;
        match &part.definition().work {
            Work::Process { .. } => self.bring_up(component, observer).await?,
            Work::Files { .. } => self.prepare(part)?,
            Work::Images(images) => {
                self.prepare(part)?;
                let enclosure = self.enclosure().with_context(|| format!("{part} needs a node"))?;
                parts::load_images(images, &self.binaries, enclosure, &self.home).await?;
            }
            Work::Pods(pods) => {
                self.prepare(part)?;
                let enclosure = self.enclosure().with_context(|| format!("{part} needs a node"))?;
                parts::install_pods(pods, &self.place(part), enclosure, &self.client().await?).await?;
            }
        }
        if !part.is_process() {
            observer.ready(component, started.elapsed());
        }
        observer.added(part)
    }

    /// Writes the files of a part, and what must be known to use it.
    pub(super) fn prepare(&self, part: Part) -> anyhow::Result<()> {
        parts::prepare(&self.place(part))
    }

    pub(super) fn place(&self, part: Part) -> Place<'_> {
        Place {
            part,
            home: &self.home,
            binaries: &self.binaries,
            network: self.network(),
            port: self.port(Component::Part(part)),
        }
    }
}

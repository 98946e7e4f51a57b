//! `image build`, `image load`.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::style::say;
use super::{ImageBuild, ImageLoad, lifecycle};
use crate::binaries::Binaries;
use crate::image::{self, Layout};
use crate::node::Enclosure;
use crate::progress::Progress;
use crate::{Image, parts};

pub(super) async fn build(args: &ImageBuild) -> anyhow::Result<ExitCode> {
    let mut image = Image::new(&args.image, &args.binary)?;
    let parts = parts::named(&args.with)?;
    // Asked before anything is built, which may take minutes.
    let packs = parts.iter().map(|part| part.pack()).collect::<anyhow::Result<Vec<_>>>()?;
    let binaries = Binaries::for_parts(&parts, false, Progress::detect()).await?;
    for pack in packs {
        image = pack(image, &binaries)?;
    }
    for file in &args.files {
        let Some((source, place)) = file.rsplit_once(':') else {
            bail!("{file:?} is not understood: write SOURCE:PLACE, for example ./my.conf:/etc/my.conf.");
        };
        image = image.file(source, place)?;
    }
    if !args.uncompressed {
        image = image.compressed();
    }
    let layout = image.build()?;
    let output = args.output.clone().unwrap_or_else(|| default_output(&args.image));
    // Beside its place first: a full disk leaves no half an image under its name.
    let write = || -> anyhow::Result<()> {
        let dir = output.parent().filter(|dir| !dir.as_os_str().is_empty());
        let draft = tempfile::NamedTempFile::new_in(dir.unwrap_or_else(|| ".".as_ref()))?;
        layout.write(BufWriter::new(draft.as_file()))?;
        readable(draft.as_file())?;
        draft.persist(&output)?;
        Ok(())
    };
    write().with_context(|| format!("Cannot write {}", output.display()))?;
    say!("{} {}", layout.reference(), layout.digest());
    say!("  {:.1} MB in {}", megabytes(&layout), output.display());
    say!("  put it into a node: sandbox image load {}", output.display());
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn load(args: &ImageLoad) -> anyhow::Result<ExitCode> {
    let existing = lifecycle::usable(&args.which.name)?;
    let name = &existing.name;
    if !existing.state.node {
        bail!("Sandbox {name} has no node to load images into: start one with `sandbox up --node`.");
    }
    let Some(enclosure) = Enclosure::find(&existing.home) else {
        bail!("The node of sandbox {name} does not run: look at it with `sandbox status`.");
    };
    let layout = Layout::read(&args.source, args.rename.as_deref())?;
    let (reference, digest) = (layout.reference(), layout.digest());
    image::load(layout, &enclosure, &existing.home).await?;
    say!("{reference} {digest}");
    say!("  is in sandbox {name}");
    Ok(ExitCode::SUCCESS)
}

/// `my-operator.tar` for `registry.example/team/my-operator:dev`.
fn default_output(image: &str) -> PathBuf {
    let last = image.rsplit('/').next().unwrap_or(image);
    let stem = last.split(':').next().unwrap_or(last);
    format!("{stem}.tar").into()
}

/// An image is not secret, unlike other temporary files.
fn readable(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn megabytes(layout: &Layout) -> f64 {
    layout.size() as f64 / 1e6
}

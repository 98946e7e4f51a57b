//! The images of the operators: built with the same script as for a release, once per run, and loaded into the node.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use sandbox::Sandbox;
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::stage::announce;

/// An image that was loaded into the node.
#[derive(Clone, Debug)]
pub struct Image {
    /// The name without the tag, for example `ghcr.io/opcore-dev/notebook-operator`.
    pub repository: String,
    /// The tag.
    pub tag: String,
    /// `sha256:…`
    pub digest: String,
    /// The file: an OCI layout as a tar archive.
    pub file: PathBuf,
}

/// The root of this repository.
pub fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Builds the image of an operator and loads it into the node, unless this run has already done so.
pub(crate) async fn loaded(operator: &str, sandbox: &Sandbox) -> anyhow::Result<Image> {
    static LOADED: Mutex<BTreeMap<(String, PathBuf), Image>> = Mutex::const_new(BTreeMap::new());
    let mut loaded = LOADED.lock().await;
    let here = (operator.to_owned(), sandbox.kubeconfig().to_owned());
    if let Some(image) = loaded.get(&here) {
        return Ok(image.clone());
    }
    // Checked first, because a build takes minutes.
    let tool = sandbox.is_foreign().then(tool_of_the_cluster).transpose()?;
    let image = build(operator).await?;
    match tool {
        Some(tool) => load_with(&tool, &image.file).await?,
        None => sandbox.load_image_file(&image.file).await?,
    }
    loaded.insert(here, image.clone());
    Ok(image)
}

/// Builds the image of an operator.
///
/// # Errors
/// When it cannot be built, or is larger than images may be.
pub async fn build(operator: &str) -> anyhow::Result<Image> {
    // The output of cargo is shown, because the first build takes minutes.
    let built = Command::new(repository().join("hack/images"))
        .arg(operator)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .await
        .context("Cannot run hack/images")?;
    ensure!(built.status.success(), "hack/images {operator} failed; what it said is above.");
    let line = String::from_utf8(built.stdout)?;
    // The file is last, because its directories may have spaces in their names.
    let [name, digest, size, file] = line.trim_end().splitn(4, ' ').collect::<Vec<_>>()[..] else {
        bail!("hack/images said {line:?}, which is not one image.");
    };
    let (repository_name, tag) = name.rsplit_once(':').context("an image has a tag")?;
    announce(&format!("image {name}: {size} bytes, {digest}"));
    Ok(Image {
        repository: repository_name.to_owned(),
        tag: tag.to_owned(),
        digest: digest.to_owned(),
        file: repository().join(file),
    })
}

/// Only the user knows how to load images into a cluster that is not a sandbox.
fn tool_of_the_cluster() -> anyhow::Result<String> {
    let command = std::env::var("OPCORE_IMAGE_LOAD").ok().filter(|command| !command.trim().is_empty());
    command.context(
        "OPCORE_KUBECONFIG names a cluster that is no sandbox, and images cannot be put there: set OPCORE_IMAGE_LOAD to a \
         command that takes the image's file, for example 'kind load image-archive'.",
    )
}

async fn load_with(command: &str, file: &Path) -> anyhow::Result<()> {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    let done = Command::new(program).args(words).arg(file).stdin(Stdio::null()).output().await;
    let done = done.with_context(|| format!("Cannot run {program} (OPCORE_IMAGE_LOAD)"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{command} {} (OPCORE_IMAGE_LOAD) failed: {}", file.display(), said.trim());
    Ok(())
}

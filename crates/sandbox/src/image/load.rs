//! Images go straight into a node: nothing is pushed or pulled.

use std::process::Stdio;

use anyhow::{Context, bail};
use tokio::process::Command;

use super::Layout;
use crate::home::Home;
use crate::node::settings::{CONTAINERD_SOCKET, snapshotter};
use crate::node::{Enclosure, SYSTEM_PATH, Within};

/// Imports an image into the containerd of a node.
pub(crate) async fn load(layout: Layout, enclosure: &Enclosure, home: &Home) -> anyhow::Result<()> {
    let mut words = enclosure.enter(Within::Node);
    let import = ["ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "import"];
    words.extend(import.into_iter().chain(["--snapshotter", snapshotter(home), "-"]).map(Into::into));
    let (program, arguments) = words.split_first().context("there is no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("Cannot run ctr")?;
    let reference = layout.reference();
    let input = child.stdin.take().context("ctr has no input")?.into_owned_fd()?;
    let written = tokio::task::spawn_blocking(move || {
        let mut pipe = std::io::BufWriter::with_capacity(1 << 16, std::fs::File::from(input));
        layout.write(&mut pipe)
    });
    let done = child.wait_with_output().await?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        if said.contains("no space left on device") {
            bail!("No space is left on the disk for the image {reference} in {}: free some.", home.dir().display());
        }
        bail!("containerd refused the image {reference}: {}.", said.trim().trim_start_matches("ctr: "));
    }
    written.await??;
    Ok(())
}

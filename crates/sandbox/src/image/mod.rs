//! Images without a container engine: a static binary and a few files in one layer, no shell, no root.
//!
//! The same input gives the same bytes: times are zero, names are sorted, owners are numbers.

mod elf;
mod layout;
mod load;
mod name;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::json;

pub(crate) use elf::machine;
pub(crate) use layout::Layout;
pub(crate) use load::load;
use name::Name;

/// Whoever needs no rights: the number that others use for the same.
const NOBODY: u64 = 65532;

/// An image to be built: a program that is linked statically, and files beside it.
#[derive(Clone, Debug)]
pub struct Image {
    name: Name,
    binary: PathBuf,
    /// Place in the image → file.
    files: BTreeMap<String, PathBuf>,
}

impl Image {
    /// An image that runs `binary`, a file named the same in the root of the image.
    ///
    /// # Errors
    /// The name is none: it needs a tag, as in `my-operator:dev`.
    pub fn new(name: &str, binary: impl Into<PathBuf>) -> anyhow::Result<Self> {
        Ok(Self { name: name.parse()?, binary: binary.into(), files: BTreeMap::new() })
    }

    /// Adds a file at a place, e.g. `/etc/ssl/certs/ca-certificates.crt`. It is readable by everybody, and
    /// executable if it is so here.
    ///
    /// # Errors
    /// The place is not an absolute path without `..`, or is taken.
    pub fn file(mut self, source: impl Into<PathBuf>, place: &str) -> anyhow::Result<Self> {
        let path = place.strip_prefix('/').unwrap_or_default();
        if path.is_empty() || path.split('/').any(|part| ["", ".", ".."].contains(&part)) {
            bail!("{place:?} is no place for a file in an image: write an absolute path, for example /etc/my.conf.");
        }
        if self.files.insert(path.to_owned(), source.into()).is_some() {
            bail!("Two files are to be at {place} in the image.");
        }
        Ok(self)
    }

    /// Builds it.
    ///
    /// # Errors
    /// The program cannot run in such an image on this machine: it is no ELF program, made for another
    /// architecture, or needs libraries.
    pub(crate) fn build(&self) -> anyhow::Result<Layout> {
        let binary = fs::read(&self.binary).with_context(|| format!("Cannot read {}", self.binary.display()))?;
        elf::check(&binary, &self.binary)?;
        let program = self
            .binary
            .file_name()
            .and_then(|name| name.to_str())
            .with_context(|| format!("{} has no usable name", self.binary.display()))?;

        let layer = self.layer(program, &binary)?;
        let mut layout = Layout::default();
        let diff = layout::digest(&layer);
        let layer = layout.add("application/vnd.oci.image.layer.v1.tar", layer);
        let config = json!({
            "architecture": elf::machine(),
            "os": "linux",
            "config": {
                "User": format!("{NOBODY}:{NOBODY}"),
                "Entrypoint": [format!("/{program}")],
                "Env": ["PATH=/"],
                "WorkingDir": "/",
            },
            "rootfs": { "type": "layers", "diff_ids": [diff] },
        });
        let config = layout.add("application/vnd.oci.image.config.v1+json", serde_json::to_vec(&config)?);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer],
        });
        let manifest = layout.add("application/vnd.oci.image.manifest.v1+json", serde_json::to_vec(&manifest)?);
        layout.name(manifest, &self.name)?;
        Ok(layout)
    }

    fn layer(&self, program: &str, binary: &[u8]) -> anyhow::Result<Vec<u8>> {
        let passwd = format!("root:x:0:0:root:/:\nnonroot:x:{NOBODY}:{NOBODY}:nonroot:/:\n");
        let mut files: BTreeMap<String, (u32, Vec<u8>)> = BTreeMap::new();
        files.insert("etc/passwd".to_owned(), (0o644, passwd.into_bytes()));
        files.insert(program.to_owned(), (0o755, binary.to_vec()));
        for (place, source) in &self.files {
            let read = || -> std::io::Result<(u32, Vec<u8>)> { Ok((mode(source)?, fs::read(source)?)) };
            let file = read().with_context(|| format!("Cannot read {}", source.display()))?;
            if place == program {
                bail!("/{program} in the image is the program itself: no other file can be there.");
            }
            files.insert(place.clone(), file);
        }
        layout::layer(&files)
    }
}

fn mode(source: &Path) -> std::io::Result<u32> {
    use std::os::unix::fs::PermissionsExt;
    let executable = fs::metadata(source)?.permissions().mode() & 0o100 != 0;
    Ok(if executable { 0o755 } else { 0o644 })
}

#[cfg(test)]
mod tests;

//! The OCI image layout: blobs named by their digests, and an index that says which is the image.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType};

use super::elf;
use super::layer::append;
use super::name::Name;
use crate::catalogue::hex;

/// Where containerd looks for the name.
const NAME: &str = "io.containerd.image.name";

/// The files of a layout.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    files: BTreeMap<String, Vec<u8>>,
}

impl Default for Layout {
    fn default() -> Self {
        let version = br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec();
        Self { files: BTreeMap::from([("oci-layout".to_owned(), version)]) }
    }
}

impl Layout {
    /// Adds a blob, and returns what refers to it.
    pub(super) fn add(&mut self, media_type: &str, content: Vec<u8>) -> Value {
        let digest = digest(&content);
        let descriptor = json!({ "mediaType": media_type, "digest": digest, "size": content.len() });
        self.files.insert(blob(&digest), content);
        descriptor
    }

    /// Says which manifest is the image, and what it is called.
    pub(super) fn name(&mut self, mut manifest: Value, name: &Name) -> anyhow::Result<()> {
        manifest["platform"] = json!({ "architecture": elf::machine(), "os": "linux" });
        manifest["annotations"] = json!({ NAME: name.to_string(), "org.opencontainers.image.ref.name": name.tag() });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [manifest],
        });
        self.files.insert("index.json".to_owned(), serde_json::to_vec(&index)?);
        Ok(())
    }

    /// Reads a layout from a tar or a directory, and checks that it is an image that can run here.
    pub(crate) fn read(source: &Path, name: Option<&str>) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        let read = if source.is_dir() { read_dir(source, "", &mut files) } else { read_tar(source, &mut files) };
        read.with_context(|| format!("Cannot read the image {}", source.display()))?;
        let mut layout = Self { files };
        let shown = source.display();
        let Ok(index) = layout.json("index.json") else {
            bail!("{shown} is not an OCI image layout: it has no index.json. `sandbox image build` makes one.");
        };
        let manifest = match index["manifests"].as_array().map(Vec::as_slice) {
            Some([manifest]) => manifest.clone(),
            other => bail!("{shown} holds {} images: load them one by one.", other.map_or(0, <[Value]>::len)),
        };
        let architecture = layout.architecture(&manifest).with_context(|| format!("{shown} is damaged"))?;
        if architecture != elf::machine() {
            bail!(
                "The image {shown} is built for {architecture}, and this machine is {}: its containers could not \
                 start.",
                elf::machine()
            );
        }
        let given = name.or_else(|| manifest["annotations"][NAME].as_str());
        let Some(given) = given else {
            bail!("The image {shown} has no name: give it one with --as.");
        };
        layout.name(manifest.clone(), &given.parse()?)?;
        Ok(layout)
    }

    /// The platform in the configuration of an image.
    fn architecture(&self, manifest: &Value) -> anyhow::Result<String> {
        let manifest = self.blob(manifest)?;
        let config = self.blob(&manifest["config"])?;
        Ok(config["architecture"].as_str().context("its configuration names no architecture")?.to_owned())
    }

    /// The name that the node will know it by.
    pub(crate) fn reference(&self) -> String {
        let name = self.json("index.json").map(|index| index["manifests"][0]["annotations"][NAME].clone());
        name.ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The digest of its manifest, which is the image's.
    pub(crate) fn digest(&self) -> String {
        let digest = self.json("index.json").map(|index| index["manifests"][0]["digest"].clone());
        digest.ok().and_then(|digest| digest.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The number of bytes of all blobs.
    pub(crate) fn size(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// Writes it as a tar.
    pub(crate) fn write(&self, to: impl Write) -> std::io::Result<()> {
        let mut tar = Builder::new(to);
        for (path, content) in &self.files {
            append(&mut tar, EntryType::Regular, path, 0o644, content)?;
        }
        tar.into_inner()?.flush()
    }

    /// The blob that a descriptor refers to.
    fn blob(&self, descriptor: &Value) -> anyhow::Result<Value> {
        self.json(&blob(descriptor["digest"].as_str().unwrap_or_default()))
    }

    fn json(&self, path: &str) -> anyhow::Result<Value> {
        let content = self.files.get(path).with_context(|| format!("it has no {path}"))?;
        serde_json::from_slice(content).with_context(|| format!("{path} is not understood"))
    }
}

#[cfg(test)]
impl Layout {
    fn manifest(&self) -> anyhow::Result<Value> {
        self.blob(&self.json("index.json")?["manifests"][0])
    }

    /// The configuration of the image.
    pub(super) fn config(&self) -> anyhow::Result<Value> {
        self.blob(&self.manifest()?["config"])
    }

    /// The layers, the lowest first: media type and content.
    pub(super) fn layers(&self) -> anyhow::Result<Vec<(String, &[u8])>> {
        let manifest = self.manifest()?;
        let layers = manifest["layers"].as_array().context("it has no layers")?;
        let content = |layer: &Value| {
            let path = blob(layer["digest"].as_str()?);
            Some((layer["mediaType"].as_str()?.to_owned(), self.files.get(&path)?.as_slice()))
        };
        layers.iter().map(|layer| content(layer).context("a layer is missing")).collect()
    }
}

/// `sha256:…`
pub(super) fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(content)))
}

fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replacen(':', "/", 1))
}

fn read_tar(source: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    for entry in tar::Archive::new(fs::File::open(source)?).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type() == EntryType::Regular {
            let path = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            files.insert(path, content);
        }
    }
    Ok(())
}

fn read_dir(dir: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read_dir(&entry.path(), &format!("{path}/"), files)?;
        } else {
            files.insert(path, fs::read(entry.path())?);
        }
    }
    Ok(())
}

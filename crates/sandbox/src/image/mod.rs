//! Images without a container engine: a static binary and a few files beside it, no shell, and no root unless it is asked for.
//!
//! An image has two layers: what is beside the program, and above it the program, which changes more often. The same
//! input gives the same bytes: times are zero, names are sorted, owners are numbers.

mod elf;
mod layer;
mod layout;
mod load;
mod name;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::json;

pub(crate) use elf::machine;
use layer::Entry;
pub(crate) use layout::Layout;
pub(crate) use load::load;
use name::Name;

/// A user without rights, by the number that is usual for it.
const NOBODY: u64 = 65532;

/// An image to be built: a program that is linked statically, and files beside it.
#[derive(Clone, Debug)]
pub struct Image {
    name: Name,
    binary: PathBuf,
    /// Where the program is, without the leading slash, where that is not the root.
    place: Option<String>,
    /// The arguments that come before those of a container.
    arguments: Vec<String>,
    /// The number of the user and group that it runs as.
    user: u64,
    /// Place in the image, without the leading slash → what is there.
    files: BTreeMap<String, Source>,
    /// Variables of the environment.
    env: BTreeMap<String, String>,
    compressed: bool,
}

/// Where the content of a file comes from.
#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    Text(String),
}

impl Image {
    /// An image that runs `binary`, a file named the same in the root of the image.
    ///
    /// # Errors
    /// The name is none: it needs a tag, as in `my-operator:dev`.
    pub fn new(name: &str, binary: impl Into<PathBuf>) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.parse()?,
            binary: binary.into(),
            place: None,
            arguments: Vec::new(),
            user: NOBODY,
            files: BTreeMap::new(),
            env: BTreeMap::from([("PATH".to_owned(), "/".to_owned())]),
            compressed: false,
        })
    }

    /// Puts the program at a place, e.g. `/opt/my/bin/my-operator`.
    ///
    /// # Errors
    /// The place is not an absolute path without `..`.
    pub fn at(mut self, place: &str) -> anyhow::Result<Self> {
        self.place = Some(path(place)?.to_owned());
        Ok(self)
    }

    /// Calls the program with these arguments, before those of a container.
    #[must_use]
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self
    }

    /// Runs it as the user and the group of this number, where a pod names no other. Without this it is one without rights.
    #[must_use]
    pub fn user(self, user: u64) -> Self {
        Self { user, ..self }
    }

    /// Adds a file at a place, e.g. `/etc/my.conf`. It is readable by everybody, and executable if it is so here. A
    /// file that is put at several places is in the image once.
    ///
    /// # Errors
    /// The place is not an absolute path without `..`, or is taken.
    pub fn file(self, source: impl Into<PathBuf>, place: &str) -> anyhow::Result<Self> {
        self.put(Source::File(source.into()), place)
    }

    /// Adds a file with this content at a place.
    ///
    /// # Errors
    /// The place is not an absolute path without `..`, or is taken.
    pub fn text(self, content: impl Into<String>, place: &str) -> anyhow::Result<Self> {
        self.put(Source::Text(content.into()), place)
    }

    /// Sets a variable of the environment. `PATH` is `/` unless it is set.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Compresses the layers: for files and registries. A node that gets the image at once is served faster without.
    #[must_use]
    pub(crate) fn compressed(self) -> Self {
        Self { compressed: true, ..self }
    }

    fn put(mut self, source: Source, place: &str) -> anyhow::Result<Self> {
        if self.files.insert(path(place)?.to_owned(), source).is_some() {
            bail!("Two files have the path {place} in the image: give each a path of its own.");
        }
        Ok(self)
    }

    /// Builds it.
    ///
    /// # Errors
    /// The program cannot run in such an image on this machine: it is not an ELF program, made for another
    /// architecture, or needs libraries.
    pub(crate) fn build(&self) -> anyhow::Result<Layout> {
        let binary = fs::read(&self.binary).with_context(|| format!("Cannot read {}", self.binary.display()))?;
        elf::check(&binary, &self.binary)?;
        let in_root = self.binary.file_name().and_then(|name| name.to_str());
        let program = self
            .place
            .as_deref()
            .or(in_root)
            .with_context(|| format!("{} has no usable name", self.binary.display()))?;

        let beside = layer::pack(self.beside(program)?)?;
        let own = layer::pack(BTreeMap::from([(program.to_owned(), Entry::File(0o755, binary))]))?;
        let mut layout = Layout::default();
        let (mut layers, mut contents) = (Vec::new(), Vec::new());
        for layer in [beside, own] {
            contents.push(layout::digest(&layer));
            layers.push(if self.compressed {
                layout.add("application/vnd.oci.image.layer.v1.tar+gzip", layer::compress(&layer)?)
            } else {
                layout.add("application/vnd.oci.image.layer.v1.tar", layer)
            });
        }
        let env: Vec<String> = self.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let entrypoint: Vec<String> = std::iter::once(format!("/{program}")).chain(self.arguments.clone()).collect();
        let config = json!({
            "architecture": elf::machine(),
            "os": "linux",
            "config": {
                "User": format!("{0}:{0}", self.user),
                "Entrypoint": entrypoint,
                "Env": env,
                "WorkingDir": "/",
            },
            "rootfs": { "type": "layers", "diff_ids": contents },
        });
        let config = layout.add("application/vnd.oci.image.config.v1+json", serde_json::to_vec(&config)?);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": layers,
        });
        let manifest = layout.add("application/vnd.oci.image.manifest.v1+json", serde_json::to_vec(&manifest)?);
        layout.name(manifest, &self.name)?;
        Ok(layout)
    }

    /// Everything but the program.
    fn beside(&self, program: &str) -> anyhow::Result<BTreeMap<String, Entry>> {
        let passwd = format!("root:x:0:0:root:/:\nnonroot:x:{NOBODY}:{NOBODY}:nonroot:/:\n");
        let mut entries = BTreeMap::from([
            ("etc/passwd".to_owned(), Entry::File(0o644, passwd.into_bytes())),
            ("tmp".to_owned(), Entry::Directory(0o1777)),
        ]);
        let mut first: BTreeMap<&Path, &String> = BTreeMap::new();
        for (place, source) in &self.files {
            let entry = match source {
                Source::Text(content) => Entry::File(0o644, content.clone().into_bytes()),
                Source::File(file) => {
                    let other = *first.entry(file).or_insert(place);
                    let read = || -> std::io::Result<Entry> {
                        let mode = mode(file)?;
                        Ok(if other == place {
                            Entry::File(mode, fs::read(file)?)
                        } else {
                            Entry::Same(mode, other.clone())
                        })
                    };
                    read().with_context(|| format!("Cannot read {}", file.display()))?
                }
            };
            entries.insert(place.clone(), entry);
        }
        let is_below = |place: &str, above: &str| place.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'));
        let in_the_way = |place: &String| place == program || is_below(place, program) || is_below(program, place);
        if entries.keys().any(in_the_way) {
            bail!("/{program} in the image is the program itself: nothing else can be there.");
        }
        Ok(entries)
    }
}

/// A place in an image without its leading slash.
fn path(place: &str) -> anyhow::Result<&str> {
    let path = place.strip_prefix('/').unwrap_or_default();
    if path.is_empty() || path.split('/').any(|part| ["", ".", ".."].contains(&part)) {
        bail!(
            "{place:?} is not a valid path for a file in an image: write an absolute path, for example /etc/my.conf."
        );
    }
    Ok(path)
}

fn mode(source: &Path) -> std::io::Result<u32> {
    use std::os::unix::fs::PermissionsExt;
    let executable = fs::metadata(source)?.permissions().mode() & 0o100 != 0;
    Ok(if executable { 0o755 } else { 0o644 })
}

#[cfg(test)]
mod tests;

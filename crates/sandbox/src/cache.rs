//! Components that were built once and are used by every sandbox of this user.
//!
//! An entry is a directory named after what went into it. It is built beside its place and moved there
//! when complete, so one that is built in part is never visible; and it carries a manifest, so a damaged one is
//! noticed. Size and modification time of every program are compared at each use, which takes
//! microseconds; where the time differs, and in `sandbox doctor`, the content's digest decides.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::catalogue::{Recipe, hex};
use crate::dirlock;
use crate::golang::{self, BUILD_SETTINGS, DEFINITIONS, Toolchain};
use crate::progress::{Progress, Step};

/// How the names of directories begin in which a build goes on.
const WORKSHOP: &str = ".building-";
/// The prefix of directories in which a damaged entry is taken away.
const BIN: &str = ".damaged-";

/// The directory that holds the entries.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    dir: PathBuf,
}

/// What an entry must contain.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    /// Go's version and target.
    built_with: String,
    binaries: BTreeMap<String, Fingerprint>,
    #[serde(default)]
    definitions: BTreeMap<String, Fingerprint>,
}

impl Manifest {
    /// All that an entry holds: where it is, its name, and what it must be.
    fn files<'a>(&'a self, entry: &'a Path) -> impl Iterator<Item = (PathBuf, &'a String, &'a Fingerprint)> {
        let of = |folder: &'static str, files: &'a BTreeMap<String, Fingerprint>| {
            files.iter().map(move |(name, expected)| (entry.join(folder).join(name), name, expected))
        };
        of("bin", &self.binaries).chain(of(DEFINITIONS, &self.definitions))
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Fingerprint {
    size: u64,
    /// Nanoseconds since 1970.
    modified: i128,
    sha256: String,
}

/// How thoroughly an entry is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scrutiny {
    /// Digests only where the modification time differs.
    Quick,
    /// Digests of everything.
    Full,
}

/// What was found at the place of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Absent,
    Intact,
    /// The content is right, the modification times are not: the cache was copied.
    Moved,
    Corrupt(String),
}

impl Cache {
    /// `OPCORE_CACHE`, else `opcore` in the user's cache directory.
    pub(crate) fn from_env() -> anyhow::Result<Self> {
        let dir = crate::env_path("OPCORE_CACHE")
            .or_else(|| crate::user_dir("XDG_CACHE_HOME", ".cache"))
            .context("There is no place for the cache: set OPCORE_CACHE or HOME.")?;
        Ok(Self::at(dir))
    }

    pub(crate) fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory with the programs of a component, built now unless it was built before.
    pub(crate) async fn ensure(&self, recipe: &Recipe, progress: Progress) -> anyhow::Result<PathBuf> {
        let toolchain = match Toolchain::find().await {
            Ok(toolchain) => toolchain,
            // What is already built from the same sources needs no Go.
            Err(missing) => return self.any_good(recipe)?.ok_or(missing),
        };
        let entry = self.entry(recipe, Some(&toolchain))?;
        if inspect(&entry, Scrutiny::Quick) == Condition::Intact {
            return Ok(entry.join("bin"));
        }
        let _lock = self.lock(&entry, recipe, progress).await?;
        match inspect(&entry, Scrutiny::Quick) {
            Condition::Intact => return Ok(entry.join("bin")),
            Condition::Moved => {
                write_manifest(&entry, &toolchain, recipe)?;
                return Ok(entry.join("bin"));
            }
            Condition::Absent => {}
            Condition::Corrupt(what) => {
                progress
                    .say(&recipe.name, &format!("the cached build is damaged ({what}): it is removed and built anew"));
                self.discard(&entry)?;
            }
        }
        toolchain.serves(recipe)?;
        self.build(&entry, recipe, &toolchain, progress).await?;
        Ok(entry.join("bin"))
    }

    /// Where the build of a component is kept; without a toolchain, the beginning of all such names.
    fn entry(&self, recipe: &Recipe, toolchain: Option<&Toolchain>) -> anyhow::Result<PathBuf> {
        let sources = recipe.fingerprint()?;
        let mut name = format!("{}-{}-{}-", recipe.name, recipe.version, &sources[..16]);
        if let Some(toolchain) = toolchain {
            let settings = format!("{}\n{}\n{BUILD_SETTINGS:?}", toolchain.version, toolchain.target);
            name.push_str(&hex(&Sha256::digest(settings.as_bytes()))[..8]);
        }
        Ok(self.dir.join("components").join(name))
    }

    /// A good build of the same sources by any Go.
    pub(crate) fn any_good(&self, recipe: &Recipe) -> anyhow::Result<Option<PathBuf>> {
        let stem = self.entry(recipe, None)?;
        let stem = stem.file_name().unwrap_or_default().as_encoded_bytes();
        let Ok(entries) = fs::read_dir(self.dir.join("components")) else {
            return Ok(None);
        };
        Ok(entries
            .flatten()
            .filter(|e| e.file_name().as_encoded_bytes().starts_with(stem))
            .map(|e| e.path())
            .find(|path| matches!(inspect(path, Scrutiny::Quick), Condition::Intact | Condition::Moved))
            .map(|path| path.join("bin")))
    }

    /// The state of the entry that [`Cache::ensure`] would use.
    pub(crate) async fn condition(&self, recipe: &Recipe, scrutiny: Scrutiny) -> anyhow::Result<Condition> {
        match Toolchain::find().await {
            Ok(toolchain) => Ok(inspect(&self.entry(recipe, Some(&toolchain))?, scrutiny)),
            Err(_) if self.any_good(recipe)?.is_some() => Ok(Condition::Intact),
            Err(_) => Ok(Condition::Absent),
        }
    }

    /// One process at a time builds an entry. The kernel frees the lock of a process that died.
    async fn lock(&self, entry: &Path, recipe: &Recipe, progress: Progress) -> anyhow::Result<File> {
        let parent = self.dir.join("components");
        let refused =
            || format!("The cache {} cannot be written (set OPCORE_CACHE to a directory that can)", self.dir.display());
        fs::create_dir_all(&parent).with_context(refused)?;
        let mut path = entry.as_os_str().to_owned();
        path.push(".lock");
        let file = OpenOptions::new().create(true).append(true).open(PathBuf::from(path)).with_context(refused)?;
        let mut waiting = None;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(error).with_context(refused),
                Err(TryLockError::WouldBlock) => {
                    let text = "another process builds it: waiting";
                    match &mut waiting {
                        None => {
                            let mut step = progress.step(&recipe.name);
                            step.announce(text);
                            waiting = Some(step);
                        }
                        Some(step) => step.update(text),
                    }
                }
            }
            // Polled rather than blocked in, so that an interrupted command ends at once.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn build(
        &self,
        entry: &Path,
        recipe: &Recipe,
        toolchain: &Toolchain,
        progress: Progress,
    ) -> anyhow::Result<()> {
        let mut step = progress.step(&recipe.name);
        match self.build_beside(entry, recipe, toolchain, &mut step).await {
            Ok(()) => {
                step.done(&format!("{} built in", recipe.version));
                Ok(())
            }
            Err(error) if is_full(&error) => Err(golang::no_space(&recipe.name)),
            Err(error) => Err(error),
        }
    }

    /// Builds in a directory of its own, which is moved into place as the last step.
    async fn build_beside(
        &self,
        entry: &Path,
        recipe: &Recipe,
        toolchain: &Toolchain,
        step: &mut Step,
    ) -> anyhow::Result<()> {
        let parent = self.dir.join("components");
        for prefix in [WORKSHOP, BIN] {
            dirlock::sweep(&parent, prefix, |_| {});
        }
        let open = Permissions::from_mode(0o755);
        let workshop = tempfile::Builder::new().prefix(WORKSHOP).permissions(open).tempdir_in(parent)?;
        let lock = dirlock::take(workshop.path())?;
        for dir in ["bin", "tmp"] {
            fs::create_dir(workshop.path().join(dir))?;
        }
        toolchain.build(recipe, workshop.path(), step).await?;
        write_manifest(workshop.path(), toolchain, recipe)?;
        fs::remove_dir_all(workshop.path().join("tmp"))?;
        fs::remove_file(workshop.path().join(dirlock::NAME))?;
        fs::rename(workshop.path(), entry).with_context(|| format!("Cannot move the build to {}", entry.display()))?;
        // It is in its place: nothing is left to remove.
        let _ = workshop.keep();
        drop(lock);
        Ok(())
    }

    /// Removes an entry: first its name, so that it is never visible in part.
    fn discard(&self, entry: &Path) -> anyhow::Result<()> {
        let bin = tempfile::Builder::new().prefix(BIN).tempdir_in(self.dir.join("components"))?;
        fs::rename(entry, bin.path().join("entry")).with_context(|| format!("Cannot remove {}", entry.display()))
    }
}

fn is_full(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::StorageFull)
}

/// Compares an entry with its manifest.
fn inspect(entry: &Path, scrutiny: Scrutiny) -> Condition {
    if !entry.exists() {
        return Condition::Absent;
    }
    let manifest = fs::read(entry.join("manifest.json"))
        .map_err(|e| e.to_string())
        .and_then(|text| serde_json::from_slice::<Manifest>(&text).map_err(|e| e.to_string()));
    let manifest = match manifest {
        Ok(manifest) if !manifest.binaries.is_empty() => manifest,
        Ok(_) => return Condition::Corrupt("its manifest is empty".to_owned()),
        Err(error) => return Condition::Corrupt(format!("its manifest cannot be read: {error}")),
    };
    let mut moved = false;
    for (path, name, expected) in manifest.files(entry) {
        let Ok(metadata) = fs::metadata(&path) else {
            return Condition::Corrupt(format!("{name} is missing"));
        };
        if metadata.len() != expected.size {
            return Condition::Corrupt(format!("{name} has {} bytes instead of {}", metadata.len(), expected.size));
        }
        let touched = modified(&metadata) != expected.modified;
        moved |= touched;
        if (touched || scrutiny == Scrutiny::Full)
            && File::open(&path).and_then(|file| digest(&file)).ok().as_ref() != Some(&expected.sha256)
        {
            return Condition::Corrupt(format!("{name} has been changed"));
        }
    }
    if moved { Condition::Moved } else { Condition::Intact }
}

/// Writes down what an entry holds, when all of it is on the disk.
fn write_manifest(entry: &Path, toolchain: &Toolchain, recipe: &Recipe) -> anyhow::Result<()> {
    let mut binaries = BTreeMap::new();
    for name in recipe.binaries().keys() {
        let file = File::open(entry.join("bin").join(name));
        let file = file.map_err(|_| anyhow!("Building {} did not produce {name}.", recipe.name))?;
        binaries.insert(name.clone(), fingerprint(&file)?);
    }
    let mut definitions = BTreeMap::new();
    if recipe.definitions().is_some() {
        for file in fs::read_dir(entry.join(DEFINITIONS))? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            definitions.insert(name, fingerprint(&File::open(file.path())?)?);
        }
    }
    let built_with = format!("go{} {}", toolchain.version, toolchain.target);
    let manifest = Manifest { built_with, binaries, definitions };
    let place = entry.join("manifest.json");
    let draft = entry.join("manifest.json.new");
    fs::write(&draft, serde_json::to_vec_pretty(&manifest)?)?;
    File::open(&draft)?.sync_all()?;
    fs::rename(draft, place)?;
    Ok(())
}

/// What a file is, when all of it is on the disk.
fn fingerprint(file: &File) -> anyhow::Result<Fingerprint> {
    file.sync_all()?;
    let metadata = file.metadata()?;
    Ok(Fingerprint { size: metadata.len(), modified: modified(&metadata), sha256: digest(file)? })
}

fn modified(metadata: &fs::Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

fn digest(mut file: &File) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(hex(&digest.finalize())),
            n => digest.update(&buffer[..n]),
        }
    }
}

#[cfg(test)]
mod tests;

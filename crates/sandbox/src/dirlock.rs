//! Directories that belong to a living process, and those whose process is gone.
//!
//! The owner holds a lock on a file inside. The kernel frees it when the owner ends, however it ends, and
//! unlike a process number it is never reused by another process.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long a directory may be without its lock: its owner makes that right after the directory.
const MAKING: Duration = Duration::from_mins(10);

/// The name of the file.
pub(crate) const NAME: &str = "lock";

/// Takes possession of a directory for as long as the file is held. The lock is held from the moment it is
/// seen.
pub(crate) fn take(dir: &Path) -> io::Result<File> {
    let draft = dir.join("lock.new");
    let file = File::create(&draft)?;
    file.lock()?;
    fs::rename(draft, dir.join(NAME))?;
    Ok(file)
}

/// Whether the owner of a directory is gone.
pub(crate) fn is_abandoned(dir: &Path) -> bool {
    match File::open(dir.join(NAME)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::metadata(dir).and_then(|m| m.modified()).is_ok_and(|made| made.elapsed().is_ok_and(|age| age > MAKING))
        }
        Err(_) => false,
    }
}

/// Removes those directories beside each other whose names begin with `prefix` and whose owners are gone.
/// `before` is called with each of them first.
pub(crate) fn sweep(parent: &Path, prefix: &str, before: impl Fn(&Path)) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with(prefix) && is_abandoned(&path) {
            before(&path);
            // What belongs to another user cannot be removed, and is not ours to complain about.
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_owner_left_is_removed_and_what_a_living_one_uses_is_not() -> anyhow::Result<()> {
        let parent = tempfile::tempdir()?;
        let [used, left, being_made, foreign] =
            ["mine-used", "mine-left", "mine-new", "foreign"].map(|name| parent.path().join(name));
        for dir in [&used, &left, &being_made, &foreign] {
            fs::create_dir(dir)?;
        }
        let lock = take(&used)?;
        // Not just closed: another test that is starting a process has the file for a moment too.
        take(&left)?.unlock()?;
        take(&foreign)?.unlock()?;

        sweep(parent.path(), "mine-", |_| {});

        assert!(used.exists() && foreign.exists() && being_made.exists());
        assert!(!left.exists());
        drop(lock);
        Ok(())
    }
}

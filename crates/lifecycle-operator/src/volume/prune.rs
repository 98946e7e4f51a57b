//! The end of `backup --keep`: removes what is old.

use super::error::VolumeError;
use super::paths;
use super::shelf::{self, Kept, Shelf};

/// Backups that differ in one of these are not of the same server: neither makes the other superfluous.
const OWN: [&str; 2] = ["trustDomain", "clusterName"];

/// Removes the oldest backups of the same server, so that `keep` are left, of which `own` is one. Also removes parts
/// that older attempts left. Returns the names of the backups that were removed.
///
/// A backup loses its name before it loses its first file, so that one with a name is always whole.
pub fn prune(shelf: &Shelf<'_>, own: &Kept, keep: usize) -> Result<Vec<String>, VolumeError> {
    remove_parts(shelf, own)?;
    let mut others = Vec::new();
    for name in shelf.names()?.into_iter().filter(|name| *name != own.manifest.name) {
        match shelf.load(&name) {
            Ok(kept) if OWN.iter().all(|key| kept.manifest.about.get(*key) == own.manifest.about.get(*key)) => {
                others.push(kept);
            }
            // It is for a person to say what becomes of a damaged one.
            Ok(_) | Err(VolumeError::Damaged(_)) => {}
            Err(error) => return Err(error),
        }
    }
    others.sort_by_cached_key(|kept| (kept.manifest.taken_at, kept.manifest.name.clone()));
    others.truncate((others.len() + 1).saturating_sub(keep.max(1)));
    let mut removed = Vec::new();
    for name in others.into_iter().map(|kept| kept.manifest.name) {
        let retired = shelf::retired(&name);
        shelf.tree.rename_to_unused(&name, &retired)?;
        shelf.tree.sync("")?;
        shelf.tree.remove_all(&retired)?;
        removed.push(name);
    }
    if !removed.is_empty() {
        shelf.tree.sync("")?;
    }
    Ok(removed)
}

fn remove_parts(shelf: &Shelf<'_>, own: &Kept) -> Result<(), VolumeError> {
    for part in shelf.tree.names("")? {
        let named = |suffix: &str| {
            let name = part.strip_prefix('.')?.strip_suffix(suffix)?;
            paths::backup_name(name).is_ok().then_some(name)
        };
        let since_then = |seconds: i64| seconds > own.manifest.taken_at.as_second();
        let remove = match shelf.tree.look(&part)? {
            Some(_) if named(".removed").is_some() => true,
            Some(look) if named(".partial").is_some() => !since_then(look.changed.0),
            _ => false,
        };
        if remove {
            shelf.tree.remove_all(&part)?;
        }
    }
    Ok(())
}

//! What the server has in its data directory.

use std::collections::BTreeMap;

use super::error::VolumeError;
use super::manifest::ENTRIES;
use super::marks::{self, RESTORING};
use super::tree::{Kind, Look, Tree};

/// What is in a data directory, by path.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Regular files.
    pub files: BTreeMap<String, Look>,
    /// Directories, with their permissions.
    pub directories: BTreeMap<String, u32>,
    /// Sockets and pipes.
    pub endpoints: Vec<String>,
    /// Symbolic links and devices.
    pub others: Vec<String>,
    /// Whether a restore was begun and not finished.
    pub restoring: bool,
}

impl Found {
    fn entries(&self) -> usize {
        self.files.len() + self.directories.len() + self.endpoints.len() + self.others.len()
    }
}

/// Looks at everything in a data directory, but for what is not the server's.
///
/// # Errors
///
/// When something cannot be looked at, or there is too much.
pub fn scan(data: &Tree<'_>) -> Result<Found, VolumeError> {
    let mut found = Found { restoring: data.look(RESTORING)?.is_some(), ..Found::default() };
    let mut open = vec![String::new()];
    while let Some(directory) = open.pop() {
        for name in data.names(&directory)? {
            let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            if marks::is_ours(&path) {
                continue;
            }
            // It went away between two looks.
            let Some(look) = data.look(&path)? else { continue };
            match look.kind {
                Kind::File => drop(found.files.insert(path, look)),
                Kind::Directory => {
                    found.directories.insert(path.clone(), look.mode);
                    open.push(path);
                }
                Kind::Endpoint => found.endpoints.push(path),
                Kind::Other => found.others.push(path),
            }
            if found.entries() > ENTRIES {
                return Err(VolumeError::Refused(format!(
                    "{} holds more than {ENTRIES} files and directories: this is not the data of a server alone.",
                    data.path_of("").display()
                )));
            }
        }
    }
    Ok(found)
}

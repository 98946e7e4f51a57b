//! Which paths and names are accepted: those that cannot lead out of a directory.

/// The longest path within a directory, in bytes.
pub const PATH_BYTES: usize = 1024;
/// The deepest path within a directory, in components.
pub const DEPTH: usize = 16;
/// The longest name of a backup, in bytes: it gets a prefix and a suffix while it is written.
const NAME_BYTES: usize = 200;
/// Means the newest backup, so no backup has this name.
pub const LATEST: &str = "latest";

/// Checks that a path stays within the directory that it is meant in.
///
/// # Errors
///
/// When it does not, or is too long or too deep.
pub fn confined(path: &str) -> Result<(), String> {
    let fault = if path.len() > PATH_BYTES {
        "it is too long"
    } else if path.contains('\0') {
        "it contains a zero byte"
    } else if path.split('/').count() > DEPTH {
        "it is too deep"
    } else if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        "it could lead out of its directory"
    } else if path.split('/').any(|part| part.len() > 255) {
        "a part of it is too long"
    } else {
        return Ok(());
    };
    let start: String = path.chars().take(100).collect();
    Err(format!("the path {start:?} is not accepted: {fault}"))
}

/// The directories that a path goes through, outermost first.
pub fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(slash, _)| path.get(..slash))
}

/// Checks the name of a backup.
///
/// # Errors
///
/// When it could be mistaken for something else.
pub fn backup_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && name.len() <= NAME_BYTES && name.chars().all(allowed) && name != LATEST {
        return Ok(());
    }
    let start: String = name.chars().take(100).collect();
    Err(format!(
        "{start:?} is no name of a backup: it has letters, digits, dots, dashes and underscores, at most {NAME_BYTES}, \
         begins with a letter or digit, and is not {LATEST:?}"
    ))
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_that_lead_out_are_not_accepted() {
        for path in ["", "/", "/etc/passwd", "..", "a/../b", "a/..", "./a", "a//b", "a/", "a\0b"] {
            assert!(confined(path).is_err(), "{path:?}");
        }
        assert!(confined(&"a/".repeat(DEPTH)).is_err() && confined(&"a".repeat(256)).is_err());
        for path in ["a", "a/b", "..a", "a b", "é", ".hidden", "a\\..\\b"] {
            assert_eq!(confined(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn a_path_goes_through_the_directories_above_it() {
        assert_eq!(above("a/b/c").collect::<Vec<_>>(), ["a", "a/b"]);
        assert_eq!(above("a").count(), 0);
    }

    #[test]
    fn names_cannot_be_mistaken() {
        for name in ["", "latest", ".a", "-a", "a/b", "..", "a b", "é"] {
            assert!(backup_name(name).is_err(), "{name:?}");
        }
        for name in ["a", "spire-20261119T061500Z", "0.1_x", "latest1"] {
            assert_eq!(backup_name(name), Ok(()), "{name:?}");
        }
        assert!(backup_name(&"a".repeat(201)).is_err());
    }

    proptest! {
        #[test]
        fn an_accepted_path_has_only_normal_parts(path in "[./a\\x00]{0,40}") {
            if confined(&path).is_ok() {
                let parts: Vec<_> = Path::new(&path).components().collect();
                prop_assert!(!parts.is_empty());
                prop_assert!(parts.iter().all(|part| matches!(part, Component::Normal(_))));
            }
        }
    }
}

//! What the commands do on volumes as they are found.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::disk::{Change, Disk, Stop};
use super::error::VolumeError;
use super::list::list;
use super::marks::RESTORED;
use super::report::{Outcome, Report};
use super::testing::{Backup, Full, Plain, Volumes};

fn fault(report: Result<Report, VolumeError>) -> String {
    report.unwrap_err().to_string()
}

/// A server whose data are in backup `b`, with a data directory that is empty again.
fn cleared() -> Volumes {
    let volumes = Volumes::of_a_server();
    volumes.backup("b").unwrap();
    assert_eq!(volumes.clear("b").unwrap().result, Outcome::Cleared);
    volumes
}

#[test]
fn a_backup_has_all_files_and_nothing_else() {
    let volumes = Volumes::of_a_server();
    let _server = UnixListener::bind(volumes.data().join("api.sock")).unwrap();
    fs::write(volumes.data().join("lost+found/piece"), "of the file system").unwrap();
    fs::write(volumes.data().join(RESTORED), "{}").unwrap();
    fs::create_dir(volumes.data().join("empty")).unwrap();
    let report = volumes.backup("b").unwrap();
    assert_eq!((report.result, report.files, report.bytes), (Outcome::BackedUp, Some(3), Some(59)));
    assert_eq!(report.message, "Backup b holds 3 files with 59 bytes; their checksums are right.");
    assert_eq!(report.about["trustDomain"], "example.org");
    let copies = volumes.copies();
    let paths: Vec<_> = copies.keys().map(String::as_str).collect();
    let expected =
        ["data/datastore.sqlite3", "data/journal/0/x", "data/keys.json", "manifest.json", "manifest.json.sha256"];
    assert_eq!(paths, expected.map(|path| format!("b/{path}")));
    let manifest: serde_json::Value = serde_json::from_slice(&copies["b/manifest.json"]).unwrap();
    assert_eq!(manifest["directories"].as_array().unwrap().len(), 3);
    assert_eq!((&manifest["files"][2]["path"], &manifest["files"][2]["mode"]), (&"keys.json".into(), &"0600".into()));
    let secret = fs::metadata(volumes.backups().join("b/data/keys.json")).unwrap().permissions().mode();
    assert_eq!(secret & 0o777, 0o600);
}

#[test]
fn the_same_backup_is_made_once() {
    let volumes = Volumes::of_a_server();
    let first = volumes.backup("b").unwrap();
    let later = volumes.backup_on(&Plain, Backup { second: 1_900_000_000, ..Backup::named("b") }).unwrap();
    assert_eq!(later, first);
}

#[test]
fn a_name_is_never_given_to_other_content() {
    let volumes = Volumes::of_a_server();
    volumes.backup("b").unwrap();
    let before = volumes.copies();
    let about = [("trustDomain", "example.com")];
    let error = fault(volumes.backup_on(&Plain, Backup { about: &about, ..Backup::named("b") }));
    assert!(error.contains("other content") && error.contains("example.com"), "{error}");
    volumes.put("keys.json", "the keys of our CA", 0o600);
    let error = fault(volumes.backup("b"));
    assert!(error.contains("no such keys.json") && error.contains("use another name"), "{error}");
    fs::remove_file(volumes.data().join("keys.json")).unwrap();
    let error = fault(volumes.backup("b"));
    assert!(error.contains("it has keys.json"), "{error}");
    assert_eq!(volumes.copies(), before);
    fs::create_dir(volumes.backups().join("by-hand")).unwrap();
    let error = fault(volumes.backup("by-hand"));
    assert!(error.contains("manifest.json cannot be used: it is missing"), "{error}");
}

#[test]
fn an_empty_directory_is_not_backed_up() {
    let volumes = Volumes::empty();
    fs::create_dir_all(volumes.data().join("lost+found")).unwrap();
    fs::create_dir_all(volumes.data().join("empty/too")).unwrap();
    assert_eq!(volumes.backup("b").unwrap().result, Outcome::Empty);
    assert!(volumes.names().is_empty());
}

#[test]
fn what_cannot_be_backed_up_is_named() {
    let volumes = Volumes::of_a_server();
    symlink("/var/lib/datastore.sqlite3", volumes.data().join("link")).unwrap();
    let error = fault(volumes.backup("b"));
    assert!(error.contains("data/link is a symbolic link"), "{error}");
    fs::remove_file(volumes.data().join("link")).unwrap();
    let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"bad\xff");
    fs::write(volumes.data().join(name), "").unwrap();
    let error = fault(volumes.backup("b"));
    assert!(error.contains("not UTF-8"), "{error}");
    for name in ["../b", "latest", ""] {
        assert!(fault(volumes.backup(name)).contains("no name of a backup"));
    }
}

#[test]
fn no_backup_is_made_within_its_data() {
    let mut volumes = Volumes::of_a_server();
    let inside = volumes.data().join("backups");
    fs::create_dir(&inside).unwrap();
    fs::remove_dir(volumes.backups()).unwrap();
    symlink(&inside, volumes.backups()).unwrap();
    assert!(fault(volumes.backup("b")).contains("mount the backups elsewhere"));
    volumes = Volumes::of_a_server();
    fs::remove_dir(volumes.backups()).unwrap();
    let error = fault(volumes.backup("b"));
    assert!(error.contains("See that the right volume is mounted there"), "{error}");
}

#[test]
fn what_does_not_fit_is_not_begun() {
    let volumes = Volumes::of_a_server();
    let error = fault(volumes.backup_on(&Full(58), Backup::named("b")));
    assert!(error.contains("58 bytes free, and 59 are needed"), "{error}");
    volumes.backup_on(&Full(59), Backup::named("b")).unwrap();
    volumes.clear("b").unwrap();
    assert!(fault(volumes.restore_on(&Full(58), "b", &[])).contains("enlarge it"));
    assert!(volumes.files().is_empty());
    volumes.restore_on(&Full(59), "b", &[]).unwrap();
}

/// A server that goes on writing while its data are copied.
struct Running {
    file: PathBuf,
    done: Cell<bool>,
}

impl Disk for Running {
    fn before(&self, change: Change<'_>) -> Result<(), Stop> {
        if matches!(change, Change::Write(_)) && !self.done.replace(true) {
            fs::write(&self.file, "written by a server").unwrap();
        }
        Ok(())
    }
}

#[test]
fn a_server_that_still_writes_is_noticed() {
    for file in ["datastore.sqlite3", "keys.json", "datastore.sqlite3-wal"] {
        let volumes = Volumes::of_a_server();
        let disk = Running { file: volumes.data().join(file), done: Cell::new(false) };
        let error = fault(volumes.backup_on(&disk, Backup::named("b")));
        assert!(error.contains(&format!("data/{file} changed")) && error.contains("stop the server"), "{error}");
        assert_eq!(volumes.names(), [".b.partial"]);
    }
}

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    let volumes = cleared();
    // In an empty file no bit can flip.
    for (path, content) in volumes.copies().into_iter().filter(|(_, content)| !content.is_empty()) {
        for place in 0..content.len() {
            let mut flipped = content.clone();
            flipped[place] ^= 1 << (place % 8);
            fs::write(volumes.backups().join(&path), flipped).unwrap();
            let error = fault(volumes.verify("b"));
            assert!(error.contains("/b/"), "{path} {place}: {error}");
        }
        assert!(volumes.restore("b").is_err(), "{path}");
        fs::write(volumes.backups().join(&path), &content).unwrap();
        assert_eq!(volumes.verify("b").unwrap().result, Outcome::Verified);
    }
    assert!(volumes.files().is_empty());
    fs::write(volumes.backups().join("b/data/keys.json"), "the keys of our CA").unwrap();
    let error = fault(volumes.verify("b"));
    assert!(error.contains("b/data/keys.json is not what was backed up: its checksum is"), "{error}");
    fs::remove_file(volumes.backups().join("b/data/keys.json")).unwrap();
    assert!(fault(volumes.verify("b")).contains("it is missing"));
    assert!(fault(volumes.verify("c")).contains("There is no backup c"));
}

#[test]
fn old_backups_of_the_same_server_are_removed() {
    let volumes = Volumes::of_a_server();
    let back_up = |name, second, domain, keep| {
        let about = [("trustDomain", domain), ("serverUid", name)];
        volumes.backup_on(&Plain, Backup { name, about: &about, keep, second }).unwrap()
    };
    for (name, second) in [("a", 30), ("b", 10), ("c", 20)] {
        back_up(name, second, "example.org", None);
    }
    back_up("elsewhere", 1, "example.com", None);
    fs::write(volumes.backups().join("elsewhere/manifest.json.sha256"), "damaged").unwrap();
    back_up("other", 2, "example.com", None);
    fs::create_dir(volumes.backups().join(".now.partial")).unwrap();
    fs::create_dir(volumes.backups().join("by-hand")).unwrap();
    let report = back_up("d", 5, "example.org", Some(2));
    assert_eq!(report.removed, ["b", "c"], "the oldest, but never the one just made");
    assert_eq!(volumes.names(), [".now.partial", "a", "by-hand", "d", "elsewhere", "other"]);
    let report = back_up("e", 4_000_000_000, "example.org", Some(9));
    assert_eq!((report.removed.len(), volumes.names().contains(&".now.partial".to_owned())), (0, false));
}

#[test]
fn a_restore_brings_files_and_permissions_back() {
    let volumes = Volumes::of_a_server();
    let before = volumes.files();
    let mode = |path: &str| fs::metadata(volumes.data().join(path)).unwrap().permissions().mode() & 0o7777;
    fs::set_permissions(volumes.data().join("journal"), fs::Permissions::from_mode(0o2770)).unwrap();
    let paths = ["datastore.sqlite3", "keys.json", "journal", "journal/0", "journal/0/x"];
    let modes = paths.map(mode);
    volumes.backup("b").unwrap();
    volumes.clear("b").unwrap();
    let report = volumes.restore("b").unwrap();
    assert_eq!((report.result, report.files), (Outcome::Restored, Some(3)));
    assert_eq!((volumes.files(), paths.map(mode)), (before, modes));
    // The server runs.
    volumes.put("datastore.sqlite3", "more entries", 0o640);
    assert_eq!(volumes.restore("b").unwrap().result, Outcome::AlreadyRestored);
    assert_eq!(volumes.files()["datastore.sqlite3"], b"more entries");
    // Its next backup does not say that it was restored.
    volumes.backup("c").unwrap();
    assert!(!volumes.copies().contains_key(&format!("c/data/{RESTORED}")));
    volumes.put("datastore.sqlite3", "still more entries", 0o640);
    assert_eq!(volumes.restore("latest").unwrap().result, Outcome::Occupied);
    // Emptied by hand, it is restored again.
    for entry in fs::read_dir(volumes.data()).unwrap().map(|entry| entry.unwrap().path()) {
        if !entry.ends_with(RESTORED) {
            fs::remove_dir_all(&entry).or_else(|_| fs::remove_file(&entry)).unwrap();
        }
    }
    assert_eq!(volumes.restore("b").unwrap().result, Outcome::Restored);
}

#[test]
fn nothing_is_restored_over_something_else() {
    let put: [&dyn Fn(&Volumes); 5] = [
        &|volumes| volumes.put("datastore.sqlite3", "another server's", 0o600),
        &|volumes| volumes.put("datastore.sqlite3-wal", "", 0o600),
        &|volumes| volumes.put("keys.json/x", "", 0o600),
        &|volumes| fs::create_dir(volumes.data().join("keys.json")).unwrap(),
        &|volumes| symlink("/nowhere", volumes.data().join("keys.json")).unwrap(),
    ];
    for put in put {
        let volumes = cleared();
        put(&volumes);
        let before = volumes.files();
        let report = volumes.restore("b").unwrap();
        assert_eq!(report.result, Outcome::Occupied);
        assert!(report.message.contains("/data/") && report.message.contains("Clear"), "{}", report.message);
        assert_eq!(volumes.files(), before);
    }
}

#[test]
fn a_backup_of_something_else_is_not_restored() {
    let volumes = cleared();
    let report = volumes.restore_on(&Plain, "b", &[("trustDomain", "example.com")]).unwrap();
    assert_eq!(report.result, Outcome::Mismatched);
    assert_eq!(report.message, "Backup b is not restored: its trustDomain is example.org, not example.com.");
    let report = volumes.restore_on(&Plain, "b", &[("clusterName", "c")]).unwrap();
    assert_eq!(report.result, Outcome::Mismatched);
    assert!(volumes.files().is_empty());
    assert_eq!(volumes.restore_on(&Plain, "b", &[("trustDomain", "example.org")]).unwrap().result, Outcome::Restored);
}

#[test]
fn the_latest_is_the_newest_of_what_is_expected() {
    let volumes = Volumes::of_a_server();
    assert!(fault(volumes.restore("latest")).contains("There is no backup in"));
    for (name, second, domain) in [("z", 1, "example.org"), ("y", 2, "example.org"), ("x", 3, "example.com")] {
        let about = [("trustDomain", domain)];
        volumes.backup_on(&Plain, Backup { name, about: &about, keep: None, second }).unwrap();
    }
    volumes.clear("z").unwrap();
    let restore = |domain| volumes.restore_on(&Plain, "latest", &[("trustDomain", domain)]).unwrap();
    let report = restore("example.net");
    assert_eq!((report.result, report.name.as_deref()), (Outcome::Mismatched, Some("x")));
    let report = restore("example.org");
    assert_eq!((report.result, report.name.as_deref()), (Outcome::Restored, Some("y")));
    assert_eq!(restore("example.org").result, Outcome::AlreadyRestored);
    fs::write(volumes.backups().join("z/manifest.json"), "{").unwrap();
    let error = fault(volumes.restore("latest"));
    assert!(error.contains("z/manifest.json") && error.contains("not known which is the latest"), "{error}");
}

#[test]
fn only_what_a_backup_has_is_deleted() {
    let refused = |volumes: &Volumes, backup: &str, word: &str| {
        let before = volumes.files();
        let report = volumes.clear(backup).unwrap();
        assert_eq!(report.result, Outcome::NotBackedUp);
        assert!(
            report.message.starts_with("Nothing is deleted: ") && report.message.contains(word),
            "{}",
            report.message
        );
        assert_eq!(volumes.files(), before);
    };
    let volumes = Volumes::of_a_server();
    refused(&volumes, "b", "There is no backup b");
    volumes.backup("b").unwrap();
    volumes.put("datastore.sqlite3-wal", "", 0o600);
    refused(&volumes, "b", "datastore.sqlite3-wal");
    fs::remove_file(volumes.data().join("datastore.sqlite3-wal")).unwrap();
    volumes.put("keys.json", "the keys of our CA", 0o600);
    refused(&volumes, "b", "keys.json");
    volumes.put("keys.json", "the keys of the CA", 0o600);
    symlink("/nowhere", volumes.data().join("link")).unwrap();
    refused(&volumes, "b", "link");
    fs::remove_file(volumes.data().join("link")).unwrap();
    let copy = volumes.backups().join("b/data/keys.json");
    fs::write(&copy, "the keys of an CA!").unwrap();
    refused(&volumes, "b", "b/data/keys.json");
    fs::write(&copy, "the keys of the CA").unwrap();
    let _server = UnixListener::bind(volumes.data().join("api.sock")).unwrap();
    let report = volumes.clear("b").unwrap();
    assert_eq!((report.result, report.files, report.bytes), (Outcome::Cleared, Some(3), Some(59)));
    let left: Vec<_> = fs::read_dir(volumes.data()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lost+found"]);
    assert_eq!(volumes.clear("b").unwrap().files, Some(0));
}

#[test]
fn a_backup_whose_files_are_links_is_not_used() {
    let volumes = cleared();
    let data = volumes.backups().join("b/data");
    fs::rename(&data, volumes.folder.path().join("elsewhere")).unwrap();
    symlink(volumes.folder.path().join("elsewhere"), &data).unwrap();
    assert!(volumes.verify("b").is_err() && volumes.restore("b").is_err());
    assert!(volumes.files().is_empty());
}

#[test]
fn backups_are_listed_newest_first() {
    let volumes = Volumes::of_a_server();
    assert!(list(&Plain, &volumes.backups()).unwrap().message.contains("There is no backup in"));
    for (name, second) in [("a", 2), ("b", 3), ("c", 1)] {
        volumes.backup_on(&Plain, Backup { second, ..Backup::named(name) }).unwrap();
    }
    fs::write(volumes.backups().join("c/manifest.json"), "{").unwrap();
    fs::create_dir(volumes.backups().join(".d.partial")).unwrap();
    let report = list(&Plain, &volumes.backups()).unwrap();
    let names: Vec<_> = report.backups.iter().map(|backup| backup.name.as_str()).collect();
    assert_eq!((report.result, names), (Outcome::Listed, vec!["b", "a", "c"]));
    assert_eq!((report.backups[0].files, report.backups[0].bytes), (3, 59));
    assert!(report.backups[2].problem.as_ref().unwrap().contains("c/manifest.json"));
}

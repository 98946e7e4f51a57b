//! Backup, restore and clear, stopped before each of their changes: what follows ends as if nothing had happened.

use super::error::VolumeError;
use super::marks::{RESTORED, RESTORING};
use super::report::{Outcome, Report};
use super::testing::{Backup, Crashing, Files, Loss, Volumes};

/// Stops the work before each of its changes, and at last not at all, with each kind of loss.
fn at_each_point(
    begin: impl Fn() -> Volumes,
    work: impl Fn(&Volumes, &Crashing) -> Result<Report, VolumeError>,
    then: impl Fn(&Volumes, Loss),
) {
    for loss in [Loss::Nothing, Loss::Content, Loss::All] {
        for change in 0.. {
            let (volumes, disk) = (begin(), Crashing::before(change, loss));
            match work(&volumes, &disk) {
                Err(VolumeError::Stopped) => then(&volumes, loss),
                Ok(_) => {
                    assert!(change >= 8, "{change} changes only");
                    disk.lose();
                    then(&volumes, loss);
                    break;
                }
                Err(error) => panic!("before change {change} with {loss:?}: {error}"),
            }
        }
    }
}

fn result(report: Result<Report, VolumeError>) -> Outcome {
    report.unwrap().result
}

fn server_files() -> Files {
    Volumes::of_a_server().files()
}

/// A server whose data are in backup `b`.
fn backed_up() -> Volumes {
    let volumes = Volumes::of_a_server();
    volumes.backup("b").unwrap();
    volumes
}

/// Backup `b` of a server, and an empty data directory.
fn lost() -> Volumes {
    let volumes = backed_up();
    std::fs::remove_dir_all(volumes.data()).unwrap();
    std::fs::create_dir(volumes.data()).unwrap();
    volumes
}

/// Every backup with a name is whole.
fn expect_whole(volumes: &Volumes) {
    for name in volumes.names().iter().filter(|name| !name.starts_with('.')) {
        assert_eq!(result(volumes.verify(name)), Outcome::Verified, "{name}");
    }
}

fn expect_backed_up(volumes: &Volumes, files: &Files) {
    assert_eq!(volumes.names(), ["b"]);
    let copies = volumes.copies();
    for (path, content) in files {
        assert_eq!(copies.get(&format!("b/data/{path}")), Some(content), "{path}");
    }
    assert_eq!(copies.len(), files.len() + 2, "with the manifest and its checksum: {:?}", copies.keys());
}

#[test]
fn a_backup_goes_on_after_a_crash_and_another_crash() {
    let files = server_files();
    at_each_point(
        Volumes::of_a_server,
        |volumes, disk| volumes.backup_on(disk, Backup::named("b")),
        |volumes, loss| {
            assert_eq!(volumes.files(), files, "a backup does not touch the data");
            expect_whole(volumes);
            for change in 0.. {
                match volumes.backup_on(&Crashing::before(change, loss), Backup::named("b")) {
                    Err(VolumeError::Stopped) => expect_whole(volumes),
                    done => {
                        assert_eq!(result(done), Outcome::BackedUp);
                        break;
                    }
                }
                // Otherwise it gets one step further each time, and the loop is over soon.
                if change % 3 == 0 && loss != Loss::All {
                    assert_eq!(result(volumes.backup("b")), Outcome::BackedUp);
                    break;
                }
            }
            assert_eq!(result(volumes.verify("b")), Outcome::Verified);
            expect_backed_up(volumes, &files);
        },
    );
}

#[test]
fn a_backup_after_a_crash_is_of_what_is_there_now() {
    at_each_point(
        Volumes::of_a_server,
        |volumes, disk| volumes.backup_on(disk, Backup::named("b")),
        |volumes, _| {
            // The server ran for a while.
            volumes.put("keys.json", "other keys, as many", 0o600);
            volumes.put("journal", "now a file", 0o600);
            volumes.put("datastore.sqlite3/x", "now a directory", 0o600);
            let files = volumes.files();
            match volumes.backup("b") {
                Ok(report) => {
                    assert_eq!(report.result, Outcome::BackedUp);
                    expect_backed_up(volumes, &files);
                }
                Err(error) => {
                    assert!(error.to_string().contains("other content"), "{error}");
                    assert_eq!(volumes.names(), ["b"]);
                }
            }
            expect_whole(volumes);
        },
    );
}

#[test]
fn old_backups_are_removed_wholly_or_not_at_all() {
    let begin = || {
        let volumes = Volumes::of_a_server();
        for (name, second) in [("old-1", 1), ("old-2", 2)] {
            volumes.backup_on(&super::testing::Plain, Backup { second, ..Backup::named(name) }).unwrap();
        }
        let stopped = volumes.backup_on(&Crashing::before(9, Loss::Nothing), Backup::named("never-finished"));
        assert!(matches!(stopped, Err(VolumeError::Stopped)));
        volumes
    };
    let order = Backup { keep: Some(1), second: 4_000_000_000, ..Backup::named("b") };
    let files = server_files();
    at_each_point(
        begin,
        |volumes, disk| volumes.backup_on(disk, order),
        |volumes, _| {
            expect_whole(volumes);
            assert!(volumes.names().iter().any(|name| !name.starts_with('.')), "there is always a backup");
            assert_eq!(result(volumes.backup_on(&super::testing::Plain, order)), Outcome::BackedUp);
            expect_backed_up(volumes, &files);
        },
    );
}

/// What must hold whenever a restore has stopped.
fn expect_safe(volumes: &Volumes) {
    expect_whole(volumes);
    if volumes.data().join(RESTORED).exists() {
        assert_eq!(volumes.files(), server_files(), "the mark says that all is there");
        assert!(!volumes.data().join(RESTORING).exists());
    }
}

#[test]
fn a_restore_goes_on_after_a_crash_and_another_crash() {
    at_each_point(
        lost,
        |volumes, disk| volumes.restore_on(disk, "b", &[]),
        |volumes, loss| {
            expect_safe(volumes);
            for change in [0, 3, 5, 8, 13, 21] {
                if let Err(error) = volumes.restore_on(&Crashing::before(change, loss), "b", &[]) {
                    assert!(matches!(error, VolumeError::Stopped), "{error}");
                }
                expect_safe(volumes);
            }
            assert!(matches!(result(volumes.restore("b")), Outcome::Restored | Outcome::AlreadyRestored));
            assert_eq!(result(volumes.restore("b")), Outcome::AlreadyRestored);
            assert_eq!(volumes.files(), server_files());
            assert!(!volumes.data().join(RESTORING).exists());
        },
    );
}

#[test]
fn a_restore_that_crashed_can_be_cleared() {
    at_each_point(
        lost,
        |volumes, disk| volumes.restore_on(disk, "b", &[]),
        |volumes, _| {
            assert_eq!(result(volumes.clear("b")), Outcome::Cleared);
            assert_eq!(std::fs::read_dir(volumes.data()).unwrap().count(), 0);
            assert_eq!(result(volumes.restore("b")), Outcome::Restored);
            assert_eq!(volumes.files(), server_files());
        },
    );
}

#[test]
fn a_restore_that_crashed_is_not_taken_for_a_server() {
    at_each_point(
        lost,
        |volumes, disk| volumes.restore_on(disk, "b", &[]),
        |volumes, _| match volumes.backup("new") {
            Ok(report) if report.result == Outcome::BackedUp => assert_eq!(volumes.files(), server_files()),
            Ok(report) => assert_eq!((report.result, volumes.files().len()), (Outcome::Empty, 0)),
            Err(error) => assert!(error.to_string().contains("not finished"), "{error}"),
        },
    );
}

#[test]
fn two_backups_are_never_mixed() {
    let begin = || {
        let volumes = lost();
        volumes.put("keys.json", "the keys of another", 0o600);
        volumes.put("datastore.sqlite3", "all entries, more than are copied at once", 0o640);
        volumes.backup("other").unwrap();
        volumes.clear("other").unwrap();
        volumes
    };
    at_each_point(
        begin,
        |volumes, disk| volumes.restore_on(disk, "b", &[]),
        |volumes, _| {
            let before = volumes.files();
            match result(volumes.restore("other")) {
                Outcome::Occupied => assert_eq!(volumes.files(), before),
                done => {
                    assert_eq!((done, volumes.files().len()), (Outcome::Restored, 2));
                    assert_eq!(volumes.files()["keys.json"], b"the keys of another");
                    assert_eq!(result(volumes.restore("b")), Outcome::Occupied);
                }
            }
        },
    );
}

#[test]
fn clearing_goes_on_after_a_crash_and_loses_nothing() {
    let begin = || {
        let volumes = lost();
        volumes.restore("b").unwrap();
        volumes
    };
    let clear = |volumes: &Volumes, disk: &Crashing| volumes.clear_on(disk, "b");
    at_each_point(begin, clear, |volumes, loss| {
        expect_whole(volumes);
        let files = server_files();
        assert!(volumes.files().iter().all(|(path, content)| files.get(path) == Some(content)));
        let _ = volumes.clear_on(&Crashing::before(5, loss), "b");
        assert_eq!(result(volumes.clear("b")), Outcome::Cleared);
        assert_eq!(std::fs::read_dir(volumes.data()).unwrap().count(), 0);
    });
    at_each_point(begin, clear, |volumes, _| {
        assert!(matches!(result(volumes.restore("b")), Outcome::Restored | Outcome::AlreadyRestored));
        assert_eq!(volumes.files(), server_files(), "what is half cleared is not taken for restored");
    });
    at_each_point(begin, clear, |volumes, _| {
        volumes.put("keys.json", "written by a server meanwhile", 0o600);
        let before = volumes.files();
        assert_eq!(result(volumes.clear("b")), Outcome::NotBackedUp);
        assert_eq!(volumes.files(), before);
    });
}

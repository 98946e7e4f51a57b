//! `sockets`: removes the sockets that agents left on a node.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::io::Errno;
use tokio::net::{UnixDatagram, UnixStream};

use super::disk::Disk;
use super::error::VolumeError;
use super::report::{Outcome, Report};
use super::tree::{Kind, Tree};

/// Removes sockets that nothing listens on, in a directory and in the directories that are in it. Nothing else is
/// touched.
pub async fn clean(disk: &dyn Disk, directory: &Path) -> Result<Report, VolumeError> {
    let tree = match Tree::open(disk, directory) {
        Ok(tree) => tree,
        Err(VolumeError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
            let message = format!("{} does not exist: there are no sockets.", directory.display());
            return Ok(Report { files: Some(0), ..Report::new(Outcome::Cleaned, message) });
        }
        Err(error) => return Err(error),
    };
    let mut cleaned = Cleaned::default();
    for name in tree.names("")? {
        if tree.look(&name)?.is_some_and(|look| look.kind == Kind::Directory) {
            let below = tree.beneath(&name)?;
            for name in below.names("")? {
                cleaned.clean(&below, &name).await?;
            }
        } else {
            cleaned.clean(&tree, &name).await?;
        }
    }
    Ok(cleaned.report(directory))
}

#[derive(Default)]
struct Cleaned {
    removed: u64,
    in_use: Vec<String>,
}

impl Cleaned {
    async fn clean(&mut self, tree: &Tree<'_>, name: &str) -> Result<(), VolumeError> {
        if !tree.look(name)?.is_some_and(|look| look.is_socket()) {
            return Ok(());
        }
        if is_leftover(tree, name).await {
            tree.remove_file(name)?;
            self.removed += 1;
        } else {
            self.in_use.push(tree.path_of(name).display().to_string());
        }
        Ok(())
    }

    fn report(self, directory: &Path) -> Report {
        let (removed, directory) = (self.removed, directory.display());
        let message = match self.in_use.as_slice() {
            [] => format!("{removed} leftover sockets were removed from {directory}; none is left."),
            [first, ..] => format!(
                "{removed} leftover sockets were removed from {directory}; {} are in use and were left, such as {first}.",
                self.in_use.len()
            ),
        };
        Report { files: Some(removed), in_use: self.in_use, ..Report::new(Outcome::Cleaned, message) }
    }
}

/// Whether nothing listens on a socket any more. Whatever is not certain counts as in use.
async fn is_leftover(tree: &Tree<'_>, name: &str) -> bool {
    // Whole paths may be longer than the address of a socket can be, and lead through symbolic links.
    let path = format!("/proc/self/fd/{}/{name}", tree.directory().as_raw_fd());
    // It does not wait, as a blocking one would when nobody accepts.
    let refused = match UnixStream::connect(&path).await {
        Err(error) if error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) => {
            UnixDatagram::unbound().and_then(|socket| socket.connect(&path)).err()
        }
        connected => connected.err(),
    };
    refused.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net;

    use super::super::testing::Plain;
    use super::*;

    #[tokio::test]
    async fn only_sockets_that_nothing_listens_on_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("below/deeper")).unwrap();
        for name in ["left.sock", "below/left.sock", "below/deeper/left.sock"] {
            drop(net::UnixListener::bind(path(name)).unwrap());
        }
        drop(net::UnixDatagram::bind(path("left.dgram")).unwrap());
        let _listening = net::UnixListener::bind(path("below/used.sock")).unwrap();
        let _bound = net::UnixDatagram::bind(path("used.dgram")).unwrap();
        std::fs::write(path("file.sock"), "data").unwrap();
        symlink(path("below/deeper"), path("link")).unwrap();
        let report = clean(&Plain, folder.path()).await.unwrap();
        assert_eq!((report.result, report.files), (Outcome::Cleaned, Some(3)));
        let used = ["below/used.sock", "used.dgram"].map(|name| path(name).display().to_string());
        assert_eq!(report.in_use, used);
        assert!(report.message.contains("3 leftover") && report.message.contains(&used[0]), "{}", report.message);
        for left in ["below/used.sock", "used.dgram", "file.sock", "link", "below/deeper/left.sock"] {
            assert!(path(left).symlink_metadata().is_ok(), "{left}");
        }
        let again = clean(&Plain, folder.path()).await.unwrap();
        assert_eq!((again.files, again.in_use.len()), (Some(0), 2));
    }

    #[tokio::test]
    async fn a_socket_whose_queue_is_full_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("busy.sock");
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let _first = net::UnixStream::connect(&path).unwrap();
        let report = clean(&Plain, folder.path()).await.unwrap();
        assert_eq!((report.files, report.in_use.len()), (Some(0), 1));
    }

    #[tokio::test]
    async fn what_does_not_exist_needs_no_cleaning() {
        let report = clean(&Plain, Path::new("/nowhere/at/all")).await.unwrap();
        assert_eq!((report.result, report.files), (Outcome::Cleaned, Some(0)));
    }
}

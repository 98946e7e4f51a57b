//! Free ports on the loopback address.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Below the ports that the kernel hands out to outgoing connections (from 32768) and below NodePorts
/// (from 30000): a port found free here is taken only by a process that asks for it.
const RANGE: std::ops::Range<u16> = 20000..30000;

/// A port on which no process listens now. Another process may take it first: the caller must be ready to ask again.
pub(crate) fn free() -> io::Result<u16> {
    let width = u64::from(RANGE.end - RANGE.start);
    for _ in 0..1000 {
        let offset = RandomState::new().hash_one(()) % width;
        let port = RANGE.start + u16::try_from(offset).unwrap_or_default();
        if is_free(port) {
            return Ok(port);
        }
    }
    Err(io::Error::other("none of a thousand ports between 20000 and 30000 is free"))
}

/// Whether a process could listen on it now.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_not_free() -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        assert!(!is_free(listener.local_addr()?.port()));
        Ok(())
    }

    #[test]
    fn ports_are_chosen_at_random() -> io::Result<()> {
        let chosen: std::collections::BTreeSet<u16> = (0..20).map(|_| free()).collect::<Result<_, _>>()?;
        assert!(chosen.len() > 10, "twenty draws gave only {} ports", chosen.len());
        assert!(chosen.iter().all(|p| RANGE.contains(p)));
        Ok(())
    }
}

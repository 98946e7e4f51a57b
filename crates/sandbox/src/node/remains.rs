//! What is left of a node when its processes have ended, and is not a file in its sandbox.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::Network;
use super::cgroup;
use crate::home::Home;

/// Where the number of the network is written when the network is ours.
pub(crate) fn network_file(home: &Home) -> PathBuf {
    home.node().join("network")
}

/// The network of a sandbox's node, where it has one.
pub(crate) fn network(home: &Home) -> Option<Network> {
    Network::of_index(&fs::read_to_string(network_file(home)).ok()?)
}

/// Takes away the interface and the control groups. To be called when all processes have ended, and
/// before the sandbox's directory goes; harmless where there was no node.
pub(crate) fn clear(home: &Home) -> anyhow::Result<()> {
    if let Some(network) = network(home) {
        network.disconnect(home);
    }
    cgroup::remove(home).with_context(|| format!("Cannot remove the control groups {}", cgroup::name(home)))
}

//! The addresses of a node, and the wire between it and this machine.
//!
//! They come from 198.18.0.0/15, which is set aside for tests of this kind and used by nobody's network.
//! Each sandbox takes a thirty-second of it, with an interface of that number: the kernel sees to it
//! that nobody else takes the same. This machine reaches pods and Services of every sandbox by their
//! addresses; from pods no way leads out.

use std::fmt;
use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

use super::{SYSTEM_PATH, cgroup};
use crate::home::Home;

/// How many can run side by side.
const COUNT: u32 = 32;

/// 198.18.0.0, and the number of addresses of each.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const SHARE: u32 = 4096;

/// The addresses of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    index: u32,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    first: u32,
    length: u32,
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.length)
    }
}

impl Subnet {
    /// Of an address and a length as `ip route` writes them; a single address may come without one.
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let (address, length) = (address.parse::<Ipv4Addr>().ok()?, length.parse().ok()?);
        (length <= 32).then_some(Self { first: address.to_bits(), length })
    }

    fn overlaps(self, other: Self) -> bool {
        let shorter = self.length.min(other.length);
        let mask = u32::MAX.checked_shl(32 - shorter).unwrap_or(0);
        self.first & mask == other.first & mask
    }

    /// How many leading bits are the same in all its addresses.
    pub(crate) fn length(self) -> u32 {
        self.length
    }
}

impl Network {
    /// Those of all sandboxes.
    pub(crate) const ALL: &str = "198.18.0.0/15";

    /// Lays the wire to the process that holds a node's network namespace, with the first free share;
    /// which one is tried first depends on the sandbox, so that the same one mostly gets the same.
    pub(crate) fn connect(home: &Home, holder: u32) -> anyhow::Result<Self> {
        let routes = output(Command::new("ip").args(["-4", "-o", "route", "show", "table", "all"]))?;
        let in_use: Vec<Subnet> = routes.lines().filter_map(destination).collect();
        let preferred = u32::from(Sha256::digest(home.dir().as_os_str().as_encoded_bytes())[0]);
        for index in (0..COUNT).map(|n| (preferred + n) % COUNT) {
            let network = Self { index };
            if in_use.iter().any(|subnet| subnet.overlaps(network.all())) {
                continue;
            }
            if network.lay(home, holder)? {
                return Ok(network);
            }
        }
        bail!(
            "All {COUNT} networks for nodes between 198.18.0.0 and 198.19.255.255 are in use: \
             stop a sandbox with `sandbox down`."
        )
    }

    /// Whether it was free, and now is ours.
    fn lay(self, home: &Home, holder: u32) -> anyhow::Result<bool> {
        let interface = self.interface();
        let add = format!("link add {interface} type veth peer name eth0 netns {holder}");
        let made = ip(&mut Command::new("ip"), &[add]);
        match made {
            Err(error) if error.to_string().contains("File exists") => return Ok(false),
            other => other?,
        }
        ip(
            &mut Command::new("ip"),
            &[
                format!("link set {interface} up alias {}", cgroup::name(home)),
                format!("address add {}/24 dev {interface}", self.host()),
            ],
        )?;
        ip(
            Command::new("nsenter").args(["-t", &holder.to_string(), "-n", "ip"]),
            &[
                "link set lo up".to_owned(),
                format!("address add {}/24 dev eth0", self.node()),
                "link set eth0 up".to_owned(),
            ],
        )?;
        ip(
            &mut Command::new("ip"),
            &[
                format!("route add {} via {} dev {interface}", self.pods(), self.node()),
                format!("route add {} via {} dev {interface}", self.services(), self.node()),
            ],
        )?;
        Ok(true)
    }

    /// Removes the wire. It goes with the node anyway, but in the kernel's own time; and when it is gone
    /// another sandbox may have one of the same name, which stays.
    pub(crate) fn disconnect(self, home: &Home) {
        let owner = fs::read_to_string(format!("/sys/class/net/{}/ifalias", self.interface())).unwrap_or_default();
        if owner.trim() != cgroup::name(home) {
            return;
        }
        let _ = ip(&mut Command::new("ip"), &[format!("link delete {}", self.interface())]);
    }

    /// The one that a written number stands for.
    pub(crate) fn of_index(text: &str) -> Option<Self> {
        text.trim().parse().ok().filter(|index| *index < COUNT).map(|index| Self { index })
    }

    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// The name of the interface on this machine.
    pub(crate) fn interface(self) -> String {
        format!("opcore{}", self.index)
    }

    /// This machine, as the node sees it: the API server listens here.
    pub(crate) fn host(self) -> Ipv4Addr {
        self.address(1)
    }

    pub(crate) fn node(self) -> Ipv4Addr {
        self.address(2)
    }

    pub(crate) fn pods(self) -> Subnet {
        Subnet { first: self.address(1024).to_bits(), length: 22 }
    }

    pub(crate) fn services(self) -> Subnet {
        Subnet { first: self.address(2048).to_bits(), length: 21 }
    }

    /// The Service `kubernetes`.
    pub(crate) fn api_service(self) -> Ipv4Addr {
        self.address(2048 + 1)
    }

    /// The Service that answers questions for names.
    pub(crate) fn dns_service(self) -> Ipv4Addr {
        self.address(2048 + 10)
    }

    fn all(self) -> Subnet {
        Subnet { first: self.address(0).to_bits(), length: 20 }
    }

    fn address(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST + self.index * SHARE + offset)
    }
}

/// Where a route leads, unless it leads everywhere.
fn destination(route: &str) -> Option<Subnet> {
    let types = ["local", "broadcast", "unicast", "unreachable", "blackhole", "prohibit", "throw", "multicast"];
    let target = route.split_whitespace().find(|word| !types.contains(word))?;
    Subnet::parse(target).filter(|subnet| subnet.length > 0)
}

/// Runs several commands of the program `ip` in one call.
fn ip(program: &mut Command, commands: &[String]) -> anyhow::Result<()> {
    let mut child = program
        .args(["-batch", "-"])
        .env("PATH", SYSTEM_PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("Cannot run ip")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(commands.join("\n").as_bytes())?;
        input.write_all(b"\n")?;
    }
    let done = child.wait_with_output()?;
    if !done.status.success() {
        bail!("`ip {}` failed: {}", commands.join("; "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let done = command.env("PATH", SYSTEM_PATH).stdin(Stdio::null()).output().context("Cannot run ip")?;
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_two_sandboxes_do_not_overlap_and_hold_their_own() {
        let networks: Vec<Network> = (0..COUNT).map(|index| Network { index }).collect();
        for (n, network) in networks.iter().enumerate() {
            for part in [network.pods(), network.services()] {
                assert!(part.overlaps(network.all()), "{part}");
                assert!(networks.iter().enumerate().all(|(m, other)| m == n || !part.overlaps(other.all())));
            }
            assert!(!network.pods().overlaps(network.services()));
        }
        assert_eq!(networks[0].node().to_string(), "198.18.0.2");
        assert_eq!(networks[31].services().to_string(), "198.19.248.0/21");
    }

    #[test]
    fn what_is_routed_elsewhere_is_recognised() {
        let share = Network { index: 0 }.all();
        let taken = |route| destination(route).is_some_and(|subnet| subnet.overlaps(share));
        assert!(taken("198.18.0.0/15 dev tun0 scope link"));
        assert!(taken("local 198.18.3.4 dev lo table local proto kernel scope host src 198.18.3.4"));
        assert!(!taken("default via 192.0.2.1 dev eth0"));
        assert!(!taken("198.18.16.0/24 dev opcore1 proto kernel scope link src 198.18.16.1"));
    }
}

//! Processes that are identified so that no other process is ever signalled, and children that die with us.

use std::fs;
use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process, distinguished from a later one with the same number.
///
/// The kernel reuses process numbers; number, start time and boot together are unique.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    /// Clock ticks from boot to the start of the process: field 22 of `/proc/PID/stat`.
    started: u64,
    boot: String,
}

impl ProcessId {
    /// Names the process that has this number now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: Stat::read(pid)?.started, boot: boot_id() })
    }

    /// Whether this very process still runs. One that ended and was not yet waited for does not.
    pub(crate) fn is_alive(&self) -> bool {
        self.boot == boot_id() && Stat::read(self.pid).is_some_and(|s| s.started == self.started && !s.ended())
    }

    /// Sends a signal to this very process; `false` when it has ended.
    ///
    /// The descriptor is opened before the check, so the number cannot change hands in between.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(false);
        };
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(false);
        };
        if !self.is_alive() {
            return Ok(false);
        }
        match pidfd_send_signal(&descriptor, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The processes that this one started and that still run.
    pub(crate) fn children(&self) -> Vec<Self> {
        let of_this = |pid: &u32| Stat::read(*pid).is_some_and(|s| s.parent == self.pid && !s.ended());
        numbers().filter(of_this).filter_map(Self::of).collect()
    }

    /// The name of its program, as far as the kernel keeps it.
    pub(crate) fn program(&self) -> Option<String> {
        Some(fs::read_to_string(format!("/proc/{}/comm", self.pid)).ok()?.trim_end().to_owned())
    }

    /// Clock ticks from boot to its start.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }
}

/// Ends processes: asks first, insists when `grace` has passed, and returns when all are gone. Without
/// any grace they are not asked: they end as in a crash.
///
/// # Errors
/// A process that cannot be signalled (it belongs to another user) or does not end.
pub(crate) fn end(processes: &[ProcessId], grace: Duration) -> io::Result<()> {
    let asking = (!grace.is_zero()).then_some((Signal::TERM, grace));
    for (signal, patience) in asking.into_iter().chain([(Signal::KILL, Duration::from_secs(10))]) {
        for process in processes {
            process.signal(signal)?;
        }
        let deadline = Instant::now() + patience;
        while processes.iter().any(ProcessId::is_alive) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    match processes.iter().find(|p| p.is_alive()) {
        None => Ok(()),
        Some(p) => Err(io::Error::other(format!("process {} does not end", p.pid))),
    }
}

/// Processes whose environment holds `entry` (`NAME=value`).
///
/// Finds what a killed starter had no time to write down. Only processes of the same user can be read.
pub(crate) fn with_environment(entry: &str) -> Vec<ProcessId> {
    numbers()
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|text| text.split(|b| *b == 0).any(|e| e == entry.as_bytes()))
        })
        .filter_map(ProcessId::of)
        .collect()
}

/// The numbers of all processes.
fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// The fields of `/proc/PID/stat` that matter here.
struct Stat {
    state: char,
    parent: u32,
    started: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The second field is the program's name in brackets and may itself hold blanks and brackets.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { state, parent, started })
    }

    fn ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

fn boot_id() -> String {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned())
        .clone()
}

/// Starts a child from a thread that lives as long as this process.
///
/// The kernel's "signal me when my parent dies" watches the *thread* that started the child, and a thread
/// of a test or of an async runtime ends long before its process.
pub(crate) fn spawn_from_keeper(command: Command) -> io::Result<Child> {
    type Request = (Command, Sender<io::Result<Child>>);
    static KEEPER: OnceLock<Sender<Request>> = OnceLock::new();

    let keeper = KEEPER.get_or_init(|| {
        let (send, receive) = channel::<Request>();
        let started = std::thread::Builder::new().name("sandbox-keeper".into()).spawn(move || {
            while let Ok((mut command, answer)) = receive.recv() {
                // Nobody waiting any more is no reason to keep a child that nobody knows of.
                if let Err(unheard) = answer.send(command.spawn())
                    && let Ok(mut child) = unheard.0
                {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        });
        drop(started);
        send
    });
    let gone = || io::Error::other("the thread that starts components has ended");
    let (answer, result) = channel();
    keeper.send((command, answer)).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_does_not_shift_the_fields() {
        let stat =
            Stat::parse("7 (a ) (b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 8192 1 18446744073709551615");
        assert_eq!(
            stat.map(|s| (s.state, s.parent, s.started)),
            Some(('S', 1, 4711)),
            "state, parent and start time are read after the last bracket"
        );
    }

    #[test]
    fn a_recycled_number_is_neither_alive_nor_signalled() -> anyhow::Result<()> {
        let mut child = Command::new("sleep").arg("60").spawn()?;
        let real = ProcessId::of(child.id()).expect("the child runs");
        let earlier = ProcessId { started: real.started - 1, ..real.clone() };
        let other_boot = ProcessId { boot: "another".into(), ..real.clone() };

        assert!(real.is_alive());
        for stranger in [&earlier, &other_boot] {
            assert!(!stranger.is_alive());
            assert!(!stranger.signal(Signal::KILL)?, "no signal may be sent");
        }
        assert!(real.is_alive(), "the process is untouched");

        assert!(real.signal(Signal::KILL)?);
        child.wait()?;
        assert!(!real.is_alive());
        assert!(!real.signal(Signal::KILL)?);
        Ok(())
    }

    #[test]
    fn a_process_that_ended_but_was_not_waited_for_counts_as_ended() -> anyhow::Result<()> {
        let mut child = Command::new("sleep").arg("60").spawn()?;
        let id = ProcessId::of(child.id()).expect("the child runs");
        end(std::slice::from_ref(&id), Duration::from_secs(5))?;
        assert!(!id.is_alive());
        child.wait()?;
        Ok(())
    }

    #[test]
    fn one_that_ignores_the_request_is_ended_all_the_same() -> anyhow::Result<()> {
        let mut child = Command::new("sh").args(["-c", "trap '' TERM; while :; do sleep 1; done"]).spawn()?;
        let id = ProcessId::of(child.id()).expect("the child runs");
        end(&[id], Duration::from_millis(50))?;
        child.wait()?;
        Ok(())
    }

    #[test]
    fn a_process_is_found_by_its_environment() -> anyhow::Result<()> {
        let entry = format!("OPCORE_TEST_MARK={}", std::process::id());
        let (name, value) = entry.split_once('=').expect("has a value");
        let mut child = Command::new("sleep").arg("60").env(name, value).spawn()?;
        // The kernel lets the parent go on a moment before it shows the environment of the child.
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut found = with_environment(&entry);
        while found.is_empty() && Instant::now() < deadline {
            found = with_environment(&entry);
        }
        child.kill()?;
        child.wait()?;
        assert_eq!(found.iter().map(|p| p.pid).collect::<Vec<_>>(), [child.id()]);
        Ok(())
    }
}

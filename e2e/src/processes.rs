//! The processes of pods. On the node of a sandbox they are processes of this machine, and can be killed as by a kernel
//! that is out of memory.

use std::fs;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process of a pod.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its process id on this machine.
    pub pid: i32,
    /// Its command line.
    pub words: Vec<String>,
    pod: String,
}

/// The processes of a pod. Empty if the pod is on another machine.
pub fn of(pod: &Pod) -> Vec<Process> {
    let pod = pod.uid().unwrap_or_default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|pid| belongs(*pid, &pod)).map(|pid| Process { pid, words: words(pid), pod: pod.clone() }).collect()
}

/// Kills the one process of a pod with this command line, without a chance to clean up.
///
/// # Errors
/// When there is none, or more than one.
pub fn kill(pod: &Pod, called: impl Fn(&[&str]) -> bool) -> anyhow::Result<()> {
    let all = of(pod);
    let fits = |process: &&Process| called(&process.words.iter().map(String::as_str).collect::<Vec<_>>());
    let found: Vec<&Process> = all.iter().filter(fits).collect();
    ensure!(found.len() == 1, "one process of {} is to be killed; found {found:?} of {all:?}", pod.name_any());
    found[0].kill()
}

/// Kills all processes of a pod, as when a node loses its power.
///
/// # Errors
/// When there are none, or one of them cannot be killed.
pub fn kill_all(pod: &Pod) -> anyhow::Result<()> {
    let all = of(pod);
    ensure!(!all.is_empty(), "{} has no process on this machine", pod.name_any());
    for process in &all {
        // When the first process of a container is killed, the others may end by themselves.
        let _ = process.kill();
    }
    Ok(())
}

impl Process {
    /// Kills exactly this process: with a descriptor of it, its id cannot be reused.
    fn kill(&self) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.pid).context("a process has a number")?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).context("it has ended")?;
        ensure!(belongs(self.pid, &self.pod), "process {} is no longer one of pod {}", self.pid, self.pod);
        pidfd_send_signal(&descriptor, Signal::KILL)?;
        Ok(())
    }
}

/// The control group of a process is named after its pod, in one of two forms.
fn belongs(pid: i32, pod: &str) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    !pod.is_empty() && [pod.to_owned(), pod.replace('-', "_")].iter().any(|uid| groups.contains(&format!("pod{uid}")))
}

fn words(pid: i32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

//! A real Kubernetes on one machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler,
//! with certificates, RBAC and admission as in any cluster; and, with [`Options::node`], a real node on
//! which pods run.
//!
//! A test asks for the shared one and a namespace of its own:
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let sandbox = sandbox::Sandbox::shared().await?;
//! let client = sandbox.client().await?;
//! let namespace = sandbox.namespace("my-test").await?;
//! # let _ = (client, namespace);
//! # Ok(())
//! # }
//! ```
//!
//! People use the program of the same name: `sandbox up`, `sandbox exec -- kubectl get namespaces`,
//! `sandbox down`. Its command line is in [`cli`].

mod binaries;
mod cache;
mod catalogue;
pub mod cli;
mod component;
mod control_plane;
mod dirlock;
mod flags;
mod golang;
mod home;
mod image;
mod kubeconfig;
mod launch;
mod node;
mod parts;
mod pki;
mod ports;
mod probe;
mod process;
mod progress;
pub mod results;
mod sandbox;
mod scratch;
mod state;

use std::path::PathBuf;

pub use component::Component;
pub use image::Image;
pub use parts::Part;
pub use sandbox::{Options, Sandbox, Signal};

/// The file of a program that this repository can build, e.g. `echo` for pods of tests. It is built when it
/// never was.
///
/// # Errors
/// There is no such program, or it cannot be built.
pub async fn program(name: &str) -> anyhow::Result<PathBuf> {
    let binaries = binaries::Binaries::ensure(std::iter::once(name), progress::Progress::detect()).await?;
    Ok(binaries.get(name)?.to_owned())
}

/// Why a node cannot run on this machine, with the remedy.
///
/// # Errors
/// One cannot.
pub fn can_run_node() -> anyhow::Result<()> {
    node::requirements::check()
}

/// Chooses the implementation of TLS for this process, unless it has been chosen.
fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A path from the environment, made absolute: components run in another directory. An empty one counts
/// as none.
fn env_path(name: &str) -> Option<PathBuf> {
    std::path::absolute(std::env::var_os(name)?).ok()
}

/// `opcore` in one of the user's base directories.
fn user_dir(variable: &str, under_home: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .map(PathBuf::from)
        // The specification of these variables says to ignore relative ones.
        .filter(|dir| dir.is_absolute())
        .or_else(|| Some(env_path("HOME")?.join(under_home)))
        .map(|dir| dir.join("opcore"))
}

/// The file that a command of this name would run.
fn path_lookup(program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join(program))
        .find(|file| file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0))
}

//! What the tests share: someone with a kubeconfig, and plans to look at.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt};
use sandbox::Sandbox;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;
use wave_orchestrator::api::v1alpha1::WavePlan;

pub use opcore_testing::PATIENCE;

pub const FLEET: &str = include_str!("../../../../docs/samples/fleet.yaml");
pub const ROLLING_OUT: &str = include_str!("../statuses/rolling-out.yaml");
pub const TIMED_OUT: &str = include_str!("../statuses/timed-out.yaml");
pub const DONE: &str = include_str!("../statuses/done.yaml");

/// Someone with a kubeconfig.
pub struct User {
    pub kubeconfig: PathBuf,
    pub client: Client,
}

/// What the program answered.
pub struct Answer {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl User {
    /// Of the control plane that all tests share: no operator runs there, so that statuses stay as they are written.
    pub async fn shared() -> Self {
        let sandbox = Sandbox::shared().await.expect("a control plane");
        let user = Self::of(sandbox).await;
        user.install().await;
        user
    }

    pub async fn of(sandbox: &Sandbox) -> Self {
        opcore::client::install_crypto_provider();
        Self { kubeconfig: sandbox.kubeconfig().to_owned(), client: sandbox.client().await.unwrap() }
    }

    /// Installs the kind.
    pub async fn install(&self) {
        opcore_testing::wait::install(&self.client, &WavePlan::crd()).await;
    }

    pub fn plans(&self) -> Api<WavePlan> {
        Api::all(self.client.clone())
    }

    pub async fn create(&self, plan: &WavePlan) {
        self.plans().create(&PostParams::default(), plan).await.unwrap();
    }

    /// A plan like the fleet, under this name and with this status.
    pub async fn plan(&self, name: &str, status: &str) {
        // A cluster that is not ours alone may have it from an earlier run.
        let _ = self.plans().delete(name, &DeleteParams::default()).await;
        let mut plan: WavePlan = serde_yaml::from_str(FLEET).unwrap();
        plan.metadata.name = Some(name.to_owned());
        self.create(&plan).await;
        self.publish(name, status).await;
    }

    /// Leaves the cluster as it was: plans are not in a namespace, and other tests have operators.
    pub async fn remove(&self, names: &[&str]) {
        for name in names {
            self.plans().delete(name, &DeleteParams::default()).await.unwrap();
        }
    }

    pub async fn publish(&self, name: &str, status: &str) {
        let status: Value = serde_yaml::from_str(status).unwrap();
        let patch = Patch::Merge(json!({ "status": status }));
        self.plans().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub fn command(&self, line: &str) -> Command {
        command(&self.kubeconfig, line)
    }

    pub async fn run(&self, line: &str) -> Answer {
        run(&self.kubeconfig, line).await
    }
}

pub fn command(kubeconfig: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_opctl"));
    command.args(line.split_whitespace()).env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).kill_on_drop(true);
    command
}

pub async fn run(kubeconfig: &Path, line: &str) -> Answer {
    let output = timeout(PATIENCE, command(kubeconfig, line).output()).await;
    let output = output.unwrap_or_else(|_| panic!("opctl {line} does not end")).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Answer { status: output.status, out: text(output.stdout), err: text(output.stderr) }
}

impl Answer {
    /// What was printed, given that all is well.
    pub fn good(self) -> String {
        assert!(self.status.success(), "{}: {}{}", self.status, self.out, self.err);
        self.out
    }

    /// What was printed, given that something is not well.
    pub fn bad(self) -> String {
        assert_eq!(self.status.code(), Some(1), "{}{}", self.out, self.err);
        assert_eq!(self.err, "", "an answer, not an error");
        self.out
    }

    /// The one sentence that a failure gets.
    pub fn refusal(self) -> String {
        assert_eq!(self.status.code(), Some(1), "{}{}", self.out, self.err);
        assert!(!self.err.contains('\x1b'), "colours only on a terminal: {:?}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        self.err.trim_end().trim_start_matches("opctl: ").to_owned()
    }
}

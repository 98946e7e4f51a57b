//! The operator at work in the test's own process, with all its kinds.

use kube::Config;
use lifecycle_operator::api::v1alpha1::{SpiffeCSIDriver, SpireAgent, SpireOIDCDiscoveryProvider, SpireServer};
use lifecycle_operator::controller::{Operands, Shared, Stack};
use lifecycle_operator::render::{Images, Settings};
use opcore::Context;
use opcore_testing::PATIENCE;
use opcore_testing::running;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The operator's name.
pub const NAME: &str = "lifecycle-operator";

/// The settings of an operator in a test.
pub fn settings(namespace: &str) -> Settings {
    let image = |name: &str| format!("example.com/{name}:v1");
    Settings {
        namespace: namespace.to_owned(),
        images: Images {
            server: image("server"),
            controller_manager: image("controller-manager"),
            agent: image("agent"),
            csi_driver: image("csi-driver"),
            csi_registrar: image("csi-registrar"),
            oidc: image("oidc"),
            volume: image("volume"),
        },
        pull_policy: "IfNotPresent".to_owned(),
        pull_secrets: Vec::new(),
        class_name: "tests".to_owned(),
    }
}

/// An operator at work.
pub struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    pub context: Context,
}

impl Running {
    /// Starts it, with or without its admission policies.
    pub fn start(config: Config, settings: Settings, policies: bool) -> Self {
        let (stop, stopping) = watch::channel(false);
        let namespaces = [settings.namespace.as_str()];
        let context = running::context(NAME, config, &namespaces, running::Settings::default(), stopping);
        let task = tokio::spawn(run(context.clone(), settings, policies));
        Self { stop, task, context }
    }

    /// Ends it in good order.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(PATIENCE, self.task).await.expect("it stops when asked").unwrap();
    }

    /// Ends it as a crash would.
    pub async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn run(context: Context, settings: Settings, with_policies: bool) {
    let shared = Shared::new(&context, settings);
    futures::try_join!(
        context.controller(Stack::new(&shared)),
        context.controller(Operands::<SpireServer>::new(&shared)),
        context.controller(Operands::<SpireAgent>::new(&shared)),
        context.controller(Operands::<SpiffeCSIDriver>::new(&shared)),
        context.controller(Operands::<SpireOIDCDiscoveryProvider>::new(&shared)),
        shared.policies().keep(&context, with_policies),
    )
    .unwrap();
}

//! What a test asks for: a control plane, a client, a namespace of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, anyhow, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, Config};
use sha2::{Digest, Sha256};
use tokio::sync::{OnceCell, oneshot};

use crate::binaries::Binaries;
use crate::catalogue::hex;
use crate::control_plane::{ControlPlane, Nobody};
use crate::home::Home;
use crate::image::{self, Image, Layout};
use crate::launch::Lifetime;
use crate::node::{Enclosure, remains};
use crate::parts::Work;
use crate::process::ProcessId;
use crate::progress::Progress;
use crate::scratch::Scratch;
use crate::{Component, Part, kubeconfig, parts, probe};

/// How a sandbox is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Write a line of JSON for every request to [`Sandbox::audit_log`], before it is answered.
    pub audit: bool,
    /// Let etcd wait for the disk, as a real one does. Slower: for honest benchmarks.
    pub durable: bool,
    /// Run a node too, on which pods run. Needs root, and the packages that `hack/setup --node` installs.
    pub node: bool,
    /// What runs beside Kubernetes, e.g. `"registry".parse()?`.
    pub with: Vec<Part>,
    /// The port of the API server; a free one when not given.
    pub port: Option<u16>,
    /// More flags for the API server, e.g. `--watch-cache=false`.
    pub api_server_flags: Vec<String>,
}

/// How [`Sandbox::stop`] ends a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Asks it to end in good order, and insists after half a minute.
    Term,
    /// Ends it at once, as a crash would.
    Kill,
}

/// A control plane for tests.
///
/// # Guarantees
/// - One that was started here ends with this process, even when this is killed, and leaves no file.
/// - It is ready to be used: the API server, the controller manager and the scheduler work, and the
///   namespace `default` has its ServiceAccount.
pub struct Sandbox {
    place: Place,
}

enum Place {
    /// Started by this process. The order matters: processes end before their files go.
    Own { plane: Box<ControlPlane>, kubeconfig: PathBuf, _scratch: Scratch },
    /// One that was there before.
    Given {
        kubeconfig: PathBuf,
        binaries: Binaries,
        /// Known when it is a sandbox that `sandbox run` started.
        home: Option<Home>,
        audit: bool,
    },
}

/// On namespaces in a cluster that is not ours: the process that made them.
const OWNER_LABEL: &str = "sandbox.opcore.dev/run";

impl Sandbox {
    /// The control plane that all tests of this process share.
    ///
    /// It is the cluster of `OPCORE_KUBECONFIG` when that is set: `sandbox run` sets it, so that one
    /// control plane serves a whole test run. `KUBECONFIG` is ignored on purpose: tests must not run
    /// against whatever cluster somebody worked with last. Otherwise one is started on first use.
    ///
    /// May be called from any number of tests at once, each with a runtime of its own.
    ///
    /// # Errors
    /// It cannot be started. All callers get the error, none tries again.
    pub async fn shared() -> anyhow::Result<&'static Self> {
        static SHARED: OnceCell<Result<Sandbox, String>> = OnceCell::const_new();
        let shared = SHARED
            .get_or_init(|| async {
                let sandbox = match crate::env_path("OPCORE_KUBECONFIG") {
                    Some(path) => Self::given(path).await,
                    None => Self::start(Options::default()).await,
                };
                sandbox.map_err(|error| format!("{error:#}"))
            })
            .await;
        shared.as_ref().map_err(|error| anyhow!(error.clone()))
    }

    /// As [`Self::shared`], with a node on which pods run.
    ///
    /// It is the cluster of `OPCORE_KUBECONFIG` when that has a node: `sandbox run --node` gives one to a
    /// whole test run, and a cluster that is not a sandbox is taken to have nodes. Otherwise one is started on
    /// first use, with an audit log.
    ///
    /// # Errors
    /// It cannot be started. All callers get the error, none tries again.
    pub async fn shared_with_node() -> anyhow::Result<&'static Self> {
        static SHARED: OnceCell<Result<Sandbox, String>> = OnceCell::const_new();
        if Self::node_is_given().await? {
            return Self::shared().await;
        }
        let own = SHARED
            .get_or_init(|| async {
                let options = Options { node: true, audit: true, ..Options::default() };
                Self::start(options).await.map_err(|error| format!("{error:#}"))
            })
            .await;
        own.as_ref().map_err(|error| anyhow!(error.clone()))
    }

    /// Whether the cluster of `OPCORE_KUBECONFIG` has a node; without one, [`Self::shared_with_node`] needs a machine
    /// that [can run it](crate::can_run_node).
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn node_is_given() -> anyhow::Result<bool> {
        if crate::env_path("OPCORE_KUBECONFIG").is_none() {
            return Ok(false);
        }
        let given = Self::shared().await?;
        Ok(given.is_foreign() || given.enclosure().is_some())
    }

    /// Starts one of its own, for tests that stop or restart components or count requests.
    ///
    /// Dropped, it ends and its files are removed. The components are built first when they never were.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        on_a_thread(|| async move {
            let binaries = Binaries::for_sandbox(&options, Progress::detect()).await?;
            Self::start_with(options, binaries).await
        })
        .await
    }

    pub(crate) async fn start_with(options: Options, binaries: Binaries) -> anyhow::Result<Self> {
        let scratch = Scratch::create()?;
        let plane = ControlPlane::start(scratch.home(), binaries, options, Lifetime::WithThisProcess, &Nobody).await?;
        Ok(Self {
            place: Place::Own { kubeconfig: plane.home().kubeconfig(), plane: Box::new(plane), _scratch: scratch },
        })
    }

    async fn given(path: PathBuf) -> anyhow::Result<Self> {
        let sandbox = Self {
            place: Place::Given {
                binaries: Binaries::at_hand(),
                home: crate::env_path("OPCORE_SANDBOX_HOME").map(Home::at).filter(|home| home.kubeconfig() == path),
                audit: std::env::var_os("OPCORE_SANDBOX_AUDIT").is_some(),
                kubeconfig: path,
            },
        };
        let client = sandbox.client().await?;
        client.apiserver_version().await.with_context(|| {
            format!("The cluster of OPCORE_KUBECONFIG ({}) does not answer", sandbox.kubeconfig().display())
        })?;
        if sandbox.is_foreign() {
            remove_namespaces_of_ended_runs(&client).await;
        }
        Ok(sandbox)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        match &self.place {
            Place::Own { kubeconfig, .. } | Place::Given { kubeconfig, .. } => kubeconfig,
        }
    }

    /// A new client of the administrator, on the runtime of the caller.
    pub async fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// The administrator's configuration, to build a client with layers of one's own.
    pub async fn config(&self) -> anyhow::Result<Config> {
        let mut config = kubeconfig::load(self.kubeconfig()).await?;
        if !self.is_foreign() {
            // It is on this machine, whatever proxy leads elsewhere.
            config.proxy_url = None;
        }
        Ok(config)
    }

    /// A fresh namespace whose name begins with `prefix`, ready for pods.
    ///
    /// It stays, as evidence, until the sandbox goes as a whole. In a cluster of `OPCORE_KUBECONFIG` it
    /// carries the label `sandbox.opcore.dev/run` and is removed by the next run on the same machine.
    pub async fn namespace(&self, prefix: &str) -> anyhow::Result<String> {
        let client = self.client().await?;
        let labels = self.is_foreign().then(|| BTreeMap::from([(OWNER_LABEL.to_owned(), this_run())]));
        let namespace = Namespace {
            metadata: ObjectMeta { generate_name: Some(format!("{prefix}-")), labels, ..ObjectMeta::default() },
            ..Namespace::default()
        };
        let created = Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("Cannot create a namespace {prefix}-…"))?;
        let name = created.metadata.name.unwrap_or_default();
        probe::default_account(&client, &name).await?;
        Ok(name)
    }

    /// Ends a component and returns when it is gone. It is not an error if it does not run.
    ///
    /// # Errors
    /// The cluster was not started by this process.
    pub async fn stop(&self, component: Component, signal: Signal) -> anyhow::Result<()> {
        self.plane()?.stop(component, signal).await
    }

    /// Ends a component if it runs, and starts it again with the same port, data and certificates.
    /// Returns when it does its work.
    ///
    /// # Errors
    /// The cluster was not started by this process, or the component does not become ready.
    pub async fn restart(&self, component: Component) -> anyhow::Result<()> {
        self.plane()?.restart(component).await
    }

    /// Where requests are logged, when [`Options::audit`] asked for it.
    pub fn audit_log(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Own { plane, .. } => plane.options().audit.then(|| plane.home().audit_log()),
            Place::Given { home, audit, .. } => home.as_ref().filter(|_| *audit).map(Home::audit_log),
        }
    }

    /// The directory that the node has as `/srv`, wherever it lies on this machine: pods find files of this machine
    /// there, and leave some, by a `hostPath` volume below `/srv`. Anybody may write to it. `None` without a node, and
    /// for a cluster that is not a sandbox.
    pub fn srv(&self) -> Option<PathBuf> {
        self.enclosure().and_then(|_| self.home()).map(Home::srv)
    }

    /// The log of a component. A cluster that is not a sandbox keeps its logs to itself: there it is
    /// `/dev/null`, which can be read and holds nothing.
    pub fn log(&self, component: Component) -> PathBuf {
        self.home().map_or_else(|| "/dev/null".into(), |home| home.log(component))
    }

    /// What must be known to use a part, as variables: its address, its user. Empty where there is no such part.
    pub fn facts(&self, part: Part) -> BTreeMap<String, String> {
        self.home().and_then(|home| parts::facts_of(home, part).ok()).into_iter().flatten().collect()
    }

    /// The file of a program such as `kubectl`, where there is one.
    pub fn bin(&self, name: &str) -> Option<PathBuf> {
        let binaries = match &self.place {
            Place::Own { plane, .. } => plane.binaries(),
            Place::Given { binaries, .. } => binaries,
        };
        match binaries.get(name) {
            Ok(path) => Some(path.to_owned()),
            Err(_) => crate::path_lookup(name),
        }
    }

    /// Builds an image and puts it into the node, where pods can use it under its name.
    ///
    /// # Errors
    /// There is no node, or the image cannot be built.
    pub async fn load_image(&self, image: &Image) -> anyhow::Result<()> {
        let image = image.clone();
        self.load(move || image.build()).await
    }

    /// Puts an image that `sandbox image build` made into the node.
    ///
    /// # Errors
    /// There is no node, or the file does not hold an image that can run here.
    pub async fn load_image_file(&self, file: &Path) -> anyhow::Result<()> {
        let file = file.to_owned();
        self.load(move || Layout::read(&file, None)).await
    }

    /// Adds a part that is images for pods, e.g. `"spire".parse()?`: puts them into the node and their kinds into the cluster, as
    /// `sandbox up --with` does.
    ///
    /// # Errors
    /// There is no node, or the part does not consist of images, or it cannot be built.
    pub async fn add_images(&self, part: Part) -> anyhow::Result<()> {
        let Work::Images(images) = part.definition().work else {
            bail!("{part} is started with a sandbox: name it in Options {{ with, .. }}.");
        };
        let (home, enclosure) = self.node()?;
        let binaries = Binaries::for_parts(&[part], true, Progress::detect()).await?;
        let network = remains::network(home);
        let place = parts::Place { part, home, binaries: &binaries, network, port: 0 };
        parts::install_definitions(&place, || self.client()).await?;
        parts::prepare(&place)?;
        parts::load_images(images, &binaries, &enclosure, home).await
    }

    async fn load(&self, made: impl FnOnce() -> anyhow::Result<Layout> + Send + 'static) -> anyhow::Result<()> {
        let (home, enclosure) = self.node()?;
        let layout = tokio::task::spawn_blocking(made).await??;
        image::load(layout, &enclosure, home).await
    }

    /// What is needed to put images into its node.
    fn node(&self) -> anyhow::Result<(&Home, Enclosure)> {
        let Some(home) = self.home() else {
            bail!(
                "Images cannot be put into a cluster given by OPCORE_KUBECONFIG: load them with the tools of that \
                 cluster."
            );
        };
        let enclosure =
            self.enclosure().context("This sandbox has no node: start one with Options { node: true, .. }")?;
        Ok((home, enclosure))
    }

    /// Where its node runs, if it has one.
    fn enclosure(&self) -> Option<Enclosure> {
        match &self.place {
            Place::Own { plane, .. } => plane.enclosure().cloned(),
            Place::Given { home, .. } => Enclosure::find(home.as_ref()?),
        }
    }

    /// The numbers of the processes that this one started.
    pub fn pids(&self) -> BTreeMap<Component, u32> {
        match &self.place {
            Place::Own { plane, .. } => {
                plane.processes().into_iter().map(|(component, process)| (component, process.pid)).collect()
            }
            Place::Given { .. } => BTreeMap::new(),
        }
    }

    pub(crate) fn plane(&self) -> anyhow::Result<&ControlPlane> {
        match &self.place {
            Place::Own { plane, .. } => Ok(plane),
            Place::Given { .. } => bail!(
                "The components of a cluster given by OPCORE_KUBECONFIG cannot be stopped: \
                 use Sandbox::start in tests that do so."
            ),
        }
    }

    /// Its directory, where it is known.
    fn home(&self) -> Option<&Home> {
        match &self.place {
            Place::Own { plane, .. } => Some(plane.home()),
            Place::Given { home, .. } => home.as_ref(),
        }
    }

    /// Whether it is a cluster of other people, with their objects in it.
    pub fn is_foreign(&self) -> bool {
        matches!(&self.place, Place::Given { home: None, .. })
    }
}

/// Runs work on a thread and a runtime of its own: nothing blocks the caller's runtime, and what is
/// made does not depend on how long that one lives. A result that no caller waits for is dropped.
async fn on_a_thread<T, F>(work: impl FnOnce() -> F + Send + 'static) -> anyhow::Result<T>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<T>>,
{
    let (send, receive) = oneshot::channel();
    thread::Builder::new().name("sandbox-start".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let result = match runtime {
            Ok(runtime) => runtime.block_on(work()),
            Err(error) => Err(error.into()),
        };
        drop(send.send(result));
    })?;
    receive.await.context("The start of the sandbox panicked")?
}

/// Where process numbers count, process and its start, as a label value.
fn this_run() -> String {
    let start = ProcessId::of(std::process::id()).map_or(0, |id| id.started());
    format!("{}.{}.{start}", here(), std::process::id())
}

/// Where the numbers of processes mean the same as here: this boot of this machine, in this pid namespace. Two containers
/// may have the same host name, and then the processes of one do not exist for the other.
fn here() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let mut digest = Sha256::new();
    digest.update(boot.trim());
    digest.update(namespace.as_os_str().as_encoded_bytes());
    hex(&digest.finalize())[..16].to_owned()
}

/// Whether the process of a run is known to be gone; of one from elsewhere nothing is known.
fn has_ended(run: &str) -> bool {
    run.strip_prefix(&format!("{}.", here()))
        .and_then(|rest| rest.split_once('.'))
        .and_then(|(pid, start)| Some((pid.parse().ok()?, start.parse::<u64>().ok()?)))
        .is_some_and(|(pid, start)| ProcessId::of(pid).is_none_or(|now| now.started() != start))
}

/// Best effort: a run that could not clean up does not make the next one fail.
async fn remove_namespaces_of_ended_runs(client: &Client) {
    let api: Api<Namespace> = Api::all(client.clone());
    let Ok(found) = api.list_metadata(&ListParams::default().labels(OWNER_LABEL)).await else {
        return;
    };
    for namespace in found {
        let Some(run) = namespace.metadata.labels.as_ref().and_then(|l| l.get(OWNER_LABEL)) else {
            continue;
        };
        if let (true, Some(name)) = (has_ended(run), &namespace.metadata.name) {
            let _ = api.delete(name, &DeleteParams::background()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_ended_only_when_its_process_can_be_seen_from_here_and_is_gone() {
        let (here, this) = (here(), std::process::id());
        assert!(this_run().len() <= 63 && this_run().starts_with(&here), "{}", this_run());
        assert!(!has_ended(&this_run()), "this one runs");
        assert!(has_ended(&format!("{here}.{this}.1")), "another had this number before");
        assert!(!has_ended(&format!("0123456789abcdef.{this}.1")), "another container, perhaps of the same host name");
        assert!(!has_ended("nonsense"));
    }
}

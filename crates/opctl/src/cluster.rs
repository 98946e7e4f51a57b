//! The connection to a cluster, and error messages that say what to do.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// How long the API server may take to accept a connection, and to answer a request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a watch may be silent. Longer than one watch lasts, see [`WATCH_TIMEOUT_SECONDS`].
const READ_TIMEOUT: Duration = Duration::from_secs(75);
/// After this many seconds a watch is restarted, so that a dead one is noticed.
pub(crate) const WATCH_TIMEOUT_SECONDS: u32 = 60;

/// The flags that select a cluster, as kubectl has them.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// The kubeconfig to use [default: KUBECONFIG, else ~/.kube/config, else the pod's own]
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use [default: its current one]
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
}

/// A cluster, with a client for it.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub client: Client,
    /// The namespace that the context names.
    pub namespace: String,
    address: String,
}

impl Connection {
    /// Creates a client. Nothing is sent to the cluster yet.
    pub(crate) async fn cluster(&self) -> anyhow::Result<Cluster> {
        opcore::client::install_crypto_provider();
        let mut config = self.config().await?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(READ_TIMEOUT);
        let (address, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
        let client = Client::try_from(config).context("The credentials of the kubeconfig cannot be used")?;
        Ok(Cluster { client, namespace, address })
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let file = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let file = match file {
            Ok(file) if !file.clusters.is_empty() => file,
            // In a pod there is no file, and none is needed.
            Err(_) if self.in_pod().is_some() => return self.in_pod().context("The pod's own configuration is gone."),
            Err(KubeconfigError::ReadConfig(why, path)) => {
                return Err(no_cluster(&format!("{} cannot be read ({why})", path.display())));
            }
            Err(error) => return Err(no_cluster(first_line(&error.to_string()))),
            Ok(_) => return Err(no_cluster("the kubeconfig names none")),
        };
        let contexts: Vec<&str> = file.contexts.iter().map(|context| context.name.as_str()).collect();
        let wanted = self.context.as_deref().or(file.current_context.as_deref()).filter(|name| !name.is_empty());
        let remedy = format!("choose one with --context; there is {}", listed(&contexts));
        match wanted {
            None => bail!("The kubeconfig has no current context: {remedy}."),
            Some(name) if !contexts.contains(&name) => bail!("The kubeconfig has no context {name}: {remedy}."),
            Some(_) => {}
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(file, &options).await.map_err(|error| {
            let why = error.to_string();
            anyhow!("The kubeconfig cannot be used ({}): correct it, or name another one.", first_line(&why))
        })
    }

    /// The configuration of the pod that this runs in, unless a flag selects another cluster.
    fn in_pod(&self) -> Option<Config> {
        if self.kubeconfig.is_some() || self.context.is_some() { None } else { Config::incluster().ok() }
    }
}

fn no_cluster(why: &str) -> anyhow::Error {
    anyhow!("No cluster is selected: {why}; name a kubeconfig with --kubeconfig or KUBECONFIG.")
}

impl Cluster {
    /// Sends a request about a kind that `chart` installs.
    ///
    /// # Errors
    ///
    /// It fails; the error says what to do.
    pub(crate) async fn ask<T>(
        &self,
        chart: &str,
        question: impl Future<Output = Result<T, kube::Error>>,
    ) -> anyhow::Result<T> {
        match tokio::time::timeout(REQUEST_TIMEOUT, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.explain(chart, error)),
            Err(_) => bail!(
                "The cluster at {} did not answer within {}s: try again, or choose another one with --context.",
                self.address,
                REQUEST_TIMEOUT.as_secs()
            ),
        }
    }

    /// An error as one sentence, with the remedy.
    pub(crate) fn explain(&self, chart: &str, error: kube::Error) -> anyhow::Error {
        let cluster = format!("The cluster at {}", self.address);
        match error {
            kube::Error::Api(status) if is_kind_missing(&status) => {
                let remedy = format!("install the chart {chart}, or choose another cluster with --context");
                anyhow!("{cluster} does not know this kind: {remedy}.")
            }
            kube::Error::Api(status) if status.code == 403 => {
                let message = status.message.as_str();
                let what = message.split_once("is forbidden: ").map_or(message, |(_, what)| what);
                // The message of an admission policy is a sentence of its own.
                let what = what.split_once(" denied request: ").map_or(what, |(_, words)| words);
                anyhow!("{what}: ask for a role that allows it, or choose another user with --context.")
            }
            kube::Error::Api(status) if status.code == 401 => {
                let remedy = "log in again, or choose another user with --context";
                anyhow!("{cluster} does not accept your credentials: {remedy}.")
            }
            kube::Error::SerdeError(why) => {
                let remedy = "use an opctl of the same version as the operator";
                anyhow!("What the cluster answered cannot be read ({why}): {remedy}.")
            }
            kube::Error::Auth(why) => {
                anyhow!("The credentials of the kubeconfig cannot be used ({why}): log in again.")
            }
            kube::Error::Service(_) | kube::Error::HyperError(_) => {
                let remedy = "start it, or choose another one with --context";
                anyhow!("{cluster} cannot be reached ({}): {remedy}.", root_cause(&error))
            }
            other => anyhow!("{cluster} refused it: {}.", opcore::Error::from(other)),
        }
    }
}

/// Whether a 404 means that the kind is not installed: for a missing object, the API server names it.
fn is_kind_missing(status: &kube::core::Status) -> bool {
    status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
}

/// Whether trying again does not help: a right is missing.
pub(crate) fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403) || is_kind_missing(status))
}

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Names, separated by commas.
pub(crate) fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

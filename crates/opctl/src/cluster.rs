//! How a cluster is reached, and what to say when it is not.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// How long the API server may take to accept a connection, and to answer.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(30);
/// How long nothing may arrive on a watch. Longer than a watch lives, see [`WATCH_LIVES`].
const SILENCE: Duration = Duration::from_secs(75);
/// After this many seconds a watch is opened anew, so that one that died is noticed.
pub(crate) const WATCH_LIVES: u32 = 60;

/// Which cluster to talk to: the flags that users of kubectl know.
#[derive(Clone, Debug, Args)]
pub(crate) struct Connection {
    /// The kubeconfig to use [default: KUBECONFIG, else ~/.kube/config, else the pod's own]
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use [default: its current one]
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
}

/// A cluster that can be talked to.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub client: Client,
    address: String,
}

impl Connection {
    /// Makes a client. Nothing is asked of the cluster yet.
    pub(crate) async fn cluster(&self) -> anyhow::Result<Cluster> {
        opcore::client::install_crypto_provider();
        let mut config = self.config().await?;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(SILENCE);
        let address = config.cluster_url.to_string();
        let client = Client::try_from(config).context("The credentials of the kubeconfig cannot be used")?;
        Ok(Cluster { client, address })
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let file = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                // In a pod there is no file, and none is needed.
                let in_pod = (self.kubeconfig.is_none() && self.context.is_none()).then(Config::incluster);
                return match (in_pod, error) {
                    (Some(Ok(config)), _) => Ok(config),
                    (_, KubeconfigError::ReadConfig(why, path)) => bail!(
                        "There is no cluster to talk to: {} cannot be read ({why}); name a kubeconfig with --kubeconfig or KUBECONFIG.",
                        path.display()
                    ),
                    (_, error) => bail!(
                        "There is no cluster to talk to: {}; name a kubeconfig with --kubeconfig or KUBECONFIG.",
                        one_line(&error.to_string())
                    ),
                };
            }
        };
        if file.clusters.is_empty() {
            bail!(
                "There is no cluster to talk to: the kubeconfig names none; name another one with --kubeconfig or KUBECONFIG."
            );
        }
        let contexts: Vec<String> = file.contexts.iter().map(|context| context.name.clone()).collect();
        match self.context.as_ref().or(file.current_context.as_ref().filter(|name| !name.is_empty())) {
            None => bail!(
                "The kubeconfig has no current context: choose one with --context; there is {}.",
                listed(&contexts)
            ),
            Some(name) if !contexts.contains(name) => {
                bail!(
                    "The kubeconfig has no context {name}: choose one with --context; there is {}.",
                    listed(&contexts)
                )
            }
            Some(_) => {}
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(file, &options).await.map_err(|error| {
            anyhow!(
                "The kubeconfig cannot be used: {}; correct it, or name another one with --kubeconfig.",
                one_line(&error.to_string())
            )
        })
    }
}

impl Cluster {
    /// Asks the API server something about a kind that `chart` brings, and puts a failure into words.
    pub(crate) async fn ask<T>(
        &self,
        chart: &str,
        question: impl Future<Output = Result<T, kube::Error>>,
    ) -> anyhow::Result<T> {
        match tokio::time::timeout(ANSWER, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.explain(chart, error)),
            Err(_) => bail!(
                "The cluster at {} did not answer within {}s: try again, or choose another one with --context.",
                self.address,
                ANSWER.as_secs()
            ),
        }
    }

    /// One sentence with the cure.
    pub(crate) fn explain(&self, chart: &str, error: kube::Error) -> anyhow::Error {
        match error {
            kube::Error::Api(status) if is_kind_missing(&status) => anyhow!(
                "The cluster at {} does not know this kind: install the chart {chart}, or choose another cluster with --context.",
                self.address
            ),
            kube::Error::Api(status) if status.code == 403 => {
                let what =
                    status.message.split_once("is forbidden: ").map_or(status.message.as_str(), |(_, what)| what);
                anyhow!("{what}: ask for a role that allows it, or choose another user with --context.")
            }
            kube::Error::Api(status) if status.code == 401 => anyhow!(
                "The cluster at {} does not accept your credentials: log in again, or choose another user with --context.",
                self.address
            ),
            kube::Error::SerdeError(why) => {
                anyhow!(
                    "What the cluster answered cannot be read ({why}): use an opctl of the same version as the operator."
                )
            }
            kube::Error::Service(_) | kube::Error::HyperError(_) => anyhow!(
                "The cluster at {} cannot be reached ({}): start it, or choose another one with --context.",
                self.address,
                root_cause(&error)
            ),
            kube::Error::Auth(why) => {
                anyhow!("The credentials of the kubeconfig cannot be used ({why}): log in again.")
            }
            other => anyhow!("The cluster at {} refused it: {}.", self.address, opcore::Error::from(other)),
        }
    }
}

/// The API server answers like this where a kind is not installed; where an object is missing, it names it.
fn is_kind_missing(status: &kube::core::Status) -> bool {
    status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
}

/// Whether trying again does not help: someone must grant something first.
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

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Names as people list them.
pub(crate) fn listed<S: AsRef<str>>(names: &[S]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

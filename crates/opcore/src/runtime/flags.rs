//! The flags that every operator has. Each can also be set by environment, which is how charts set them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::SignedDuration;

/// The flags that every operator has.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// The format of the log: text for people, or JSON for machines.
    #[arg(long, env = "OPCORE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// The log level, such as `info` or `info,opcore=debug`.
    #[arg(long, env = "OPCORE_LOG_LEVEL", default_value = "info")]
    pub log_level: String,

    /// The address on which /metrics, /healthz and /readyz are served.
    #[arg(long, env = "OPCORE_LISTEN", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,

    /// The path of a kubeconfig. Defaults to the cluster of the pod, or the default kubeconfig.
    #[arg(long, env = "OPCORE_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// The namespaces to watch, separated by commas. Defaults to all namespaces.
    #[arg(long, env = "OPCORE_WATCH_NAMESPACES", value_delimiter = ',', value_parser = name)]
    pub watch_namespaces: Vec<String>,

    /// Reconcile only while holding a lease. Required if there may be more than one process, as during a rolling
    /// update.
    #[arg(long, env = "OPCORE_LEADER_ELECT", default_value_t = true, action = clap::ArgAction::Set)]
    pub leader_elect: bool,

    /// The name of the lease. Defaults to the name of the operator.
    #[arg(long, env = "OPCORE_LEASE_NAME", value_parser = name)]
    pub lease_name: Option<String>,

    /// The namespace of the lease. Defaults to the namespace of the pod.
    #[arg(long, env = "OPCORE_LEASE_NAMESPACE", value_parser = name)]
    pub lease_namespace: Option<String>,

    /// How long other processes wait for a leader that does not renew its lease.
    #[arg(long, env = "OPCORE_LEASE_DURATION", default_value = "15s", value_parser = lease_duration)]
    pub lease_duration: Duration,

    /// Whether to watch the ownership contract. If true, nothing is written until it is known whether one is in force;
    /// this requires the right to list and watch ownershipcontracts.opcore.dev.
    #[arg(long, env = "OPCORE_OWNERSHIP_CONTRACT", default_value_t = true, action = clap::ArgAction::Set)]
    pub ownership_contract: bool,

    /// The maximum number of concurrent reconciles.
    #[arg(long, env = "OPCORE_CONCURRENCY", default_value = "16", value_parser = at_least_one)]
    pub concurrency: usize,

    /// How long the API server may take to respond to a request.
    #[arg(long, env = "OPCORE_REQUEST_TIMEOUT", default_value = "30s", value_parser = duration)]
    pub request_timeout: Duration,

    /// How long a reconcile may take.
    #[arg(long, env = "OPCORE_RECONCILE_TIMEOUT", default_value = "2m", value_parser = duration)]
    pub reconcile_timeout: Duration,
}

/// How to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// A positive duration as people write it: `15s`, `2m`, `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: SignedDuration = text.parse().map_err(|_| "use a duration such as 15s, 2m or 1h30m".to_owned())?;
    match Duration::try_from(parsed) {
        Ok(duration) if duration > Duration::ZERO => Ok(duration),
        _ => Err("must be greater than zero".to_owned()),
    }
}

/// Kubernetes counts a lease in whole seconds, and a leader must be able to renew it several times.
fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < Duration::from_secs(2) || duration.subsec_nanos() != 0 {
        return Err("must be whole seconds, and at least 2s".to_owned());
    }
    Ok(duration)
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "must be a whole number, and at least 1".to_owned())
}

/// A name that Kubernetes accepts for namespaces and leases.
fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if text.len() <= 253 && text.chars().all(fits) && edge(text.chars().next()) && edge(text.chars().next_back()) {
        Ok(text.to_owned())
    } else {
        Err("must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    fn parse(arguments: &[&str]) -> Result<Flags, String> {
        let all = ["operator"].iter().chain(arguments);
        Cli::try_parse_from(all).map(|cli| cli.flags).map_err(|error| error.to_string())
    }

    #[test]
    fn durations_are_written_as_people_do() {
        let flags = parse(&["--lease-duration", "30s", "--reconcile-timeout", "1m30s"]).unwrap();
        assert_eq!((flags.lease_duration.as_secs(), flags.reconcile_timeout.as_secs()), (30, 90));
    }

    #[test]
    fn bad_values_are_refused_with_the_flag_and_the_remedy() {
        for (arguments, flag, remedy) in [
            (["--lease-duration", "soon"], "--lease-duration", "15s"),
            (["--lease-duration", "500ms"], "--lease-duration", "whole seconds"),
            (["--request-timeout", "0s"], "--request-timeout", "greater than zero"),
            (["--concurrency", "0"], "--concurrency", "at least 1"),
            (["--watch-namespaces", "Shop"], "--watch-namespaces", "lower case"),
            (["--log-format", "xml"], "--log-format", "json"),
        ] {
            let error = parse(&arguments).unwrap_err();
            assert!(error.contains(flag) && error.contains(remedy), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn namespaces_are_separated_by_commas() {
        assert_eq!(parse(&["--watch-namespaces", "shop,bank"]).unwrap().watch_namespaces, ["shop", "bank"]);
    }
}

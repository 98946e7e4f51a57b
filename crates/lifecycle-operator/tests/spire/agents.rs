//! The agent's configuration, and that of the OIDC provider: both programs start with it.

use std::fs;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lifecycle_operator::api::v1alpha1::{SpireAgent, SpireOIDCDiscoveryProvider};
use lifecycle_operator::render::{Objects, Platform, agent, oidc};
use opcore::Write;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use super::{config, manifests, settings, words};

/// How long a program may take to say something.
const PATIENCE: Duration = Duration::from_secs(60);
/// Everything that a cluster may have.
const PLATFORM: Platform =
    Platform { routes: false, security_context_constraints: false, http_routes: true, spiffe_ids: true };

fn samples<K: DeserializeOwned>(operand: &str) -> Vec<(String, K)> {
    let read = |(name, text): (String, String)| (name, serde_yaml::from_str(&text).unwrap());
    manifests(operand).into_iter().map(read).collect()
}

/// The one file in the ConfigMap.
fn file(objects: &Objects) -> Value {
    let found = objects.iter().find_map(|write| match write {
        Write::Apply(apply) if apply.resource.kind == "ConfigMap" => Some(apply.object.data["data"].clone()),
        _ => None,
    });
    let text = found.unwrap().as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
    serde_json::from_str(&text).unwrap()
}

/// A certificate and its key, as PEM.
fn certificate(directory: &Path) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["example.org".to_owned()]).unwrap();
    let (certificate, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

/// Waits until a program says this. Returns what it said instead, if it ends.
async fn until_it_says(child: &mut Child, wanted: &str) -> Result<(), String> {
    let mut said = String::new();
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let mut out = lines(out);
    let mut err = lines(err);
    let (mut out_ended, mut err_ended) = (false, false);
    let listening = async {
        while !(out_ended && err_ended) {
            let line = tokio::select! {
                line = out.next_line(), if !out_ended => { let line = line.unwrap(); out_ended = line.is_none(); line }
                line = err.next_line(), if !err_ended => { let line = line.unwrap(); err_ended = line.is_none(); line }
            };
            let Some(line) = line else { continue };
            if line.contains(wanted) {
                return true;
            }
            said.push_str(&line);
            said.push('\n');
        }
        false
    };
    match tokio::time::timeout(PATIENCE, listening).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(said),
        Err(_) => Err(format!("it did not say {wanted:?} in time:\n{said}")),
    }
}

fn lines<R: AsyncRead + Unpin>(reader: R) -> tokio::io::Lines<BufReader<R>> {
    BufReader::new(reader).lines()
}

fn start(program: &Path, arguments: &[&str], config: &Path) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).arg("-config").arg(config).env_clear().env("KUBELET_HOST", "127.0.0.1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().unwrap()
}

/// An agent's configuration with its files in this directory, and nobody to talk to.
fn here(mut config: Value, directory: &Path) -> Value {
    let (certificate, _) = certificate(directory);
    fs::write(directory.join("token"), "token").unwrap();
    let at = |name: &str| json!(directory.join(name));
    let agent = &mut config["agent"];
    agent["data_dir"] = at("data");
    agent["socket_path"] = at("agent.sock");
    agent["trust_bundle_path"] = json!(certificate);
    agent["server_address"] = json!("127.0.0.1");
    agent["server_port"] = json!(1);
    config["health_checks"]["bind_port"] = json!(free_port().to_string());
    if let Some(data) = config.pointer_mut("/plugins/WorkloadAttestor/0/k8s/plugin_data") {
        data["token_path"] = at("token");
        data["kubelet_ca_path"] = json!(certificate);
    }
    config
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn accepts(program: &Path, config: Value) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let attestor = config["plugins"]["WorkloadAttestor"][0].as_object().unwrap().keys().next().unwrap().clone();
    let file = directory.path().join("agent.conf");
    fs::write(&file, config.to_string()).unwrap();
    let output = std::process::Command::new(program).args(["validate", "-config"]).arg(&file).output().unwrap();
    if !output.status.success() {
        return Err(words(output));
    }
    // It does not look at the configuration of plugins. When it runs, it does, before anything else.
    fs::write(&file, here(config, directory.path()).to_string()).unwrap();
    let mut child = start(program, &["run", "-logLevel", "INFO", "-logFormat", "text"], &file);
    let loaded = format!("msg=\"Plugin loaded\" external=false plugin_name={attestor} plugin_type=WorkloadAttestor");
    let said = until_it_says(&mut child, &loaded).await;
    child.kill().await.unwrap();
    said
}

fn of_agent(agent: &SpireAgent) -> Value {
    file(&agent::objects(agent, &config(), &settings(), &PLATFORM).unwrap())
}

#[tokio::test]
async fn agents_start_with_every_configuration() {
    let program = sandbox::program("spire-agent").await.unwrap();
    let samples = samples::<SpireAgent>("agent");
    assert!(samples.len() > 1);
    for (name, agent) in samples {
        accepts(&program, of_agent(&agent)).await.unwrap_or_else(|said| panic!("{name}: {said}"));
    }
}

#[tokio::test]
async fn agents_refuse_what_they_do_not_know_and_what_they_lack() {
    let program = sandbox::program("spire-agent").await.unwrap();
    let (_, agent) = samples::<SpireAgent>("agent").into_iter().find(|(name, _)| name == "default").unwrap();
    let mut unknown = of_agent(&agent);
    unknown["agent"]["retry_bootstrap"] = json!(true);
    assert!(accepts(&program, unknown).await.unwrap_err().contains("retry_bootstrap"));
    let mut lacking = of_agent(&agent);
    lacking["plugins"]["NodeAttestor"][0]["k8s_psat"]["plugin_data"] = json!({});
    assert!(accepts(&program, lacking).await.unwrap_err().contains("cluster"));
}

/// What is served at this path under this host.
fn get(port: u16, host: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test]
async fn providers_serve_the_discovery_document_of_their_issuer_with_every_configuration() {
    let program = sandbox::program("oidc-discovery-provider").await.unwrap();
    let samples = samples::<SpireOIDCDiscoveryProvider>("oidc");
    assert!(samples.len() > 1);
    for (name, provider) in samples {
        let mut config = config();
        if let Some(issuer) = &provider.spec.jwt_issuer {
            config.jwt_issuer.clone_from(issuer);
        }
        let mut file = file(&oidc::objects(&provider, &config, &settings(), &PLATFORM).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let (port, health) = (free_port(), free_port());
        file["health_checks"]["bind_port"] = json!(health);
        file["log_format"] = json!("text");
        file["log_level"] = json!("info");
        let is_https = file["serving_cert_file"].is_object();
        if is_https {
            let (certificate, key) = certificate(directory.path());
            file["serving_cert_file"] =
                json!({ "addr": format!("127.0.0.1:{port}"), "cert_file_path": certificate, "key_file_path": key });
        } else {
            file["insecure_addr"] = json!(format!("127.0.0.1:{port}"));
        }
        let at = directory.path().join("oidc.conf");
        fs::write(&at, file.to_string()).unwrap();
        let mut child = start(&program, &[], &at);
        let serves = if is_https { "Serving HTTPS" } else { "Serving HTTP" };
        until_it_says(&mut child, serves).await.unwrap_or_else(|said| panic!("{name}: {said}"));
        if !is_https {
            let path = file["server_path_prefix"].as_str().unwrap_or_default();
            let document = format!("{path}/.well-known/openid-configuration");
            for host in file["domains"].as_array().unwrap() {
                let (status, body) = get(port, host.as_str().unwrap(), &document);
                assert_eq!(status, 200, "{name}: {host}: {body}");
                let body: Value = serde_json::from_str(&body).unwrap();
                assert_eq!(body["issuer"], config.jwt_issuer, "{name}: {host}");
                let keys = body["jwks_uri"].as_str().unwrap();
                assert_eq!(keys, format!("{}/keys", config.jwt_issuer.trim_end_matches('/')));
                // Nobody has given it keys yet.
                assert_eq!(get(port, host.as_str().unwrap(), &format!("{path}/keys")).0, 500);
            }
            assert_eq!(get(port, "other.example.org", &document).0, 400, "{name}");
        }
        child.kill().await.unwrap();
    }
}

//! Real SPIRE reads every configuration that is rendered: `make e2e`, or `cargo test -p lifecycle-operator --test spire`.
//!
//! Not among the tests of `make test`: from nothing, building SPIRE's server takes minutes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lifecycle_operator::api::v1alpha1::{DatabaseType, SpireServer};
use lifecycle_operator::render::{Config, Images, Platform, Settings, server};
use opcore::Write;
use serde_json::{Value, json};

mod agents;

/// The manifests of an operand of which the objects are recorded in golden files: their names, and what they say.
fn manifests(operand: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/render").join(operand).join("samples");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read =
        |file: PathBuf| (file.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(file).unwrap());
    files.into_iter().map(read).collect()
}

fn samples() -> Vec<(String, SpireServer)> {
    let read = |(name, text): (String, String)| (name, serde_yaml::from_str(&text).unwrap());
    manifests("server").into_iter().map(read).collect()
}

fn settings() -> Settings {
    let image = || "example.org/image:v1".to_owned();
    let images = Images {
        server: image(),
        controller_manager: image(),
        agent: image(),
        csi_driver: image(),
        csi_registrar: image(),
        oidc: image(),
        volume: image(),
    };
    Settings {
        namespace: "spire".to_owned(),
        images,
        pull_policy: "Never".to_owned(),
        pull_secrets: Vec::new(),
        class_name: "tests".to_owned(),
    }
}

fn config() -> Config {
    Config {
        trust_domain: "example.org".to_owned(),
        cluster_name: "a.cluster".to_owned(),
        bundle_config_map: "spire-bundle".to_owned(),
        jwt_issuer: "https://oidc-discovery.example.org".to_owned(),
    }
}

/// What a server's pod has: its configuration and that of the controller manager, arguments and variables.
struct Pod {
    config: String,
    manager: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

impl Pod {
    fn of(server: &SpireServer) -> Self {
        let objects = server::objects(server, &config(), &settings(), &Platform::default(), true).unwrap();
        let applied = |kind: &str, name: &str| {
            let found = objects.iter().find_map(|write| match write {
                Write::Apply(apply)
                    if apply.resource.kind == kind && apply.object.metadata.name.as_deref() == Some(name) =>
                {
                    Some(apply.object.data.clone())
                }
                _ => None,
            });
            found.unwrap()
        };
        let container =
            applied("StatefulSet", server::NAME).pointer("/spec/template/spec/containers/0").unwrap().clone();
        let words = |value: &Value| -> Vec<String> {
            value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
        };
        // What a Secret would hold.
        let secret = match server.spec.datastore.database_type {
            DatabaseType::Mysql | DatabaseType::AwsMysql => {
                "spire:s3cr3t@tcp(db.example.org:3306)/spire?parseTime=true"
            }
            DatabaseType::Postgres | DatabaseType::AwsPostgresql => "dbname=spire user=spire password=s3cr3t host=db",
            DatabaseType::Sql | DatabaseType::Sqlite3 => IN_A_SECRET,
        };
        let variable = |variable: &Value| {
            (variable["name"].as_str().unwrap().to_owned(), variable["value"].as_str().unwrap_or(secret).to_owned())
        };
        let file = |map: &str, name: &str| applied("ConfigMap", map)["data"][name].as_str().unwrap().to_owned();
        Self {
            config: file(server::NAME, "server.conf"),
            manager: file("spire-controller-manager", "controller-manager-config.yaml"),
            arguments: words(&container["args"]),
            variables: container["env"].as_array().into_iter().flatten().map(variable).collect(),
        }
    }

    /// What SPIRE says when it is given the configuration, with its files in this directory.
    fn tell(&self, program: &Path, task: &str, directory: &Path) -> Output {
        let at = |text: &str| text.replace("/run/spire", directory.to_str().unwrap());
        let file = directory.join("server.conf");
        fs::write(&file, at(&self.config)).unwrap();
        let arguments = self.arguments.iter().filter(|word| *word == "-expandEnv");
        let variables = self.variables.iter().map(|(name, value)| (name, at(value)));
        let mut command = Command::new(program);
        command.arg(task).args(arguments).arg("-config").arg(file);
        command.env_clear().envs(variables).env("AWS_REGION", "eu-central-1");
        command.output().unwrap()
    }
}

/// What stands in a Secret is put between quotes.
const IN_A_SECRET: &str = r#"/run/spire/data/a \"$b\u0024{c$.sqlite3"#;

async fn program() -> PathBuf {
    sandbox::program("spire-server").await.unwrap()
}

fn sample(name: &str) -> SpireServer {
    samples().into_iter().find(|(known, _)| known == name).unwrap().1
}

fn words(output: Output) -> String {
    [output.stdout, output.stderr].map(|words| String::from_utf8_lossy(&words).into_owned()).concat()
}

/// A directory with the certificate of an endpoint.
fn files() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["federation.example.org".to_owned()]).unwrap();
    let tls = directory.path().join("server-tls");
    fs::create_dir(&tls).unwrap();
    fs::write(tls.join("tls.crt"), made.cert.pem()).unwrap();
    fs::write(tls.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    directory
}

#[tokio::test]
async fn spire_accepts_every_configuration() {
    let program = program().await;
    let directory = files();
    let mut refused = Vec::new();
    for (name, server) in samples() {
        let output = Pod::of(&server).tell(&program, "validate", directory.path());
        if !output.status.success() {
            refused.push(format!("{name}: {}", words(output)));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[tokio::test]
async fn spire_refuses_what_it_does_not_know() {
    let program = program().await;
    let directory = files();
    let mut pod = Pod::of(&sample("default"));
    let mut config: Value = serde_json::from_str(&pod.config).unwrap();
    config["server"]["ca_validity"] = json!("24h");
    pod.config = config.to_string();
    let output = pod.tell(&program, "validate", directory.path());
    assert!(!output.status.success(), "{}", words(output));
}

#[tokio::test]
async fn what_quoting_could_stumble_over_reaches_spire_as_it_was_written() {
    let program = program().await;
    let odd = r#"/run/spire/data/'a$b${HOME}${c"d\e{.sqlite3"#;
    let secret = json!({ "name": "db", "key": "connection" });
    let cases = [
        (json!({ "connectionString": odd }), r#"'a$b${HOME}${c"d\e{.sqlite3"#),
        (json!({ "connectionStringSecretRef": secret }), r#"a "$b${c$.sqlite3"#),
    ];
    for (datastore, file) in cases {
        let directory = files();
        fs::create_dir(directory.path().join("data")).unwrap();
        let object = json!({
            "metadata": { "name": "cluster", "uid": "u-1" },
            "spec": { "datastore": datastore, "caSubject": { "commonName": odd } },
        });
        let server = serde_json::from_value(object).unwrap();
        // It opens the database, and ends since it runs in no cluster.
        let output = Pod::of(&server).tell(&program, "run", directory.path());
        let is_there = directory.path().join("data").join(file).exists();
        assert!(is_there, "{file} was not made: {}", words(output));
    }
}

#[tokio::test]
async fn the_controller_manager_reads_its_configuration_as_it_is_meant() {
    let program = sandbox::program("spire-controller-manager").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("controller-manager-config.yaml");
    fs::write(&file, Pod::of(&sample("default")).manager).unwrap();
    // It says what it has read, and ends since it runs in no cluster.
    let output = Command::new(program).arg("--config").arg(file).env_clear().output().unwrap();
    let said = words(output);
    let read = said.lines().find(|line| line.contains("Config loaded")).unwrap_or_else(|| panic!("{said}"));
    for part in [
        r#""cluster name": "a.cluster""#,
        r#""trust domain": "example.org""#,
        r#""class name": "tests""#,
        r#""handle crs without class name": false"#,
        r#""gc interval": "10s""#,
        r#""spire server socket path": "/tmp/spire-server/private/api.sock""#,
        r#""entryIDPrefix": "a.cluster.""#,
        "^kube-system$",
    ] {
        assert!(read.contains(part), "{part} is not in {read}");
    }
}

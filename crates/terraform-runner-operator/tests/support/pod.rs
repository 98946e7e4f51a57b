//! A pod as two plain processes: `tf-runner serve` with a token that has the rights of a pod, and `tf-runner run`.
#![allow(dead_code, reason = "each program of tests uses different parts of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use kube::config::Kubeconfig;
use kube::{Api, Client};
use opcore::duration::Span;
use opcore_testing::PATIENCE;
use opcore_testing::proxy::Proxy;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sandbox::Sandbox;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use terraform_runner_operator::api::v1alpha1::{Action, Binary, History};
use terraform_runner_operator::run::bundle::Bundle;
use terraform_runner_operator::run::names::Names;
use terraform_runner_operator::run::order::{
    Marks, ORDER_VARIABLE, Order, POD_VARIABLE, STORE_VARIABLE, StateOrder, StoreOrder,
};
use terraform_runner_operator::run::report::{OutputValues, Report};
use terraform_runner_operator::runner::settings;
use terraform_runner_operator::store::{Store, inputs, journal, report};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Notify;

/// The directories with the programs that Terraform needs.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    pub path: Vec<PathBuf>,
    pub env: BTreeMap<String, String>,
}

/// A workspace: its names, and rights to the objects with these names.
pub struct Workspace {
    pub client: Client,
    pub namespace: String,
    pub names: Names,
    pub history: History,
    /// The program that runs the modules.
    pub binary: Binary,
    pub tools: Tools,
    pub dir: tempfile::TempDir,
    /// The address on which its store listens, in every pod.
    pub address: String,
    /// The Secret with the state that it starts with.
    pub adopts: Option<String>,
}

impl Workspace {
    pub async fn new(sandbox: &Sandbox, prefix: &str) -> Self {
        opcore::client::install_crypto_provider();
        let client = sandbox.client().await.unwrap();
        let namespace = sandbox.namespace(prefix).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let workspace = Self {
            client,
            names: Names::of("network", &namespace),
            namespace,
            history: History { states: 3, ..History::default() },
            binary: Binary::Tofu,
            tools: Tools::default(),
            dir,
            address: format!("127.0.0.1:{port}"),
            adopts: None,
        };
        workspace.grant(sandbox).await;
        workspace
    }

    /// It has another name from now on, with rights to the objects with its new names.
    pub async fn renamed(&self) {
        self.grant_with(&Kubeconfig::read_from(self.kubeconfig()).unwrap()).await;
    }

    /// Starts with the state in this Secret, which it may read from now on.
    pub async fn adopt(&mut self, secret: &str) {
        let names = terraform_runner_operator::store::adopted::secrets(secret);
        let rule = json!([{ "op": "add", "path": "/rules/-", "value":
            { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": names } }]);
        let patch = kube::api::Patch::Json::<()>(parse(rule));
        self.api::<Role>().patch(self.names.stem(), &kube::api::PatchParams::default(), &patch).await.unwrap();
        self.adopts = Some(secret.to_owned());
    }

    /// A token with the rights that the operator grants to a pod.
    async fn grant(&self, sandbox: &Sandbox) {
        self.grant_with(&Kubeconfig::read_from(sandbox.kubeconfig()).unwrap()).await;
    }

    async fn grant_with(&self, own: &Kubeconfig) {
        let name = self.names.stem();
        let metadata = json!({ "name": name });
        let verbs = ["get", "create", "patch", "update"];
        let role = json!({ "metadata": metadata, "rules": [
            { "apiGroups": [""], "resources": ["secrets"], "verbs": verbs,
              "resourceNames": self.names.writable_secrets(Names::state_places(&self.history)) },
            { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs,
              "resourceNames": [self.names.lease()] },
        ]});
        let binding = json!({
            "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": self.namespace }],
        });
        let params = PostParams::default();
        let accounts: Api<ServiceAccount> = self.api();
        accounts.create(&params, &parse(json!({ "metadata": metadata }))).await.unwrap();
        self.api::<Role>().create(&params, &parse(role)).await.unwrap();
        self.api::<RoleBinding>().create(&params, &parse(binding)).await.unwrap();
        let spec = TokenRequestSpec { expiration_seconds: Some(7200), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let token = accounts.create_token_request(name, &params, &request).await.unwrap().status.unwrap().token;
        let cluster = &own.clusters[0];
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "pod",
            "clusters": [cluster],
            "users": [{ "name": "pod", "user": { "token": token } }],
            "contexts": [{ "name": "pod", "context": { "cluster": cluster.name, "user": "pod", "namespace": self.namespace } }],
        });
        std::fs::write(self.kubeconfig(), kubeconfig.to_string()).unwrap();
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The store, as the operator sees it.
    pub fn store(&self) -> Store {
        Store::new(self.client.clone(), &self.namespace, self.names.clone())
    }

    pub async fn report(&self) -> Report {
        report::load(&self.store()).await.unwrap().expect("a report")
    }

    pub async fn outputs(&self) -> OutputValues {
        report::outputs(&self.store()).await.unwrap().expect("outputs")
    }

    /// What a run started to create, and the state does not contain.
    pub async fn noted(&self) -> BTreeSet<String> {
        journal::load(&self.store())
            .await
            .unwrap()
            .map(|journal| journal.begun.into_keys().collect())
            .unwrap_or_default()
    }

    pub async fn secret(&self, name: &str) -> Secret {
        self.api().get(name).await.unwrap()
    }

    /// The pod of the run with this number.
    pub fn pod(&self, number: i64) -> Pod<'_> {
        Pod { workspace: self, run: self.names.job(number), uid: format!("pod-{number}") }
    }
}

/// A pod.
pub struct Pod<'a> {
    pub workspace: &'a Workspace,
    pub run: String,
    pub uid: String,
}

impl Pod<'_> {
    /// Starts the container that has the token.
    pub async fn serve(&self) -> Process {
        let process = self.serve_with(&self.workspace.kubeconfig());
        self.workspace.until_served().await;
        process
    }

    /// Starts it with this proxy between it and the API server.
    pub async fn serve_through(&self, proxy: &Proxy) -> Process {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy", "users": [],
            "clusters": [{ "name": "proxy", "cluster": { "server": proxy.config().cluster_url.to_string() } }],
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "namespace": self.workspace.namespace } }],
        });
        let file = self.workspace.dir.path().join("proxied");
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let process = self.serve_with(&file);
        self.workspace.until_served().await;
        process
    }

    fn serve_with(&self, kubeconfig: &std::path::Path) -> Process {
        let workspace = self.workspace;
        let marks = Marks { labels: [("app".to_owned(), "terraform".to_owned())].into(), ..Marks::default() };
        let order = StoreOrder {
            namespace: workspace.namespace.clone(),
            stem: workspace.names.stem().to_owned(),
            run: self.run.clone(),
            history: workspace.history,
            adopts: workspace.adopts.clone(),
            marks,
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_tf-runner"));
        command.arg("serve").env_clear().env("KUBECONFIG", kubeconfig);
        command.env(STORE_VARIABLE, serde_json::to_string(&order).unwrap()).env(POD_VARIABLE, &self.uid);
        command.env(settings::ADDRESS_VARIABLE, &workspace.address);
        Process::start(command)
    }

    /// An order for this bundle.
    pub fn order(&self, action: Action, bundle: &Bundle) -> Order {
        Order {
            run: self.run.clone(),
            action,
            binary: self.workspace.binary,
            inputs: Bundle::hash(&bundle.bytes().unwrap()),
            plan: None,
            stop_if_destroys: false,
            stop_if_tainted: false,
            upgrade: false,
            state: StateOrder { same_place: true, ..StateOrder::default() },
            plan_within: Span::from_secs(60),
            apply_within: Span::from_secs(60),
            grace: Span::from_secs(30),
        }
    }

    /// The directory in which Terraform works.
    pub fn work(&self) -> PathBuf {
        self.workspace.dir.path().join(&self.run)
    }

    pub fn last_words(&self) -> PathBuf {
        self.workspace.dir.path().join(format!("{}.last-words", self.run))
    }

    /// Starts the container in which Terraform runs.
    pub fn run(&self, order: &Order, bundle: &Bundle) -> Process {
        let workspace = self.workspace;
        let inputs_dir = workspace.dir.path().join(format!("{}-inputs", self.run));
        std::fs::create_dir_all(&inputs_dir).unwrap();
        for (number, chunk) in inputs::chunks(&bundle.bytes().unwrap()).iter().enumerate() {
            std::fs::write(inputs_dir.join(number.to_string()), chunk).unwrap();
        }
        let runner = PathBuf::from(env!("CARGO_BIN_EXE_tf-runner"));
        let path: OsString = std::env::join_paths(&workspace.tools.path).unwrap();
        std::fs::create_dir_all(self.work()).unwrap();
        let mut command = Command::new(runner);
        command.arg("run").env_clear().env("PATH", path).env("HOME", workspace.dir.path()).envs(&workspace.tools.env);
        command.env(ORDER_VARIABLE, serde_json::to_string(order).unwrap());
        command.env(settings::INPUTS_VARIABLE, inputs_dir).env(settings::WORK_VARIABLE, self.work());
        command.env(settings::ADDRESS_VARIABLE, &workspace.address);
        command.env(settings::TERMINATION_VARIABLE, self.last_words());
        Process::start(command)
    }

    /// Runs both containers to their end. Returns the output and the report.
    pub async fn run_to_end(&self, order: &Order, bundle: &Bundle) -> (String, Report) {
        let serve = self.serve().await;
        let (code, printed) = self.run(order, bundle).ended().await;
        let report = self.workspace.report().await;
        let (_, served) = serve.stopped().await;
        println!("exit {code:?}\n{printed}\n{served}");
        (printed + &served, report)
    }
}

impl Workspace {
    /// The response of the store.
    pub async fn ask(&self, method: &str, path: &str, body: impl Into<Bytes>) -> std::io::Result<(u16, Bytes)> {
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        let request = http::Request::builder().method(method).uri(path).header("host", "store");
        let request = request.body(Full::new(body.into())).unwrap();
        let answer = sender.send_request(request).await.map_err(std::io::Error::other)?;
        let code = answer.status().as_u16();
        Ok((code, answer.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes()))
    }

    async fn until_served(&self) {
        let served = async {
            while self.ask("GET", "/healthz", "").await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, served).await.expect("the store answers");
    }

    /// Takes the lock with this id.
    pub async fn lock(&self, id: &str) -> (u16, Value) {
        let (code, body) =
            self.ask("LOCK", "/state", json!({ "ID": id, "Operation": "test" }).to_string()).await.unwrap();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub async fn unlock(&self, id: &str) -> u16 {
        self.ask("UNLOCK", "/state", json!({ "ID": id }).to_string()).await.unwrap().0
    }

    /// Saves a state under this lock.
    pub async fn save(&self, state: &Value, lock: &str) -> (u16, String) {
        let (code, body) = self.ask("POST", &format!("/state?ID={lock}"), state.to_string()).await.unwrap();
        (code, String::from_utf8_lossy(&body).into_owned())
    }
}

/// A process whose output is captured.
pub struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
    changed: Arc<Notify>,
    listening: Vec<tokio::task::JoinHandle<()>>,
}

impl Process {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (said, changed) = (Arc::new(Mutex::new(String::new())), Arc::new(Notify::new()));
        let out = listen(child.stdout.take().unwrap(), said.clone(), changed.clone());
        let err = listen(child.stderr.take().unwrap(), said.clone(), changed.clone());
        Self { child, said, changed, listening: vec![out, err] }
    }

    pub fn id(&self) -> Pid {
        pid(self.child.id().expect("it runs"))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).unwrap();
    }

    /// Waits until it has printed this.
    pub async fn until_says(&self, text: &str) {
        let said = async {
            loop {
                let changed = self.changed.notified();
                if self.said.lock().unwrap().contains(text) {
                    return;
                }
                changed.await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, said).await;
        assert!(in_time.is_ok(), "it did not say {text:?}, but:\n{}", self.said.lock().unwrap());
    }

    /// Waits until it ends. Returns its exit code and its output.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let status = tokio::time::timeout(PATIENCE * 3, self.child.wait()).await;
        let Ok(status) = status else { panic!("it does not end:\n{}", self.said.lock().unwrap()) };
        for listening in self.listening {
            let _ = tokio::time::timeout(Duration::from_secs(5), listening).await;
        }
        let said = self.said.lock().unwrap().clone();
        (status.unwrap().code(), said)
    }

    /// Asks it to stop, and waits until it ends.
    pub async fn stopped(self) -> (Option<i32>, String) {
        self.signal(Signal::TERM);
        self.ended().await
    }

    /// Kills it.
    pub async fn killed(self) -> String {
        self.signal(Signal::KILL);
        self.ended().await.1
    }

    /// Kills it with all its child processes, as the kernel ends a container.
    pub async fn container_killed(self) -> String {
        let child = self.child();
        let said = self.killed().await;
        if let Some(child) = child {
            // It may have ended by itself.
            let _ = kill_process_group(child, Signal::KILL);
        }
        said
    }

    /// Waits until it ends.
    pub async fn over(&mut self) {
        let ended = tokio::time::timeout(PATIENCE * 3, self.child.wait()).await;
        assert!(ended.is_ok(), "it does not end:\n{}", self.said.lock().unwrap());
    }

    /// Its child process.
    pub fn child(&self) -> Option<Pid> {
        children(self.child.id()?).first().copied().map(pid)
    }
}

fn listen(
    from: impl tokio::io::AsyncRead + Send + Unpin + 'static,
    said: Arc<Mutex<String>>,
    changed: Arc<Notify>,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut said = said.lock().unwrap();
            said.push_str(&line);
            said.push('\n');
            drop(said);
            changed.notify_waiters();
        }
    })
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

fn children(parent: u32) -> Vec<u32> {
    let ids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(") ").map(|(_, after)| after.to_owned()).unwrap_or_default();
        after.split(' ').nth(1).and_then(|word| word.parse().ok()) == Some(parent)
    })
    .collect()
}

fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Text that does not compress well.
pub fn noise(bytes: usize) -> String {
    let mut word = 1_u64;
    let next = || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + u8::try_from((word >> 33) % 43).unwrap())
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

//! Pods run on it as on any node, and nothing is left of it.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use sandbox::{Component, Image, Options, Sandbox, Signal};
use serde_json::{Value, json};
use support::machine::{Footprint, Machine, nothing_left_of};
use support::{PATIENCE, TURN, User, can_run, condition_holds, http, once, signal, tell, until};

// What pods do.

/// A pod that satisfies the restricted Pod Security Standard, with a volume of its own if there is a claim.
fn pod(name: &str, claim: Option<&str>) -> anyhow::Result<Pod> {
    pod_with(
        name,
        &match claim {
            Some(claim) => json!({ "persistentVolumeClaim": { "claimName": claim } }),
            None => json!({ "emptyDir": {} }),
        },
    )
}

/// A pod with a volume of this kind.
fn pod_with(name: &str, volume: &Value) -> anyhow::Result<Pod> {
    let mut volume = volume.clone();
    volume["name"] = json!("data");
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "echo",
                "image": "echo:v1",
                "readinessProbe": { "httpGet": { "path": "/", "port": 8080 }, "periodSeconds": 1 },
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
            "volumes": [volume],
        },
    }))?)
}

/// What a web server on port 80 answers; an error unless it answers with 200.
fn ask(address: &str, method: &str, path: &str, body: &str) -> anyhow::Result<String> {
    let (head, body) = http(&format!("{address}:80"), &format!("{method} {path}"), &[], body.as_bytes())?;
    ensure!(head.starts_with("HTTP/1.0 200"), "{head}\n{body}");
    Ok(body)
}

/// Until the rules of a new Service are in place: they follow its pods by a moment.
fn answer(address: &str, path: &str) -> anyhow::Result<String> {
    until(|| ask(address, "GET", path, ""))
}

/// Lets a namespace enforce the restricted Pod Security Standard.
async fn restrict(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let label = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch(namespace, &PatchParams::default(), &Patch::Merge(label)).await?;
    Ok(())
}

async fn service(client: &Client, namespace: &str, name: &str) -> anyhow::Result<String> {
    let service: Service = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "selector": { "app": name }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    }))?;
    let created = Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &service).await?;
    created.spec.and_then(|s| s.cluster_ip).context("a Service has an address")
}

#[tokio::test]
async fn pods_run_on_it_as_on_any_node() -> anyhow::Result<()> {
    if !can_run("pods_run_on_it_as_on_any_node") {
        return Ok(());
    }
    let _turn = TURN.lock().await;
    let echo = sandbox::program("echo").await?;
    let started = Instant::now();
    let sandbox = Sandbox::start(Options { node: true, ..Options::default() }).await?;
    let node_ready = started.elapsed();
    let client = sandbox.client().await?;
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let ready = nodes.items.iter().filter_map(|n| n.status.as_ref()?.conditions.as_ref()).flatten();
    ensure!(ready.filter(|c| c.type_ == "Ready" && c.status == "True").count() == 1, "{nodes:#?}");
    sandbox.load_image(&Image::new("echo:v1", echo)?).await?;
    let namespace = sandbox.namespace("pods").await?;
    restrict(&client, &namespace).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);

    // A pod is ready soon, speaks, and can be looked into.
    let created = Instant::now();
    pods.create(&PostParams::default(), &pod("one", None)?).await?;
    once(&pods, "one", |p: Option<&Pod>| {
        p.is_some_and(|p| p.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running")))
    })
    .await?;
    let pod_running = created.elapsed();
    once(&pods, "one", |p: Option<&Pod>| condition_holds(p, "Ready")).await?;
    let logs = pods.logs("one", &LogParams::default()).await?;
    ensure!(logs.contains("serving on :8080"), "{logs}");
    let kubectl = sandbox.bin("kubectl").context("it is there")?;
    let arguments = ["exec", "-n", &namespace, "one", "--", "/echo", "-h"];
    let said = Command::new(kubectl).args(arguments).env("KUBECONFIG", sandbox.kubeconfig()).output()?;
    ensure!(String::from_utf8_lossy(&said.stderr).contains("the address to serve on"), "{said:?}");

    // A Service leads to it: from here, from another pod by address and by name, and from the pod itself.
    let one = service(&client, &namespace, "one").await?;
    ensure!(answer(&one, "/")?.trim() == "one");
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } },
    }))?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    claims.create(&PostParams::default(), &claim).await?;
    pods.create(&PostParams::default(), &pod("two", Some("data"))?).await?;
    let two = service(&client, &namespace, "two").await?;
    once(&pods, "two", |p: Option<&Pod>| condition_holds(p, "Ready")).await?;
    for target in [&one, "one", &format!("one.{namespace}.svc.cluster.local")] {
        let said = answer(&two, &format!("/fetch?url=http://{target}/"))?;
        ensure!(said.trim() == "one", "{target}: {said}");
    }
    ensure!(answer(&two, &format!("/fetch?url=http://{two}/"))?.trim() == "two");
    let outside = ask(&two, "GET", "/fetch?url=http://no.such.example/", "").map_err(|e| e.to_string());
    ensure!(outside.as_ref().is_err_and(|e| e.contains("no such host")), "{outside:?}");

    // Its volume is bound and can be written, though it is not root.
    once(&claims, "data", |c: Option<&PersistentVolumeClaim>| {
        c.is_some_and(|c| c.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Bound")))
    })
    .await?;
    ask(&two, "PUT", "/files/note", "kept")?;
    let uid = pods.get("two").await?.uid().context("it has an identity")?;
    pods.delete("two", &DeleteParams::default()).await?;
    let deleted = await_condition(pods.clone(), "two", conditions::is_deleted(&uid));
    tokio::time::timeout(PATIENCE, deleted).await.context("pod two does not end")??;
    pods.create(&PostParams::default(), &pod("two", Some("data"))?).await?;
    once(&pods, "two", |p: Option<&Pod>| condition_holds(p, "Ready")).await?;
    ensure!(answer(&two, "/files/note")? == "kept", "a volume outlives its pod");

    Box::pin(files_are_exchanged_below_srv(&sandbox)).await?;

    // What runs goes on while those who started it come and go.
    for component in [Component::Containerd, Component::Kubelet, Component::KubeProxy] {
        sandbox.stop(component, Signal::Kill).await?;
        answer(&one, "/").with_context(|| format!("without {component} pods go on"))?;
        sandbox.restart(component).await?;
    }
    let containers = pods.get("one").await?.status.and_then(|s| s.container_statuses).context("it has a status")?;
    ensure!(containers.iter().all(|c| c.restart_count == 0), "{containers:#?}");
    pods.create(&PostParams::default(), &pod("three", None)?).await?;
    once(&pods, "three", |p: Option<&Pod>| condition_holds(p, "Ready")).await?;

    tell(&format!(
        "node and names ready after {:.1} s; a pod Running {:.1} s after it was created",
        node_ready.as_secs_f64(),
        pod_running.as_secs_f64()
    ));
    let home = sandbox.kubeconfig().parent().context("it lies somewhere")?.to_owned();
    let footprint = Footprint::of(&home)?;
    drop(sandbox);
    footprint.gone(&home)
}

/// This machine and pods find each other's files by a `hostPath`, though the sandbox of a test lies below `/tmp`, which the
/// node has for itself. A volume that is claimed together with its pod is bound at once.
async fn files_are_exchanged_below_srv(sandbox: &Sandbox) -> anyhow::Result<()> {
    let srv = sandbox.srv().context("a node has it")?;
    ensure!(srv.starts_with(std::path::absolute(std::env::temp_dir())?), "{}", srv.display());
    let ours = srv.join("exchange");
    fs::create_dir(&ours)?;
    fs::set_permissions(&ours, fs::Permissions::from_mode(0o777))?;
    fs::write(ours.join("ours"), "from this machine")?;
    let client = sandbox.client().await?;
    let namespace = sandbox.namespace("exchange").await?;

    let began = Instant::now();
    // In the order in which a binder hears of them last of all: the claim, and only then its volume.
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": "exchange" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "exchange",
            "resources": { "requests": { "storage": "1Mi" } },
        },
    }))?;
    Api::namespaced(client.clone(), &namespace).create(&PostParams::default(), &claim).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let claimed = json!({ "persistentVolumeClaim": { "claimName": "exchange" } });
    pods.create(&PostParams::default(), &pod_with("claimed", &claimed)?).await?;
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": { "name": "exchange" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "capacity": { "storage": "1Mi" },
            "claimRef": { "namespace": namespace, "name": "exchange" },
            "hostPath": { "path": "/srv/exchange", "type": "Directory" },
        },
    }))?;
    Api::all(client.clone()).create(&PostParams::default(), &volume).await?;
    let direct = json!({ "hostPath": { "path": "/srv/exchange", "type": "Directory" } });
    pods.create(&PostParams::default(), &pod_with("direct", &direct)?).await?;
    for name in ["direct", "claimed"] {
        once(&pods, name, |p: Option<&Pod>| condition_holds(p, "Ready")).await?;
        let address = service(&client, &namespace, name).await?;
        ensure!(answer(&address, "/files/ours")? == "from this machine");
        ask(&address, "PUT", &format!("/files/{name}"), "from a pod")?;
        ensure!(fs::read_to_string(ours.join(name))? == "from a pod");
    }
    // The binder's own period of 15 s would pass twice.
    let waited = began.elapsed();
    ensure!(waited < Duration::from_secs(15), "a claimed volume was bound after {waited:?}");
    Ok(())
}

// What is left.

#[test]
fn two_run_side_by_side_and_down_leaves_the_machine_as_it_was() -> anyhow::Result<()> {
    if !can_run("two_run_side_by_side_and_down_leaves_the_machine_as_it_was") {
        return Ok(());
    }
    let _turn = TURN.blocking_lock();
    let user = User::new()?;
    let before = Machine::now()?;
    let other = user.command("up --node --name two").stdout(Stdio::null()).spawn()?;
    user.good("up --node --name one")?;
    ensure!(other.wait_with_output()?.status.success());
    let footprints = ["one", "two"].map(|name| Footprint::of(&user.home(name)));
    for name in ["one", "two"] {
        let pods = user.good(&format!("exec --name {name} -- kubectl get pods -A --no-headers"))?;
        ensure!(pods.lines().count() == 1 && pods.contains("Running"), "{pods}");
    }
    ensure!(Machine::now()? == before, "a running node shows: {:#?} was {before:#?}", Machine::now()?);

    let status = user.good("status --name one")?;
    for component in ["node-init", "containerd", "kubelet", "kube-proxy"] {
        let line = status.lines().find(|line| line.starts_with(component)).context(status.clone())?;
        ensure!(line.contains("running"), "{line}");
    }
    signal(user.component("one", "kubelet").context("it runs")?, "KILL")?;
    signal(user.component("one", "containerd").context("it runs")?, "KILL")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = user.run("status --name one")?;
        let said = String::from_utf8(status.stdout)?;
        let dead = |name: &str| said.lines().any(|line| line.starts_with(name) && line.contains("dead"));
        if status.status.code() == Some(1) && dead("kubelet") && dead("containerd") {
            break;
        }
        ensure!(Instant::now() < deadline, "{said}");
    }
    ensure!(user.good("list")?.contains("containerd, kubelet do not run"));

    ensure!(user.good("down --all")? == "Sandbox one is gone.\nSandbox two is gone.\n");
    for (name, footprint) in ["one", "two"].into_iter().zip(footprints) {
        footprint?.gone(&user.home(name))?;
    }
    ensure!(Machine::now()? == before, "left: {:#?} was {before:#?}", Machine::now()?);
    nothing_left_of(user.dir.path())
}

#[test]
fn an_interrupted_and_a_killed_start_leave_nothing() -> anyhow::Result<()> {
    if !can_run("an_interrupted_and_a_killed_start_leave_nothing") {
        return Ok(());
    }
    let _turn = TURN.blocking_lock();
    let before = Machine::now()?;
    for name in ["INT", "KILL"] {
        let user = User::new()?;
        let child = user.command("up --node").stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let home = user.home("default");
        let deadline = Instant::now() + PATIENCE;
        while user.component("default", "kubelet").is_none() {
            ensure!(Instant::now() < deadline, "the kubelet does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        let footprint = Footprint::of(&home)?;
        signal(child.id().into(), name)?;
        ensure!(!child.wait_with_output()?.status.success());
        if name == "KILL" {
            let said = user.run("list")?;
            let said = String::from_utf8_lossy(&said.stderr).into_owned();
            ensure!(said.contains("Sandbox default was started only in part"), "{said}");
        }
        footprint.gone(&home)?;
        ensure!(fs::read_dir(user.dir.path())?.next().is_none(), "files are left");
    }
    ensure!(Machine::now()? == before, "left: {:#?} was {before:#?}", Machine::now()?);
    Ok(())
}

#[test]
fn the_node_of_a_test_that_was_killed_is_gone() -> anyhow::Result<()> {
    if !can_run("the_node_of_a_test_that_was_killed_is_gone") {
        return Ok(());
    }
    let _turn = TURN.blocking_lock();
    let programs = Path::new(env!("CARGO_BIN_EXE_sandbox")).parent().context("it lies somewhere")?;
    let mut child: Child = Command::new(programs.join("examples/hold"))
        .arg("node")
        .stdout(Stdio::piped())
        .spawn()
        .context("Cannot run the example `hold`: build it with `cargo build -p sandbox --examples`")?;
    let lines = BufReader::new(child.stdout.take().context("it has an output")?).lines();
    let said: Vec<String> =
        lines.take_while(|line| !matches!(line, Ok(l) if l == "ready")).collect::<Result<_, _>>()?;
    ensure!(said.len() == 9, "a directory and eight processes: {said:?}");
    let home = PathBuf::from(&said[0]);
    let footprint = Footprint::of(&home)?;
    child.kill()?;
    child.wait()?;
    footprint.gone(&home)
}

/// A machine with a container engine of its own: in a mount namespace, so that this one gets none.
const MACHINE_WITH_ENGINE: &str = r#"
set -eu
sandbox=$0 state=$1
for place in /run /var/lib; do mount -t tmpfs tmpfs "$place"; done
containerd >"$state/engine.log" 2>&1 &
engine=$!
trap 'kill $engine; wait $engine || true' EXIT
tries=0
until ctr version >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ "$tries" -lt 600 ] || { cat "$state/engine.log"; exit 1; }
  sleep 0.1
done
look() {
  ctr namespaces list -q
  ctr -n k8s.io images list -q
  ctr -n k8s.io containers list -q
  find /run /var/lib -not -name '*.db' | sort
}
look >"$state/before"
OPCORE_STATE=$state/sandboxes "$sandbox" up --node
look >"$state/during"
OPCORE_STATE=$state/sandboxes "$sandbox" down
look >"$state/after"
kill -0 "$engine"
"#;

#[test]
fn a_container_engine_of_the_machine_is_not_touched() -> anyhow::Result<()> {
    if !can_run("a_container_engine_of_the_machine_is_not_touched") {
        return Ok(());
    }
    let _turn = TURN.blocking_lock();
    let user = User::new()?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", MACHINE_WITH_ENGINE, env!("CARGO_BIN_EXE_sandbox")]).arg(user.dir.path());
    let said = command.env_remove("OPCORE_KUBECONFIG").output()?;
    ensure!(said.status.success(), "{said:?}");
    let [before, during, after] =
        ["before", "during", "after"].map(|name| fs::read_to_string(user.dir.path().join(name)));
    let before = before?;
    ensure!(before.contains("/run/containerd/containerd.sock"), "{before}");
    ensure!(during? == before && after? == before, "its images, containers or files differ: {before}");
    Ok(())
}

// What cannot be.

#[test]
fn without_root_it_is_said_what_is_missing() -> anyhow::Result<()> {
    let user = User::new()?;
    let mut command = Command::new("unshare");
    // In a user namespace without any users nobody is root.
    command.args(["--user", env!("CARGO_BIN_EXE_sandbox"), "up", "--node"]).env("OPCORE_STATE", user.home(""));
    let said = command.output()?;
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    if text.contains("unshare failed") {
        tell(&format!("NOT RUN: without_root_it_is_said_what_is_missing: {text}"));
        return Ok(());
    }
    ensure!(said.status.code() == Some(1), "{said:?}");
    ensure!(text.contains("This machine cannot run a node; it lacks root (containers need root)"), "{text}");
    ensure!(text.contains("run the command as root"), "{text}");
    Ok(())
}

#[tokio::test]
async fn images_are_reproducible_and_fit_the_machine() -> anyhow::Result<()> {
    let user = User::new()?;
    let echo = sandbox::program("echo").await?;
    let copy = user.dir.path().join("echo");
    fs::copy(&echo, &copy)?;
    let (one, other) = (user.dir.path().join("one.tar"), user.dir.path().join("other.tar"));
    let build = |binary: &Path, output: &Path| {
        user.run(&format!("image build echo:v1 --binary {} --output {}", binary.display(), output.display()))
    };
    let said = build(&echo, &one)?;
    ensure!(said.status.success(), "{said:?}");
    let digest = String::from_utf8(said.stdout)?;
    ensure!(digest.starts_with("docker.io/library/echo:v1 sha256:"), "{digest}");
    ensure!(build(&copy, &other)?.status.success());
    ensure!(fs::read(&one)? == fs::read(&other)?, "the same program gave two images");

    // The architecture is in the nineteenth byte.
    let mut foreign = fs::read(&echo)?;
    foreign[18] = 243;
    fs::write(&copy, foreign)?;
    let refused = build(&copy, &other)?;
    ensure!(refused.status.code() == Some(1));
    let text = String::from_utf8(refused.stderr)?;
    ensure!(text.contains("is built for riscv64, and this machine is"), "{text}");

    let text = String::from_utf8(user.run(&format!("image load {}", one.display()))?.stderr)?;
    ensure!(text.contains("There is no sandbox default"), "{text}");
    Ok(())
}

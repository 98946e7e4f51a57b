//! Everything at once, as a person uses it: a node, an application behind an Ingress, metrics, images, git; and
//! nothing is left of it. Traefik and Prometheus take minutes to build: `make e2e` runs this.

mod support;

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use support::machine::{Footprint, Machine, nothing_left_of};
use support::{User, can_run, http, until};

/// An application that answers on the root path and has metrics, with a name for requests from outside.
fn application(image: &str) -> Value {
    let labels = json!({ "app": "web" });
    let annotations = json!({ "prometheus.io/scrape": "true", "prometheus.io/port": "8080" });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "web" },
            "spec": {
                "replicas": 2,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels, "annotations": annotations },
                    "spec": {
                        "imagePullSecrets": [{ "name": "registry" }],
                        "terminationGracePeriodSeconds": 1,
                        "containers": [{
                            "name": "web",
                            "image": image,
                            "readinessProbe": { "httpGet": { "path": "/", "port": 8080 }, "periodSeconds": 1 },
                        }],
                    },
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": "web" },
            "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": 8080 }] },
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": { "name": "web" },
            "spec": { "rules": [{ "host": "web.example.com", "http": { "paths": [{
                "path": "/",
                "pathType": "Prefix",
                "backend": { "service": { "name": "web", "port": { "number": 80 } } },
            }] } }] },
        },
    ] })
}

/// The variables that a sandbox gives to commands.
fn variable(user: &User, name: &str) -> anyhow::Result<String> {
    Ok(user.good(&format!("exec -- printenv {name}"))?.trim().to_owned())
}

/// What Prometheus answers to a query: one value for each set of labels.
fn query(prometheus: &str, query: &str) -> anyhow::Result<Vec<Value>> {
    let authority = prometheus.trim_start_matches("http://");
    let (head, body) = http(authority, &format!("GET /api/v1/query?query={query}"), &[], b"")?;
    ensure!(head.contains(" 200 "), "{head} {body}");
    let answer: Value = serde_json::from_str(&body)?;
    Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default())
}

#[tokio::test]
async fn an_application_is_pushed_pulled_routed_to_and_scraped_and_down_leaves_nothing() -> anyhow::Result<()> {
    if !can_run("an_application_is_pushed_pulled_routed_to_and_scraped_and_down_leaves_nothing") {
        return Ok(());
    }
    let user = User::new()?;
    let work = tempfile::tempdir()?;
    let before = Machine::now()?;
    let echo = sandbox::program("echo").await?;
    let said = user.good("up --node --with prometheus,traefik,registry,registry-auth,git")?;
    let footprint = Footprint::of(&user.home("default"))?;
    ensure!(Machine::now()? == before, "it shows: {:#?} was {before:#?}", Machine::now()?);
    for part in ["OPCORE_PROMETHEUS_URL", "OPCORE_INGRESS_URL", "OPCORE_REGISTRY", "OPCORE_GIT_URL"] {
        ensure!(said.contains(part), "{said}");
    }

    // An image goes to the registry that asks for a password, and the node pulls it from there.
    let (tar, layout) = (work.path().join("web.tar"), work.path().join("layout"));
    user.good(&format!("image build web:v1 --binary {} -o {}", echo.display(), tar.display()))?;
    fs::create_dir(&layout)?;
    ensure!(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&layout).status()?.success());
    let server = variable(&user, "OPCORE_REGISTRY_AUTH")?;
    let image = format!("{server}/team/web:v1");
    let crane = |line: &str| {
        let mut command = user.command(&format!("exec -- crane {line} --insecure"));
        let output = command.env("HOME", work.path()).output()?;
        ensure!(output.status.success(), "{line}: {output:?}");
        anyhow::Ok(())
    };
    crane(&format!("auth login {server} -u sandbox -p sandbox"))?;
    crane(&format!("push {} {image}", layout.display()))?;
    user.good(&format!(
        "exec -- kubectl create secret docker-registry registry --docker-server={server} \
         --docker-username=sandbox --docker-password=sandbox"
    ))?;
    let file = work.path().join("application.json");
    fs::write(&file, serde_json::to_vec(&application(&image))?)?;
    user.good(&format!("exec -- kubectl apply -f {}", file.display()))?;
    user.good("exec -- kubectl rollout status deployment/web --timeout=60s")?;

    // A request comes through by its host name, and another does not.
    let ingress = variable(&user, "OPCORE_INGRESS_URL")?;
    let proxy = format!("{}:80", ingress.trim_start_matches("http://"));
    let answer = until(|| {
        let (head, body) = http(&proxy, "GET /", &[("Host", "web.example.com")], b"")?;
        ensure!(head.contains(" 200 "), "{head} {body}");
        Ok(body)
    })?;
    ensure!(answer.starts_with("web-"), "another pod answered: {answer}");
    let (head, _) = http(&proxy, "GET /", &[("Host", "other.example.com")], b"")?;
    ensure!(head.contains(" 404 "), "{head}");
    let node = proxy.trim_end_matches(":80").to_owned();
    until(|| {
        let address = user.good("exec -- kubectl get ingress web -o jsonpath={.status.loadBalancer.ingress[0].ip}")?;
        ensure!(address == node, "the Ingress says it is at {address:?}");
        Ok(())
    })?;

    // Prometheus has scraped the application, Traefik, the kubelet and the API server, and has their numbers.
    let prometheus = variable(&user, "OPCORE_PROMETHEUS_URL")?;
    for (expected, wanted) in [
        ("up{job=\"pods\",pod=~\"web-.*\"}==1", 2),
        ("echo_requests_total{pod=~\"web-.*\"}>0", 2),
        ("up{job=\"pods\",namespace=\"traefik\"}==1", 1),
        ("up{job=\"kubelet\"}==1", 1),
        ("up{job=\"apiserver\"}==1", 1),
    ] {
        until(|| {
            let found = query(&prometheus, expected)?;
            ensure!(found.len() == wanted, "{expected}: {found:#?}");
            Ok(())
        })?;
    }

    // Each has a log and a state.
    for (part, words) in [
        ("prometheus", "Server is ready to receive web requests"),
        ("traefik", "GET / HTTP/1."),
        ("registry", "listening on"),
        ("git", "serving "),
    ] {
        let log = user.good(&format!("logs {part}"))?;
        ensure!(log.contains(words), "{part}: {log}");
    }
    let status = user.good("status")?;
    for part in ["git", "prometheus", "registry", "registry-auth", "traefik"] {
        let line = status.lines().find(|line| line.starts_with(part)).context(status.clone())?;
        ensure!(line.contains("running"), "{line}");
    }
    user.good("exec -- kubectl -n traefik scale deployment/traefik --replicas=0")?;
    until(|| {
        let status = user.run("status")?;
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        let dead = said.lines().any(|line| line.starts_with("traefik") && line.contains("dead"));
        ensure!(status.status.code() == Some(1) && dead, "{said}");
        Ok(())
    })?;

    ensure!(user.good("down")? == "Sandbox default is gone.\n");
    footprint.gone(&user.home("default"))?;
    ensure!(Machine::now()? == before, "left: {:#?} was {before:#?}", Machine::now()?);
    nothing_left_of(user.dir.path())
}

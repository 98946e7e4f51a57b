//! Each part does what it is there for. Those that take minutes to build are in `identity.rs`, `opentofu.rs` and `showcase.rs`.

mod support;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, ensure};
use sandbox::{Component, Options, Part, Sandbox, Signal};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use support::{PATIENCE, User, http, until};
use tokio::sync::OnceCell;

/// The sandbox that these tests share.
async fn shared() -> anyhow::Result<&'static Sandbox> {
    static SHARED: OnceCell<Sandbox> = OnceCell::const_new();
    let start = || async {
        let with = ["git", "registry", "registry-auth"].map(str::parse::<Part>);
        let with = with.into_iter().collect::<Result<_, _>>()?;
        Sandbox::start(Options { with, ..Options::default() }).await
    };
    SHARED.get_or_try_init(start).await
}

fn facts(sandbox: &Sandbox, part: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let facts = sandbox.facts(part.parse()?);
    ensure!(!facts.is_empty(), "{part} says nothing");
    Ok(facts)
}

/// A command with nothing of this machine's or its user's settings.
fn isolated(program: impl AsRef<OsStr>, home: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").context("there is a path")?).env("HOME", home);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null());
    Ok(command)
}

fn good(output: &Output) -> anyhow::Result<String> {
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

// Git.

/// Somebody who works with git in a directory of their own.
struct Developer {
    dir: tempfile::TempDir,
}

impl Developer {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { dir: tempfile::tempdir()? })
    }

    fn git(&self, line: &str) -> anyhow::Result<Output> {
        let mut command = isolated("git", self.dir.path())?;
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "dev").env(format!("GIT_{who}_EMAIL"), "dev@example.com");
        }
        Ok(command.args(line.split_whitespace()).env("GIT_TRACE_PACKET", "1").current_dir(self.dir.path()).output()?)
    }
}

/// Hears one webhook: its head and its body.
fn hear(listener: &TcpListener) -> anyhow::Result<(String, String)> {
    listener.set_nonblocking(true)?;
    let (stream, _) = until(|| Ok(listener.accept()?)).context("no webhook came")?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(reader.read_line(&mut head)? > 0, "the webhook ends early: {head}");
    }
    let length = header(&head, "Content-Length").and_then(|length| length.parse().ok()).context(head.clone())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    reader.get_mut().write_all(b"HTTP/1.0 204 No Content\r\n\r\n")?;
    Ok((head, String::from_utf8(body)?))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// HMAC with SHA-256, as its specification writes it, for keys that fit into a block.
fn signature(key: &[u8], text: &[u8]) -> String {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize();
    outer.iter().fold("sha256=".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

#[tokio::test]
async fn a_repository_is_cloned_and_pushed_to_with_a_password_and_pushes_are_told() -> anyhow::Result<()> {
    let sandbox = shared().await?;
    let facts = facts(sandbox, "git")?;
    let url = &facts["OPCORE_GIT_URL"];
    let authority = url.trim_start_matches("http://");
    let with_password =
        format!("http://{}:{}@{authority}/team/app.git", facts["OPCORE_GIT_USER"], facts["OPCORE_GIT_PASSWORD"]);
    let developer = Developer::new()?;

    // Nobody is told of a repository that is not there; a push makes it, with the password only.
    let missing = developer.git(&format!("clone {url}/team/app.git"))?;
    ensure!(String::from_utf8_lossy(&missing.stderr).contains("not found"), "{missing:?}");
    good(&developer.git("init --initial-branch=main app")?)?;
    fs::write(developer.dir.path().join("app/README"), "one\n")?;
    // More than git sends in one piece: it comes in chunks.
    let noise = (0..50_000_u64).flat_map(|n| Sha256::digest(n.to_le_bytes())).collect::<Vec<u8>>();
    fs::write(developer.dir.path().join("app/noise"), noise)?;
    good(&developer.git("-C app add .")?)?;
    good(&developer.git("-C app commit -m one")?)?;
    let hook = TcpListener::bind("127.0.0.1:0")?;
    let hook_url = format!("http://{}/hook", hook.local_addr()?);
    let wanted = json!({ "url": hook_url, "secret": "s3cret" }).to_string();
    let set = |headers: &[(&str, &str)]| http(authority, "PUT /api/hooks/team/app", headers, wanted.as_bytes());
    ensure!(set(&[])?.0.starts_with("HTTP/1.0 401"), "a stranger may set no webhook");
    // sandbox:sandbox
    let (head, said) = set(&[("Authorization", "Basic c2FuZGJveDpzYW5kYm94")])?;
    ensure!(head.starts_with("HTTP/1.0 204"), "{head} {said}");

    let refused = developer.git(&format!("-C app push {url}/team/app.git main"))?;
    ensure!(!refused.status.success(), "a push without a password is taken");
    let wrong = developer.git(&format!("-C app push {} main", with_password.replace(":sandbox@", ":wrong@")))?;
    ensure!(String::from_utf8_lossy(&wrong.stderr).contains("Authentication failed"), "{wrong:?}");
    good(&developer.git(&format!("-C app push {with_password} main"))?)?;

    // The webhook says what was pushed where, and is signed.
    let commit = good(&developer.git("-C app rev-parse main")?)?.trim().to_owned();
    let (head, body) = hear(&hook)?;
    let event: Value = serde_json::from_str(&body)?;
    ensure!(header(&head, "X-GitHub-Event") == Some("push"), "{head}");
    ensure!(header(&head, "X-Hub-Signature-256") == Some(&signature(b"s3cret", body.as_bytes())), "{head}");
    ensure!(event["ref"] == "refs/heads/main" && event["after"] == commit.as_str(), "{event:#}");
    ensure!(event["repository"]["full_name"] == "team/app" && event["created"] == true, "{event:#}");
    for (refs, deleted) in [("main:refs/heads/other", false), (":refs/heads/other", true)] {
        good(&developer.git(&format!("-C app push {with_password} {refs}"))?)?;
        let event: Value = serde_json::from_str(&hear(&hook)?.1)?;
        ensure!(event["ref"] == "refs/heads/other" && event["deleted"] == deleted, "{event:#}");
        ensure!(event["repository"]["clone_url"] == format!("{url}/team/app.git"), "{event:#}");
    }

    // Anybody clones it, in version 2 of the protocol.
    let cloned = developer.git(&format!("clone {url}/team/app copy"))?;
    good(&cloned)?;
    ensure!(String::from_utf8_lossy(&cloned.stderr).contains("version 2"), "an old protocol: {cloned:?}");
    ensure!(fs::read_to_string(developer.dir.path().join("copy/README"))? == "one\n");

    // What is private is read with the password only.
    let private = with_password.replace("team/app", "private/app");
    good(&developer.git(&format!("-C app push {private} main"))?)?;
    ensure!(!developer.git(&format!("ls-remote {url}/private/app.git"))?.status.success());
    ensure!(good(&developer.git(&format!("ls-remote {private}"))?)?.contains(&commit));
    Ok(())
}

// Images.

#[tokio::test]
async fn an_image_is_pushed_and_pulled_with_and_without_a_password() -> anyhow::Result<()> {
    let sandbox = shared().await?;
    let dir = tempfile::tempdir()?;
    let user = User::new()?;
    let (tar, layout) = (dir.path().join("echo.tar"), dir.path().join("layout"));
    let echo = sandbox::program("echo").await?;
    let built = user.good(&format!("image build echo:v1 --binary {} -o {}", echo.display(), tar.display()))?;
    let digest = built.split_whitespace().nth(1).context("it has a digest")?.to_owned();
    fs::create_dir(&layout)?;
    good(&Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&layout).output()?)?;

    let program = sandbox.bin("crane").context("a registry brings it")?;
    let crane = |arguments: &[&str]| -> anyhow::Result<Output> {
        let mut command = isolated(&program, dir.path())?;
        Ok(command.args(arguments).arg("--insecure").output()?)
    };
    let source = layout.display().to_string();
    for part in ["registry", "registry-auth"] {
        let facts = facts(sandbox, part)?;
        let variable = part.replace('-', "_").to_uppercase();
        let image = format!("{}/team/echo:v1", facts[&format!("OPCORE_{variable}")]);
        if let Some(password) = facts.get(&format!("OPCORE_{variable}_PASSWORD")) {
            let refused = crane(&["push", &source, &image])?;
            ensure!(String::from_utf8_lossy(&refused.stderr).contains("401 Unauthorized"), "{refused:?}");
            let server = image.split('/').next().unwrap_or_default();
            good(&crane(&[
                "auth",
                "login",
                server,
                "-u",
                &facts[&format!("OPCORE_{variable}_USER")],
                "-p",
                password,
            ])?)?;
        }
        good(&crane(&["push", &source, &image])?)?;
        ensure!(good(&crane(&["digest", &image])?)?.trim() == digest, "{part} holds another image");
        let pulled = dir.path().join(part);
        good(&crane(&["pull", "--format=oci", &image, &pulled.display().to_string()])?)?;
        let blob = |dir: &Path| fs::read(dir.join("blobs").join(digest.replace(':', "/")));
        ensure!(blob(&pulled)? == blob(&layout)?, "{part} gave another manifest");
    }

    // It keeps what it was given, and its address, when it comes and goes.
    let component = Component::Part("registry".parse()?);
    let image = format!("{}/team/echo:v1", facts(sandbox, "registry")?["OPCORE_REGISTRY"]);
    sandbox.stop(component, Signal::Kill).await?;
    ensure!(!crane(&["digest", &image])?.status.success(), "a dead registry answers");
    sandbox.restart(component).await?;
    ensure!(good(&crane(&["digest", &image])?)?.trim() == digest);
    Ok(())
}

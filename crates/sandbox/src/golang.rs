//! The Go toolchain: finding it, building with it, and saying clearly why it failed.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use crate::catalogue::Recipe;
use crate::path_lookup;
use crate::progress::Step;

/// Everything that decides what comes out of a build, apart from the sources: part of the cache key. A component with parts in C
/// says so itself, in what is another part of that key.
pub(crate) const BUILD_SETTINGS: [(&str, &str); 4] = [
    ("CGO_ENABLED", "0"),
    ("GOFLAGS", "-mod=readonly -buildvcs=false"),
    // The Go at hand or none: never one downloaded behind our back.
    ("GOTOOLCHAIN", "local"),
    // No work space above this repository has a say.
    ("GOWORK", "off"),
];

/// What debuggers read is not made, since the linker would drop it (`-w`): the programs are the same, so that this is not in the
/// cache key. It saves a sixteenth of the work, and a quarter of what Go keeps.
const COMPILER_FLAGS: [&str; 2] = ["-gcflags", "all=-dwarf=false"];

/// Where a build has the definitions of its kinds, beside `bin`.
pub(crate) const DEFINITIONS: &str = "definitions";

/// A Go that was found.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    program: PathBuf,
    /// E.g. `1.26.8`.
    pub(crate) version: String,
    /// E.g. `linux/amd64`.
    pub(crate) target: String,
}

impl Toolchain {
    /// The Go on the path.
    pub(crate) async fn find() -> anyhow::Result<Self> {
        let program = path_lookup("go").context(
            "Go is not found: it builds the components of the sandbox. Install it from \
             https://go.dev/dl or with your package manager, and put it on the PATH.",
        )?;
        let output = settled(&mut Command::new(&program))
            .args(["env", "GOVERSION", "GOOS", "GOARCH"])
            .output()
            .await
            .with_context(|| format!("Cannot run {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text.lines().map(str::trim);
        let (Some(version), Some(os), Some(arch)) = (lines.next(), lines.next(), lines.next()) else {
            bail!("{} does not work: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim());
        };
        Ok(Self { version: version.trim_start_matches("go").to_owned(), target: format!("{os}/{arch}"), program })
    }

    /// # Errors
    /// This Go is older than the component asks for, or there is no compiler for its parts in C.
    pub(crate) fn serves(&self, recipe: &Recipe) -> anyhow::Result<()> {
        if numbers(&self.version) < numbers(&recipe.go) {
            bail!(
                "Go {} is too old: {} {} needs Go {} or later. Install a newer one from https://go.dev/dl.",
                self.version,
                recipe.name,
                recipe.version,
                recipe.go
            );
        }
        if recipe.cgo() && path_lookup("gcc").is_none() {
            bail!("{} has parts in C, and gcc is not found: install the packages gcc and libc6-dev.", recipe.name);
        }
        Ok(())
    }

    /// Builds all programs of a component into `bin` of a directory; what Go needs meanwhile goes to `tmp`.
    pub(crate) async fn build(&self, recipe: &Recipe, dir: &Path, step: &mut Step) -> anyhow::Result<()> {
        let (out, tmp) = (dir.join("bin"), dir.join("tmp"));
        step.announce(&format!("{}: looking at what to compile", recipe.version));
        let total = self.count_stale(recipe, &tmp, step).await?;
        step.announce(&match total {
            0 => format!("{}: linking", recipe.version),
            n => format!("{}: compiling {n} packages", recipe.version),
        });

        let mut compiled = 0_usize;
        for (output, packages) in invocations(recipe, &out) {
            let mut command = self.command(recipe, &tmp);
            command
                .args(["build", "-v", "-trimpath"])
                .args(COMPILER_FLAGS)
                .arg("-ldflags")
                .arg(recipe.linker_flags())
                .arg("-tags")
                .arg(recipe.tags())
                .arg("-o")
                .arg(output)
                .args(packages);
            run(command, recipe, |event| match event {
                Event::Tick if compiled < total => step.update(&format!("{compiled} of {total} packages")),
                Event::Tick => step.update("linking"),
                Event::Output(_) => {}
                // With -v every compiled package is one word; all else is a message.
                Event::Message(line) => {
                    let package = !line.contains(char::is_whitespace);
                    compiled += usize::from(package && !recipe.binaries().values().any(|p| p == line));
                }
            })
            .await?;
        }
        match recipe.definitions() {
            Some(folder) => self.copy_definitions(recipe, folder, dir).await,
            None => Ok(()),
        }
    }

    /// Copies the definitions of the kinds that the programs work on, so that the sources are not needed to run them.
    async fn copy_definitions(&self, recipe: &Recipe, folder: &str, dir: &Path) -> anyhow::Result<()> {
        let mut command = self.command(recipe, &dir.join("tmp"));
        command.args(["list", "-m", "-f", "{{.Dir}}", recipe.module()]);
        let mut sources = PathBuf::new();
        run(command, recipe, |event| {
            if let Event::Output(line) = event {
                sources = line.into();
            }
        })
        .await?;
        let (from, to) = (sources.join(folder), dir.join(DEFINITIONS));
        std::fs::create_dir(&to)?;
        let files = std::fs::read_dir(&from)
            .with_context(|| format!("{} has no folder {folder}: correct its component.yaml", recipe.module()))?;
        for file in files {
            let file = file?;
            // Read and written rather than copied: Go keeps its sources without the permission to write.
            let text = std::fs::read(file.path())?;
            std::fs::write(to.join(file.file_name()), text)?;
        }
        Ok(())
    }

    /// How many packages have to be compiled: those that Go's own cache lacks, not counting the programs
    /// themselves, which are linked in any case. Fetches the modules.
    async fn count_stale(&self, recipe: &Recipe, tmp: &Path, step: &mut Step) -> anyhow::Result<usize> {
        let mut command = self.command(recipe, tmp);
        command
            .args(["list", "-deps", "-trimpath"])
            .args(COMPILER_FLAGS)
            .args(["-f", "{{if and .Stale (ne .Name \"main\")}}{{.ImportPath}}{{end}}"])
            .arg("-tags")
            .arg(recipe.tags())
            .args(recipe.binaries().values());
        let (mut stale, mut fetched) = (0_usize, 0_usize);
        run(command, recipe, |event| match event {
            Event::Tick if fetched > 0 => {
                step.update(&format!("{fetched} modules downloaded"));
            }
            Event::Tick => step.update("looking at what to compile"),
            Event::Output(line) => stale += usize::from(!line.is_empty()),
            Event::Message(line) => fetched += usize::from(line.starts_with("go: downloading")),
        })
        .await?;
        Ok(stale)
    }

    fn command(&self, recipe: &Recipe, tmp: &Path) -> Command {
        let mut command = Command::new(&self.program);
        settled(&mut command)
            .current_dir(&recipe.dir)
            // A Go that is stopped does not tidy up: there it is done for it.
            .env("GOTMPDIR", tmp)
            // Compilers are short-lived: not collecting garbage saves a quarter of the time.
            .env("GOGC", "off");
        if recipe.cgo() {
            command.env("CGO_ENABLED", "1").env("CC", "gcc");
        }
        command
    }
}

fn settled(command: &mut Command) -> &mut Command {
    command.envs(BUILD_SETTINGS).env_remove("GOOS").env_remove("GOARCH").env_remove("GOEXPERIMENT")
}

/// Go names a program after the last part of its package: where all names agree one call builds them all
/// and compiles what they share once; otherwise one call each.
fn invocations<'a>(recipe: &'a Recipe, out: &Path) -> Vec<(PathBuf, Vec<&'a str>)> {
    let binaries = recipe.binaries();
    let agree = binaries.iter().all(|(name, package)| package.rsplit('/').next() == Some(name));
    if agree {
        // The empty last part makes it a directory to Go even while it does not exist.
        let packages = binaries.values().map(String::as_str).collect();
        return vec![(out.join(""), packages)];
    }
    binaries.iter().map(|(name, package)| (out.join(name), vec![package.as_str()])).collect()
}

enum Event<'a> {
    Output(&'a str),
    Message(&'a str),
    Tick,
}

/// Runs Go to its end, and reports each line, and ten times a second that time passes.
async fn run(mut command: Command, recipe: &Recipe, mut hear: impl FnMut(Event<'_>)) -> anyhow::Result<()> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .context("Cannot run go")?;
    let mut guard = Group(child);
    let mut output = lines(guard.0.stdout.take().context("go has no output")?);
    let mut messages = lines(guard.0.stderr.take().context("go has no messages")?);
    let mut said = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let (mut output_ended, mut messages_ended) = (false, false);
    while !(output_ended && messages_ended) {
        tokio::select! {
            line = output.next_line(), if !output_ended => match line? {
                Some(line) => hear(Event::Output(&line)),
                None => output_ended = true,
            },
            line = messages.next_line(), if !messages_ended => match line? {
                Some(line) => {
                    hear(Event::Message(&line));
                    said.push(line);
                }
                None => messages_ended = true,
            },
            _ = ticks.tick() => hear(Event::Tick),
        }
    }
    let status = guard.0.wait().await?;
    if status.success() {
        return Ok(());
    }
    Err(explain(recipe, &said))
}

fn lines<R: AsyncRead + Unpin>(from: R) -> tokio::io::Lines<BufReader<R>> {
    BufReader::new(from).lines()
}

/// Go and the compilers that it started: ended when the caller no longer waits for them.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Without a number it has ended and was waited for.
        let pid = self.0.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let Some(group) = pid else { return };
        let _ = kill_process_group(group, Signal::KILL);
        // Gone before its directory is removed, or the last compiler would write into it.
        let deadline = Instant::now() + Duration::from_secs(2);
        while test_kill_process_group(group).is_ok() && Instant::now() < deadline {
            let _ = self.0.try_wait();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// One sentence for the causes that people can remedy, and the output of Go for the rest.
fn explain(recipe: &Recipe, said: &[String]) -> anyhow::Error {
    let has = |needles: &[&str]| said.iter().find(|line| needles.iter().any(|needle| line.contains(needle)));
    let name = &recipe.name;
    if has(&["no space left on device", "disk quota exceeded"]).is_some() {
        return no_space(name);
    }
    if let Some(line) = has(&[
        "module lookup disabled by GOPROXY=off",
        "dial tcp",
        "no such host",
        "connection refused",
        "i/o timeout",
        "TLS handshake",
        "proxyconnect",
    ]) {
        return anyhow!(
            "The sources of {name} could not be downloaded: this needs access to a Go module proxy once. \
             Check the network and GOPROXY, or copy a filled cache to OPCORE_CACHE. The output of Go: {}",
            line.trim()
        );
    }
    let last = &said[said.len().saturating_sub(12)..];
    anyhow!("Building {name} failed. The output of Go:\n  {}", last.join("\n  "))
}

/// The sentence for a full disk.
pub(crate) fn no_space(name: &str) -> anyhow::Error {
    anyhow!(
        "No space is left on the disk to build {name}: a control plane needs about 5 GB while it is built, all \
         components together about 16 GB. Free some, or set OPCORE_CACHE (the results), GOCACHE and GOMODCACHE (Go's own \
         files) to directories on a larger disk."
    )
}

/// `1.26.8` → `[1, 26, 8]`; what is not a number (`rc1`) counts as its leading digits.
fn numbers(version: &str) -> Vec<u32> {
    version
        .split('.')
        .map(|part| {
            let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..end].parse().unwrap_or(0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(numbers("1.9.0") < numbers("1.25.0"));
        assert!(numbers("1.25rc1") < numbers("1.25.1"));
        assert!(numbers("1.26.8") >= numbers("1.25.0"));
    }
}

//! With a real Go and a component of three lines.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use tempfile::TempDir;

use super::*;

/// A cache and a component, both fresh.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> anyhow::Result<Self> {
        let bench = Self { dir: tempfile::tempdir()? };
        let source = bench.dir.path().join("tiny");
        fs::create_dir_all(source.join("dep"))?;
        let go_mod = "module example.test/tiny\n\ngo 1.21\n\nrequire example.test/dep v1.2.3\n\n\
                      replace example.test/dep => ./dep\n";
        fs::write(source.join("go.mod"), go_mod)?;
        fs::write(source.join("dep/go.mod"), "module example.test/dep\n\ngo 1.21\n")?;
        fs::write(source.join("dep/dep.go"), "package dep\n\nvar Version = \"unset\"\n")?;
        bench.write("main.go", &program("println(dep.Version)"))?;
        bench.write(
            "component.yaml",
            "module: example.test/dep\nbinaries: {tiny: example.test/tiny}\n\
             variables: {example.test/dep.Version: \"{version} is {major} and {minor}\"}\n",
        )?;
        Ok(bench)
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.dir.path().join("tiny").join(name), text)
    }

    fn recipe(&self) -> anyhow::Result<Recipe> {
        Recipe::read(&self.dir.path().join("tiny"))
    }

    fn cache(&self) -> Cache {
        Cache::at(self.dir.path().join("cache"))
    }

    async fn ensure(&self) -> anyhow::Result<PathBuf> {
        Ok(self.cache().ensure(&self.recipe()?, Progress::Silent).await?.join("tiny"))
    }

    async fn entry(&self) -> anyhow::Result<PathBuf> {
        self.cache().entry(&self.recipe()?, Some(&Toolchain::find().await?))
    }

    /// What lies in the cache besides locks.
    fn entries(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.dir.path().join("cache/components"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .filter(|name| Path::new(name).extension().is_none_or(|e| e != "lock"))
            .collect();
        names.sort();
        names
    }
}

fn program(statement: &str) -> String {
    format!("package main\n\nimport \"example.test/dep\"\n\nfunc main() {{ {statement}; _ = dep.Version }}\n")
}

fn inode(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path)?.ino())
}

#[tokio::test]
async fn a_component_is_built_once_with_its_version_inside() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let program = bench.ensure().await?;
    let output = Command::new(&program).output()?;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "v1.2.3 is 1 and 2\n");

    let first = inode(&program)?;
    assert_eq!(bench.ensure().await?, program);
    assert_eq!(inode(&program)?, first, "the second time nothing is built");
    assert_eq!(bench.entries().len(), 1, "{:?}", bench.entries());
    Ok(())
}

#[tokio::test]
async fn whatever_goes_in_changes_the_key() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let before = bench.entry().await?;
    assert_eq!(bench.entry().await?, before);

    bench.write("go.sum", "\n")?;
    let with_sum = bench.entry().await?;
    bench.write("main.go", &program("println(1)"))?;
    let with_source = bench.entry().await?;
    let spec = fs::read_to_string(bench.dir.path().join("tiny/component.yaml"))?;
    bench.write("component.yaml", &spec.replace(" is ", " was "))?;
    let with_spec = bench.entry().await?;
    let mut toolchain = Toolchain::find().await?;
    toolchain.version.push_str(".1");
    let with_go = bench.cache().entry(&bench.recipe()?, Some(&toolchain))?;

    let all = std::collections::BTreeSet::from([before, with_sum, with_source, with_spec, with_go]);
    assert_eq!(all.len(), 5, "{all:#?}");
    Ok(())
}

#[tokio::test]
async fn a_component_with_parts_in_c_needs_no_library_to_run() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let spec = fs::read_to_string(bench.dir.path().join("tiny/component.yaml"))?;
    bench.write(
        "main.go",
        "package main\n\n// int seven(void) { return 7; }\nimport \"C\"\n\nfunc main() { println(C.seven()) }\n",
    )?;
    assert!(bench.ensure().await.is_err(), "it does not say that it has parts in C");
    bench.write("component.yaml", &format!("{spec}cgo: true\n"))?;
    let program = bench.ensure().await?;
    assert_eq!(String::from_utf8_lossy(&Command::new(&program).output()?.stderr), "7\n");
    // Images take no program that needs libraries.
    crate::image::Image::new("tiny:v1", program)?.build()?;
    Ok(())
}

#[tokio::test]
async fn while_one_builds_the_others_wait() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let entry = bench.entry().await?;
    let builder = bench.cache().lock(&entry, &bench.recipe()?, Progress::Silent).await?;
    let waiting = tokio::time::timeout(Duration::from_millis(300), bench.ensure()).await;
    assert!(waiting.is_err(), "it did not wait: {waiting:?}");
    assert_eq!(bench.entries(), [""; 0], "nothing was begun");

    drop(builder);
    let (one, other) = tokio::join!(bench.ensure(), bench.ensure());
    assert_eq!(one?, other?);
    assert_eq!(bench.entries().len(), 1, "{:?}", bench.entries());
    Ok(())
}

#[tokio::test]
async fn a_half_built_entry_is_never_used() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let entry = bench.entry().await?;
    // What a build would leave that did not write beside its place.
    fs::create_dir_all(entry.join("bin"))?;
    fs::write(entry.join("bin/tiny"), "half a program")?;

    let program = bench.ensure().await?;
    assert!(Command::new(program).output()?.status.success());
    Ok(())
}

#[tokio::test]
async fn a_build_that_is_given_up_leaves_nothing_behind() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let build = bench.ensure();
    let mut build = std::pin::pin!(build);
    // Until it has begun, then no further.
    while bench.entries().is_empty() {
        tokio::select! {
            done = &mut build => anyhow::bail!("it was too fast to be given up: {done:?}"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
    build.set(bench.ensure());
    assert_eq!(bench.entries(), [""; 0]);
    Ok(())
}

#[tokio::test]
async fn what_a_killed_repair_left_goes_with_the_next_build() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let left = bench.dir.path().join("cache/components").join(format!("{BIN}left"));
    fs::create_dir_all(left.join("entry"))?;
    File::open(&left)?.set_modified(std::time::SystemTime::UNIX_EPOCH)?;
    bench.ensure().await?;
    assert_eq!(bench.entries().len(), 1, "{:?}", bench.entries());
    Ok(())
}

#[tokio::test]
async fn damage_is_noticed_and_repaired() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let program = bench.ensure().await?;
    let entry = bench.entry().await?;
    let good = fs::read(&program)?;
    let modified = fs::metadata(&program)?.modified()?;
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;

    fs::remove_file(&program)?;
    assert_eq!(inspect(&entry, Scrutiny::Quick), Condition::Corrupt("tiny is missing".to_owned()));

    fs::write(&program, &good[..100])?;
    let expected = format!("tiny has 100 bytes instead of {}", good.len());
    assert_eq!(inspect(&entry, Scrutiny::Quick), Condition::Corrupt(expected));

    fs::write(&program, &bad)?;
    assert_eq!(inspect(&entry, Scrutiny::Quick), Condition::Corrupt("tiny has been changed".to_owned()));

    // A disk that turns a bit does not touch the time: only a thorough look finds it.
    File::options().write(true).open(&program)?.set_modified(modified)?;
    assert_eq!(inspect(&entry, Scrutiny::Quick), Condition::Intact);
    assert_eq!(inspect(&entry, Scrutiny::Full), Condition::Corrupt("tiny has been changed".to_owned()));

    fs::write(&program, "")?;
    assert!(Command::new(bench.ensure().await?).output()?.status.success(), "it was built anew");
    assert_eq!(inspect(&entry, Scrutiny::Full), Condition::Intact);
    assert_eq!(bench.entries().len(), 1, "the damaged one is gone: {:?}", bench.entries());
    Ok(())
}

#[tokio::test]
async fn definitions_are_kept_beside_the_program_and_are_as_precious() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let spec = fs::read_to_string(bench.dir.path().join("tiny/component.yaml"))?;
    bench.write("component.yaml", &format!("{spec}definitions: config/crds\n"))?;
    let error = format!("{:#}", bench.ensure().await.expect_err("there is no such folder"));
    assert!(error.starts_with("example.test/dep has no folder config/crds: correct its component.yaml"), "{error}");

    let folder = bench.dir.path().join("tiny/dep/config/crds");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("kind.yaml"), "kind: CustomResourceDefinition\n")?;
    bench.ensure().await?;
    fs::remove_dir_all(&folder)?;
    let entry = bench.entry().await?;
    let kept = entry.join("definitions/kind.yaml");
    assert_eq!(fs::read_to_string(&kept)?, "kind: CustomResourceDefinition\n");
    fs::remove_file(&kept)?;
    assert_eq!(inspect(&entry, Scrutiny::Quick), Condition::Corrupt("kind.yaml is missing".to_owned()));
    Ok(())
}

#[tokio::test]
async fn a_copied_cache_is_used_as_it_is() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let program = bench.ensure().await?;
    let entry = bench.entry().await?;
    let first = inode(&program)?;
    File::options().write(true).open(&program)?.set_modified(std::time::SystemTime::UNIX_EPOCH)?;
    assert_eq!(inspect(&entry, Scrutiny::Quick), Condition::Moved);

    bench.ensure().await?;
    assert_eq!(inode(&program)?, first, "nothing was built");
    assert_eq!(inspect(&entry, Scrutiny::Quick), Condition::Intact, "the new time is written down");
    Ok(())
}

#[tokio::test]
async fn a_component_that_does_not_compile_is_answered_with_the_words_of_go() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    bench.write("main.go", &program("nonsense()"))?;
    let error = bench.ensure().await.expect_err("it cannot be built").to_string();
    assert!(error.starts_with("Building tiny failed. The output of Go:"), "{error}");
    assert!(error.contains("undefined: nonsense"), "{error}");
    assert_eq!(bench.entries(), [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_go_that_is_too_old_is_named_with_the_one_that_is_needed() -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let mut toolchain = Toolchain::find().await?;
    toolchain.version = "1.20.14".to_owned();
    let error = toolchain.serves(&bench.recipe()?).expect_err("too old").to_string();
    assert_eq!(
        error,
        "Go 1.20.14 is too old: tiny v1.2.3 needs Go 1.21 or later. Install a newer one from https://go.dev/dl."
    );
    Ok(())
}

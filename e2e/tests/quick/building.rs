//! The scripts work wherever a clone and its target directory are located.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use e2e::image::repository;

/// With links with spaces in their names, so that nothing has to be compiled again.
#[test]
fn images_are_built_in_a_directory_with_spaces_in_its_name_and_with_an_absolute_target_directory() -> anyhow::Result<()>
{
    let this_test = std::env::current_exe()?;
    let marked = |dir: &&Path| dir.join("CACHEDIR.TAG").is_file();
    let built = this_test.ancestors().filter(marked).last().context("cargo marks its target directory")?;
    let scratch = tempfile::tempdir()?;
    let (clone, target) = (scratch.path().join("a clone"), scratch.path().join("a target"));
    symlink(repository().canonicalize()?, &clone)?;
    symlink(built, &target)?;

    let mut command = Command::new(clone.join("hack/images"));
    let said = command.arg("notebook-operator").env("CARGO_TARGET_DIR", &target).current_dir("/").output()?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let line = String::from_utf8(said.stdout)?;
    let file = target.join("images/notebook-operator.tar");
    ensure!(line.trim_end().ends_with(&format!(" {}", file.display())), "{line}");
    ensure!(file.is_file(), "{line}");
    Ok(())
}

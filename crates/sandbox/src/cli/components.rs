//! `build`, `which`.

use std::process::ExitCode;

use anyhow::bail;

use super::style::say;
use crate::binaries::Binaries;
use crate::cache::{Cache, Condition, Scrutiny};
use crate::catalogue::{Catalogue, Recipe};
use crate::progress::Progress;

pub(super) async fn build(names: &[String]) -> anyhow::Result<ExitCode> {
    let catalogue = Catalogue::load()?;
    let mut recipes: Vec<&Recipe> = Vec::new();
    for name in names {
        let recipe = catalogue.find(name)?;
        if recipes.iter().all(|r| r.name != recipe.name) {
            recipes.push(recipe);
        }
    }
    if names.is_empty() {
        recipes.extend(catalogue.all());
    }
    let cache = Cache::from_env()?;
    for recipe in recipes {
        let before = cache.condition(recipe, Scrutiny::Quick).await?;
        let dir = cache.ensure(recipe, Progress::detect()).await?;
        let word = if before == Condition::Intact { "was built before" } else { "is built" };
        say!("{} {} {word}: {}", recipe.name, recipe.version, dir.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Progress goes to standard error, the path alone to standard output: scripts read it.
pub(super) async fn which(program: &str) -> anyhow::Result<ExitCode> {
    let catalogue = Catalogue::load()?;
    let recipe = catalogue.find(program)?;
    if !recipe.binaries().contains_key(program) {
        let programs: Vec<&str> = recipe.binaries().keys().map(String::as_str).collect();
        bail!("{program:?} is a component of several programs: choose one of {}.", programs.join(", "));
    }
    let binaries = Binaries::ensure(std::iter::once(program), Progress::detect()).await?;
    say!("{}", binaries.get(program)?.display());
    Ok(ExitCode::SUCCESS)
}

//! `build`.

use std::process::ExitCode;

use super::style::say;
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

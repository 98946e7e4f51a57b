//! What benchmarks share: how they count, and where they leave their results, `bench/NAME.json` in cargo's target directory.

use anyhow::Context;

/// Writes the result of a benchmark, for people to compare and machines to plot.
///
/// # Errors
/// When this program does not run from a target directory, or the file cannot be written.
pub fn write(name: &str, result: &serde_json::Value) -> anyhow::Result<()> {
    let executable = std::env::current_exe()?;
    // The outermost directory that cargo marks, whatever platform and profile are below it.
    let target = executable.ancestors().filter(|dir| dir.join("CACHEDIR.TAG").is_file()).last();
    let target = target.context("this program does not run from a target directory")?;
    let folder = target.join("bench");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{name}.json"));
    std::fs::write(&file, format!("{result:#}\n")).with_context(|| format!("cannot write {}", file.display()))
}

/// The sum over all series of a counter whose line fits, in a text as Prometheus reads it.
pub fn count(text: &str, name: &str, fits: impl Fn(&str) -> bool) -> usize {
    let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && fits(line));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).sum()
}

//! Prints the reference pages that are generated from the code: `reference metrics` and `reference flags`.

use clap::{Args, Command};
use opcore::metrics::{ALL, table};
use opcore::runtime::Flags;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("metrics") => metrics(),
        Some("flags") => flags(),
        other => {
            eprintln!("usage: reference metrics|flags, not {other:?}");
            std::process::exit(2);
        }
    }
}

fn metrics() {
    println!("# Metrics\n");
    println!("Every operator publishes these at `/metrics`, beside the usual `process_*` metrics. Names are API.\n");
    print!("{}", table(ALL));
}

fn flags() {
    println!("# Flags\n");
    println!("Every operator has these flags. Each can also be set by environment, which is how charts set them.\n");
    println!("| Flag | Environment | Default | Meaning |\n|---|---|---|---|");
    for flag in Flags::augment_args(Command::new("operator")).get_arguments() {
        let environment = flag.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        let default: Vec<_> =
            flag.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        println!("| `--{}` | {environment} | {} | {help} |", flag.get_long().unwrap_or_default(), default.join(", "));
    }
}

//! Prints the reference page of the command line, made from the code.

use clap::{Arg, Command};

fn main() {
    println!("# opctl\n");
    println!(
        "Every command of `opctl`, also callable as `kubectl opctl`. What they look like: [opctl](../opctl.md).\n"
    );
    let mut root = opctl::cli::command();
    // Only then it knows which flags all commands share.
    root.build();
    println!("These flags go with every command that talks to a cluster:\n");
    arguments(root.get_arguments().filter(|argument| argument.is_global_set()));
    commands(&root, "opctl");
}

fn commands(command: &Command, path: &str) {
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let path = format!("{path} {}", sub.get_name());
        if sub.has_subcommands() {
            commands(sub, &path);
            continue;
        }
        let usage = sub.clone().render_usage().to_string();
        println!("\n## {path}\n\n{}.\n", sub.get_about().map(ToString::to_string).unwrap_or_default());
        println!("    {}\n", usage.trim_start_matches("Usage: "));
        arguments(sub.get_arguments().filter(|argument| !argument.is_global_set() && argument.get_id() != "help"));
    }
}

fn arguments<'a>(arguments: impl Iterator<Item = &'a Arg>) {
    println!("| Argument | Meaning |\n|---|---|");
    for argument in arguments {
        let value = argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        let takes = argument.get_action().takes_values();
        let name = match (argument.get_short(), argument.get_long(), value) {
            (_, None, value) => value.unwrap_or_default(),
            (Some(short), Some(long), Some(value)) if takes => format!("-{short}, --{long} {value}"),
            (None, Some(long), Some(value)) if takes => format!("--{long} {value}"),
            (Some(short), Some(long), _) => format!("-{short}, --{long}"),
            (None, Some(long), _) => format!("--{long}"),
        };
        let mut help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let choices: Vec<String> =
            argument.get_possible_values().iter().map(|choice| format!("`{}`", choice.get_name())).collect();
        if takes && !choices.is_empty() {
            help = format!("{help}: {}", choices.join(", "));
        }
        if let Some(default) = argument.get_default_values().first().filter(|_| takes) {
            help = format!("{help} (default `{}`)", default.to_string_lossy());
        }
        println!("| `{name}` | {} |", help.replace('|', "\\|"));
    }
}

//! The runner's program: see [`terraform_runner_operator::runner`].

use std::process::ExitCode;

use clap::Parser;
use terraform_runner_operator::runner::{self, Cli};

fn main() -> ExitCode {
    runner::main(&Cli::parse())
}

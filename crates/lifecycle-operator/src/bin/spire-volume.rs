//! The program of the Jobs on a server's volumes: see [`lifecycle_operator::volume`].

use std::process::ExitCode;

use clap::Parser;
use lifecycle_operator::volume::{self, Cli};

fn main() -> ExitCode {
    volume::main(&Cli::parse())
}

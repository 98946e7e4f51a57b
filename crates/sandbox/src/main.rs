//! The program `sandbox`: a real Kubernetes on this machine, for people.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandbox::cli::main()
}

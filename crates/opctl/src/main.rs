//! The program `opctl`: see the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    opctl::cli::main()
}

//! The operator's program; the library has the code.

#[global_allocator]
static ALLOCATOR: opcore::Allocator = opcore::Allocator;

fn main() -> std::process::ExitCode {
    opcore::runtime::run(opcore::build_info!(), |_| async { Ok(()) })
}

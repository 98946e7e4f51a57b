//! The operator's program; the library has the code.

use wave_orchestrator::controller::WavePlans;

#[global_allocator]
static ALLOCATOR: opcore::Allocator = opcore::Allocator;

fn main() -> std::process::ExitCode {
    opcore::runtime::run(opcore::build_info!(), |context| async move {
        let plans = WavePlans::new(&context);
        context.controller(plans).await
    })
}

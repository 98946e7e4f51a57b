//! Prints the metrics that only this operator has, for the reference.

use wave_orchestrator::metrics;

fn main() {
    println!("\n## wave-orchestrator\n\nThese name plans, and go with them.\n");
    print!("{}", opcore::metrics::table(metrics::ALL));
}

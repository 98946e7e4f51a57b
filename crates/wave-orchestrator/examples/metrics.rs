//! Prints the metrics that this operator has beyond those of all operators, for the reference.

use wave_orchestrator::metrics;

fn main() {
    println!("\n## wave-orchestrator\n\nThese name plans, and go with them.\n");
    print!("{}", opcore::metrics::table(metrics::ALL));
}

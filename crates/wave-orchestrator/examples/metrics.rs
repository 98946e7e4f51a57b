//! Prints the metrics that this operator has beyond those of all operators, for the reference.

use wave_orchestrator::measures;

fn main() {
    println!("\n## wave-orchestrator\n\nThese name plans, and go with them.\n");
    print!("{}", opcore::metrics::table(measures::ALL));
}

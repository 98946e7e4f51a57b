//! Prints the metrics that only this operator has, for the reference.

use terraform_runner_operator::metrics;

fn main() {
    println!("\n## terraform-runner-operator\n\nThose that name workspaces go with them.\n");
    print!("{}", opcore::metrics::table(metrics::ALL));
}

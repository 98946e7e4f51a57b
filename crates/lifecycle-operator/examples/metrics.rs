//! Prints the metrics that this operator has beyond those of all operators, for the reference.

use lifecycle_operator::metrics;

fn main() {
    println!(
        "\n## lifecycle-operator\n\nThe label `operand` is a kind; that of the stack is ZeroTrustWorkloadIdentityManager.\n"
    );
    print!("{}", opcore::metrics::table(metrics::ALL));
}

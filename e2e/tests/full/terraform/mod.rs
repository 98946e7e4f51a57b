//! The terraform-runner-operator, with real OpenTofu in real pods. One file per subject.

mod approving;
mod bounds;
mod crashing;
mod drifting;
mod ending;
mod limitations;
mod literal;
mod mistakes;
mod placing;
mod sample;
mod secrets;

//! The lifecycle-operator, with real SPIRE in real pods. One file per subject.

mod ending;
mod migrating;
mod options;
mod restoring;
mod starting;

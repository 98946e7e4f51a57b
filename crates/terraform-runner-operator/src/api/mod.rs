//! The kinds, by version.

pub mod v1alpha1;

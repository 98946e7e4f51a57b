//! The kinds of `waves.opcore.dev`.

pub mod v1alpha1;

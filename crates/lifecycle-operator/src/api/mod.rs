//! The kinds of this operator.

pub mod v1alpha1;

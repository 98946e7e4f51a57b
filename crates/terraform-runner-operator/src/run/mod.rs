//! What the operator and the runner tell each other.
//!
//! ```text
//!   operator ── Bundle (Secrets) ──▶ pod: container terraform: `tf-runner run`   ── argv ──▶ tofu
//!            ── Order (environment) ▶      │ loopback: state, plan, report               │
//!                                          ▼                                             │
//!   operator ◀─ Report (Secret) ──── container store: `tf-runner serve` ◀── http backend ┘
//! ```
//!
//! Only the container `store` has a token, and only for the Secrets and the Lease that [`names::Names`] names.

pub mod bundle;
pub mod names;
pub mod order;
pub mod report;

//! What the operator and the runner exchange.
//!
//! ```text
//!   operator ── Bundle (Secrets) ──▶ pod: container terraform: `tf-runner run`   ── argv ──▶ tofu
//!            ── Order (environment) ▶      │ loopback: state, plan, report               │
//!                                          ▼                                             │
//!   operator ◀─ Report (Secret) ──── container store: `tf-runner serve` ◀── http backend ┘
//! ```
//!
//! Only the container `store` has a token, and it is valid only for the Secrets and the Lease that [`names::Names`]
//! lists.

pub mod bundle;
pub mod names;
pub mod order;
pub mod report;

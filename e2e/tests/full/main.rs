//! The slow scenarios: `make e2e` runs them together with the quick ones.

mod fleet;
mod identity;
mod leading;
mod leaving;
mod measuring;
mod opentofu;
mod rights;
mod terraform;
mod upgrading;

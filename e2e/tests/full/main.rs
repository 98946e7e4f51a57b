//! The scenarios that take their time: `make e2e` plays them, together with the quick ones.

mod fleet;
mod identity;
mod leading;
mod leaving;
mod measuring;
mod opentofu;
mod rights;
mod terraform;
mod upgrading;

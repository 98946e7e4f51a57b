//! From a plan and its sources to what is to be applied, watched and asked. Pure.

mod draft;
mod manifests;
mod order;

pub use draft::{Check, Draft, DraftItem, DraftSubject, DraftTask, DraftWave, Sources, draft};
pub use manifests::{Manifest, Problem, parse};
pub use order::Stage;

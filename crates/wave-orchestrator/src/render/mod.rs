//! From a plan and its sources to what is to be applied, watched and asked. Pure.

mod draft;
mod kept;
mod manifests;
mod order;

pub use draft::{
    Check, Draft, DraftItem, DraftSubject, DraftTask, DraftWave, Source, Sources, draft, draft_with, revision,
};
pub use kept::{kept_in, kept_name, kept_secret};
pub use manifests::{Manifest, Problem, parse};
pub use order::Stage;

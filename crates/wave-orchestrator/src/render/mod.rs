//! From a plan and its sources to what must be applied, watched and probed. Pure.

mod bounded;
mod manifests;
mod order;
mod parsed_plan;
mod rollback_secret;

pub use manifests::{Manifest, Problem, parse};
pub use order::Stage;
pub use parsed_plan::{
    Check, ParsedItem, ParsedPlan, ParsedSubject, ParsedTask, ParsedWave, Source, Sources, parse_with, parsed, revision,
};
pub use rollback_secret::{kept_in, kept_name, kept_secret};

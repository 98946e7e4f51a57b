//! What must be known to use a part: recorded when it is started, and read by those who use it.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context;

use super::{Part, Place};
use crate::home::Home;
use crate::pki::write_private;

const FILE: &str = "facts.json";

/// Variable → value, in the order in which people should see them.
pub(crate) type Facts = Vec<(String, String)>;

pub(crate) fn write(place: &Place<'_>) -> anyhow::Result<()> {
    let facts = (place.part.definition().facts)(place);
    write_private(&place.dir().join(FILE), &serde_json::to_vec_pretty(&facts)?)
}

/// Those of one part; none where the sandbox does not have it.
pub(crate) fn of(home: &Home, part: Part) -> anyhow::Result<Facts> {
    let file = home.part(part.name()).join(FILE);
    if !file.exists() {
        return Ok(Facts::new());
    }
    let text = fs::read(&file).with_context(|| format!("Cannot read {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not understood", file.display()))
}

/// Those of all parts of a sandbox.
pub(crate) fn all(home: &Home) -> BTreeMap<String, String> {
    Part::all().filter_map(|part| of(home, part).ok()).flatten().collect()
}

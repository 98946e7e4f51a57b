//! Names of images.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;

/// A name with all its parts, as the node keeps it: `docker.io/library/echo:v1` for `echo:v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    full: String,
    tag: String,
}

impl Name {
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((path, tag)) = text.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) else {
            bail!("The image {text:?} has no tag: write one, for example {text}:dev.");
        };
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-:/".contains(c);
        let tag_fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let parts_fit = path.split('/').all(|part| part.starts_with(|c: char| c.is_ascii_alphanumeric()));
        if !path.chars().all(fits) || !parts_fit || tag.is_empty() || tag.len() > 128 || !tag.chars().all(tag_fits) {
            bail!(
                "{text:?} is not a valid name of an image: use lower-case letters, digits and -._/ and a tag, as in echo:v1."
            );
        }
        // What Kubernetes makes of a short name.
        let full = match path.split_once('/') {
            None => format!("docker.io/library/{path}:{tag}"),
            Some((host, _)) if host == "localhost" || host.contains(['.', ':']) => text.to_owned(),
            Some(_) => format!("docker.io/{path}:{tag}"),
        };
        Ok(Self { full, tag: tag.to_owned() })
    }
}

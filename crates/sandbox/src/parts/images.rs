//! Parts that are images on the node: an operator that is worked on makes the pods.

use crate::binaries::Binaries;
use crate::home::Home;
use crate::image::{self, Image};
use crate::node::Enclosure;

/// An image of one of our programs, laid out as its makers lay theirs out, so that the same pods run with either.
pub(crate) struct NodeImage {
    /// The variable from which others know its name.
    pub(crate) variable: &'static str,
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    /// Where the program is.
    pub(crate) place: &'static str,
    /// The arguments that come before those of a container.
    pub(crate) arguments: &'static [&'static str],
    /// The number of the user that it runs as.
    pub(crate) user: u64,
}

/// Puts images into a node.
pub(crate) async fn load_all(
    images: &[NodeImage],
    binaries: &Binaries,
    enclosure: &Enclosure,
    home: &Home,
) -> anyhow::Result<()> {
    for wanted in images {
        let image = Image::new(wanted.name, binaries.get(wanted.program)?)?.at(wanted.place)?;
        let image = image.arguments(wanted.arguments).user(wanted.user);
        let layout = tokio::task::spawn_blocking(move || image.build()).await??;
        image::load(layout, enclosure, home).await?;
    }
    Ok(())
}

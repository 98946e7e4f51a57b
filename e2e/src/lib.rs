//! The harness of the scenarios: charts are installed with Helm on a real node, into a namespace that enforces the
//! restricted Pod Security Standard, and the effects are watched. A scenario that fails explains itself.
//!
//! ```ignore
//! #[tokio::test]
//! async fn a_notebook_gets_its_pages() -> anyhow::Result<()> {
//!     e2e::scenario("a_notebook_gets_its_pages", async |stage| {
//!         notebook::install(stage, json!({ "replicaCount": 1 })).await?;
//!         stage.write(DIARY).await?;
//!         let diaries = notebook::notebooks(stage);
//!         e2e::until(&diaries, "diary", "Ready", e2e::PATIENCE, |diary| e2e::holds(diary, "Ready")).await?;
//!         Ok(())
//!     })
//!     .await
//! }
//! ```

mod explain;
mod helm;
pub mod identity;
pub mod image;
pub mod notebook;
pub mod processes;
mod stage;
pub mod terraform;
mod wait;
pub mod waves;

pub use helm::Release;
pub use stage::{Stage, announce, not_run, scenario, scenario_on_own_node};
pub use wait::{PATIENCE, first, gone, holds, ready, until, yaml};

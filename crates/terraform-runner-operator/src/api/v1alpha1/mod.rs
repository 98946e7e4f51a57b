//! `infra.opr8r/v1alpha1`: types only. Their comments are the API reference.

mod simple;
mod spec;
mod status;

pub use simple::*;
pub use spec::*;
pub use status::*;

/// Approves the plan of this id. The approval holds for the inputs and the state that the plan was made from.
pub const APPROVE_ANNOTATION: &str = "infra.opr8r/approve";
/// Throws the plan of this id away. Nothing is applied until the inputs change or a new plan is asked for.
pub const DISCARD_ANNOTATION: &str = "infra.opr8r/discard";
/// Asks for a new plan, whatever was decided about the last one. A new value is a new request.
pub const REPLAN_ANNOTATION: &str = "infra.opr8r/replan";
/// Asks for a plan with the newest versions of providers that the module allows. A new value is a new request.
pub const UPGRADE_ANNOTATION: &str = "infra.opr8r/upgrade";
/// Takes a lock away: `HOLDER since TIME`, as `status.lock` tells them, or `HOLDER` alone. It is done once: the same
/// holder's next lock needs another request.
pub const UNLOCK_ANNOTATION: &str = "infra.opr8r/unlock";
/// `"true"`: start no further run, as long as it is there.
pub const SUSPEND_ANNOTATION: &str = "infra.opr8r/suspended";
/// On everything that is made for a workspace: the workspace.
pub const WORKSPACE_LABEL: &str = "infra.opr8r/terraformworkspace";
/// On what is made for a [`SimpleResource`]: the resource.
pub const SIMPLE_LABEL: &str = "infra.opr8r/simpleresource";
/// What a teardown is guarded by.
pub const FINALIZER: &str = "infra.opr8r/teardown";

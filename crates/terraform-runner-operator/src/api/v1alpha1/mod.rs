//! `infra.opr8r/v1alpha1`: types only. Their doc comments become the API reference.

mod simple;
mod spec;
mod status;

pub use simple::*;
pub use spec::*;
pub use status::*;

/// Approves the plan with this id. The approval is valid for the inputs and the state that the plan was made from.
pub const APPROVE_ANNOTATION: &str = "infra.opr8r/approve";
/// Discards the plan with this id. Nothing is applied until the inputs change or a new plan is requested.
pub const DISCARD_ANNOTATION: &str = "infra.opr8r/discard";
/// Requests a new plan, whatever was decided about the last one. A new value is a new request.
pub const REPLAN_ANNOTATION: &str = "infra.opr8r/replan";
/// Requests a plan with the newest versions of providers that the module allows. A new value is a new request.
pub const UPGRADE_ANNOTATION: &str = "infra.opr8r/upgrade";
/// Removes a lock: `HOLDER since TIME`, as in `status.lock`, or `HOLDER` alone. It is handled once: the next lock of
/// the same holder needs another request.
pub const UNLOCK_ANNOTATION: &str = "infra.opr8r/unlock";
/// `"true"`: no further run starts as long as the annotation is set.
pub const SUSPEND_ANNOTATION: &str = "infra.opr8r/suspended";
/// On every object that is created for a workspace: the name of the workspace.
pub const WORKSPACE_LABEL: &str = "infra.opr8r/terraformworkspace";
/// On every object that is created for a [`SimpleResource`]: the name of the resource.
pub const SIMPLE_LABEL: &str = "infra.opr8r/simpleresource";
/// The finalizer that the operator sets on workspaces.
pub const FINALIZER: &str = "infra.opr8r/teardown";

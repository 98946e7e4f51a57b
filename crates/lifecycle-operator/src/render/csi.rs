//! The SPIFFE CSI driver.

use super::{Error, Objects, Platform, Settings};
use crate::api::v1alpha1::SpiffeCSIDriver;

/// The name of the driver's objects, except the CSIDriver, which has that of the plugin.
pub const NAME: &str = "spire-spiffe-csi-driver";
/// The component of its pods, by the label `app.kubernetes.io/component`.
pub const COMPONENT: &str = "csi";

/// All objects of the driver.
///
/// # Errors
///
/// When an object cannot be rendered.
pub fn objects(driver: &SpiffeCSIDriver, settings: &Settings, platform: &Platform) -> Result<Objects, Error> {
    let _ = (driver, settings, platform);
    Ok(Objects::default())
}

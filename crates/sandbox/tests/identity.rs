//! SPIRE on the node gives a pod an identity. It takes minutes to build: `make e2e` runs this.

mod support;

use std::fs;

use anyhow::ensure;
use support::machine::{Footprint, Machine};
use support::{User, can_run};

const STACK: &str = include_str!("identity.yaml");

#[test]
fn a_pod_that_mounts_the_drivers_volume_gets_the_identity_of_its_account() -> anyhow::Result<()> {
    if !can_run("a_pod_that_mounts_the_drivers_volume_gets_the_identity_of_its_account") {
        return Ok(());
    }
    let user = User::new()?;
    let before = Machine::now()?;
    let said = user.good("up --node --with spire")?;
    ensure!(said.contains("opcore.dev/spire-server:") && said.contains("(OPCORE_IMAGE_SPIRE_SERVER)"), "{said}");
    let status = user.good("status")?;
    ensure!(status.lines().any(|line| line.starts_with("spire") && line.contains("ready")), "{status}");
    let refused = user.run("logs spire")?;
    let said = String::from_utf8(refused.stderr)?;
    ensure!(said.contains("spire is images for pods, which keep their own logs"), "{said}");

    let mut stack = STACK.to_owned();
    for variable in ["SPIRE_SERVER", "SPIRE_AGENT", "CONTROLLER_MANAGER", "CSI_DRIVER", "CSI_REGISTRAR"] {
        let variable = format!("OPCORE_IMAGE_{variable}");
        let image = user.good(&format!("exec -- printenv {variable}"))?;
        stack = stack.replace(&format!("{{{variable}}}"), image.trim());
    }
    let file = user.dir.path().join("spire.yaml");
    fs::write(&file, stack)?;
    user.good(&format!("exec -- kubectl apply -f {}", file.display()))?;
    let waited =
        user.run("exec -- kubectl wait pod/workload --for=jsonpath={.status.phase}=Succeeded --timeout=180s")?;
    let all = || user.good("exec -- kubectl get pods,events --all-namespaces").unwrap_or_default();
    ensure!(waited.status.success(), "{waited:?}\n{}", all());
    let identity = user.good("exec -- kubectl logs workload")?;
    ensure!(identity.contains("spiffe://example.org/ns/default/sa/default"), "{identity}");

    // Also of volumes that pods still use.
    let footprint = Footprint::of(&user.home("default"))?;
    ensure!(user.good("down")? == "Sandbox default is gone.\n");
    footprint.gone(&user.home("default"))?;
    ensure!(Machine::now()? == before, "left: {:#?} was {before:#?}", Machine::now()?);
    Ok(())
}

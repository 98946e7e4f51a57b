//! What a user in a test started ends with the test, also with one that fails midway.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One that is still being started cannot be stopped; it is waited for, and not longer than this.
const PATIENCE: Duration = Duration::from_mins(1);

/// The sandboxes whose state is in this directory. Dropped, it takes them down.
pub(crate) struct Sandboxes(pub(crate) PathBuf);

impl Drop for Sandboxes {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.0.exists() {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
            let down = command.args(["down", "--all"]).env("OPCORE_STATE", &self.0).stdin(Stdio::null()).output();
            let starts = |words: &[u8]| String::from_utf8_lossy(words).contains("is being started");
            if down.is_ok_and(|down| down.status.success() || !starts(&down.stderr)) || Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

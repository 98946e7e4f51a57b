//! Confirmation by a person, before something that cannot be undone.

use std::io::{IsTerminal, Write, stderr, stdin};

use anyhow::bail;
use clap::Args;

/// The flag that confirms in advance.
#[derive(Debug, Args)]
pub(crate) struct Consent {
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl Consent {
    /// Whether a person at the terminal confirms, or has confirmed by the flag. `what` is to be done, as a verb phrase.
    ///
    /// # Errors
    ///
    /// There is no terminal.
    pub(crate) fn is_given(&self, what: &str, question: &str) -> anyhow::Result<bool> {
        if self.yes {
            return Ok(true);
        }
        if !stdin().is_terminal() {
            bail!("Nobody can be asked whether to {what}: say so with --yes.");
        }
        let mut err = stderr().lock();
        write!(err, "{question} [y/N] ")?;
        err.flush()?;
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}

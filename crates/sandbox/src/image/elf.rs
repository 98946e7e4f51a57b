//! Whether a program can run alone in an image on this machine.

use std::path::Path;

use anyhow::bail;

/// The name of this machine's architecture, as images spell it.
pub(crate) fn machine() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// # Errors
/// It cannot: why not, and what to do.
pub(super) fn check(program: &[u8], path: &Path) -> anyhow::Result<()> {
    let path = path.display();
    let number = |at: usize, length: usize| -> Option<u64> {
        let bytes = program.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    // 64 bits, the lowest byte first.
    if !program.starts_with(b"\x7fELF\x02\x01") {
        bail!("{path} is not a 64-bit Linux program: an image needs an ELF binary.");
    }
    let architecture = match number(18, 2) {
        Some(62) => "amd64",
        Some(183) => "arm64",
        Some(243) => "riscv64",
        _ => "another architecture",
    };
    if architecture != machine() {
        bail!(
            "{path} is built for {architecture}, and this machine is {}: a container of it could not start. \
             Build it for {0}.",
            machine()
        );
    }
    if needs_interpreter(number).unwrap_or(true) {
        bail!(
            "{path} is linked dynamically, and the image has no libraries: link it statically, in Rust with \
             RUSTFLAGS='-C target-feature=+crt-static' and --target, in Go with CGO_ENABLED=0."
        );
    }
    Ok(())
}

/// Whether one of its program headers names the program that would load its libraries.
fn needs_interpreter(number: impl Fn(usize, usize) -> Option<u64>) -> Option<bool> {
    const INTERPRETER: u64 = 3;
    let table = usize::try_from(number(32, 8)?).ok()?;
    let size = usize::try_from(number(54, 2)?).ok()?;
    let count = usize::try_from(number(56, 2)?).ok()?;
    for entry in 0..count {
        if number(table.checked_add(entry * size)?, 4)? == INTERPRETER {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a program without program headers.
    pub(super) fn header(architecture: u8) -> Vec<u8> {
        let mut program = vec![0; 64];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[18] = architecture;
        program
    }

    fn refusal(program: &[u8]) -> String {
        check(program, Path::new("it")).expect_err("it cannot run").to_string()
    }

    #[test]
    fn what_cannot_run_here_is_refused_in_clear_words() -> anyhow::Result<()> {
        let (own, other) = if machine() == "amd64" { (62, 183) } else { (183, 62) };
        check(&header(own), Path::new("it"))?;
        assert!(refusal(&header(other)).contains("and this machine is"), "{}", refusal(&header(other)));
        assert!(refusal(b"#!/bin/sh\n").contains("is not a 64-bit Linux program"));
        // One program header, behind the header, names an interpreter.
        let mut dynamic = header(own);
        dynamic[32] = 64;
        dynamic[54] = 56;
        dynamic[56] = 1;
        dynamic.extend([3, 0, 0, 0].iter().chain(&[0; 52]));
        assert!(refusal(&dynamic).contains("is linked dynamically"));
        // This repository links statically, as .cargo/config.toml says.
        check(&std::fs::read("/proc/self/exe")?, Path::new("this test"))
    }
}

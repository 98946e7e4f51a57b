//! A git server: smart HTTP, version 2 of the protocol, push with a password, webhooks.

use super::{Definition, PASSWORD, USER, Work};

pub(super) const PART: Definition = Definition {
    name: "git",
    about: "a git server: smart HTTP v2, push with a password, webhooks",
    programs: &["git-server"],
    packages: &[("git", "git")],
    definitions: &[],
    needs_node: false,
    prepare: |_| Ok(()),
    work: Work::Process {
        call: |place| {
            let flags = [
                format!("-listen={}", place.authority()),
                format!("-repositories={}", place.dir().join("repositories").display()),
                format!("-user={USER}"),
                format!("-password={PASSWORD}"),
            ];
            place.call("git-server", &flags)
        },
        health: "/healthz",
    },
    facts: |place| {
        vec![
            ("OPCORE_GIT_URL", format!("http://{}", place.authority())),
            ("OPCORE_GIT_USER", USER.to_owned()),
            ("OPCORE_GIT_PASSWORD", PASSWORD.to_owned()),
        ]
    },
};

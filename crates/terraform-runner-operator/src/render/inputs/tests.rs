//! What specs ask for, and what is refused, field by field.

use serde_json::json;

use super::*;

fn spec(value: Value) -> TerraformWorkspaceSpec {
    serde_json::from_value(value).unwrap()
}

fn module() -> Value {
    json!({ "inline": { "files": { "main.tf": "variable \"a\" {}" } } })
}

fn source(source: Source, name: &str, pairs: &[(&str, &str)]) -> (Reference, Found) {
    let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
    ((source, name.to_owned()), Some(data))
}

fn refused(value: Value, sources: &Sources) -> String {
    inputs(&spec(value), sources).unwrap_err().to_string()
}

#[test]
fn the_same_inputs_have_the_same_hash_and_others_have_another() {
    let of = |value: &str| {
        inputs(&spec(json!({ "module": module(), "variables": { "a": value } })), &Sources::new()).unwrap().hash
    };
    assert_eq!(of("x"), of("x"));
    assert_ne!(of("x"), of("y"));
}

#[test]
fn a_path_that_leads_out_of_the_module_is_refused_by_name() {
    for path in ["../main.tf", "/etc/passwd", "a/../../b.tf", "", "a//b.tf", "a\\b.tf", "./main.tf", ".terraform/x"] {
        let files = json!({ "main.tf": "", path: "x" });
        let error = refused(json!({ "module": { "inline": { "files": files } } }), &Sources::new());
        assert!(error.starts_with(&format!("spec.module.inline.files[{path:?}]")), "{path}: {error}");
    }
}

#[test]
fn what_is_missing_is_reported_with_its_field() {
    let none = Sources::new();
    let case = |value: Value, expected: &str| assert_eq!(refused(value, &none), expected);
    case(
        json!({ "module": { "configMapRef": { "name": "m" } } }),
        "spec.module.configMapRef: ConfigMap m does not exist.",
    );
    case(
        json!({ "module": module(), "variablesFrom": [{ "secretRef": { "name": "creds" } }] }),
        "spec.variablesFrom[0]: Secret creds does not exist.",
    );
    case(
        json!({ "module": module(), "env": [{ "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
        "spec.env[\"TOKEN\"]: Secret s does not exist.",
    );
    case(
        json!({ "module": { "builtin": "nothing" } }),
        "spec.module.builtin: there is no built-in module \"nothing\"; available: simple.",
    );
    case(
        json!({ "module": { "inline": { "files": { "README.md": "x" } } } }),
        "spec.module: there is no .tf, .tofu, .tf.json or .tofu.json file in the root of the module; hidden files \
         and overrides do not count.",
    );
}

#[test]
fn what_is_optional_may_be_missing() {
    let value =
        json!({ "module": module(), "variablesFrom": [{ "secretRef": { "name": "creds" }, "optional": true }] });
    assert!(inputs(&spec(value), &Sources::new()).is_ok());
}

#[test]
fn the_environment_of_the_runner_cannot_be_changed() {
    for name in ["TF_HTTP_ADDRESS", "PATH", "LD_PRELOAD", "TF_CLI_ARGS_apply", "TF_VAR_a"] {
        let error = refused(json!({ "module": module(), "env": [{ "name": name, "value": "x" }] }), &Sources::new());
        assert!(error.contains(name) && error.contains("the runner sets it"), "{error}");
    }
}

#[test]
fn what_no_process_can_be_given_in_its_environment_is_refused_by_name() {
    let long = "x".repeat(LARGEST_ENV + 1);
    let sources = Sources::from([source(Source::Secret, "s", &[("k", &long)])]);
    let refused = |env: Value| refused(json!({ "module": module(), "env": env }), &sources);
    let most =
        "the value of an environment variable may have at most 120 KiB, but has 121; pass large values as variables.";
    assert_eq!(refused(json!([{ "name": "BIG", "value": long }])), format!("spec.env[\"BIG\"]: {most}"));
    let from = json!({ "secretKeyRef": { "name": "s", "key": "k" } });
    let expected = format!("spec.env[\"BIG\"]: Secret s, key \"k\": {most}");
    assert_eq!(refused(json!([{ "name": "BIG", "valueFrom": from }])), expected);
    assert_eq!(
        refused(json!([{ "name": "NUL", "value": "a\0" }])),
        "spec.env[\"NUL\"]: the value of an environment variable cannot contain a NUL character."
    );
    let several: Vec<Value> =
        (0..10).map(|n| json!({ "name": format!("E{n}"), "value": "x".repeat(LARGEST_ENV) })).collect();
    assert_eq!(refused(json!(several)), "spec.env: all values may have at most 1024 KiB in total, but have 1200.");
}

#[test]
fn a_volume_of_the_runner_can_neither_be_replaced_nor_mounted() {
    let refused = |part: &str, name: &str| {
        let template = json!({ "spec": { part: [{ "name": "mine" }, { "name": name }] } });
        refused(json!({ "module": module(), "runner": { "podTemplate": template } }), &Sources::new())
    };
    for name in ["inputs", "work", "tmp", "token", "tools"] {
        for part in ["volumes", "volumeMounts"] {
            let field = format!("spec.runner.podTemplate.spec.{part}[1].name");
            let expected =
                format!("{field}: the volume name {name:?} is reserved for the runner; choose another name.");
            assert_eq!(refused(part, name), expected);
        }
    }
}

#[test]
fn json_from_a_secret_that_is_none_is_reported_without_its_value() {
    let sources = Sources::from([source(Source::Secret, "creds", &[("list", "hunter2")])]);
    let value = json!({ "module": module(), "variablesFrom": [{ "secretRef": { "name": "creds" }, "as": "Json" }] });
    let error = refused(value, &sources);
    assert!(error.contains("list") && error.contains("not JSON") && !error.contains("hunter2"), "{error}");
}

#[test]
fn what_is_in_json_from_a_secret_is_confidential_value_by_value() {
    let text = r#"{ "users": [{ "name": "alice", "password": "hunter2\nsecond" }], "pin": 471108, "on": true }"#;
    let sources = Sources::from([source(Source::Secret, "creds", &[("json", text)])]);
    let from = json!([{ "secretRef": { "name": "creds" }, "as": "Json" }]);
    let env = json!([{ "name": "CREDENTIALS", "valueFrom": { "secretKeyRef": { "name": "creds", "key": "json" } } }]);
    for value in [json!({ "module": module(), "variablesFrom": from }), json!({ "module": module(), "env": env })] {
        let inputs = inputs(&spec(value), &sources).unwrap();
        let bundle = Bundle::parse(&store::inputs::join(&inputs.chunks).unwrap()).unwrap();
        assert_eq!(bundle.confidential, ["471108", "alice", "hunter2\nsecond", text]);
    }
}

/// The message for a module with these files in its root, run by this program.
fn refused_files(binary: &str, files: &[&str]) -> String {
    let files: BTreeMap<&str, &str> = files.iter().map(|path| (*path, "")).collect();
    let value = json!({ "module": { "inline": { "files": files } }, "engine": { "binary": binary } });
    inputs(&spec(value), &Sources::new()).map_or_else(|problem| problem.to_string(), |_| String::new())
}

#[test]
fn an_override_that_would_be_read_after_ours_is_refused_by_name() {
    for path in [
        "zzzz_opcore_override.tf.json",
        "zzzz_opcore_override.tofu",
        "zzzz_opcore_override.tofu.json",
        "zzzzz_override.tf",
        "{_override.tf.json",
        "über_override.tofu",
    ] {
        for binary in ["tofu", "terraform"] {
            let error = refused_files(binary, &["main.tf", path]);
            let field = format!("spec.module.inline.files[{path:?}]: ");
            assert!(error.starts_with(&field) && error.contains("rename"), "{path}: {error}");
        }
    }
    for path in ["override.tf", "override.tf.json", "zz_override.tofu", "a/zzzzz_override.tf", "zzzzz.tf"] {
        assert_eq!(refused_files("tofu", &["main.tf", path]), "");
    }
}

#[test]
fn values_that_would_win_over_those_of_the_spec_are_refused_by_name() {
    for path in ["zz_opcore.auto.tfvars.json", "zzz.auto.tfvars", "zzz.auto.tfvars.json", "ü.auto.tfvars"] {
        let error = refused_files("tofu", &["main.tf", path]);
        let field = format!("spec.module.inline.files[{path:?}]: ");
        assert!(error.starts_with(&field) && error.contains("rename"), "{path}: {error}");
    }
    for path in ["terraform.tfvars", "a.auto.tfvars", "zz_opcore.auto.tfvars", "zzz.tfvars", "a/zzz.auto.tfvars"] {
        assert_eq!(refused_files("tofu", &["main.tf", path]), "");
    }
}

#[test]
fn a_root_without_configuration_of_its_engine_is_refused_before_it_plans_a_destruction() {
    for path in ["main.tf", "main.tf.json"] {
        for binary in ["tofu", "terraform"] {
            assert_eq!(refused_files(binary, &[path]), "");
        }
    }
    for path in ["main.tofu", "main.tofu.json"] {
        assert_eq!(refused_files("tofu", &[path]), "");
        assert_eq!(
            refused_files("terraform", &[path, "a/main.tf"]),
            "spec.module: there is no .tf or .tf.json file in the root of the module; hidden files and overrides \
             do not count, and Terraform does not read .tofu files."
        );
    }
    for path in [".main.tf", "main.tf~", "#main.tf#", "override.tf", "a_override.tf.json", "override.tofu", "a/main.tf"]
    {
        assert_eq!(
            refused_files("tofu", &[path]),
            "spec.module: there is no .tf, .tofu, .tf.json or .tofu.json file in the root of the module; hidden \
             files and overrides do not count."
        );
    }
}

#[test]
fn what_cannot_be_written_in_the_pod_is_refused_by_name() {
    let long = format!("a/{}", "x".repeat(256));
    let deep = ["x"; 600].join("/");
    for path in [
        long.as_str(),
        &deep,
        "errored.tfstate",
        "errored.tfstate/a",
        "zz_opcore.auto.tfvars.json/a",
        "zzzz_opcore_override.tf.json/a",
        "terraform.tfstate",
        "terraform.tfstate.d/a/terraform.tfstate",
        "main.tf/a",
    ] {
        let error = refused_files("tofu", &["main.tf", path]);
        assert!(error.starts_with(&format!("spec.module.inline.files[{path:?}]: ")), "{path}: {error}");
    }
    let fit = "x".repeat(255);
    for path in [&fit, ".terraform.lock.hcl", "terraform.tfstate.backup", "a/errored.tfstate", "a/terraform.tfstate"] {
        assert_eq!(refused_files("tofu", &["main.tf", path]), "");
    }
    let sources = Sources::from([source(Source::ConfigMap, "m", &[("main.tf", ""), ("errored.tfstate", "")])]);
    let error = refused(json!({ "module": { "configMapRef": { "name": "m" } } }), &sources);
    assert_eq!(
        error,
        "spec.module.configMapRef: key \"errored.tfstate\": the name is reserved for the runner; rename the file."
    );
}

/// The message for a custom backend, in pods with this template.
fn refused_backend(custom: &Value, template: &Value, sources: &Sources) -> String {
    let value = json!({
        "module": module(), "backend": { "custom": custom }, "runner": { "podTemplate": { "spec": template } },
    });
    inputs(&spec(value), sources).map_or_else(|problem| problem.to_string(), |_| String::new())
}

#[test]
fn a_state_that_would_be_lost_with_the_pod_is_refused() {
    let none = Sources::new();
    let error = refused_backend(&json!({ "type": "inmem" }), &json!({}), &none);
    assert!(error.starts_with("spec.backend.custom.type: ") && error.contains("another"), "{error}");
    let template = json!({
        "volumes": [
            { "name": "states", "persistentVolumeClaim": { "claimName": "states" } },
            { "name": "scratch", "emptyDir": {} },
            { "name": "unnamed" },
        ],
        "volumeMounts": [
            { "name": "states", "mountPath": "/states" },
            { "name": "states", "mountPath": "/run" },
            { "name": "scratch", "mountPath": "/scratch" },
            { "name": "scratch", "mountPath": "/states/scratch" },
            { "name": "unnamed", "mountPath": "/unnamed" },
        ],
    });
    let local = |config: Value| refused_backend(&json!({ "type": "local", "config": config }), &template, &none);
    for fit in ["/states/a.tfstate", "/states/a/b.tfstate", "/run/states/a.tfstate"] {
        assert_eq!(local(json!({ "path": fit })), "");
    }
    for unfit in [
        json!({}),
        json!({ "path": 1 }),
        json!({ "path": "a.tfstate" }),
        json!({ "path": "states/a.tfstate" }),
        json!({ "path": "/a.tfstate" }),
        json!({ "path": "/states" }),
        json!({ "path": "/states-of-others/a.tfstate" }),
        json!({ "path": "/states/../a.tfstate" }),
        json!({ "path": "/scratch/a.tfstate" }),
        json!({ "path": "/states/scratch/a.tfstate" }),
        json!({ "path": "/unnamed/a.tfstate" }),
        json!({ "path": "/run/work/a.tfstate" }),
        json!({ "path": "/tmp/a.tfstate" }),
    ] {
        let error = local(unfit.clone());
        assert!(error.starts_with("spec.backend.custom.config[\"path\"]: "), "{unfit}: {error}");
        assert!(error.contains("spec.runner.podTemplate.spec.volumeMounts"), "{unfit}: {error}");
    }
}

#[test]
fn where_another_workspace_of_a_local_state_is_outlasts_the_pod_too() {
    let refused = |config: Value| {
        let mounts = json!([{ "name": "states", "mountPath": "/states" }]);
        let value = json!({
            "module": module(),
            "backend": { "custom": { "type": "local", "config": config } },
            "env": [{ "name": "TF_WORKSPACE", "value": "staging" }],
            "runner": { "podTemplate": { "spec": { "volumeMounts": mounts } } },
        });
        inputs(&spec(value), &Sources::new()).map_or_else(|problem| problem.to_string(), |_| String::new())
    };
    let error = refused(json!({ "path": "/states/a" }));
    assert!(error.starts_with("spec.backend.custom.config[\"workspace_dir\"]: "), "{error}");
    assert_eq!(refused(json!({ "path": "/states/a", "workspace_dir": "/states/all" })), "");
}

#[test]
fn a_setting_of_a_backend_that_is_no_name_is_refused_with_its_key() {
    let none = Sources::new();
    for key in ["a b", "tls.crt", "1a", "", "a = 1\nb", "größe"] {
        let custom = json!({ "type": "s3", "config": { key: "x" } });
        let error = refused_backend(&custom, &json!({}), &none);
        assert!(error.starts_with(&format!("spec.backend.custom.config[{key:?}]: ")), "{error}");
    }
    let custom = json!({ "type": "s3", "config": { "_a-1": "x" }, "configFrom": { "secretRef": { "name": "s" } } });
    let of = |key: &str| Sources::from([source(Source::Secret, "s", &[(key, "x")])]);
    let error = refused_backend(&custom, &json!({}), &of("tls.crt"));
    assert!(error.starts_with("spec.backend.custom.configFrom.secretRef: key \"tls.crt\": "), "{error}");
    assert_eq!(refused_backend(&custom, &json!({}), &of("secret_key")), "");
    let local = json!({ "type": "local", "configFrom": { "secretRef": { "name": "s" } } });
    let error = refused_backend(&local, &json!({}), &of("path"));
    assert!(error.starts_with("spec.backend.custom.configFrom.secretRef: key \"path\": "), "{error}");
}

#[test]
fn outputs_cannot_go_where_a_workspace_keeps_something() {
    let refused = |name: &str| {
        let value = json!({ "module": module(), "outputs": { "secretName": name } });
        inputs(&spec(value), &Sources::new()).map_or_else(|problem| problem.to_string(), |_| String::new())
    };
    let of = crate::run::names::Names::of("my.network-1", "u");
    let inputs = of.inputs_chunk(&"0123456789".repeat(7), 2);
    for name in [of.state(), of.state_chunk(7, 3), of.plan(), of.plan_chunk(3), of.report(), inputs] {
        let error = refused(&name);
        assert!(error.starts_with("spec.outputs.secretName: ") && error.contains("another name"), "{error}");
    }
    for name in ["network", "tf-network-outputs", "tf-network-0123456x-state", "tf-01234567-state", "tf-a-01234567"] {
        assert_eq!(refused(name), "");
    }
}

/// The confidential values that are found in a Secret with this value.
fn confidential(text: &str) -> Vec<String> {
    let sources = Sources::from([source(Source::Secret, "creds", &[("text", text)])]);
    let value = json!({ "module": module(), "variablesFrom": [{ "secretRef": { "name": "creds" } }] });
    let inputs = inputs(&spec(value), &sources).unwrap();
    let mut all = Bundle::parse(&store::inputs::join(&inputs.chunks).unwrap()).unwrap().confidential;
    all.retain(|found| found != text);
    all
}

#[test]
fn json_within_json_is_confidential_value_by_value() {
    let inner = json!({ "password": "hunter2" }).to_string();
    let list = json!(["alice", inner]).to_string();
    assert_eq!(confidential(&json!({ "a": list }).to_string()), [list.as_str(), "alice", "hunter2", &inner]);
    assert_eq!(confidential(&json!("\"quoted\"").to_string()), ["\"quoted\"", "quoted"]);
    assert_eq!(
        confidential(r#"[" [4711]\nand\n{\"a\":\"alice\"}"]"#),
        [" [4711]\nand\n{\"a\":\"alice\"}", "4711", "alice"]
    );
}

#[test]
fn of_several_json_values_and_of_json_among_other_text_each_is_confidential_value_by_value() {
    assert_eq!(confidential("{\"a\": \"alice\"}\n{\"b\": \"bob\"}\n[\"carol\"]"), ["alice", "bob", "carol"]);
    assert_eq!(confidential("{\"a\": \"alice\"} and so on"), ["alice"]);
    assert_eq!(confidential("{\"a\": \"alice\"}\nnot this\n{\"b\": \"bob\"}"), ["alice", "bob"]);
    assert_eq!(confidential("\u{feff}{\"a\": \"alice\"}"), ["alice"]);
    let none: [&str; 0] = [];
    for text in ["hunter2", "2024 was a year", "\"password\": \"as in YAML\"", "[section]\nport = 5432", ""] {
        assert_eq!(confidential(text), none);
    }
    let deep = format!("{}\"alice\"{}", "[".repeat(500), "]".repeat(500));
    assert_eq!(confidential(&deep), ["alice"]);
}

#[test]
fn a_number_is_confidential_as_it_is_written_and_as_it_is_read() {
    let found = confidential(r#"{ "a": 123456789012345678901234567890, "b": [1.50, -4711, 2e10], "4711": true }"#);
    let expected = ["-4711", "1.2345678901234568e+29", "1.5", "1.50", "123456789012345678901234567890"];
    assert_eq!(found, [expected.as_slice(), &["20000000000.0", "2e10"]].concat());
}

#[test]
fn inputs_too_large_to_be_kept_are_refused_by_name() {
    let sources = Sources::from([source(Source::ConfigMap, "m", &[("main.tf", &"x".repeat(9 << 20))])]);
    let error = refused(json!({ "module": { "configMapRef": { "name": "m" } } }), &sources);
    assert!(error.starts_with("spec.module: the module and the variables have"), "{error}");
}

#[test]
fn of_what_a_spec_refers_to_only_the_keys_that_it_names_are_wanted() {
    let spec = serde_json::json!({
        "module": { "configMapRef": { "name": "module" } },
        "variablesFrom": [
            { "secretRef": { "name": "some" }, "keys": ["a"] }, { "secretRef": { "name": "all" }, "keys": ["a"] },
            { "secretRef": { "name": "all" } },
        ],
        "env": [{ "name": "B", "valueFrom": { "secretKeyRef": { "name": "some", "key": "b" } } }],
    });
    let spec = serde_json::from_value(spec).unwrap();
    let wanted = super::wanted(&spec);
    let of = |source, name: &str| wanted[&(source, name.to_owned())].clone();
    assert_eq!(of(Source::Secret, "some"), Some(["a", "b"].map(str::to_owned).into()));
    assert_eq!((of(Source::Secret, "all"), of(Source::ConfigMap, "module")), (None, None));
}

#[test]
fn more_objects_than_are_read_are_refused_with_the_remedy() {
    assert_eq!(super::few_enough(64), Ok(()));
    let problem = super::few_enough(65).unwrap_err();
    assert!(problem.to_string().contains("65 Secrets and ConfigMaps") && !problem.may_come, "{problem}");
}

#[test]
fn the_hash_of_inputs_is_keyed_and_what_was_applied_without_a_key_is_still_the_same() {
    let s3 = json!({ "custom": { "type": "s3", "config": { "bucket": "b" } } });
    let spec = spec(json!({ "module": module(), "variables": { "a": "hunter2" }, "backend": s3 }));
    let with = |salt: &str, known: &[&String]| {
        let key = Key { salt: salt.to_owned(), known: known.iter().map(|hash| (*hash).clone()).collect() };
        keyed_inputs(&spec, &Sources::new(), &key).unwrap()
    };
    let (one, other, plain) = (with("1".repeat(64).as_str(), &[]), with("2".repeat(64).as_str(), &[]), with("", &[]));
    assert!(one.hash != other.hash && one.hash != plain.hash, "the hash does not reveal the value");
    // Hashes from before keys were introduced stay valid; once there is a key, it remains in use.
    assert_eq!(with(&"1".repeat(64), &[&plain.hash]), plain);
    assert_eq!(with(&"1".repeat(64), &[&plain.hash, &one.hash]), one);
    assert_eq!(with(&"1".repeat(64), &[&other.hash]), one);
    let bundle = Bundle::parse(&store::inputs::join(&one.chunks).unwrap()).unwrap();
    assert_eq!((bundle.salt.len(), Bundle::hash(&bundle.bytes().unwrap())), (64, one.hash));
}

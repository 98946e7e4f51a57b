//! The folder in which Terraform works, and its environment: created from the inputs, which are not trusted.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::hcl;
use crate::run::bundle::{BACKEND, Bundle, VARIABLES, check_files, check_setting};
use crate::run::order::reserved_env;

pub use crate::run::bundle::{ERRORED, is_own};

/// The paths of all files.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The root module: where Terraform runs.
    pub module: PathBuf,
    /// Where it keeps providers and modules.
    pub data: PathBuf,
    /// The plan.
    pub plan: PathBuf,
    /// The settings of another backend.
    pub backend: Option<PathBuf>,
}

impl Layout {
    /// Writes all files into an empty folder.
    ///
    /// # Errors
    ///
    /// When a file has an invalid name, or cannot be written. The message is for the author of the module.
    pub fn new(work: &Path, bundle: &Bundle) -> Result<Self, String> {
        let layout = Self {
            module: work.join("module"),
            data: work.join("data"),
            plan: work.join("plan"),
            backend: bundle.backend.is_some().then(|| work.join("backend.hcl")),
        };
        layout.write(bundle)?;
        Ok(layout)
    }

    fn write(&self, bundle: &Bundle) -> Result<(), String> {
        // The operator has checked both as well.
        check_files(&bundle.files).map_err(|(path, why)| format!("The module has a file {path:?}: {why}"))?;
        for name in bundle.backend.iter().flat_map(|backend| backend.config.keys()) {
            check_setting(name).map_err(|why| format!("The backend has a setting {name:?}: {why}"))?;
        }
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| format!("Cannot write {path}: {error}")
        };
        match fs::remove_dir_all(&self.module) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&self.module)(error)),
            _ => {}
        }
        fs::create_dir_all(&self.module).map_err(failed(&self.module))?;
        for (path, text) in &bundle.files {
            let file = self.module.join(path);
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder).map_err(failed(&file))?;
            }
            put(&file, text.as_bytes()).map_err(failed(&file))?;
        }
        let variables = self.module.join(VARIABLES);
        put(&variables, json!(bundle.variables).to_string().as_bytes()).map_err(failed(&variables))?;
        let kind = bundle.backend.as_ref().map_or("http", |backend| backend.kind.as_str());
        let backend = self.module.join(BACKEND);
        put(&backend, json!({ "terraform": { "backend": { kind: {} } } }).to_string().as_bytes())
            .map_err(failed(&backend))?;
        if let (Some(file), Some(backend)) = (&self.backend, &bundle.backend) {
            let _ = fs::remove_file(file);
            put(file, hcl::settings(&backend.config).as_bytes()).map_err(failed(file))?;
        }
        Ok(())
    }
}

/// Creates a file that only its owner can read.
pub fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

/// The environment of Terraform, in addition to what the image sets, and the names of variables that the image may not
/// set.
pub fn environment(bundle: &Bundle, layout: &Layout, store: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let (refused, mut env): (BTreeMap<_, _>, BTreeMap<_, _>) =
        bundle.env.clone().into_iter().partition(|(name, _)| reserved_env(name).is_some());
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    set("PATH", path());
    set("TF_DATA_DIR", layout.data.display().to_string());
    for (name, value) in [("TF_IN_AUTOMATION", "1"), ("TF_INPUT", "0"), ("CHECKPOINT_DISABLE", "1")] {
        set(name, value.to_owned());
    }
    if !env.contains_key("HOME") && std::env::var_os("HOME").is_none() {
        env.insert("HOME".to_owned(), layout.data.display().to_string());
    }
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    if bundle.backend.is_none() {
        for name in ["TF_HTTP_ADDRESS", "TF_HTTP_LOCK_ADDRESS", "TF_HTTP_UNLOCK_ADDRESS"] {
            set(name, format!("http://{store}/state"));
        }
        // The store itself waits a minute for an unreachable API server; these are for a store that is restarting.
        for (name, value) in [("MAX", "10"), ("WAIT_MIN", "1"), ("WAIT_MAX", "5")] {
            set(&format!("TF_HTTP_RETRY_{name}"), value.to_owned());
        }
    }
    (env, refused.into_keys().collect())
}

/// The inherited path, followed by the folder of this program: modules call it where they would call a shell.
fn path() -> String {
    let inherited = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let own = std::env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
    let folders = std::env::split_paths(&inherited).chain(own);
    std::env::join_paths(folders).unwrap_or(inherited).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::bundle::BackendBundle;

    fn bundle(path: &str) -> Bundle {
        Bundle { files: [(path.to_owned(), "text".to_owned())].into(), ..Bundle::default() }
    }

    #[test]
    fn a_path_that_leads_out_of_the_module_is_refused_by_name() {
        let work = tempfile::tempdir().unwrap();
        for path in
            ["../a.tf", "/etc/a.tf", "a/../../b.tf", "a\\b.tf", "", "a//b.tf", "./a.tf", "a\0b.tf", BACKEND, VARIABLES]
        {
            let error = Layout::new(work.path(), &bundle(path)).unwrap_err();
            assert!(error.contains(&format!("{path:?}")), "{error}");
            assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0, "nothing is written before all are checked");
        }
        let layout = Layout::new(work.path(), &bundle("modules/a/main.tf")).unwrap();
        assert_eq!(fs::read_to_string(layout.module.join("modules/a/main.tf")).unwrap(), "text");
    }

    #[test]
    fn what_the_runner_says_of_the_state_and_of_values_is_read_last() {
        let work = tempfile::tempdir().unwrap();
        let paths = ["main.tf", "override.tf", "zz_override.tofu", "z.auto.tfvars", "zz_opcore.auto.tfvars"];
        let files = paths.map(|path| (path.to_owned(), String::new())).into();
        let layout = Layout::new(work.path(), &Bundle { files, ..Bundle::default() }).unwrap();
        let names =
            fs::read_dir(&layout.module).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        let last = |part: &str| names.iter().rfind(|name| name.contains(part)).unwrap().as_str();
        assert_eq!((last("override."), last(".auto.tfvars")), (BACKEND, VARIABLES));
        for path in ["zzzzz_override.tf", "zzz.auto.tfvars", "terraform.tfstate", "errored.tfstate"] {
            let error = Layout::new(work.path(), &bundle(path)).unwrap_err();
            assert!(error.contains(&format!("{path:?}")), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_a_folder_as_well_is_refused_by_name() {
        let work = tempfile::tempdir().unwrap();
        let files = ["a", "a/b.tf"].map(|path| (path.to_owned(), String::new())).into();
        let error = Layout::new(work.path(), &Bundle { files, ..Bundle::default() }).unwrap_err();
        assert!(error.contains("\"a/b.tf\"") && error.contains("folder"), "{error}");
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0, "nothing is written before all are checked");
    }

    #[test]
    fn a_setting_that_is_no_name_is_not_written() {
        let work = tempfile::tempdir().unwrap();
        let config = [("a = 1\nb".to_owned(), json!(1))].into();
        let backend = Some(BackendBundle { kind: "s3".to_owned(), config });
        let error = Layout::new(work.path(), &Bundle { backend, ..Bundle::default() }).unwrap_err();
        assert!(error.contains("\"a = 1\\nb\""), "{error}");
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0, "nothing is written before all are checked");
    }

    #[test]
    fn the_environment_of_the_runner_is_not_for_others_to_set() {
        let env = [
            ("AWS_REGION", "x"),
            ("TF_HTTP_ADDRESS", "x"),
            ("TF_CLI_ARGS_plan", "x"),
            ("PATH", "x"),
            ("LD_PRELOAD", "x"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let work = tempfile::tempdir().unwrap();
        let bundle = Bundle { env, ..Bundle::default() };
        let layout = Layout::new(work.path(), &bundle).unwrap();
        let (env, refused) = environment(&bundle, &layout, "127.0.0.1:1");
        assert_eq!(refused, ["LD_PRELOAD", "PATH", "TF_CLI_ARGS_plan", "TF_HTTP_ADDRESS"]);
        assert_eq!((env["AWS_REGION"].as_str(), env["TF_HTTP_ADDRESS"].as_str()), ("x", "http://127.0.0.1:1/state"));
    }
}

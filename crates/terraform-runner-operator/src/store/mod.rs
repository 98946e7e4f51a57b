//! Storage for data that may be too large for one Secret, and the lock of the state.
//!
//! ```text
//!   state:  chunks of a free place ──▶ index (fenced by its version)      a crash in between changes nothing
//!   plan:   chunks ──▶ plan.json                                          one that does not fit its chunks is no plan
//!   lockfile: one Secret                                                  the versions of the providers
//!   report: one Secret                                                    the outputs stay until there are others
//!   journal: beside the report                                            what may have been made when a pod is lost
//! ```
//!
//! All data is compressed by gzip, split into chunks and checked when it is read: damaged data is reported by name, and
//! never mistaken for something else. All writes are server-side applies or replacements of an object by name, so
//! rights on named objects suffice. Creation by POST, list and watch would need more.
//!
//! Each function makes one attempt at the API server. Callers that can wait use [`retry::patiently`].

pub mod adopted;
pub mod inputs;
pub mod journal;
pub mod lock;
pub mod lockfile;
pub mod pack;
pub mod places;
pub mod plan;
pub mod report;
pub mod retry;
pub mod state;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;

use crate::run::names::Names;
use crate::run::order::{Marks, StoreOrder};

/// The field manager of the fields that are written here.
pub const MANAGER: &str = "terraform-runner-operator";
/// The field manager of objects that are created empty and filled by a fenced write. It is another one, so that
/// creating the object again empties nothing.
const MAKER: &str = "terraform-runner-operator-make";

/// Why something cannot be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It does not exist.
    #[error("Secret {0} does not exist")]
    Missing(String),
    /// It exists, and differs from what was written.
    #[error("Secret {secret} is damaged: {fault}")]
    Damaged {
        /// The Secret.
        secret: String,
        /// How it is damaged.
        fault: String,
    },
    /// Another process wrote first.
    #[error("Secret {0} was changed after it was read")]
    Raced(String),
    /// It must not be written.
    #[error("{0}")]
    Refused(String),
    /// It is too large.
    #[error("{what} has {bytes} bytes when compressed, but may have at most {limit}")]
    TooLarge {
        /// The kind of data.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// The API server returned an error, or could not be reached.
    #[error("the API server: {0}")]
    Api(#[from] kube::Error),
}

impl StoreError {
    /// The status code of the API server's response, or the corresponding one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            Self::Raced(_) => Some(409),
            _ => None,
        }
    }

    /// An error for a damaged Secret, with the fault as text.
    fn damaged(secret: &str, fault: impl Into<String>) -> Self {
        Self::Damaged { secret: secret.to_owned(), fault: fault.into() }
    }
}

/// The Secrets and the Lease of one workspace.
#[derive(Clone)]
pub struct Store {
    secrets: Api<Secret>,
    leases: Api<Lease>,
    names: Names,
    marks: Marks,
}

impl Store {
    /// The objects with these names, for reading only: without marks.
    pub fn new(client: Client, namespace: &str, names: Names) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            leases: Api::namespaced(client, namespace),
            names,
            marks: Marks::default(),
        }
    }

    /// The objects that an order names.
    pub fn of(client: Client, order: &StoreOrder) -> Self {
        let store = Self::new(client, &order.namespace, Names::with_stem(&order.stem));
        Self { marks: order.marks.clone(), ..store }
    }

    /// The names of the objects.
    pub fn names(&self) -> &Names {
        &self.names
    }

    async fn secret(&self, name: &str) -> Result<Option<Secret>, StoreError> {
        Ok(self.secrets.get_opt(name).await?)
    }

    /// Creates or updates a Secret. With a version: only if it still has that version.
    async fn write(
        &self,
        name: &str,
        data: BTreeMap<&str, ByteString>,
        version: Option<&str>,
    ) -> Result<Secret, StoreError> {
        self.write_as(MANAGER, name, data, version).await
    }

    /// The same with another field manager.
    async fn write_as(
        &self,
        manager: &str,
        name: &str,
        data: BTreeMap<&str, ByteString>,
        version: Option<&str>,
    ) -> Result<Secret, StoreError> {
        let body = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data, "metadata": self.metadata(name, version),
        });
        let params = PatchParams::apply(manager).force();
        Ok(self.secrets.patch(name, &params, &Patch::Apply(&body)).await?)
    }

    /// Creates an empty Secret if it does not exist. Returns the existing one.
    async fn make(&self, name: &str) -> Result<Secret, StoreError> {
        let body =
            json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": self.metadata(name, None) });
        Ok(self.secrets.patch(name, &PatchParams::apply(MAKER).force(), &Patch::Apply(&body)).await?)
    }

    fn metadata(&self, name: &str, version: Option<&str>) -> Value {
        let mut metadata = json!({ "name": name, "labels": self.marks.labels, "annotations": self.marks.annotations });
        if let Some(version) = version {
            metadata["resourceVersion"] = version.into();
        }
        metadata
    }
}

/// The value of a key.
fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    Some(&secret.data.as_ref()?.get(key)?.0)
}

/// The value of a key that holds JSON.
fn parsed<T: DeserializeOwned>(secret: &Secret, name: &str, key: &str) -> Result<T, StoreError> {
    let bytes = value(secret, key).ok_or_else(|| StoreError::damaged(name, format!("it has no key {key}")))?;
    serde_json::from_slice(bytes).map_err(|error| StoreError::damaged(name, format!("{key} cannot be parsed: {error}")))
}

fn to_json<T: Serialize>(what: &T) -> Result<ByteString, StoreError> {
    serde_json::to_vec(what).map(ByteString).map_err(|error| StoreError::Api(kube::Error::SerdeError(error)))
}

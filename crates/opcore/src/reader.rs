//! A client that can only read, which [`Operator::observe`](crate::Operator::observe) receives.
//!
//! # Guarantees
//!
//! Nothing that is reached from a [`Reader`] changes anything in the cluster. `observe` cannot write, not even by
//! mistake: writes are data in a [`Decision`](crate::Decision), and [`crate::act`] carries them out.

use std::fmt::Debug;

use kube::api::{ApiResource, DynamicObject, ListParams, ObjectList, PartialObjectMeta};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::error::Error;

/// A client that can only read. Cheap to clone.
#[derive(Clone)]
pub struct Reader {
    client: Client,
}

impl Reader {
    /// A reader that uses this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The namespace of this process.
    pub fn default_namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// The objects of a kind in all namespaces, or of a cluster-scoped kind.
    pub fn all<K>(&self) -> Objects<K>
    where
        K: Resource<DynamicType = ()>,
    {
        Objects(Api::all(self.client.clone()))
    }

    /// The objects of a kind in one namespace.
    pub fn namespaced<K>(&self, namespace: &str) -> Objects<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Objects(Api::namespaced(self.client.clone(), namespace))
    }

    /// The objects of a kind in the namespace of this process.
    pub fn default_namespaced<K>(&self) -> Objects<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Objects(Api::default_namespaced(self.client.clone()))
    }

    /// The objects of a kind that is known only at run time, in one namespace or in all.
    pub fn dynamic(&self, resource: &ApiResource, namespace: Option<&str>) -> Objects<DynamicObject> {
        Objects(match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        })
    }
}

/// Read access to the objects of a kind.
#[derive(Clone, Debug)]
pub struct Objects<K>(Api<K>);

impl<K> Objects<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    /// Returns the object of this name, if it exists.
    ///
    /// # Errors
    ///
    /// When the API server could not be reached, or did not allow it.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>, Error> {
        Ok(self.0.get_opt(name).await?)
    }

    /// Returns the metadata of the object of this name, if it exists.
    ///
    /// # Errors
    ///
    /// When the API server could not be reached, or did not allow it.
    pub async fn get_metadata_opt(&self, name: &str) -> Result<Option<PartialObjectMeta<K>>, Error> {
        Ok(self.0.get_metadata_opt(name).await?)
    }

    /// Returns the selected objects.
    ///
    /// # Errors
    ///
    /// When the API server could not be reached, or did not allow it.
    pub async fn list(&self, selected: &ListParams) -> Result<ObjectList<K>, Error> {
        Ok(self.0.list(selected).await?)
    }

    /// Returns the metadata of the selected objects.
    ///
    /// # Errors
    ///
    /// When the API server could not be reached, or did not allow it.
    pub async fn list_metadata(&self, selected: &ListParams) -> Result<ObjectList<PartialObjectMeta<K>>, Error> {
        Ok(self.0.list_metadata(selected).await?)
    }
}

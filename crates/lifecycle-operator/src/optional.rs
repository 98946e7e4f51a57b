//! Watches on the kinds that a cluster may have or not: OpenShift's, those of the Gateway API, those of the controller
//! manager. A kind that comes or goes is noticed, too.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use kube::api::DynamicObject;
use opcore::Context;
use opcore::controller::Wakes;
use opcore::queue::Key;
use opcore::watch::registry::{Listener, Opening, Registry, Subscription};
use opcore::watch::{Change, Discovery, ScopeId};

use crate::api::v1alpha1::SINGLETON;

/// The watches on optional kinds, and whom they wake.
pub struct Optional {
    registry: Registry,
    wakes: Mutex<Vec<Wakes>>,
}

impl Optional {
    /// Creates it, without watches, and has it told when kinds come and go.
    pub fn new(context: &Context, discovery: &Arc<Discovery>) -> Arc<Self> {
        let optional = Arc::new_cyclic(|this: &std::sync::Weak<Self>| Self {
            registry: Registry::new(context, this.clone()),
            wakes: Mutex::default(),
        });
        let told = Arc::downgrade(&optional);
        discovery.follow(move |_| {
            if let Some(optional) = told.upgrade() {
                optional.wake();
            }
        });
        optional
    }

    /// From now on, a change wakes the one object that these are for.
    pub fn wakes(&self, wakes: Wakes) {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wakes);
    }

    /// Watches exactly these scopes.
    pub fn watch(&self, scopes: BTreeSet<ScopeId>) {
        self.registry.subscribe(&singleton(), &Subscription { scopes, resync: None });
    }

    fn wake(&self) {
        for wakes in self.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            wakes.wake(&singleton());
        }
    }
}

impl Listener for Optional {
    fn opened(&self, _: &ScopeId, _: Opening) {}

    fn changed(&self, _: &ScopeId, change: Change<DynamicObject>) {
        if !matches!(change, Change::Synced) {
            self.wake();
        }
    }

    fn closed(&self, _: &ScopeId) {}
}

/// There is one object of each kind.
pub fn singleton() -> Key {
    Key { namespace: None, name: SINGLETON.to_owned() }
}

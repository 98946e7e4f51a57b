//! What a spec may not ask for, and what it should not.

use std::time::Duration;

use opcore::duration::Span;

use super::{DATA_DIRECTORY, NAME, controller_manager, datastore, federation};
use crate::api::v1alpha1::{DataStore, Federation, SpireServer, SpireServerSpec, UpstreamAuthority};
use crate::render::{Config, Error, Platform, Settings, agent, oidc};

/// Refuses what cannot be rendered.
///
/// # Errors
///
/// They name the field and the remedy.
pub(super) fn usable(server: &SpireServer, config: &Config, platform: Platform) -> Result<(), Error> {
    let taken = [NAME, controller_manager::NAME, agent::NAME, oidc::NAME, "kube-root-ca.crt"];
    if taken.contains(&config.bundle_config_map.as_str()) {
        return Err(format!(
            "spec.bundleConfigMap is {:?}, which is the name of another ConfigMap: choose another name.",
            config.bundle_config_map
        ));
    }
    server.spec.federation.as_ref().map_or(Ok(()), |federation| usable_federation(federation, config, platform))
}

fn usable_federation(federation: &Federation, config: &Config, platform: Platform) -> Result<(), Error> {
    let others = &federation.federates_with;
    for (number, other) in others.iter().enumerate() {
        let field = format!("spec.federation.federatesWith[{number}].trustDomain");
        let domain = &other.trust_domain;
        if *domain == config.trust_domain {
            return Err(format!("{field} is {domain:?}, which is the server's own trust domain: remove it."));
        }
        if others.iter().take(number).any(|before| before.trust_domain == *domain) {
            return Err(format!("{field} is {domain:?}, which is there already: remove one of them."));
        }
    }
    let cert = federation::serving_cert(federation);
    if cert.is_some_and(|cert| federation::secret(cert).is_none()) && !platform.routes {
        return Err("spec.federation.bundleEndpoint.httpsWeb.servingCert.externalSecretRef must name a Secret with \
                    tls.crt and tls.key: only OpenShift makes one by itself."
            .to_owned());
    }
    Ok(())
}

/// What works, and should be changed nevertheless: each names the field and the remedy.
pub fn warnings(server: &SpireServer) -> Vec<String> {
    let spec = &server.spec;
    let mut warnings = Vec::new();
    warnings.extend(memory_keys(spec));
    warnings.extend(of_datastore(&spec.datastore));
    let validities = [
        ("spec.defaultX509Validity", spec.default_x509_validity),
        ("spec.defaultJWTValidity", spec.default_jwt_validity),
    ];
    warnings.extend(validities.iter().filter_map(|(field, validity)| too_long(field, *validity, spec.ca_validity)));
    warnings.extend(spec.federation.as_ref().and_then(terms_of_service));
    warnings.extend(spec.upstream_authority.as_ref().and_then(without_encryption));
    warnings
}

/// What the spec takes for granted, and this operator does not make: each names the remedy.
pub fn prerequisites(server: &SpireServer, settings: &Settings, platform: Platform) -> Vec<String> {
    let kinds = (!platform.spiffe_ids).then(|| {
        "The kind ClusterSPIFFEID of spire.spiffe.io is not there, so that no workload gets an identity: install the \
         chart spire-crds of https://spiffe.github.io/helm-charts-hardened."
            .to_owned()
    });
    let issuer = server.spec.upstream_authority.as_ref().and_then(|authority| authority.cert_manager.as_ref());
    let elsewhere = issuer.filter(|issuer| issuer.namespace != settings.namespace).map(|issuer| {
        let own = &settings.namespace;
        format!(
            "spec.upstreamAuthority.certManager.namespace is {:?}, where this operator gives no rights: allow \
             ServiceAccount {NAME} of namespace {own} to create, get, list and delete \
             certificaterequests.cert-manager.io there, or use namespace {own}.",
            issuer.namespace
        )
    });
    kinds.into_iter().chain(elsewhere).collect()
}

fn memory_keys(spec: &SpireServerSpec) -> Option<String> {
    let in_memory = spec.key_manager.as_ref().is_some_and(|keys| keys.memory_enabled.is_on());
    in_memory.then(|| {
        "spec.keyManager.memoryEnabled is \"true\": each restart makes a new CA, and backups hold no keys. Set \
         diskEnabled instead."
            .to_owned()
    })
}

fn of_datastore(store: &DataStore) -> Option<String> {
    if store.connection_string_secret_ref.is_some() {
        return None;
    }
    if datastore::has_password(store) {
        return Some(
            "spec.datastore.connectionString contains a password, which everyone sees who may read SpireServers or \
             StatefulSets: put it into a Secret, and name that in spec.datastore.connectionStringSecretRef."
                .to_owned(),
        );
    }
    let path = store.connection_string.trim_start_matches("file:");
    let is_on_volume = path.starts_with(&format!("{DATA_DIRECTORY}/")) && !path.contains("mode=memory");
    (store.database_type.is_sqlite() && !is_on_volume).then(|| {
        format!(
            "spec.datastore.connectionString is {:?}, which is not on the volume: its data is lost with the pod, and is \
             in no backup. Use a file in {DATA_DIRECTORY}.",
            store.connection_string
        )
    })
}

/// SPIRE prepares a new CA when a sixth of the validity of the old one is left, and a week at the most. What is valid for
/// longer may end with the old one.
const SHARE: u32 = 6;
const LONGEST: Duration = Duration::from_hours(7 * 24);

fn too_long(field: &str, validity: Span, ca: Span) -> Option<String> {
    let most = (ca.as_duration() / SHARE).min(LONGEST);
    if validity.as_duration() <= most {
        return None;
    }
    let enough = validity.as_duration() * SHARE;
    let or = if validity.as_duration() <= LONGEST {
        format!(", or spec.caValidity to {} or more", Span::from(enough))
    } else {
        String::new()
    };
    Some(format!(
        "{field} is {validity}, but SVIDs may be issued for a shorter time while spec.caValidity is {ca}: set it to {} or \
         less{or}.",
        Span::from(most)
    ))
}

fn terms_of_service(federation: &Federation) -> Option<String> {
    let acme = federation.bundle_endpoint.https_web.as_ref()?.acme.as_ref()?;
    (!acme.tos_accepted.is_on()).then(|| {
        "spec.federation.bundleEndpoint.httpsWeb.acme.tosAccepted is \"false\": no certificate is issued before the terms \
         of service are accepted. Set it to \"true\"."
            .to_owned()
    })
}

fn without_encryption(authority: &UpstreamAuthority) -> Option<String> {
    let address = authority.vault.as_ref().map(|vault| &vault.vault_addr)?;
    address.starts_with("http://").then(|| {
        format!(
            "spec.upstreamAuthority.vault.vaultAddr is {address:?}: tokens are sent to it without encryption. Use https."
        )
    })
}

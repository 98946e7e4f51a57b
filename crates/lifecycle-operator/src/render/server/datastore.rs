//! The database: SQLite on the volume, or one elsewhere.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};
use serde_json::{Value, json};

use super::Needs;
use crate::api::v1alpha1::{DataStore, DatabaseType};
use crate::render::common::{read_only, secret_volume};

/// Where the certificates for the database are.
const CERTIFICATES: &str = "/run/spire/db/certs";
/// Holds the connection string, when it is not for everyone to see.
const CONNECTION: &str = "SPIRE_DATASTORE_CONNECTION_STRING";
/// Set by AWS in pods whose account has a role.
const REGION: &str = "AWS_REGION";
/// What may come from a variable: the key in the configuration, and the variable.
pub(super) const VARIABLES: [(&str, &str); 2] = [("connection_string", CONNECTION), ("region", REGION)];

/// The data of the plugin.
pub(super) fn section(store: &DataStore) -> Value {
    let connection = if is_confidential(store) { reference(CONNECTION) } else { json!(store.connection_string) };
    let kind = store.database_type.as_str();
    let database_type = match store.database_type {
        DatabaseType::AwsPostgresql | DatabaseType::AwsMysql => json!([{ kind: [{ "region": region(store) }] }]),
        _ => json!(kind),
    };
    let mut data = json!({
        "database_type": database_type,
        "connection_string": connection,
        "max_open_conns": store.max_open_conns,
        "max_idle_conns": store.max_idle_conns,
        "disable_migration": store.disable_migration.is_on(),
    });
    if store.conn_max_lifetime > 0 {
        data["conn_max_lifetime"] = json!(format!("{}s", store.conn_max_lifetime));
    }
    // PostgreSQL reads the names of such files from its connection string.
    let is_mysql = matches!(store.database_type, DatabaseType::Mysql | DatabaseType::AwsMysql);
    if is_mysql && certificates(store).is_some() {
        data["root_ca_path"] = json!(format!("{CERTIFICATES}/ca.crt"));
    }
    data
}

/// What the plugin needs: variables, and files.
pub(super) fn needs(store: &DataStore) -> Needs {
    let mut needs = Needs::default();
    if let Some(secret) = &store.connection_string_secret_ref {
        let key = SecretKeySelector { name: secret.name.clone(), key: secret.key.clone(), optional: None };
        let source = EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() };
        needs.env.push(EnvVar { name: CONNECTION.to_owned(), value_from: Some(source), ..EnvVar::default() });
    } else if is_confidential(store) {
        let value = Some(within_quotes(&store.connection_string));
        needs.env.push(EnvVar { name: CONNECTION.to_owned(), value, ..EnvVar::default() });
    }
    if let Some(secret) = certificates(store) {
        needs.volumes.push(secret_volume("db-certs", secret));
        needs.mounts.push(read_only("db-certs", CERTIFICATES));
    }
    needs
}

/// Whether the configuration refers to variables.
pub(super) fn has_variables(store: &DataStore) -> bool {
    let section = section(store);
    section["connection_string"] == reference(CONNECTION)
        || section.pointer("/database_type/0").is_some_and(|kind| {
            let mut regions = kind.as_object().into_iter().flat_map(|kinds| kinds.values());
            regions.any(|settings| settings[0]["region"] == reference(REGION))
        })
}

fn certificates(store: &DataStore) -> Option<&str> {
    store.tls_secret_name.as_deref().filter(|name| !name.is_empty())
}

fn reference(variable: &str) -> Value {
    json!(format!("${{{variable}}}"))
}

/// A text as it stands between the quotes of the configuration, where the variable is put as it is.
fn within_quotes(text: &str) -> String {
    let quoted = json!(text).to_string().replace('$', r"\u0024");
    quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default().to_owned()
}

/// Whether the connection string must not be in a ConfigMap.
fn is_confidential(store: &DataStore) -> bool {
    store.connection_string_secret_ref.is_some() || has_password(store)
}

/// Whether the connection string itself contains a password.
pub(super) fn has_password(store: &DataStore) -> bool {
    let text = store.connection_string.as_str();
    let of_user = |user: &str| user.split_once(':').is_some_and(|(_, password)| !password.is_empty());
    match store.database_type {
        DatabaseType::Sql | DatabaseType::Sqlite3 => false,
        DatabaseType::Postgres | DatabaseType::AwsPostgresql => match text.split_once("://") {
            Some((_, rest)) => {
                let authority = rest.split(['/', '?']).next().unwrap_or_default();
                authority.rsplit_once('@').is_some_and(|(user, _)| of_user(user)) || text.contains("password=")
            }
            None => text.replace(' ', "").contains("password="),
        },
        DatabaseType::Mysql | DatabaseType::AwsMysql => {
            let address = text.rsplit_once('/').map_or(text, |(address, _)| address);
            address.rsplit_once('@').is_some_and(|(user, _)| of_user(user))
        }
    }
}

/// The region of a database of AWS: from its host name, else what AWS tells the pod.
fn region(store: &DataStore) -> Value {
    let text = if is_confidential(store) { "" } else { store.connection_string.as_str() };
    let before = text.split_once(".rds.amazonaws.com").map(|(before, _)| before);
    let named = before.and_then(|host| host.rsplit(['.', '@', '=', '(']).next()).filter(|name| !name.is_empty());
    named.map_or_else(|| reference(REGION), |region| json!(region))
}

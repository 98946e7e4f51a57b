//! The SPIRE server.
#![allow(unreachable_pub, reason = "the derived schemas repeat each struct where nobody can reach it")]

use kube::{CustomResource, KubeSchema};
use opcore::duration::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OperandStatus;
use super::common::{ISSUER, LogFormat, LogLevel, NAME, Placement, SecretKey, Switch, TRUST_DOMAIN};

/// The SPIRE server, with its datastore, its keys and its controller manager.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "operator.openshift.io",
    version = "v1alpha1",
    kind = "SpireServer",
    plural = "spireservers",
    category = "opcore",
    category = "operands",
    status = "OperandStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'cluster'")
        .message("there is one SpireServer in a cluster: metadata.name must be 'cluster'"),
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.persistence.size == oldSelf.persistence.size && self.persistence.accessMode == oldSelf.persistence.accessMode && has(self.persistence.storageClass) == has(oldSelf.persistence.storageClass) && (!has(self.persistence.storageClass) || self.persistence.storageClass == oldSelf.persistence.storageClass)")
    .message("spec.persistence.size, accessMode and storageClass cannot be changed: Kubernetes does not change a volume that is in use. Back up, delete the SpireServer and its claim, and restore into a new one"))]
#[x_kube(validation = Rule::new("!has(oldSelf.federation) || has(self.federation)")
    .message("spec.federation cannot be removed once it is set: other trust domains rely on the endpoint"))]
pub struct SpireServerSpec {
    /// The trust domain. If it is empty, it comes from the ZeroTrustWorkloadIdentityManager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = TRUST_DOMAIN))]
    pub trust_domain: Option<String>,

    /// The name of this cluster. If it is empty, it comes from the ZeroTrustWorkloadIdentityManager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME))]
    pub cluster_name: Option<String>,

    /// The ConfigMap with the trust bundle. If it is empty, it comes from the ZeroTrustWorkloadIdentityManager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub bundle_config_map: Option<String>,

    /// The issuer of JWT-SVIDs. If it is empty, it comes from the ZeroTrustWorkloadIdentityManager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = ISSUER))]
    pub jwt_issuer: Option<String>,

    /// How much the server logs.
    #[serde(default)]
    pub log_level: LogLevel,

    /// The form of its log lines.
    #[serde(default)]
    pub log_format: LogFormat,

    /// How long the CA certificate is valid.
    #[serde(default = "hours_24")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1m')").message("caValidity must be at least 1m"))]
    pub ca_validity: Span,

    /// How long X.509-SVIDs are valid, unless their entry says otherwise.
    #[serde(default = "hour", rename = "defaultX509Validity")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('1m')").message("defaultX509Validity must be at least 1m"))]
    pub default_x509_validity: Span,

    /// How long JWT-SVIDs are valid, unless their entry says otherwise.
    #[serde(default = "minutes_5", rename = "defaultJWTValidity")]
    #[x_kube(validation = Rule::new("duration(self) >= duration('10s')").message("defaultJWTValidity must be at least 10s"))]
    pub default_jwt_validity: Span,

    /// The type of the CA's keys.
    #[serde(default)]
    pub ca_key_type: KeyType,

    /// The type of the keys that sign JWT-SVIDs; that of the CA by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt_key_type: Option<KeyType>,

    /// Where the server keeps its keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_manager: Option<KeyManager>,

    /// The subject of the CA certificate.
    #[serde(default)]
    pub ca_subject: CaSubject,

    /// The volume with the datastore and the keys.
    #[serde(default)]
    pub persistence: Persistence,

    /// The database.
    #[serde(default)]
    pub datastore: DataStore,

    /// Federation with other trust domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub federation: Option<Federation>,

    /// A CA above the server's own. Without it, the server signs its own CA certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_authority: Option<UpstreamAuthority>,

    /// Backups of the volume.
    #[serde(default)]
    pub backup: BackupPolicy,

    /// Start from this backup. It is restored into an empty volume only, and once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_from: Option<RestoreFrom>,

    /// Leave everything as it is, while this is true. A teardown goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// Where its pods run.
    #[serde(flatten)]
    pub placement: Placement,
}

fn hours_24() -> Span {
    Span::from_secs(24 * 3600)
}

fn hour() -> Span {
    Span::from_secs(3600)
}

fn minutes_5() -> Span {
    Span::from_secs(300)
}

/// A type of key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KeyType {
    /// RSA with 2048 bits.
    #[default]
    #[serde(rename = "rsa-2048")]
    Rsa2048,
    /// RSA with 4096 bits.
    #[serde(rename = "rsa-4096")]
    Rsa4096,
    /// The elliptic curve P-256.
    #[serde(rename = "ec-p256")]
    EcP256,
    /// The elliptic curve P-384.
    #[serde(rename = "ec-p384")]
    EcP384,
}

impl KeyType {
    /// The type as SPIRE's configuration spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa-2048",
            Self::Rsa4096 => "rsa-4096",
            Self::EcP256 => "ec-p256",
            Self::EcP384 => "ec-p384",
        }
    }
}

/// Where a server keeps its keys: on its volume, or in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.diskEnabled != self.memoryEnabled")
    .message("exactly one of diskEnabled and memoryEnabled must be \"true\""))]
pub struct KeyManager {
    /// On the volume. The keys survive a restart, and are part of backups.
    #[serde(default = "Switch::on")]
    pub disk_enabled: Switch,
    /// In memory. Each restart makes a new CA.
    #[serde(default = "Switch::off")]
    pub memory_enabled: Switch,
}

/// The subject of the CA certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaSubject {
    /// The country, in two letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2))]
    pub country: Option<String>,
    /// The organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub organization: Option<String>,
    /// The common name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub common_name: Option<String>,
}

/// The volume of a server. Size, access mode and storage class cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Persistence {
    /// Its size, in Gi.
    #[serde(default = "gibibyte")]
    #[schemars(length(max = 8), regex(pattern = r"^[1-9][0-9]{0,5}Gi$"))]
    pub size: String,
    /// How it is mounted.
    #[serde(default)]
    pub access_mode: AccessMode,
    /// Its storage class; the default class of the cluster if this is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class: Option<String>,
    /// What becomes of it when the SpireServer is deleted.
    #[serde(default)]
    pub deletion_policy: VolumeDeletion,
}

impl Default for Persistence {
    fn default() -> Self {
        Self {
            size: gibibyte(),
            access_mode: AccessMode::default(),
            storage_class: None,
            deletion_policy: VolumeDeletion::default(),
        }
    }
}

fn gibibyte() -> String {
    "1Gi".to_owned()
}

/// How a volume is mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    /// By the pods of one node.
    #[default]
    ReadWriteOnce,
    /// By one pod. Backups are made by another pod after the server has stopped.
    ReadWriteOncePod,
    /// By the pods of all nodes.
    ReadWriteMany,
}

impl AccessMode {
    /// The mode as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
            Self::ReadWriteMany => "ReadWriteMany",
        }
    }
}

/// What becomes of the volume of a server that is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumeDeletion {
    /// It stays, and a later SpireServer of the same trust domain uses it again.
    #[default]
    Retain,
    /// It is deleted, but only after a verified backup.
    Delete,
}

/// The database of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.connectionStringSecretRef) || !has(self.connectionString) || self.connectionString == '/run/spire/data/datastore.sqlite3'")
    .message("connectionString and connectionStringSecretRef exclude each other"))]
pub struct DataStore {
    /// The type of database. The region of one on AWS is that of the host name in `connectionString`, else the one that
    /// AWS tells the pod.
    #[serde(default)]
    pub database_type: DatabaseType,
    /// How the database is reached. A password belongs in a Secret: use `connectionStringSecretRef` then.
    #[serde(default = "sqlite_file")]
    #[schemars(length(min = 1, max = 2048))]
    pub connection_string: String,
    /// A Secret in the namespace of the operands whose key holds the connection string. The server reads it when it
    /// starts, as a text between quotes: write `\"` for `"`, and `\\` for `\`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_string_secret_ref: Option<SecretKey>,
    /// A Secret in the namespace of the operands with certificates for the database, mounted at `/run/spire/db/certs`.
    /// MySQL is verified with its key `ca.crt`; a connection string of PostgreSQL names the files that it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub tls_secret_name: Option<String>,
    /// The most connections that may be open.
    #[serde(default = "connections")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_open_conns: i32,
    /// The most idle connections that are kept open.
    #[serde(default = "idle_connections")]
    #[schemars(range(min = 0, max = 10000))]
    pub max_idle_conns: i32,
    /// After how many seconds a connection is closed; 0 means never.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub conn_max_lifetime: i32,
    /// Whether the database is left at its version when a newer server starts.
    #[serde(default = "Switch::off")]
    pub disable_migration: Switch,
}

/// The default database: a file on the volume.
pub const SQLITE_FILE: &str = "/run/spire/data/datastore.sqlite3";

fn sqlite_file() -> String {
    SQLITE_FILE.to_owned()
}

fn connections() -> i32 {
    100
}

fn idle_connections() -> i32 {
    2
}

impl Default for DataStore {
    fn default() -> Self {
        Self {
            database_type: DatabaseType::default(),
            connection_string: sqlite_file(),
            connection_string_secret_ref: None,
            tls_secret_name: None,
            max_open_conns: connections(),
            max_idle_conns: idle_connections(),
            conn_max_lifetime: 0,
            disable_migration: Switch::off(),
        }
    }
}

/// A type of database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatabaseType {
    /// SQLite, by another name.
    Sql,
    /// SQLite, in a file on the volume.
    #[default]
    Sqlite3,
    /// PostgreSQL.
    Postgres,
    /// MySQL.
    Mysql,
    /// PostgreSQL on AWS RDS, with IAM authentication.
    AwsPostgresql,
    /// MySQL on AWS RDS, with IAM authentication.
    AwsMysql,
}

impl DatabaseType {
    /// Whether the data is in a file on the volume.
    pub fn is_sqlite(self) -> bool {
        matches!(self, Self::Sql | Self::Sqlite3)
    }

    /// The type as SPIRE's configuration spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sql | Self::Sqlite3 => "sqlite3",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::AwsPostgresql => "aws_postgres",
            Self::AwsMysql => "aws_mysql",
        }
    }
}

/// Federation with other trust domains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Federation {
    /// The endpoint that serves the bundle of this trust domain, on port 8443.
    pub bundle_endpoint: BundleEndpoint,
    /// The trust domains whose bundles are fetched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 50))]
    pub federates_with: Vec<FederatesWith>,
    /// Whether a Route or Ingress is made for the endpoint, which ends TLS itself. The Ingress asks for that by the
    /// annotations of Ingress NGINX and HAProxy: for another controller, say `"false"` and make your own.
    #[serde(default = "Switch::on")]
    pub managed_route: Switch,
}

/// The endpoint that serves the bundle of this trust domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.profile != 'https_web' || has(self.httpsWeb)")
    .message("httpsWeb is required when profile is https_web"))]
#[x_kube(validation = Rule::new("self.profile == oldSelf.profile")
    .message("profile cannot be changed: other trust domains rely on it"))]
pub struct BundleEndpoint {
    /// How the endpoint proves who it is.
    #[serde(default)]
    pub profile: EndpointProfile,
    /// How often others should fetch the bundle, in seconds.
    #[serde(default = "refresh_hint")]
    #[schemars(range(min = 60, max = 3600))]
    pub refresh_hint: i32,
    /// The certificate of the endpoint, with profile `https_web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_web: Option<HttpsWeb>,
}

fn refresh_hint() -> i32 {
    300
}

/// How an endpoint proves who it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointProfile {
    /// By its SPIFFE ID.
    #[default]
    HttpsSpiffe,
    /// By a certificate of the web.
    HttpsWeb,
}

/// A certificate of the web: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.acme) != has(self.servingCert)")
    .message("exactly one of acme and servingCert must be set"))]
#[x_kube(validation = Rule::new("has(self.acme) == has(oldSelf.acme)")
    .message("acme and servingCert cannot be exchanged for each other"))]
pub struct HttpsWeb {
    /// A certificate that the server obtains by ACME.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acme: Option<Acme>,
    /// A certificate from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving_cert: Option<ServingCert>,
}

/// How a certificate is obtained by ACME.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Acme {
    /// The directory of the certificate authority.
    #[schemars(regex(pattern = r"^https://.*"))]
    pub directory_url: String,
    /// The domain name in the certificate.
    #[schemars(length(min = 1, max = 253))]
    pub domain_name: String,
    /// The address of the account.
    #[schemars(regex(pattern = r"^[^@\s]+@[^@\s]+\.[a-zA-Z]{2,}$"))]
    pub email: String,
    /// Whether the terms of service are accepted.
    #[serde(default = "Switch::off")]
    pub tos_accepted: Switch,
}

/// A certificate from a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServingCert {
    /// How often the server looks for a new certificate, in seconds.
    #[serde(default = "day")]
    #[schemars(range(min = 3600, max = 7_776_000))]
    pub file_sync_interval: i32,
    /// A Secret in the namespace of the operands with `tls.crt` and `tls.key`. Only on OpenShift it may be empty: the
    /// platform then makes a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub external_secret_ref: Option<String>,
}

fn day() -> i32 {
    86_400
}

/// A trust domain whose bundle is fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.bundleEndpointProfile != 'https_spiffe' || (has(self.endpointSpiffeId) && self.endpointSpiffeId != '')")
    .message("endpointSpiffeId is required when bundleEndpointProfile is https_spiffe"))]
pub struct FederatesWith {
    /// The trust domain.
    #[schemars(regex(pattern = r"^[a-z0-9._-]{1,255}$"))]
    pub trust_domain: String,
    /// Where its bundle is served.
    #[schemars(length(max = 2048), regex(pattern = r"^https://.*"))]
    pub bundle_endpoint_url: String,
    /// How that endpoint proves who it is.
    pub bundle_endpoint_profile: EndpointProfile,
    /// The SPIFFE ID of that endpoint, with profile `https_spiffe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^spiffe://.*"))]
    pub endpoint_spiffe_id: Option<String>,
}

/// A CA above the server's own: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.certManager) != has(self.vault)")
    .message("exactly one of certManager and vault must be set"))]
pub struct UpstreamAuthority {
    /// An issuer of cert-manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_manager: Option<CertManager>,
    /// The PKI engine of a Vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<Vault>,
}

/// An issuer of cert-manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertManager {
    /// The namespace in which CertificateRequests are made. If it is not that of the operands, the server needs rights
    /// there.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The name of the issuer.
    #[schemars(length(min = 1, max = 253))]
    pub issuer_name: String,
    /// Its kind.
    #[serde(default = "issuer_kind")]
    pub issuer_kind: String,
    /// Its API group.
    #[serde(default = "issuer_group")]
    pub issuer_group: String,
}

fn issuer_kind() -> String {
    "Issuer".to_owned()
}

fn issuer_group() -> String {
    "cert-manager.io".to_owned()
}

/// The PKI engine of a Vault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Vault {
    /// The URL of the Vault.
    #[schemars(length(max = 2048), regex(pattern = r"^https?://.*"))]
    pub vault_addr: String,
    /// Where the PKI engine is mounted.
    #[serde(default = "pki")]
    pub pki_mount_point: String,
    /// The CA certificate of the Vault, from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_cert_secret_ref: Option<SecretKey>,
    /// How the server logs in.
    pub k8s_auth: VaultKubernetesAuth,
}

fn pki() -> String {
    "pki".to_owned()
}

/// A login with the token of a ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VaultKubernetesAuth {
    /// Where the login is mounted.
    #[serde(default = "kubernetes")]
    pub k8s_auth_mount_point: String,
    /// The role to log in as.
    pub k8s_auth_role_name: String,
    /// The audience of the token.
    #[serde(default = "vault")]
    pub audience: String,
}

fn kubernetes() -> String {
    "kubernetes".to_owned()
}

fn vault() -> String {
    "vault".to_owned()
}

/// Backups of the volume. A backup is made while the server is stopped, and verified by checksum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupPolicy {
    /// Make a backup before the server goes.
    pub on_delete: bool,
    /// The size of the volume for backups, in Gi; that of the server's volume by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), regex(pattern = r"^[1-9][0-9]{0,5}Gi$"))]
    pub size: Option<String>,
    /// The storage class of the volume for backups; that of the server's volume by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class: Option<String>,
    /// How many backups are kept.
    #[schemars(range(min = 1, max = 100))]
    pub keep: i32,
}

impl Default for BackupPolicy {
    fn default() -> Self {
        Self { on_delete: true, size: None, storage_class: None, keep: 5 }
    }
}

/// A backup to start from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoreFrom {
    /// The PersistentVolumeClaim with the backup, in the namespace of the operands.
    #[serde(default = "backup_claim")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub claim: String,
    /// The name of the backup, or `latest`.
    #[serde(default = "latest")]
    #[schemars(length(min = 1, max = 253), regex(pattern = NAME))]
    pub name: String,
}

/// The PersistentVolumeClaim for backups.
pub const BACKUP_CLAIM: &str = "spire-backups";

fn backup_claim() -> String {
    BACKUP_CLAIM.to_owned()
}

fn latest() -> String {
    "latest".to_owned()
}

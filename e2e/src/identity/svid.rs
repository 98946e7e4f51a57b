//! What a workload gets from SPIRE: read from what SPIRE's own client prints, and verified as any relying party would.

use anyhow::{Context, ensure};
use k8s_openapi::ByteString;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use serde::Deserialize;
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

/// An X.509-SVID of a server that signs with its own CA: one certificate.
#[derive(Clone, Debug)]
pub struct Svid {
    /// The SPIFFE ID in the certificate.
    pub id: String,
    certificate: CertificateDer<'static>,
}

/// What `spire-agent api fetch x509 -output json` prints.
#[derive(Deserialize)]
struct Answer {
    svids: Vec<Printed>,
}

#[derive(Deserialize)]
struct Printed {
    spiffe_id: String,
    x509_svid: ByteString,
}

impl Svid {
    /// Reads what SPIRE's client printed last.
    ///
    /// # Errors
    /// It is no SVID, or its certificate is of someone else.
    pub fn read(printed: &str) -> anyhow::Result<Self> {
        let line = printed.lines().last().context("SPIRE's client printed nothing")?;
        let answer: Answer = serde_json::from_str(line).with_context(|| format!("this is no SVID: {printed}"))?;
        let [Printed { spiffe_id, x509_svid }] = &answer.svids[..] else {
            anyhow::bail!("one SVID was expected: {printed}");
        };
        let certificate = CertificateDer::from(x509_svid.0.clone());
        let names: Vec<_> = EndEntityCert::try_from(&certificate)?.valid_uri_names().map(str::to_owned).collect();
        ensure!(names == [spiffe_id.as_str()], "the certificate of {spiffe_id} is of {names:?}");
        Ok(Self { id: spiffe_id.clone(), certificate })
    }

    /// Verifies it by a trust bundle in PEM.
    ///
    /// # Errors
    /// No authority of the bundle has signed it, or it is not valid now.
    pub fn verify(&self, bundle: &str) -> anyhow::Result<()> {
        let authorities = CertificateDer::pem_slice_iter(bundle.as_bytes()).collect::<Result<Vec<_>, _>>();
        let authorities = authorities.with_context(|| format!("this is no trust bundle: {bundle}"))?;
        let anchors = authorities.iter().map(anchor_from_trusted_cert).collect::<Result<Vec<_>, _>>()?;
        let certificate = EndEntityCert::try_from(&self.certificate)?;
        let usage = KeyUsage::client_auth();
        let verified =
            certificate.verify_for_usage(ALL_VERIFICATION_ALGS, &anchors, &[], UnixTime::now(), usage, None, None);
        verified.map(drop).with_context(|| format!("{} is not verified by the bundle\n{bundle}", self.id))
    }
}

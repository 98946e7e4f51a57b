//! The issuer of JWT-SVIDs, as the URL under which the provider is reached.

use std::net::IpAddr;

use crate::render::Error;

/// Where discovery documents are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Issuer {
    /// As it is written, and as it stands in tokens.
    pub(super) url: String,
    /// Whether it is `https`.
    pub(super) is_https: bool,
    /// Its host, in lower case.
    pub(super) host: String,
    /// Its path, empty or without a slash at its end.
    pub(super) path: String,
}

impl Issuer {
    /// Takes an issuer apart.
    ///
    /// # Errors
    ///
    /// When the provider could not serve under it: the message says why.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let refuse = |why: &str| Err(format!("spec.jwtIssuer is {url:?}, {why}"));
        let Some((scheme, rest)) = url.split_once("://") else {
            return refuse("which is no URL: write https://HOST.");
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let with_port = authority.rsplit('@').next().unwrap_or_default();
        let host = with_port.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let path = path.trim_end_matches('/');
        if !is_name(&host) {
            return refuse("whose host is neither a DNS name in ASCII letters, digits, - and ., nor an IPv4 address.");
        }
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "-._~/".contains(it);
        if !path.chars().all(is_plain) || path.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
            return refuse("whose path may have letters, digits, -, ., _ and ~ between single slashes only.");
        }
        Ok(Self { url: url.to_owned(), is_https: scheme.eq_ignore_ascii_case("https"), host, path: path.to_owned() })
    }

    /// Whether its host is a name, and no address.
    pub(super) fn is_named(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }
}

/// Whether this is a DNS name. An IPv4 address looks like one.
fn is_name(host: &str) -> bool {
    let is_label = |label: &str| {
        let inside = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
        matches!(label.len(), 1..=63) && label.chars().all(inside) && !label.starts_with('-') && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(url: &str) -> (bool, String, String) {
        let issuer = Issuer::parse(url).unwrap();
        (issuer.is_https, issuer.host, issuer.path)
    }

    #[test]
    fn an_issuer_has_a_host_and_maybe_a_path() {
        let of = |https, host: &str, path: &str| (https, host.to_owned(), path.to_owned());
        assert_eq!(parsed("https://oidc-discovery.example.org"), of(true, "oidc-discovery.example.org", ""));
        assert_eq!(parsed("HTTPS://OIDC.Example.org/"), of(true, "oidc.example.org", ""));
        assert_eq!(parsed("http://oidc.example.org:8443/team/a/"), of(false, "oidc.example.org", "/team/a"));
        assert_eq!(parsed("https://someone@10.0.0.1"), of(true, "10.0.0.1", ""));
        assert!(!Issuer::parse("https://10.0.0.1").unwrap().is_named());
    }

    #[test]
    fn an_issuer_under_which_the_provider_cannot_serve_is_refused_with_the_reason() {
        for (url, part) in [
            ("oidc.example.org", "write https://HOST"),
            ("https://", "neither a DNS name"),
            ("https://bücher.example", "in ASCII"),
            ("https://[::1]/", "IPv4"),
            ("https://under_score.example", "neither a DNS name"),
            ("https://example.org/a//b", "single slashes"),
            ("https://example.org/../etc", "single slashes"),
            ("https://example.org/{id}", "whose path"),
        ] {
            let error = Issuer::parse(url).unwrap_err();
            assert!(error.starts_with("spec.jwtIssuer is") && error.contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_apart_or_refused(url in "\\PC*") {
            let _ = Issuer::parse(&url);
            let _ = Issuer::parse(&format!("https://{url}"));
        }
    }
}

//! The HTTP client: TLS, certificates, settings that cannot be used.

use super::deepest::deepest;

/// A provider, or the HTTP client, that cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("{message}: {fix}")]
#[non_exhaustive]
pub struct SetupError {
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub fix: String,
}

impl SetupError {
    pub(super) fn new(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { message: message.into(), fix: fix.into() }
    }
}

/// Installs ring as the TLS provider of this process, unless another one is installed already.
/// [`Providers::new`](crate::Providers::new) does it; other code calls it before it builds an HTTP client.
pub fn install_tls() {
    // The only error is that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Why the HTTP client cannot be built; variables may say where certificates are.
pub(super) fn client_error(
    error: &dyn std::error::Error,
    env: impl Fn(&str) -> Option<String>,
) -> SetupError {
    let names = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter();
    let set: Vec<_> = names.filter_map(|name| Some(format!("{name}={}", env(name)?))).collect();
    let reason = deepest(error);
    let fix = if set.is_empty() {
        "check the certificates of this system".to_owned()
    } else {
        format!("fix or unset {}", set.join(" and "))
    };
    SetupError::new(format!("the HTTP client cannot be set up: {reason}"), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_certificates_are_reported_with_their_variable() {
        let cause = std::io::Error::other("no certificates");
        let message = |set: &'static str| {
            let env = move |name: &str| (name == set).then(|| "/gone.pem".to_owned());
            client_error(&cause, env).to_string()
        };
        assert_eq!(
            message("SSL_CERT_FILE"),
            "the HTTP client cannot be set up: no certificates: fix or unset SSL_CERT_FILE=/gone.pem"
        );
        assert_eq!(
            message("HOME"),
            "the HTTP client cannot be set up: no certificates: check the certificates of this system"
        );
    }
}

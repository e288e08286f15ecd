//! The one HTTP client: blocking, TLS by ring, the system's certificates.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::{HubError, HubOptions, url};

/// The most bytes of an answer that is read into memory.
const MAX_TEXT: u64 = 16 << 20;

/// A client with the options' timeouts.
pub(crate) struct Client {
    agent: Agent,
    connect_timeout: Duration,
}

/// An answer, whatever its status.
pub(crate) type Response = ureq::http::Response<Body>;

/// A header to send.
pub(crate) type Header<'h> = (&'static str, &'h str);

impl Client {
    pub(crate) fn new(options: &HubOptions) -> Self {
        // The verifier of the platform reads the system's store, or the file and folder that
        // SSL_CERT_FILE and SSL_CERT_DIR name.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(provider)
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .user_agent(concat!("infr/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .timeout_resolve(Some(options.connect_timeout))
            .timeout_connect(Some(options.connect_timeout))
            .timeout_recv_response(Some(options.stall_timeout))
            .timeout_per_read(Some(options.stall_timeout))
            .build();
        Self { agent: config.new_agent(), connect_timeout: options.connect_timeout }
    }

    /// Asks for a file's headers; redirects are not followed, and the answer is there within the
    /// connect timeout.
    pub(crate) fn head(&self, address: &str, headers: &[Header<'_>]) -> Result<Response, HubError> {
        let mut request = self
            .agent
            .head(address)
            .config()
            .max_redirects(0)
            .timeout_global(Some(self.connect_timeout))
            .build();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.call().map_err(|error| transport(address, &error))
    }

    /// Fetches a file; any status but success is an error.
    pub(crate) fn get(&self, address: &str, headers: &[Header<'_>]) -> Result<Response, HubError> {
        let mut request = self.agent.get(url::without_credentials(address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.call().map_err(|error| transport(address, &error))?;
        success(address, &response)?;
        Ok(response)
    }

    /// Fetches a short text.
    pub(crate) fn text(
        &self,
        address: &str,
        headers: &[Header<'_>],
    ) -> Result<(String, Response), HubError> {
        let mut response = self.get(address, headers)?;
        let text = response
            .body_mut()
            .with_config()
            .limit(MAX_TEXT)
            .read_to_string()
            .map_err(|error| transport(address, &error))?;
        Ok((text, response))
    }
}

/// An error for any status but success.
pub(crate) fn success(address: &str, response: &Response) -> Result<(), HubError> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    Err(HubError::Status { url: url::without_credentials(address), status: status.as_u16() })
}

/// A header as text.
pub(crate) fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response.headers().get(name)?.to_str().ok()
}

/// The body as a stream without a limit.
pub(crate) fn stream(response: Response) -> impl Read {
    response.into_body().into_with_config().limit(u64::MAX).reader()
}

fn transport(address: &str, error: &ureq::Error) -> HubError {
    HubError::Transport { url: url::without_credentials(address), message: error.to_string() }
}

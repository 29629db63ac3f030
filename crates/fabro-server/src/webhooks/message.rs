//! What is sent: an event as `CloudEvents` 1.0, signed as Standard Webhooks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fabro_events::Event;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::WebhookError;

/// The block of SHA-256, in bytes.
const BLOCK: usize = 64;

/// How long a key may be, in bytes: what Standard Webhooks asks for.
const KEY: std::ops::RangeInclusive<usize> = 24..=64;

/// The key that requests to an endpoint are signed with.
#[derive(Clone)]
pub(super) struct Key(Vec<u8>);

impl Key {
    /// Reads a secret: base64, with or without `whsec_` before it. `variable` is where it comes from.
    pub(super) fn read(variable: &str, secret: &str) -> Result<Self, WebhookError> {
        let text = secret.trim();
        let key = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text));
        key.ok()
            .filter(|key| KEY.contains(&key.len()))
            .map(Self)
            .ok_or_else(|| WebhookError::Secret(variable.to_owned()))
    }

    /// The header `webhook-signature` of a request, whose time is in seconds since 1970.
    pub(super) fn signature(&self, id: &str, seconds: u64, body: &str) -> String {
        let signed = format!("{id}.{seconds}.{body}");
        format!("v1,{}", STANDARD.encode(self.hmac(signed.as_bytes())))
    }

    /// HMAC-SHA256 (RFC 2104). The key is no longer than a block.
    fn hmac(&self, message: &[u8]) -> [u8; 32] {
        let padded = |pad: u8| -> Vec<u8> {
            let mut block = [pad; BLOCK];
            block.iter_mut().zip(&self.0).for_each(|(byte, key)| *byte ^= key);
            block.to_vec()
        };
        let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
        Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
    }
}

/// The name of an event.
pub(super) fn name(published: &Value) -> &str {
    published["event"].as_str().unwrap_or_default()
}

/// An event as a `CloudEvent`. A repeated one has the same id.
pub(super) fn cloud_event(event: &Event, published: Value) -> Value {
    let mut cloud = json!({
        "specversion": "1.0",
        "id": published["id"],
        "source": format!("/runs/{}", event.run_id),
        "type": format!("fabro.{}", name(&published)),
        "time": published["ts"],
        "datacontenttype": "application/json",
    });
    if let Some(node) = published["node_id"].as_str() {
        cloud["subject"] = node.into();
    }
    cloud["data"] = published;
    cloud
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_standard() {
        let key = Key::read("S", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            key.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_a_key_in_base64() {
        let check = |secret: &str, expect: bool| {
            assert_eq!(Key::read("S", secret).is_ok(), expect, "{secret}");
        };
        check("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", true);
        check("", false);
        check("whsec_", false);
        check("whsec_c2hvcnQ=", false);
        check("not base64 at all, but long enough", false);
        check(&STANDARD.encode([1; 64]), true);
        check(&STANDARD.encode([1; 65]), false);
    }
}

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

const PREFIX: &str = "blob://sha256/";

/// The durable name of a large value: `blob://sha256/<64 hex>`, the SHA-256 of the value's
/// serialized JSON. Rules: `docs/architecture.md`, "Blobs".
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobRef([u8; 32]);

impl BlobRef {
    /// Names these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// From a finished SHA-256.
    pub fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The SHA-256 itself.
    pub fn digest(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        text
    }

    /// Reads 64 hexadecimal digits, lower case.
    pub fn from_hex(hex: &str) -> Result<Self, ParseBlobRefError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let bytes = hex.as_bytes();
        let mut digest = [0_u8; 32];
        if bytes.len() != 64 {
            return Err(ParseBlobRefError(hex.to_owned()));
        }
        for (slot, pair) in digest.iter_mut().zip(bytes.chunks_exact(2)) {
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err(ParseBlobRefError(hex.to_owned()));
            };
            *slot = high << 4 | low;
        }
        Ok(Self(digest))
    }

    /// The reference in a JSON value: a string of exactly that form; `None` for any other.
    pub fn from_value(value: &serde_json::Value) -> Option<Self> {
        value.as_str()?.parse().ok()
    }

    /// This reference as the JSON value that stands for the large one.
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::Value::String(self.to_string())
    }
}

impl fmt::Display for BlobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for BlobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobRef({})", self.hex())
    }
}

/// The text is not a blob reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a blob reference (blob://sha256/ and 64 hexadecimal digits)")]
pub struct ParseBlobRefError(pub String);

impl FromStr for BlobRef {
    type Err = ParseBlobRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.strip_prefix(PREFIX).ok_or_else(|| ParseBlobRefError(text.to_owned()))?;
        Self::from_hex(hex)
    }
}

impl Serialize for BlobRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlobRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_reads_back() {
        let blob = BlobRef::of(b"\"\"");
        insta::assert_snapshot!(blob, @"blob://sha256/12ae32cb1ec02d01eda3581b127c1fee3b0dc53572ed6baf239721a03d82e126");
        assert_eq!(blob.to_string().parse(), Ok(blob));
        assert_eq!(BlobRef::from_value(&blob.to_value()), Some(blob));
    }

    #[test]
    fn near_misses_are_refused() {
        for text in ["", "blob://sha256/", "blob://sha256/12AE", "blob://md5/00", &"é".repeat(32)]
        {
            assert!(text.parse::<BlobRef>().is_err(), "{text}");
            assert!(BlobRef::from_hex(text).is_err(), "{text}");
        }
    }
}

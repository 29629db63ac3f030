use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use ulid::Ulid;

/// The id of a run: a ULID, so ids sort by the time they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Ulid);

impl RunId {
    /// An id from a time (milliseconds since 1970) and 80 random bits (the higher ones are cut).
    /// Both are the caller's, for this crate has neither a clock nor randomness.
    pub fn from_parts(unix_ms: u64, random: u128) -> Self {
        Self(Ulid::from_parts(unix_ms, random))
    }

    /// The id of something that belongs to this run, such as a sub-workflow's run: the same time,
    /// and random bits that are a hash of this id and `label`. The same call gives the same id.
    pub fn derive(self, label: &str) -> Self {
        let digest = Sha256::new().chain_update(self.0.to_bytes()).chain_update(label).finalize();
        let mut bits = [0_u8; 16];
        bits.copy_from_slice(&digest[..16]);
        Self(Ulid::from_parts(self.unix_ms(), u128::from_be_bytes(bits)))
    }

    /// Its 16 bytes: 6 of the time, 10 random ones.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_bytes()
    }

    /// When the id was made, in milliseconds since 1970.
    pub fn unix_ms(self) -> u64 {
        self.0.timestamp_ms()
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0.to_string())
    }
}

/// The text is not a run id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a run id (26 letters and digits)")]
pub struct ParseRunIdError(pub String);

impl FromStr for RunId {
    type Err = ParseRunIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ulid::from_string(text).map(Self).map_err(|_| ParseRunIdError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back_and_derive_the_same_twice() {
        let id = RunId::from_parts(1_700_000_000_000, 42);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.derive("child@1"), id.derive("child@1"));
        assert_ne!(id.derive("child@1"), id.derive("child@2"));
        assert_eq!(id.derive("child@1").unix_ms(), id.unix_ms());
        assert_eq!("latest".parse::<RunId>(), Err(ParseRunIdError("latest".into())));
    }
}

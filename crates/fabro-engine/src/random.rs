//! Choices that look random and are the same in every run with the same seed.

use sha2::{Digest, Sha256};

/// Where a choice is made; the same place, seed and purpose give the same number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) seed: u64,
    pub(crate) branch: &'a str,
    pub(crate) node: &'a str,
    pub(crate) visit: u32,
}

impl Source<'_> {
    /// A number from 0 up to, not including, `end`; 0 when `end` is 0.
    pub(crate) fn below(&self, end: u64, purpose: &str) -> u64 {
        let place = format!("{}\n{}@{}\n{purpose}", self.branch, self.node, self.visit);
        let digest =
            Sha256::new().chain_update(self.seed.to_be_bytes()).chain_update(place).finalize();
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest[..8]);
        u64::from_be_bytes(bytes).checked_rem(end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let roll =
            |seed, visit| Source { seed, branch: "", node: "pick", visit }.below(1_000_000, "edge");
        assert_eq!(roll(7, 1), roll(7, 1));
        assert_ne!(roll(7, 1), roll(8, 1));
        assert_ne!(roll(7, 1), roll(7, 2));
        assert_eq!(Source { seed: 7, branch: "", node: "n", visit: 1 }.below(0, "edge"), 0);
    }
}

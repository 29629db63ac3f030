//! Counting the tokens of a text: characters over four, or a real tokenizer behind a feature.
//!
//! A caller that guarantees a limit in tokens calls [`CountTokens::fits`]; one that only needs an
//! estimate uses [`CharsPerFour`], which costs next to nothing.
//!
//! ```
//! use fabro_tokens::{CharsPerFour, CountTokens};
//!
//! assert_eq!(CharsPerFour.count("Fix the failing test"), 5);
//! assert!(CharsPerFour.fits("Fix the failing test", 5));
//! ```
//!
//! With the feature `o200k` there is `O200k`, which counts with the vocabulary `o200k_base`. That
//! vocabulary is unpacked on the first count of a process, which takes 40 to 100 ms; `fits`
//! answers without it when the length of the text alone decides.
//!
//! Limits: special tokens such as `<|endoftext|>` are counted as the ordinary text they are. One
//! vocabulary only; the counts of other models differ by a few percent.

#[cfg(feature = "o200k")]
mod o200k;

use std::sync::Arc;

#[cfg(feature = "o200k")]
pub use o200k::O200k;

/// Counts tokens.
pub trait CountTokens: Send + Sync {
    /// The number of tokens `text` has. Counters may estimate; each says how well.
    fn count(&self, text: &str) -> usize;

    /// Whether `text` has at most `limit` tokens. Gives the same answer as comparing
    /// [`count`](Self::count), and may be much cheaper.
    fn fits(&self, text: &str, limit: usize) -> bool {
        self.count(text) <= limit
    }
}

impl<T: CountTokens + ?Sized> CountTokens for &T {
    fn count(&self, text: &str) -> usize {
        (**self).count(text)
    }

    fn fits(&self, text: &str, limit: usize) -> bool {
        (**self).fits(text, limit)
    }
}

impl<T: CountTokens + ?Sized> CountTokens for Arc<T> {
    fn count(&self, text: &str) -> usize {
        (**self).count(text)
    }

    fn fits(&self, text: &str, limit: usize) -> bool {
        (**self).fits(text, limit)
    }
}

/// Estimates a token for every four characters, rounded up: close for English prose, too low for
/// scripts whose characters are tokens of their own.
#[derive(Clone, Copy, Debug, Default)]
pub struct CharsPerFour;

impl CountTokens for CharsPerFour {
    fn count(&self, text: &str) -> usize {
        text.chars().count().div_ceil(4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_counted_not_bytes() {
        for (text, tokens) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("日本語です", 2)]
        {
            assert_eq!(CharsPerFour.count(text), tokens, "{text}");
        }
    }

    #[test]
    fn counters_are_used_through_references_and_shared() {
        let shared: Arc<dyn CountTokens> = Arc::new(CharsPerFour);
        let borrowed: &dyn CountTokens = &shared;
        assert_eq!(borrowed.count("abcde"), 2);
        assert!(borrowed.fits("abcde", 2));
        assert!(!borrowed.fits("abcde", 1));
    }
}

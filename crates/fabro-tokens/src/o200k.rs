use std::sync::LazyLock;

use crate::CountTokens;

/// Counts with the vocabulary `o200k_base`, exactly.
///
/// A count takes time in proportion to the text; long runs of one character are the slowest.
/// [`fits`](CountTokens::fits) costs at most in proportion to the
/// limit: a token has between 1 and 128 bytes, so most questions are settled by the length.
#[derive(Clone, Copy, Debug, Default)]
pub struct O200k;

/// The length of the longest token in the vocabulary, in bytes.
const LONGEST_TOKEN: usize = 128;

impl CountTokens for O200k {
    fn count(&self, text: &str) -> usize {
        if text.is_empty() {
            return 0;
        }
        VOCABULARY.count(text)
    }

    fn fits(&self, text: &str, limit: usize) -> bool {
        if text.len() <= limit {
            return true;
        }
        text.len() <= limit.saturating_mul(LONGEST_TOKEN) && self.count(text) <= limit
    }
}

static VOCABULARY: LazyLock<tiktoken::CoreBpe> = LazyLock::new(tiktoken::encoding::o200k_base);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counts_of_known_texts() {
        for (text, tokens) in [
            ("", 0),
            ("hello world", 2),
            ("The quick brown fox jumps over the lazy dog.", 10),
            ("<|endoftext|>", 7),
            ("日本語", 2),
        ] {
            assert_eq!(O200k.count(text), tokens, "{text}");
        }
    }

    #[test]
    fn no_token_is_longer_than_is_relied_on() {
        let longest =
            (0..200_000).map(|id| VOCABULARY.decode(&[id]).len()).max().unwrap_or_default();
        assert_eq!(longest, LONGEST_TOKEN);
    }

    #[test]
    fn hostile_texts_are_counted() {
        for piece in ["a", " ", "{", "\u{3000}", "😀", "\u{301}", "A", "\n", "\u{200d}", "\0"] {
            let text = piece.repeat((64 << 10) / piece.len());
            let tokens = O200k.count(&text);
            assert!(tokens > 100 && tokens <= text.len(), "{piece:?}: {tokens}");
            assert!(!O200k.fits(&text, 100));
        }
    }

    proptest! {
        #[test]
        fn a_token_has_at_least_one_byte(text in any::<String>(), limit in 0_usize..40) {
            let tokens = O200k.count(&text);
            prop_assert!(tokens <= text.len());
            prop_assert_eq!(O200k.fits(&text, limit), tokens <= limit);
        }
    }
}

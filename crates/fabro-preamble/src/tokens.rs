//! Text within a number of tokens.

use fabro_tokens::CountTokens;

use crate::text::clean;

/// More bytes a token than any text has, except runs of whitespace and the like.
pub(crate) const BYTES_PER_TOKEN: usize = 16;

/// The start of a text, of at most `limit` tokens (and 16 bytes a token), and whether it was
/// truncated.
pub(crate) fn cut_to_tokens(text: &str, limit: usize, counter: &dyn CountTokens) -> (String, bool) {
    let prefix = &text[..text.floor_char_boundary(limit.saturating_mul(BYTES_PER_TOKEN))];
    let mut kept = clean(prefix).into_owned();
    let mut cut = prefix.len() < text.len();
    while !counter.fits(&kept, limit) {
        cut = true;
        let tokens = counter.count(&kept).max(1);
        // At least an eighth less each time, so that this ends with any counter.
        let fair = (kept.len() as u128 * limit as u128 / tokens as u128) as usize;
        kept.truncate(kept.floor_char_boundary(fair.min(kept.len() - kept.len().div_ceil(8))));
        if kept.is_empty() {
            break;
        }
    }
    (kept, cut)
}

/// The largest common limit of texts with which they have at most `room` tokens together.
pub(crate) fn common_limit(mut sizes: Vec<usize>, room: usize) -> usize {
    sizes.sort_unstable();
    let mut left = room;
    let mut more = sizes.len();
    for size in sizes {
        if size.saturating_mul(more) > left {
            return left / more;
        }
        left -= size;
        more -= 1;
    }
    usize::MAX
}

/// The first text that fits `limit`, made for less and less room; empty when none does. The sum of
/// the counts of parts, by which it is made, is close to that of the whole, but not exact.
pub(crate) fn within(
    limit: usize,
    counter: &dyn CountTokens,
    text_for: impl Fn(usize) -> String,
) -> String {
    let mut room = limit;
    let mut step = 1_usize;
    loop {
        let text = text_for(room);
        let tokens = counter.count(&text);
        if tokens <= limit {
            return text;
        }
        if room == 0 {
            return String::new();
        }
        room = room.saturating_sub((tokens - limit).min(limit / 8).max(step));
        step = step.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_cut_first() {
        let limit = |sizes: &[usize], room| common_limit(sizes.to_vec(), room);
        assert_eq!(limit(&[900, 10, 100], 1_010), usize::MAX);
        assert_eq!(limit(&[900, 10, 100], 910), 800);
        assert_eq!(limit(&[900, 10, 100], 110), 50);
        assert_eq!(limit(&[900, 10, 100], 9), 3);
        assert_eq!(limit(&[], 0), usize::MAX);
    }
}

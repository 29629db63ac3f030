//! Truncates turns and blocks.

use std::fmt::Write as _;

use fabro_tokens::CountTokens;

use crate::text::{close_fence, plural};
use crate::tokens::BYTES_PER_TOKEN;

/// The length limit of a node name.
pub(crate) const NODE_CHARS: usize = 64;

/// The text if it has at most `limit` tokens, else its start and a note, with at most `limit`
/// together. A code fence that the cut leaves open is closed. Empty when not even the note fits.
pub(crate) fn cut(text: &str, limit: usize, counter: &dyn CountTokens) -> String {
    // A text that is far too long is not counted as a whole.
    let most = text.floor_char_boundary(limit.saturating_mul(BYTES_PER_TOKEN));
    if most == text.len() && counter.fits(text, limit) {
        return text.to_owned();
    }
    let mut end = most;
    while end > 0 {
        let short = with_note(text, end);
        if counter.fits(&short, limit) {
            return short;
        }
        // At least an eighth less each time, so that this ends with any counter.
        let tokens = counter.count(&short).max(1);
        let fair = (end as u128 * limit as u128 / tokens as u128) as usize;
        end = text.floor_char_boundary(fair.min(end - end.div_ceil(8)));
    }
    let note = with_note(text, 0);
    if counter.fits(&note, limit) { note } else { String::new() }
}

/// The first `end` bytes, and a note with the omitted size.
fn with_note(text: &str, end: usize) -> String {
    // Whole lines, where that costs little.
    let line = text[..end].rfind('\n').filter(|line| *line >= end / 4 * 3);
    let kept = text[..line.unwrap_or(end)].trim_end();
    let left = text[kept.len()..].chars().count();
    let mut short = kept.to_owned();
    close_fence(&mut short);
    if !short.is_empty() {
        short.push('\n');
    }
    let _ = write!(short, "(… {} left out)", plural(left, "character"));
    short
}

//! Cutting texts down.

use std::fmt::Write as _;

use fabro_tokens::CountTokens;

/// More bytes a token than any text but rows of blanks and the like has.
const BYTES_PER_TOKEN: usize = 16;

/// Longest name of a node that is shown.
pub(crate) const NODE_CHARS: usize = 64;

/// A text in one line of at most `max` characters, its blanks joined, and `…` where it was cut.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut chars = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
            chars += 1;
        }
        let room = usize::saturating_sub(max, chars);
        if let Some((end, _)) = word.char_indices().nth(room) {
            line.push_str(&word[..end]);
            return format!("{}…", line.trim_end());
        }
        line.push_str(word);
        chars += word.chars().count();
    }
    line
}

/// `1 turn`, `2 turns`.
pub(crate) fn plural(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The text if it has at most `limit` tokens, else its beginning and a note, with at most so many
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
        // At least an eighth less each time, so that this ends whatever the counter says.
        let tokens = counter.count(&short).max(1);
        let fair = (end as u128 * limit as u128 / tokens as u128) as usize;
        end = text.floor_char_boundary(fair.min(end - end.div_ceil(8)));
    }
    let note = with_note(text, 0);
    if counter.fits(&note, limit) { note } else { String::new() }
}

/// The first `end` bytes, and how much was left out.
fn with_note(text: &str, end: usize) -> String {
    // Whole lines, where that costs little.
    let line = text[..end].rfind('\n').filter(|line| *line >= end / 4 * 3);
    let kept = text[..line.unwrap_or(end)].trim_end();
    let left = text[kept.len()..].chars().count() as u64;
    let mut short = kept.to_owned();
    if let Some(fence) = open_fence(kept) {
        short.push('\n');
        short.push_str(&fence);
    }
    if !short.is_empty() {
        short.push('\n');
    }
    let _ = write!(short, "(… {} left out)", plural(left, "character"));
    short
}

/// The mark of the code fence that a text does not close.
fn open_fence(text: &str) -> Option<String> {
    let mut open: Option<&str> = None;
    for line in text.lines() {
        let line = line.trim();
        let length = line.len() - line.trim_start_matches('`').len();
        match open {
            None if length >= 3 => open = Some(&line[..length]),
            Some(mark) if length >= mark.len() && length == line.len() => open = None,
            _ => {}
        }
    }
    open.map(str::to_owned)
}

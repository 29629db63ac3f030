//! Hits as a part of a prompt.

use fabro_tokens::CountTokens;

use crate::Hit;

/// The hits as Markdown, each in a fence below its place, of at most `max_tokens` together: as many
/// of the best as fit. Empty when there are none, or not even one fits.
pub fn block(hits: &[Hit], counter: &dyn CountTokens, max_tokens: usize) -> String {
    let mut shown = String::new();
    for hit in hits {
        let head = if shown.is_empty() { "## Retrieved from files" } else { "" };
        let fence = "`".repeat((longest_row_of_ticks(&hit.text) + 1).max(3));
        let path = hit.path.replace(char::is_control, "\u{FFFD}");
        let part = format!("{head}\n\n{path}:{}\n{fence}\n{}\n{fence}", hit.line, hit.text);
        let longer = format!("{shown}{part}");
        // A smaller one further down may fit yet.
        if counter.fits(&longer, max_tokens) {
            shown = longer;
        }
    }
    shown
}

fn longest_row_of_ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

//! Hits as a part of a prompt.

use fabro_tokens::CountTokens;

use crate::Hit;

/// The hits as Markdown, each in a fence below its path and line, at most `max_tokens` together: as many
/// of the best as fit. Empty when none fits.
pub fn block(hits: &[Hit], counter: &dyn CountTokens, max_tokens: usize) -> String {
    let mut block = String::new();
    for hit in hits {
        let head = if block.is_empty() { "## Retrieved from files" } else { "" };
        let fence = "`".repeat((longest_run_of_backticks(&hit.text) + 1).max(3));
        let path = hit.path.replace(char::is_control, "\u{FFFD}");
        let part = format!("{head}\n\n{path}:{}\n{fence}\n{}\n{fence}", hit.line, hit.text);
        let longer = format!("{block}{part}");
        // A smaller one further down may still fit.
        if counter.fits(&longer, max_tokens) {
            block = longer;
        }
    }
    block
}

fn longest_run_of_backticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

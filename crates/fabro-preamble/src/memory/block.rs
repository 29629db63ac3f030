//! The memory as a part of a prompt.

use std::fmt::Write as _;

use fabro_tokens::CountTokens;
use fabro_types::one_line;

use crate::memory::Memory;
use crate::memory::cut::{NODE_CHARS, cut};
use crate::text::plural;

/// Summary and recent turns within a number of tokens.
pub(crate) fn render(memory: &Memory, counter: &dyn CountTokens, max_tokens: usize) -> String {
    if memory.recent.is_empty() && memory.model_summary.is_none() {
        return String::new();
    }
    let summary = memory.summary();
    let turns: Vec<String> = memory
        .recent
        .iter()
        .map(|turn| {
            let text = cut(turn.text.trim(), max_tokens / 2, counter);
            format!("[{}] {} ({}): {text}", turn.round, one_line(&turn.node, NODE_CHARS), turn.kind)
        })
        .collect();
    let items = Items { round: memory.round, summary: summary.lines().collect(), turns };
    // The text becomes shorter with each omitted item: binary search for the first number that fits.
    let mut low = 0;
    let mut high = items.len();
    while low < high {
        let middle = low.midpoint(high);
        if counter.fits(&items.text(middle), max_tokens) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let text = items.text(low);
    if low < items.len() && counter.fits(&text, max_tokens) {
        return text;
    }
    // Not even the last turn fits beside the notes.
    let last = items.turns.last().map(String::as_str).unwrap_or_default();
    cut(last, max_tokens, counter)
}

/// The items of the block, the oldest first: lines of the summary, then turns.
struct Items<'a> {
    round: u64,
    summary: Vec<&'a str>,
    turns: Vec<String>,
}

impl Items<'_> {
    fn len(&self) -> usize {
        self.summary.len() + self.turns.len()
    }

    /// The text without the first `omitted` items.
    fn text(&self, omitted: usize) -> String {
        let lines = omitted.min(self.summary.len());
        let turns = omitted - lines;
        let mut parts = vec![format!("## Conversation so far ({})", plural(self.round, "turn"))];
        if lines < self.summary.len() {
            let mut summary = "Earlier turns, in short:".to_owned();
            if lines > 0 {
                let _ = write!(summary, "\n({} left out)", plural(lines, "earlier line"));
            }
            for line in &self.summary[lines..] {
                summary.push('\n');
                summary.push_str(line);
            }
            parts.push(summary);
        } else if lines > 0 || turns > 0 {
            let turns = self.round.saturating_sub((self.turns.len() - turns) as u64);
            parts.push(format!("({} left out)", plural(turns, "earlier turn")));
        }
        parts.extend(self.turns[turns..].iter().cloned());
        parts.join("\n\n")
    }
}

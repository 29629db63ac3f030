//! One line for each turn that is no longer kept whole.

use std::collections::VecDeque;

use fabro_types::one_line;

use crate::memory::Turn;
use crate::memory::cut::NODE_CHARS;
use crate::text::plural;

pub(crate) const LINES: usize = 100;
const LINE_CHARS: usize = 160;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The oldest first.
    lines: VecDeque<String>,
    dropped: u64,
}

impl Summary {
    pub(crate) fn after(earlier: u64) -> Self {
        Self { dropped: earlier, ..Self::default() }
    }

    pub(crate) fn add(&mut self, turn: &Turn) {
        if self.lines.len() == LINES {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line(turn));
    }

    pub(crate) fn text(&self) -> String {
        let dropped = (self.dropped > 0)
            .then(|| format!("({} left out)", plural(self.dropped, "earlier turn")));
        let lines = dropped.iter().chain(&self.lines).map(String::as_str);
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// A turn in short.
pub(crate) fn line(turn: &Turn) -> String {
    let node = one_line(&turn.node, NODE_CHARS);
    let excerpt = one_line(first_sentence(&turn.text), LINE_CHARS);
    format!("- [{}] {node} ({}): {excerpt}", turn.round, turn.kind)
}

/// The first sentence of the first line with a letter or digit, without its Markdown heading.
fn first_sentence(text: &str) -> &str {
    // A sentence that ends beyond the excerpt is truncated anyway.
    let text = text.trim_start();
    let text = &text[..text.floor_char_boundary(LINE_CHARS * 8)];
    let mut lines = text.lines().map(|line| line.trim_start_matches('#').trim());
    let line = lines.find(|line| line.contains(char::is_alphanumeric)).unwrap_or(text);
    let ends = line.match_indices(['.', '!', '?', '。', '！', '？']);
    let mut ends = ends.map(|(at, mark)| at + mark.len());
    let is_end = |end: &usize| {
        let rest = &line[*end..];
        !line[..*end].ends_with(|c: char| c.is_ascii()) || rest.starts_with(char::is_whitespace)
    };
    ends.find(is_end).map_or(line, |end| &line[..end])
}

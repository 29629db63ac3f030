//! The memory as a part of a prompt.

use std::fmt::Write as _;

use fabro_tokens::CountTokens;
use fabro_types::one_line;

use crate::memory::Memory;
use crate::memory::cut::{NODE_CHARS, cut};
use crate::memory::summary::line;
use crate::text::plural;
use crate::tokens::{BYTES_PER_TOKEN, common_limit, within};

/// What a turn that is cut keeps before older turns become lines of the summary.
const SHORT_TURN: usize = 60;

/// Summary and recent turns within a number of tokens.
pub(crate) fn render(memory: &Memory, counter: &dyn CountTokens, max_tokens: usize) -> String {
    if memory.recent.is_empty() && memory.model_summary.is_none() {
        return String::new();
    }
    let items = Items::of(memory, counter, max_tokens);
    let text = within(max_tokens, counter, |room| items.text(room, counter));
    if !text.is_empty() {
        return text;
    }
    // Not even the last turn fits beside the notes.
    let last = items.turns.last().map(|turn| format!("{}{}", turn.head, turn.text));
    cut(&last.unwrap_or_default(), max_tokens, counter)
}

/// A recent turn.
struct RecentTurn<'a> {
    head: String,
    text: &'a str,
    /// Of both, as far as they could fit.
    tokens: usize,
    /// What stands for it when it is left out.
    line: Line,
}

/// A line of the summary.
struct Line {
    text: String,
    tokens: usize,
}

impl Line {
    fn new(text: &str, counter: &dyn CountTokens) -> Self {
        let text = format!("\n{text}");
        Self { tokens: counter.count(&text), text }
    }
}

/// The tokens of the headings.
const FRAME_TOKENS: usize = 30;

/// The items of the block, the oldest first.
struct Items<'a> {
    round: u64,
    summary: Vec<Line>,
    turns: Vec<RecentTurn<'a>>,
}

impl<'a> Items<'a> {
    fn of(memory: &'a Memory, counter: &dyn CountTokens, max_tokens: usize) -> Self {
        let turns = memory.recent.iter().map(|turn| {
            let node = one_line(&turn.node, NODE_CHARS);
            let head = format!("[{}] {node} ({}): ", turn.round, turn.kind);
            let text = turn.text.trim();
            let most = text.floor_char_boundary(max_tokens.saturating_mul(BYTES_PER_TOKEN));
            let tokens = counter.count(&format!("{head}{}\n\n", &text[..most]));
            RecentTurn { head, text, tokens, line: Line::new(&line(turn), counter) }
        });
        let turns = turns.collect();
        let summary = memory.summary();
        let summary = summary.lines().map(|text| Line::new(text, counter)).collect();
        Self { round: memory.round, summary, turns }
    }

    /// Long turns are cut first; then the oldest become lines of the summary; then its oldest lines
    /// are left out.
    fn text(&self, room: usize, counter: &dyn CountTokens) -> String {
        let rest = |folded, omitted| {
            let lines = self.lines(folded).skip(omitted).map(|line| line.tokens);
            room.checked_sub(lines.fold(FRAME_TOKENS, usize::saturating_add))
        };
        let fits = |folded: usize, omitted| {
            let least = self.turns[folded..].iter().map(|turn| turn.tokens.min(SHORT_TURN));
            rest(folded, omitted).is_some_and(|rest| least.sum::<usize>() <= rest)
        };
        let most = self.turns.len().saturating_sub(1);
        let folded = (0..most).find(|folded| fits(*folded, 0)).unwrap_or(most);
        let lines = self.summary.len() + folded;
        let omitted = (0..lines).find(|omitted| fits(folded, *omitted)).unwrap_or(lines);
        let turns = &self.turns[folded..];
        let sizes = turns.iter().map(|turn| turn.tokens).collect();
        let limit = common_limit(sizes, rest(folded, omitted).unwrap_or_default()).min(room);
        let mut text = self.head(folded, omitted);
        for turn in turns {
            let limit = limit.saturating_sub(counter.count(&turn.head));
            let _ = write!(text, "\n\n{}{}", turn.head, cut(turn.text, limit, counter));
        }
        text
    }

    /// The heading, and the summary with the first `folded` turns in short, without its first
    /// `omitted` lines.
    fn head(&self, folded: usize, omitted: usize) -> String {
        let mut text = format!("## Conversation so far ({})", plural(self.round, "turn"));
        let lines = self.lines(folded);
        if self.summary.len() + folded == 0 {
            return text;
        }
        text.push_str("\n\nEarlier turns, in short:");
        if omitted > 0 {
            let _ = write!(text, "\n({} left out)", plural(omitted, "earlier line"));
        }
        text.extend(lines.skip(omitted).map(|line| line.text.as_str()));
        text
    }

    /// The summary, with the first `folded` turns in short.
    fn lines(&self, folded: usize) -> impl Iterator<Item = &Line> {
        self.summary.iter().chain(self.turns[..folded].iter().map(|turn| &turn.line))
    }
}

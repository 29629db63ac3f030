//! `<think>…</think>` at the beginning of a text: local models write it where their server has no field
//! for reasoning.

use crate::providers::turn::Turn;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Divides the text of an answer into its first thought and the rest.
#[derive(Debug, Default)]
pub(super) struct LeadingThought {
    state: State,
    /// Text that may be a part of a tag.
    held: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No text yet, or the first letters of the tag.
    #[default]
    Begin,
    /// Inside the thought.
    Thought,
    /// Whitespace behind the thought.
    Between,
    Text,
}

impl LeadingThought {
    /// Adds the next piece of text to the turn.
    pub(super) fn add(&mut self, piece: &str, turn: &mut Turn) {
        if self.state == State::Begin && self.held.is_empty() && turn.has_reasoning() {
            self.state = State::Text;
        }
        match self.state {
            State::Text => turn.add_text(piece),
            State::Between => self.add_between(piece, turn),
            State::Begin => {
                self.held.push_str(piece);
                let begin = self.held.trim_start();
                if let Some(rest) = begin.strip_prefix(OPEN) {
                    self.state = State::Thought;
                    self.held = rest.to_owned();
                    self.add_thought(turn);
                } else if !OPEN.starts_with(begin) {
                    self.state = State::Text;
                    turn.add_text(&std::mem::take(&mut self.held));
                }
            }
            State::Thought => {
                self.held.push_str(piece);
                self.add_thought(turn);
            }
        }
    }

    /// There is no more text.
    pub(super) fn end(&mut self, turn: &mut Turn) {
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Thought => turn.add_reasoning(&held),
            _ => turn.add_text(&held),
        }
    }

    fn add_thought(&mut self, turn: &mut Turn) {
        // No field takes it back: the templates of these models leave thoughts out.
        turn.set_fields(serde_json::json!({}));
        if let Some((thought, rest)) = self.held.split_once(CLOSE) {
            turn.add_reasoning(thought.trim());
            let rest = rest.to_owned();
            self.held.clear();
            self.state = State::Between;
            self.add_between(&rest, turn);
            return;
        }
        // The end may be the beginning of the tag.
        let starts = self.held.char_indices().map(|(start, _)| start);
        let tag = starts.rev().take(CLOSE.len()).filter(|at| CLOSE.starts_with(&self.held[*at..]));
        let kept = tag.last().unwrap_or(self.held.len());
        let rest = self.held.split_off(kept);
        turn.add_reasoning(&std::mem::replace(&mut self.held, rest));
    }

    fn add_between(&mut self, piece: &str, turn: &mut Turn) {
        let text = piece.trim_start();
        if !text.is_empty() {
            self.state = State::Text;
            turn.add_text(text);
        }
    }
}

use fabro_tokens::{CharsPerFour, CountTokens};

use crate::{Plan, Turn};

/// Estimates what a conversation takes of a model's window: the system prompt and every message.
///
/// A message is counted once, when it is new; a turn of a long conversation costs no more than one
/// of a short conversation.
#[derive(Clone, Debug)]
pub struct Meter<C = CharsPerFour> {
    counter: C,
    system: u64,
    /// One for each message counted, so that old ones can be taken off again.
    turns: Vec<u64>,
    total: u64,
}

impl Default for Meter {
    fn default() -> Self {
        Self::new(CharsPerFour)
    }
}

impl<C: CountTokens> Meter<C> {
    /// Nothing counted yet.
    pub const fn new(counter: C) -> Self {
        Self { counter, system: 0, turns: Vec::new(), total: 0 }
    }

    /// What counts the tokens of a text.
    pub const fn counter(&self) -> &C {
        &self.counter
    }

    /// Counts the prompt that goes before all messages, in place of one counted before. Only for
    /// a prompt that is none of the messages.
    pub fn set_system_prompt(&mut self, prompt: &str) {
        self.system = self.counter.count(prompt) as u64;
    }

    /// Counts those messages that were not there the last time. Messages that were counted must be
    /// the same; when there are fewer, the last ones are taken off.
    pub fn track<T: Turn>(&mut self, turns: &[T]) {
        self.total -= self.turns.drain(turns.len().min(self.turns.len())..).sum::<u64>();
        for turn in &turns[self.turns.len()..] {
            let tokens = turn.tokens(&self.counter);
            self.turns.push(tokens);
            self.total = self.total.saturating_add(tokens);
        }
    }

    /// Puts the message that took the place of the old ones into the count.
    pub fn replace<T: Turn>(&mut self, plan: &Plan, summary: &T) {
        let range = plan.range();
        let end = range.end.min(self.turns.len());
        let start = range.start.min(end);
        self.turns.splice(start..end, [summary.tokens(&self.counter)]);
        self.total = self.turns.iter().fold(0, |sum, tokens| sum.saturating_add(*tokens));
    }

    /// Counts a message again that was counted before and has changed.
    pub(crate) fn recount<T: Turn>(&mut self, at: usize, turn: &T) {
        let tokens = turn.tokens(&self.counter);
        self.total = self.total.saturating_sub(self.turns[at]).saturating_add(tokens);
        self.turns[at] = tokens;
    }

    /// The estimate, in tokens.
    pub const fn tokens(&self) -> u64 {
        self.system.saturating_add(self.total)
    }

    /// What the messages take without the system prompt.
    pub(crate) const fn message_tokens(&self) -> u64 {
        self.total
    }

    /// What the messages of a plan's old part take, as far as they were counted.
    pub(crate) fn old_tokens(&self, plan: &Plan) -> u64 {
        let old = self.turns.get(plan.range()).unwrap_or_default();
        old.iter().fold(0, |sum, tokens| sum.saturating_add(*tokens))
    }
}

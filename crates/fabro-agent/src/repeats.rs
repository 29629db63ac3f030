//! Loop detection: notices an agent that makes the same calls over and over.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use fabro_llm::ToolCall;

/// How many of the last turns are looked at.
const WINDOW: usize = 10;

/// The longest pattern, in turns.
const LONGEST: usize = 3;

/// After so many warnings without a change the session ends.
pub(crate) const MOST_WARNINGS: u32 = 3;

/// The source of the warnings.
pub(crate) const SOURCE: &str = "loop_detection";

/// The last turns of an agent, as far as repetition is concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats {
    turns: VecDeque<TurnHashes>,
    /// Turns since the last warning.
    quiet: usize,
    warnings: u32,
}

/// A turn, by hashes.
#[derive(Clone, Copy, Debug)]
struct TurnHashes {
    calls: u64,
    results: u64,
}

/// What a turn of repeated calls makes necessary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum RepeatAction {
    /// Nothing to do.
    #[default]
    None,
    /// Warn the agent with this message.
    Warn(String),
    /// It was warned often enough: end the session.
    Stop {
        /// The tools of the pattern.
        calls: String,
    },
}

impl Repeats {
    /// Takes a complete turn: its calls and their results.
    pub(crate) fn observe<'a>(
        &mut self,
        calls: &[ToolCall],
        results: impl Iterator<Item = &'a str>,
    ) -> RepeatAction {
        let named = calls.iter().map(|call| (&call.name, call.arguments.to_string()));
        let turn = TurnHashes { calls: hash(named), results: hash(results) };
        if self.turns.len() == WINDOW {
            self.turns.pop_front();
        }
        self.turns.push_back(turn);
        let Some(length) = self.pattern(|turn| turn.calls) else {
            self.quiet = 0;
            self.warnings = 0;
            return RepeatAction::None;
        };
        self.quiet += 1;
        if self.warnings > 0 && self.quiet < WINDOW {
            return RepeatAction::None;
        }
        let has_changed = self.pattern(|turn| turn.results).is_none();
        if has_changed {
            // An agent that polls for something repeats its calls, and is not stuck.
            self.warnings = 0;
        }
        let calls = tools(calls);
        if self.warnings == MOST_WARNINGS {
            return RepeatAction::Stop { calls };
        }
        self.quiet = 0;
        self.warnings += 1;
        RepeatAction::Warn(words(length, &calls))
    }

    /// The shortest pattern that all turns of a full window follow, in turns.
    fn pattern(&self, of: impl Fn(&TurnHashes) -> u64) -> Option<usize> {
        if self.turns.len() < WINDOW {
            return None;
        }
        let repeats = |length: &usize| {
            (*length..WINDOW).all(|at| of(&self.turns[at]) == of(&self.turns[at - length]))
        };
        (1..=LONGEST).find(repeats)
    }
}

fn words(length: usize, calls: &str) -> String {
    let what = match length {
        1 => "the same tool calls".to_owned(),
        _ => format!("the same {length} turns of tool calls"),
    };
    format!(
        "Your last {WINDOW} turns repeat {what} ({calls}). Repeating them will not help. Look at \
         what they told you, and try something else; if you cannot go on, say why in your answer."
    )
}

fn tools(calls: &[ToolCall]) -> String {
    let mut names: Vec<_> = calls.iter().map(|call| call.name.as_str()).collect();
    names.dedup();
    names.truncate(5);
    names.join(", ")
}

fn hash<T: Hash>(items: impl Iterator<Item = T>) -> u64 {
    // Its keys are constant, and nothing of it leaves the process.
    let mut hasher = DefaultHasher::new();
    for item in items {
        item.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(name: &str, argument: u32) -> ToolCall {
        ToolCall { id: "x".to_owned(), name: name.to_owned(), arguments: json!({"n": argument}) }
    }

    /// Runs turns, one a character; gives those at which the agent is warned (`!`) or ended (`X`).
    #[track_caller]
    fn check(turns: &str, result: impl Fn(usize) -> String, expected: &[(usize, char)]) {
        let mut repeats = Repeats::default();
        let mut actions = Vec::new();
        for (at, turn) in turns.chars().enumerate() {
            let text = result(at);
            match repeats.observe(&[call("read", turn as u32)], [text.as_str()].into_iter()) {
                RepeatAction::None => {}
                RepeatAction::Warn(_) => actions.push((at + 1, '!')),
                RepeatAction::Stop { .. } => actions.push((at + 1, 'X')),
            }
        }
        assert_eq!(actions, expected, "{turns}");
    }

    fn same(_: usize) -> String {
        "same".to_owned()
    }

    #[test]
    fn patterns_of_one_to_three_turns() {
        check("aaaaaaaaa", same, &[]);
        check("aaaaaaaaaa", same, &[(10, '!')]);
        check("ababababab", same, &[(10, '!')]);
        check("abcabcabca", same, &[(10, '!')]);
        check("abcdabcdabcdabcd", same, &[]);
        check("xyzabababababz", same, &[(13, '!')]);
    }

    #[test]
    fn a_warning_every_ten_turns_and_the_end_after_three() {
        let turns = "a".repeat(41);
        check(&turns, same, &[(10, '!'), (20, '!'), (30, '!'), (40, 'X'), (41, 'X')]);
    }

    #[test]
    fn another_call_counts_as_a_change() {
        let turns = format!("{}b{}", "a".repeat(35), "a".repeat(12));
        check(&turns, same, &[(10, '!'), (20, '!'), (30, '!'), (46, '!')]);
    }

    #[test]
    fn polling_is_warned_about_but_not_ended() {
        let expected = [(10, '!'), (20, '!'), (30, '!'), (40, '!'), (50, '!'), (60, '!')];
        check(&"a".repeat(60), |at| at.to_string(), &expected);
    }

    #[test]
    fn the_message_names_the_tools() {
        insta::assert_snapshot!(words(2, &tools(&[call("read", 1), call("read", 2), call("ls", 1)])), @"Your last 10 turns repeat the same 2 turns of tool calls (read, ls). Repeating them will not help. Look at what they told you, and try something else; if you cannot go on, say why in your answer.");
    }
}

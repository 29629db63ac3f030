//! Results of tools that are shortened because there is no other room.

use fabro_tokens::CountTokens;
use serde::{Deserialize, Serialize};

use crate::Turn;
use crate::plan::last_exchange;
use crate::text::offset;

/// A result of a tool whose text is shortened to its beginning and its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The place of its message in the conversation before the compaction.
    pub turn: usize,
    /// The `id` of its call.
    pub id: String,
    /// What stays of its beginning, in characters.
    pub head: usize,
    /// What stays of its end, in characters.
    pub tail: usize,
}

impl Cut {
    /// The shortened text, with a note on what is missing. What an earlier cut removed is included
    /// in its number.
    pub fn text(&self, text: &str) -> String {
        let chars = text.chars().count();
        let Some(missing) =
            chars.checked_sub(self.head.saturating_add(self.tail)).filter(|it| *it > 0)
        else {
            return text.to_owned();
        };
        let head = offset(text, self.head);
        let tail = offset(text, chars - self.tail);
        // The text is a tool's: it may contain such a note with any number.
        let missing = missing.saturating_add(missing_before(&text[head..tail]));
        format!("{}{MARK}{missing}{WHY}{}", &text[..head], &text[tail..])
    }

    /// The same messages with this result shortened; `None` where there is no such result.
    pub(crate) fn of<T: Turn>(&self, turn: &T) -> Option<T> {
        let results = turn.results();
        let result = results.iter().find(|result| result.id == self.id)?;
        turn.with_result(&self.id, self.text(&result.text))
    }
}

const MARK: &str = "\n[… ";
const WHY: &str =
    " characters cut to fit into the model's window: call the tool again to see them …]\n";

/// What stays of a result at least, in characters.
const LEAST: usize = 200;
/// The size of the note on what is missing, in tokens.
const MARK_TOKENS: u64 = 30;

/// How many characters an earlier cut removed from a text, less those of its note.
fn missing_before(text: &str) -> usize {
    let Some((before, _)) = text.split_once(WHY) else { return 0 };
    let Some((_, number)) = before.rsplit_once(MARK) else { return 0 };
    let mark = MARK.chars().count() + number.len() + WHY.chars().count();
    number.parse::<usize>().map_or(0, |missing| missing.saturating_sub(mark))
}

/// The results among messages that can be shortened.
pub(crate) struct Cuttable {
    results: Vec<Found>,
}

struct Found {
    turn: usize,
    id: String,
    chars: usize,
    tokens: u64,
    /// What it takes when it is as short as can be, in tokens.
    least: u64,
    /// It belongs to the last call.
    is_new: bool,
}

impl Cuttable {
    /// Those of the messages from `first` on.
    pub(crate) fn of<T: Turn>(turns: &[T], first: usize, counter: &dyn CountTokens) -> Self {
        let new = last_exchange(turns);
        let mut results = Vec::new();
        for (turn, message) in turns.iter().enumerate().skip(first) {
            for result in message.results() {
                let chars = result.text.chars().count();
                if chars <= LEAST || message.with_result(result.id, String::new()).is_none() {
                    continue;
                }
                let tokens = counter.count(&result.text) as u64;
                let shortest = cut(turn, result.id, LEAST).text(&result.text);
                let least = (counter.count(&shortest) as u64).min(tokens);
                let id = result.id.to_owned();
                results.push(Found { turn, id, chars, tokens, least, is_new: turn >= new });
            }
        }
        Self { results }
    }

    /// How much shortening all of them saves at most, in tokens.
    pub(crate) fn most(&self) -> u64 {
        self.results.iter().map(|found| found.tokens - found.least).sum()
    }

    /// What to cut to save that many tokens, or as many as can be: the largest of the older results
    /// first, and those of the last call when that is not enough.
    pub(crate) fn save(&self, tokens: u64) -> Vec<Cut> {
        let (new, old): (Vec<_>, Vec<_>) = self.results.iter().partition(|found| found.is_new);
        let of_old: u64 = old.iter().map(|found| found.tokens - found.least).sum();
        let mut cuts = level(&old, tokens.min(of_old));
        cuts.extend(level(&new, tokens.saturating_sub(of_old)));
        cuts
    }
}

/// What cuts save in fact, in tokens.
pub(crate) fn saved<T: Turn>(cuts: &[Cut], turns: &[T], counter: &dyn CountTokens) -> u64 {
    let saved = cuts.iter().map(|cut| {
        let results = turns[cut.turn].results();
        let result = results.iter().find(|result| result.id == cut.id);
        result.map_or(0, |result| {
            let after = counter.count(&cut.text(&result.text)) as u64;
            (counter.count(&result.text) as u64).saturating_sub(after)
        })
    });
    saved.sum()
}

/// Cuts the largest down to one size.
fn level(results: &[&Found], tokens: u64) -> Vec<Cut> {
    if tokens == 0 {
        return Vec::new();
    }
    let saved = |cap: u64| -> u64 {
        let short = |found: &&Found| found.tokens - found.tokens.min(cap.max(found.least));
        results.iter().map(short).sum()
    };
    // The largest size that saves enough.
    let mut low = 0;
    let mut high = results.iter().map(|found| found.tokens).max().unwrap_or(0);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if saved(middle) >= tokens { low = middle } else { high = middle - 1 }
    }
    let over = results.iter().filter(|found| found.tokens > low.max(found.least));
    over.map(|found| {
        let room = u128::from(low.saturating_sub(MARK_TOKENS));
        let chars = found.chars as u128 * room / u128::from(found.tokens.max(1));
        cut(found.turn, &found.id, usize::try_from(chars).unwrap_or(LEAST).max(LEAST))
    })
    .collect()
}

fn cut(turn: usize, id: &str, chars: usize) -> Cut {
    let tail = chars / 3;
    Cut { turn, id: id.to_owned(), head: chars - tail, tail }
}

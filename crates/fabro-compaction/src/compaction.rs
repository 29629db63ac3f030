use fabro_tokens::CountTokens;
use serde::Serialize;

use crate::{Cut, Meter, Plan, Reason, Turn};

/// The result of [`Compactor::prepare`](crate::Compactor::prepare).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionOutcome {
    /// There is a summary that is smaller than the messages it is about, or results can be cut.
    Compacted(Compaction),
    /// There are no old messages: the conversation stays as it is.
    NothingOld,
    /// The conversation would not become smaller, so it stays as it is.
    NotSmaller {
        /// What it takes, in tokens.
        tokens_before: u64,
        /// What it would take with the summary, in tokens; with the least a summary takes, where
        /// none was made because even that is too much.
        tokens_after: u64,
    },
}

/// A conversation that can become smaller. Nothing has changed yet: see [`Compaction::apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Which messages the summary replaces; none when only results are cut.
    pub plan: Plan,
    /// Results of the last call that are shortened, as the model's window has no room for them.
    pub cuts: Vec<Cut>,
    /// The report; its `summary` is the text of the new message.
    pub report: Report,
}

impl Compaction {
    /// Puts the summary in the place of the old messages and cuts results, in the conversation and in
    /// its count.
    /// Messages that came in the meantime stay. `false`, and no change, if messages are missing
    /// that were there before.
    pub fn apply<T: Turn, C: CountTokens>(&self, turns: &mut Vec<T>, meter: &mut Meter<C>) -> bool {
        meter.track(turns);
        let last_cut = self.cuts.iter().map(|cut| cut.turn + 1).max().unwrap_or(0);
        if self.plan.range().end.max(last_cut) > turns.len() {
            return false;
        }
        for cut in &self.cuts {
            if let Some(shorter) = cut.of(&turns[cut.turn]) {
                meter.recount(cut.turn, &shorter);
                turns[cut.turn] = shorter;
            }
        }
        if self.plan.apply(turns, T::summary(self.report.summary.clone())) {
            meter.replace(&self.plan, &turns[self.plan.leading]);
        }
        true
    }
}

/// The result of a compaction, for events and for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Why it happened.
    pub reason: Reason,
    /// Messages of the conversation before, those of the system at its beginning included.
    pub original_turn_count: usize,
    /// The last messages, which stay.
    pub preserved_turn_count: usize,
    /// Results among those that are shortened, as the model's window has no room for them.
    #[serde(skip_serializing_if = "is_none")]
    pub shortened_result_count: usize,
    /// What the new message is estimated to take, in tokens.
    pub summary_token_estimate: u64,
    /// Files that the new message lists, or would list if it had no limit.
    pub tracked_file_count: usize,
    /// Messages of the conversation before.
    #[serde(rename = "messagesBefore")]
    pub messages_before: usize,
    /// Messages of the conversation after.
    #[serde(rename = "messagesAfter")]
    pub messages_after: usize,
    /// What the conversation was estimated to take before, in tokens.
    #[serde(rename = "tokensBefore")]
    pub tokens_before: u64,
    /// What it is estimated to take after, in tokens.
    #[serde(rename = "tokensAfter")]
    pub tokens_after: u64,
    /// The text of the new message; empty when there is none.
    pub summary: String,
    /// Messages that the summary replaces, under the name used by the report of a manual compaction.
    pub compacted_entries: usize,
    /// Why a deterministic summary took the place of the model's, after an overflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_error: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_none(count: &usize) -> bool {
    *count == 0
}

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::open::OpenCalls;
use crate::{Role, Turn, is_summary};

/// Which messages a summary replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// System messages at the very beginning, which stay.
    pub leading: usize,
    /// Messages after those, which the summary replaces. None where there is no summary, and only
    /// results of tools are shortened.
    pub replaced: usize,
    /// Messages after those, which stay as they are.
    pub kept: usize,
}

impl Plan {
    /// The replaced messages, as a range of the conversation.
    pub const fn range(&self) -> Range<usize> {
        self.leading..self.leading.saturating_add(self.replaced)
    }

    /// Puts `summary` in the place of the old messages. Messages that came since the plan was made
    /// stay; where there are fewer than the plan is about, or it replaces none, nothing changes, and
    /// `false` comes back.
    pub fn apply<T>(&self, turns: &mut Vec<T>, summary: T) -> bool {
        let range = self.range();
        if range.end > turns.len() || range.is_empty() {
            return false;
        }
        turns.splice(range, [summary]);
        true
    }
}

/// Plans to keep the last `keep_recent` messages and to replace the older ones. `None` when nothing
/// is old, or only a summary is.
///
/// - A call and its results stay together: if one of them is to be kept, all are, and what is
///   between them.
/// - Calls of the last answer that have no result yet are kept with all that follows.
/// - System messages at the beginning stay, except an earlier summary, which is replaced.
/// - What no model would take, a result without a call, or a call that never got its result, is
///   replaced together with all that is before it, even if it is recent.
///
/// Linear in the number of messages.
pub fn plan<T: Turn>(turns: &[T], keep_recent: usize) -> Option<Plan> {
    let leading = leading(turns);
    if turns.len() - leading <= keep_recent {
        return None;
    }
    let cut = Links::of(turns).cut(leading, turns.len() - keep_recent)?;
    plan_at(turns, leading, cut)
}

/// The plans that keep fewer messages than `more` does, or than all of them; most first, down to
/// the [last exchange](last_exchange).
pub(crate) fn shorter_plans<T: Turn>(turns: &[T], more: Option<Plan>) -> Vec<Plan> {
    let leading = leading(turns);
    let links = Links::of(turns);
    let first = more.map_or(leading, |plan| plan.range().end) + 1;
    let cuts = (first..=last_exchange(turns)).filter(|cut| links.is_sound(*cut));
    cuts.filter_map(|cut| plan_at(turns, leading, cut)).collect()
}

/// Where the messages begin that every conversation needs to continue: the last call and what came
/// after it, where the model has not answered that yet; else the last message.
pub(crate) fn last_exchange<T: Turn>(turns: &[T]) -> usize {
    let answer = turns.iter().rposition(|turn| turn.role() == Role::Assistant);
    let asks = answer.filter(|at| !turns[*at].calls().is_empty());
    asks.unwrap_or(turns.len().saturating_sub(1))
}

/// How many system messages at the beginning stay in any case.
pub(crate) fn leading<T: Turn>(turns: &[T]) -> usize {
    turns.iter().take_while(|turn| turn.role() == Role::System && !is_summary(*turn)).count()
}

fn plan_at<T: Turn>(turns: &[T], leading: usize, cut: usize) -> Option<Plan> {
    let old = &turns[leading..cut];
    let only_a_summary = old.len() == 1 && is_summary(&old[0]);
    let plan = Plan { leading, replaced: old.len(), kept: turns.len() - cut };
    (!only_a_summary).then_some(plan)
}

/// What ties the messages of a conversation together, by their places.
struct Links {
    /// The earliest message that this one, or one after it, cannot do without.
    needs: Vec<usize>,
    /// Results without a call.
    orphans: Vec<bool>,
    /// The answer whose calls are still running.
    pending: Option<usize>,
    /// The last message that no model would take, and that is before the pending one.
    last_broken: Option<usize>,
}

impl Links {
    fn of<T: Turn>(turns: &[T]) -> Self {
        let mut needs: Vec<usize> = (0..turns.len()).collect();
        let mut orphans = vec![false; turns.len()];
        // Where each call is, and whether it has a result.
        let mut calls: Vec<(usize, bool)> = Vec::new();
        let mut open = OpenCalls::default();
        let mut last_answer = None;
        for (at, turn) in turns.iter().enumerate() {
            if turn.role() == Role::Assistant {
                last_answer = Some(at);
            }
            let results = turn.results();
            if results.is_empty() && turn.role() == Role::Tool {
                needs[at] = at.saturating_sub(1);
            }
            for result in results {
                match open.answer(result.id) {
                    Some(call) => {
                        calls[call].1 = true;
                        needs[at] = needs[at].min(calls[call].0);
                    }
                    None => orphans[at] = true,
                }
            }
            for call in turn.calls() {
                open.push(call.id);
                calls.push((at, false));
            }
        }
        for at in (1..turns.len()).rev() {
            needs[at - 1] = needs[at - 1].min(needs[at]);
        }
        let unanswered = || calls.iter().rev().filter(|call| !call.1).map(|call| call.0);
        let pending = last_answer.filter(|answer| unanswered().next() == Some(*answer));
        let end = pending.unwrap_or(turns.len());
        let last_orphan = orphans[..end].iter().rposition(|is_orphan| *is_orphan);
        let last_broken = unanswered().find(|at| *at < end).max(last_orphan);
        Self { needs, orphans, pending, last_broken }
    }

    /// Where the kept messages begin: at `wanted` or, as far as necessary, before it.
    fn cut(&self, leading: usize, wanted: usize) -> Option<usize> {
        let end = self.pending.unwrap_or(self.needs.len());
        let is_sound = |cut: &usize| self.is_sound(*cut);
        let before = (leading + 1..=wanted.min(end)).rev().find(is_sound);
        let whole = self.last_broken.map_or(0, |broken| broken + 1);
        if before.is_some_and(|cut| cut >= whole) {
            return before;
        }
        (whole.max(leading + 1)..=end).find(is_sound).filter(|_| whole > leading).or(before)
    }

    /// Whether messages can be kept from here on.
    fn is_sound(&self, cut: usize) -> bool {
        let needs_nothing_older = self.needs.get(cut).is_none_or(|needs| *needs >= cut);
        needs_nothing_older && !self.orphans.get(cut).copied().unwrap_or(false)
    }
}

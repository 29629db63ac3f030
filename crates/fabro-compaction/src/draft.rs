//! A compaction before it is applied: what is replaced, what there is room for, and the new message.

use std::borrow::Cow;

use fabro_tokens::CountTokens;

use crate::cuts::{Cuttable, saved};
use crate::deterministic::{deterministic_summary, goal_of};
use crate::limits::{LEAST_SUMMARY, Limits};
use crate::plan::{leading, shorter_plans};
use crate::request::Request;
use crate::sections::{Part, Section, close_fence, parts};
use crate::text::cut_middle;
use crate::{
    Compaction, CompactionOutcome, Cut, Files, Meter, Plan, Reason, Report, SUMMARY_TAG,
    SummaryRequest, Turn, is_summary, plan, render_old,
};

const INSTRUCTIONS: &str = include_str!("instructions.md");

/// How much of the first request stands in a summary whose writer left it out, in characters.
const GOAL_CHARS: usize = 2_000;

/// How much has to be old after an overflow for a summary of it to help, in tokens.
const LEAST_OLD: u64 = 32;

/// A compaction that only lacks the summary.
pub(crate) struct Draft<'a, T> {
    request: &'a Request<'a>,
    plan: Plan,
    turns: &'a [T],
    pub(crate) old: &'a [T],
    pub(crate) old_tokens: u64,
    tokens_before: u64,
    tracked_file_count: usize,
    /// The section File Operations.
    files: String,
    limits: Limits,
    /// What the new message may take, in tokens.
    room: u64,
    /// No plan keeps fewer messages.
    is_shortest: bool,
}

impl<'a, T: Turn> Draft<'a, T> {
    /// The draft, or the outcome when a summary cannot help.
    pub(crate) fn new<C: CountTokens>(
        turns: &'a [T],
        meter: &Meter<C>,
        request: &'a Request<'a>,
    ) -> Result<Self, Box<CompactionOutcome>> {
        let first = plan(turns, request.keep_recent);
        let draft = Self::fitting(turns, meter, request, first);
        // No model call for a summary that cannot help.
        match draft.finish("", meter) {
            CompactionOutcome::Compacted(done) if done.plan.replaced > 0 => Ok(draft),
            CompactionOutcome::NotSmaller { .. } if request.reason == Reason::Overflow => {
                Err(Box::new(draft.finish_without_model(meter, None)))
            }
            CompactionOutcome::NotSmaller { .. } if draft.old.is_empty() => {
                Err(Box::new(CompactionOutcome::NothingOld))
            }
            outcome => Err(Box::new(outcome)),
        }
    }

    /// The draft that keeps as many messages as fit.
    fn fitting<C: CountTokens>(
        turns: &'a [T],
        meter: &Meter<C>,
        request: &'a Request<'a>,
        first: Option<Plan>,
    ) -> Self {
        let leading = leading(turns);
        let nothing = Plan { leading, replaced: 0, kept: turns.len() - leading };
        let fewer = match request.reason {
            Reason::Manual => Vec::new(),
            Reason::Threshold | Reason::Overflow => shorter_plans(turns, first),
        };
        let least = fewer.last().copied().or(first).unwrap_or(nothing);
        let limits = Limits::of(request, meter, &least);
        let draft = |plan: Plan| Self::of(turns, meter, request, (plan, least), limits);
        let wanted = draft(first.unwrap_or(nothing));
        let Some(shortest) = fewer.last() else { return wanted };
        if limits.allow(wanted.expects(), wanted.old_tokens) {
            // After an overflow the conversation has to become smaller.
            let is_smaller = wanted.old_tokens >= LEAST_OLD
                && matches!(wanted.finish("", meter), CompactionOutcome::Compacted(_));
            if request.reason == Reason::Overflow && !is_smaller {
                return draft(*shortest);
            }
            return wanted;
        }
        let enough = fewer.partition_point(|plan| draft(*plan).expects() > limits.target);
        draft(*fewer.get(enough).unwrap_or(shortest))
    }

    fn of<C: CountTokens>(
        turns: &'a [T],
        meter: &Meter<C>,
        request: &'a Request<'a>,
        (plan, least): (Plan, Plan),
        limits: Limits,
    ) -> Self {
        let old = &turns[plan.range()];
        let old_tokens = meter.old_tokens(&plan);
        let is_shortest = plan == least;
        let cuttable = if is_shortest && limits.window.is_some() {
            Cuttable::of(turns, plan.range().end, meter.counter()).most()
        } else {
            0
        };
        let room = limits.room(meter.tokens() - old_tokens - cuttable);
        let mut files = request.files.clone();
        for summary in old.iter().filter(|turn| is_summary(*turn)) {
            files.merge(Files::parse(&summary.text()));
        }
        let window = request.context_window_size.unwrap_or(u64::MAX);
        let file_chars = window.clamp(2_000, 32_000).min(room.saturating_mul(2));
        Self {
            request,
            plan,
            turns,
            old,
            old_tokens,
            tokens_before: meter.tokens(),
            tracked_file_count: files.count(),
            files: files.block(usize::try_from(file_chars).unwrap_or(usize::MAX)),
            limits,
            room,
            is_shortest,
        }
    }

    /// What the conversation is expected to take, in tokens, when no result is cut.
    pub(crate) fn expects(&self) -> u64 {
        let summary = (self.summary_chars() + self.files.len()) as u64 / 4;
        self.tokens_before - self.old_tokens + summary.min(self.old_tokens)
    }

    /// What the model is asked for the summary with.
    pub(crate) fn summary_request<C: CountTokens>(&self, meter: &Meter<C>) -> SummaryRequest {
        SummaryRequest {
            instructions: INSTRUCTIONS,
            conversation: self.conversation(meter),
            max_output_tokens: (self.summary_chars() as u64 / 3).max(256),
        }
    }

    /// The old messages as the model reads them: at most three quarters of its window, so
    /// that instructions and reply fit. After an overflow the window is no larger than
    /// what did not fit.
    fn conversation<C: CountTokens>(&self, meter: &Meter<C>) -> String {
        let window = self.request.context_window_size;
        let tokens = match (self.request.reason, window) {
            (Reason::Overflow, None) => self.tokens_before / 2,
            (Reason::Overflow, Some(window)) => window.min(self.tokens_before) / 4 * 3,
            (_, Some(window)) => window / 4 * 3,
            (_, None) => u64::MAX,
        };
        let tokens = usize::try_from(tokens).unwrap_or(usize::MAX);
        let mut chars = tokens.saturating_mul(4);
        let mut text = render_old(self.old, chars);
        // A counter may find more than a token in four characters, yet not in each byte.
        for _ in 0..4 {
            if meter.counter().fits(&text, tokens) {
                break;
            }
            let length = text.chars().count() as u128;
            let share = length * tokens as u128 / meter.counter().count(&text).max(1) as u128;
            chars = usize::try_from(share * 19 / 20).unwrap_or(chars).min(chars);
            text = render_old(self.old, chars);
        }
        text
    }

    /// How long a summary should be: an eighth of the window, half of what it replaces, and 3,000
    /// tokens at most.
    pub(crate) fn summary_chars(&self) -> usize {
        let window = self.request.context_window_size.unwrap_or(u64::MAX);
        let tokens = (window / 8).min(self.old_tokens / 2).clamp(100, 3_000);
        tokens.min(self.room / 2) as usize * 4
    }

    /// A model's answer without what is added here, and with a goal. `None` if nothing is left.
    pub(crate) fn clean(&self, answer: &str) -> Option<String> {
        let answer = answer.trim();
        let answer = answer.strip_prefix(SUMMARY_TAG).unwrap_or(answer);
        let is_blank = |part: &Part<'_>| matches!(part.body.trim(), "" | "(none)");
        let own: Vec<_> = parts(answer)
            .into_iter()
            .filter(|part| part.section != Some(Section::FileOperations))
            .filter(|part| part.section != Some(Section::Goal) || !is_blank(part))
            .filter(|part| !part.whole.trim().is_empty())
            .collect();
        let first = own.first()?;
        let summary: String = own.iter().map(|part| part.whole).collect();
        let summary = close_fence(summary.trim().to_owned());
        let goal = goal_of(self.old, GOAL_CHARS.min(self.summary_chars() / 4));
        if goal.is_empty() || own.iter().any(|part| part.section == Some(Section::Goal)) {
            return Some(summary);
        }
        // What has no heading is not to become part of the goal.
        let title = Section::Goal.title();
        let next = Section::Progress.title();
        let heading = if first.section.is_none() { format!("## {next}\n") } else { String::new() };
        Some(format!("## {title}\n{goal}\n\n{heading}{summary}"))
    }

    /// The new message, with all of a summary.
    fn whole(&self, summary: &str) -> String {
        let between = if summary.is_empty() || self.files.is_empty() { "" } else { "\n\n" };
        format!("{SUMMARY_TAG}\n{summary}{between}{}", self.files)
    }

    /// The new message, with as much of a summary as there is room for: a model may write more than
    /// it was asked for.
    fn message<C: CountTokens>(&self, summary: &str, meter: &Meter<C>) -> String {
        let mut summary = Cow::Borrowed(summary);
        for _ in 0..16 {
            let message = self.whole(&summary);
            let tokens = meter.counter().count(&message) as u64;
            let Some(over) = tokens.checked_sub(self.room).filter(|over| *over > 0) else {
                return message;
            };
            let over = usize::try_from(over).unwrap_or(usize::MAX).saturating_mul(4);
            let chars = summary.chars().count();
            let shorter = chars.saturating_sub(over.saturating_add(8)).max(chars / 2);
            summary = Cow::Owned(close_fence(cut_middle(&summary, shorter)));
        }
        self.whole("")
    }

    /// The outcome with a deterministic summary; `why` a model did not write it. After an overflow
    /// fewer messages stay, and then results are cut, when nothing else makes the conversation
    /// smaller.
    pub(crate) fn finish_without_model<C: CountTokens>(
        &self,
        meter: &Meter<C>,
        why: Option<String>,
    ) -> CompactionOutcome {
        let has_to_shrink = self.request.reason == Reason::Overflow;
        let is_unchanged = |outcome: &_| !matches!(outcome, CompactionOutcome::Compacted(_));
        let mut outcome = self.finish(&self.smaller_summary(meter), meter);
        if is_unchanged(&outcome) && has_to_shrink {
            let shortest = shorter_plans(self.turns, Some(self.plan)).pop().unwrap_or(self.plan);
            let plans = (shortest, shortest);
            let draft = Self::of(self.turns, meter, self.request, plans, self.limits);
            outcome = draft.finish(&draft.smaller_summary(meter), meter);
            if is_unchanged(&outcome) && self.limits.must_cut(self.tokens_before) {
                outcome = draft.report(None, meter);
            }
        }
        if let CompactionOutcome::Compacted(done) = &mut outcome {
            done.report.summary_error = why;
        }
        outcome
    }

    /// A deterministic summary that is smaller than the messages it replaces, if that can be.
    fn smaller_summary<C: CountTokens>(&self, meter: &Meter<C>) -> String {
        let least = meter.counter().count(&self.whole("")) as u64;
        // A quarter is spared for counters that find more than a token in four characters.
        let smaller = self.old_tokens.saturating_sub(least).saturating_mul(3);
        let chars = usize::try_from(smaller).unwrap_or(usize::MAX).min(self.summary_chars());
        deterministic_summary(self.old, chars)
    }

    pub(crate) fn finish<C: CountTokens>(
        &self,
        summary: &str,
        meter: &Meter<C>,
    ) -> CompactionOutcome {
        let whole = meter.counter().count(&self.whole(summary)) as u64;
        let message = self.message(summary, meter);
        let tokens = whole.max(meter.counter().count(&message) as u64);
        // Where hardly anything is old no summary can help.
        let least = LEAST_SUMMARY.max(meter.counter().count(&self.whole("")) as u64);
        let is_last_resort = self.is_shortest && self.old_tokens <= least;
        if is_last_resort && self.limits.must_cut(self.tokens_before) {
            return self.report(None, meter);
        }
        if tokens < self.old_tokens {
            return self.report(Some(message), meter);
        }
        let tokens_before = self.tokens_before;
        let tokens_after = (tokens_before - self.old_tokens).saturating_add(tokens);
        CompactionOutcome::NotSmaller { tokens_before, tokens_after }
    }

    /// The outcome with this message in the place of the old ones; without one, these stay, and only
    /// results are cut.
    fn report<C: CountTokens>(
        &self,
        message: Option<String>,
        meter: &Meter<C>,
    ) -> CompactionOutcome {
        let tokens_before = self.tokens_before;
        let mut plan = self.plan;
        if message.is_none() {
            plan.kept += plan.replaced;
            plan.replaced = 0;
        }
        let summary = message.unwrap_or_default();
        let summary_token_estimate = meter.counter().count(&summary) as u64;
        let old_tokens = meter.old_tokens(&plan);
        let tokens_after = (tokens_before - old_tokens).saturating_add(summary_token_estimate);
        let (cuts, saved) = self.cuts(tokens_after, meter);
        if plan.replaced == 0 && cuts.is_empty() {
            return CompactionOutcome::NotSmaller { tokens_before, tokens_after };
        }
        let report = Report {
            reason: self.request.reason,
            original_turn_count: self.turns.len(),
            preserved_turn_count: plan.kept,
            shortened_result_count: cuts.len(),
            summary_token_estimate,
            tracked_file_count: self.tracked_file_count,
            messages_before: self.turns.len(),
            messages_after: self.turns.len() - plan.replaced + usize::from(plan.replaced > 0),
            tokens_before,
            tokens_after: tokens_after - saved,
            summary,
            compacted_entries: plan.replaced,
            summary_error: None,
        };
        CompactionOutcome::Compacted(Compaction { plan, cuts, report })
    }

    /// The results to cut where no fewer messages can stay and the model's window has no room for
    /// them, and what that saves, in tokens.
    fn cuts<C: CountTokens>(&self, tokens: u64, meter: &Meter<C>) -> (Vec<Cut>, u64) {
        if !self.is_shortest || !self.limits.must_cut(tokens) {
            return (Vec::new(), 0);
        }
        let over = tokens - self.limits.cut_to.min(tokens);
        let cuttable = Cuttable::of(self.turns, self.plan.range().end, meter.counter());
        let mut wanted = over;
        loop {
            let cuts = cuttable.save(wanted);
            let less = saved(&cuts, self.turns, meter.counter());
            if less >= over || wanted >= cuttable.most() {
                return (cuts, less);
            }
            // A counter may find more in what stays than in what goes.
            wanted = wanted.saturating_add(wanted / 8 + 1);
        }
    }
}

//! A compaction before it is applied: what is replaced, what there is room for, and the new message.

use std::borrow::Cow;

use fabro_tokens::CountTokens;

use crate::cuts::{Cuttable, saved};
use crate::deterministic::goal_of;
use crate::plan::{leading, shorter_plans};
use crate::sections::{Part, Section, close_fence, parts};
use crate::text::cut_middle;
use crate::{
    Compaction, CompactionOutcome, Cut, Files, Meter, Plan, Policy, Reason, Report, SUMMARY_TAG,
    SummaryRequest, Turn, is_summary, plan, render_old,
};

/// Why and within which limits a conversation is compacted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// Why it is shortened.
    pub(crate) reason: Reason,
    /// How many of the last messages stay as they are, if there is room for them.
    pub(crate) keep_recent: usize,
    /// What the conversation may take afterwards, in tokens; `None`: no limit. Where they take more, fewer of them stay, down to the last call with its results; where
    /// that is not enough, results are shortened. After an overflow it is at most three quarters of
    /// what did not fit. When there is not even room for what has to stay, the window counts.
    pub(crate) limit: Option<u64>,
    /// What the model takes, in tokens; bounds what it is asked to summarise, and the summary.
    pub(crate) context_window_size: Option<u64>,
    /// The files that were used so far. Those that an earlier summary lists are added.
    pub(crate) files: &'a Files,
}

impl<'a> Request<'a> {
    /// A request with the settings of a policy. The limit is the size from which on the policy
    /// shortens a conversation by itself; there is none for a manual compaction.
    pub(crate) fn new(
        policy: &Policy,
        reason: Reason,
        context_window_size: Option<u64>,
        files: &'a Files,
    ) -> Self {
        Self {
            reason,
            keep_recent: policy.keep_recent,
            limit: match reason {
                Reason::Manual => None,
                Reason::Threshold | Reason::Overflow => policy.threshold(context_window_size),
            },
            context_window_size,
            files,
        }
    }
}

const INSTRUCTIONS: &str = include_str!("instructions.md");

/// How much of the first request stands in a summary whose writer left it out, in characters.
const GOAL_CHARS: usize = 2_000;

/// What a summary takes at least, in tokens.
const LEAST_SUMMARY: u64 = 150;

/// A compaction that only lacks the summary.
pub(crate) struct Draft<'a, T> {
    request: &'a Request<'a>,
    plan: Plan,
    turns: &'a [T],
    pub(crate) old: &'a [T],
    old_tokens: u64,
    tokens_before: u64,
    tracked_file_count: usize,
    /// The section File Operations.
    files: String,
    room: Room,
}

/// What there is room for, in tokens.
struct Room {
    /// What the conversation may take.
    limit: u64,
    /// What the new message may take.
    summary: u64,
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
        let limit = request.limit_of(meter.tokens());
        let leading = leading(turns);
        let nothing = Plan { leading, replaced: 0, kept: turns.len() - leading };
        let draft = |plan: Plan| Self::of(turns, meter, request, plan);
        let wanted = draft(first.unwrap_or(nothing));
        if limit.is_none() || wanted.is_within() {
            return wanted;
        }
        // So that the next compaction is not due after the next turn.
        let target = wanted.room.limit / 8 * 5;
        let fewer = shorter_plans(turns, first);
        let enough = fewer.partition_point(|plan| draft(*plan).expects() > target);
        fewer.get(enough).or(fewer.last()).map_or(wanted, |plan| draft(*plan))
    }

    fn of<C: CountTokens>(
        turns: &'a [T],
        meter: &Meter<C>,
        request: &'a Request<'a>,
        plan: Plan,
    ) -> Self {
        let old = &turns[plan.range()];
        let room = request.room(turns, meter, &plan);
        let mut files = request.files.clone();
        for summary in old.iter().filter(|turn| is_summary(*turn)) {
            files.merge(Files::parse(&summary.text()));
        }
        let window = request.context_window_size.unwrap_or(u64::MAX);
        let file_chars = window.clamp(2_000, 32_000).min(room.summary.saturating_mul(2));
        Self {
            request,
            plan,
            turns,
            old,
            old_tokens: meter.old_tokens(&plan),
            tokens_before: meter.tokens(),
            tracked_file_count: files.count(),
            files: files.block(usize::try_from(file_chars).unwrap_or(usize::MAX)),
            room,
        }
    }

    /// What the conversation is expected to take, in tokens, when no result is cut.
    fn expects(&self) -> u64 {
        let summary = (self.summary_chars() + self.files.len()) as u64 / 4;
        self.tokens_before - self.old_tokens + summary.min(self.old_tokens)
    }

    /// Whether no result has to be cut.
    fn is_within(&self) -> bool {
        self.expects() <= self.room.limit
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
        tokens.min(self.room.summary / 2) as usize * 4
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

    /// The new message.
    fn message<C: CountTokens>(&self, summary: &str, meter: &Meter<C>) -> String {
        let whole = |summary: &str| {
            let between = if summary.is_empty() || self.files.is_empty() { "" } else { "\n\n" };
            format!("{SUMMARY_TAG}\n{summary}{between}{}", self.files)
        };
        let mut summary = Cow::Borrowed(summary);
        // A model may write more than it was asked for.
        for _ in 0..16 {
            let message = whole(&summary);
            let tokens = meter.counter().count(&message) as u64;
            let Some(over) = tokens.checked_sub(self.room.summary).filter(|over| *over > 0) else {
                return message;
            };
            let over = usize::try_from(over).unwrap_or(usize::MAX).saturating_mul(4);
            let chars = summary.chars().count();
            let shorter = chars.saturating_sub(over.saturating_add(8)).max(chars / 2);
            summary = Cow::Owned(close_fence(cut_middle(&summary, shorter)));
        }
        whole("")
    }

    pub(crate) fn finish<C: CountTokens>(
        &self,
        summary: &str,
        meter: &Meter<C>,
    ) -> CompactionOutcome {
        let mut summary = self.message(summary, meter);
        let mut summary_token_estimate = meter.counter().count(&summary) as u64;
        let others = self.tokens_before - self.old_tokens;
        let mut tokens_after = others.saturating_add(summary_token_estimate);
        let mut plan = self.plan;
        if summary_token_estimate >= self.old_tokens {
            let tokens_before = self.tokens_before;
            let outcome = CompactionOutcome::NotSmaller { tokens_before, tokens_after };
            if tokens_before <= self.room.limit {
                return outcome;
            }
            // Then the old messages stay as well.
            summary = String::new();
            summary_token_estimate = 0;
            tokens_after = tokens_before;
            plan.kept += plan.replaced;
            plan.replaced = 0;
        }
        let (cuts, saved) = self.cuts(&plan, tokens_after, meter);
        if plan.replaced == 0 && cuts.is_empty() {
            let tokens_before = self.tokens_before;
            return CompactionOutcome::NotSmaller { tokens_before, tokens_after };
        }
        let report = Report {
            reason: self.request.reason,
            original_turn_count: plan.replaced,
            preserved_turn_count: plan.kept,
            shortened_result_count: cuts.len(),
            summary_token_estimate,
            tracked_file_count: self.tracked_file_count,
            messages_before: self.turns.len(),
            messages_after: self.turns.len() - plan.replaced + usize::from(plan.replaced > 0),
            tokens_before: self.tokens_before,
            tokens_after: tokens_after - saved,
            summary,
            compacted_entries: plan.replaced,
        };
        CompactionOutcome::Compacted(Compaction { plan, cuts, report })
    }

    /// The results to cut so that no more than the limit is taken, and what that saves, in tokens.
    fn cuts<C: CountTokens>(&self, plan: &Plan, tokens: u64, meter: &Meter<C>) -> (Vec<Cut>, u64) {
        let Some(over) = tokens.checked_sub(self.room.limit).filter(|over| *over > 0) else {
            return (Vec::new(), 0);
        };
        let cuttable = Cuttable::of(self.turns, plan.range().end, meter.counter());
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

impl Request<'_> {
    /// What a conversation of this size may take afterwards.
    fn limit_of(&self, tokens: u64) -> Option<u64> {
        match self.reason {
            Reason::Overflow => Some(self.limit.unwrap_or(u64::MAX).min(tokens / 4 * 3)),
            Reason::Threshold | Reason::Manual => self.limit,
        }
    }

    fn room<T: Turn, C: CountTokens>(&self, turns: &[T], meter: &Meter<C>, plan: &Plan) -> Room {
        let tokens = meter.tokens();
        let Some(limit) = self.limit_of(tokens) else {
            return Room { limit: u64::MAX, summary: u64::MAX };
        };
        let most = Cuttable::of(turns, plan.range().end, meter.counter()).most();
        let least = tokens - meter.old_tokens(plan) - most;
        let window = self.context_window_size.unwrap_or(u64::MAX);
        let limit = match self.reason {
            _ if least.saturating_add(LEAST_SUMMARY) <= limit => limit,
            Reason::Overflow => limit.max(window.min(tokens.saturating_sub(1))),
            Reason::Threshold | Reason::Manual => {
                limit.max(self.context_window_size.unwrap_or(limit))
            }
        };
        Room { limit, summary: limit.saturating_sub(least) }
    }
}

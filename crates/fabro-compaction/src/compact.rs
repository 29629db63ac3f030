use fabro_tokens::CountTokens;
use serde::Serialize;
use thiserror::Error;

use crate::deterministic::{deterministic_summary, goal_of};
use crate::sections::{Part, Section, close_fence, parts};
use crate::{
    Files, Meter, Plan, Policy, Reason, SUMMARY_TAG, Summarize, SummarizeError, SummaryRequest,
    Turn, is_summary, plan, render_old,
};

/// What to do about a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Why it is shortened.
    pub reason: Reason,
    /// How many of the last messages stay as they are.
    pub keep_recent: usize,
    /// Whether a model writes the summary, if there is one.
    pub generate_summary: bool,
    /// What the model takes, in tokens; bounds what it is asked to summarise, and the summary.
    pub context_window_size: Option<u64>,
    /// The files that were used so far. Those that an earlier summary lists are added.
    pub files: &'a Files,
}

impl<'a> Request<'a> {
    /// A request with the settings of a policy.
    pub const fn new(
        policy: &Policy,
        reason: Reason,
        context_window_size: Option<u64>,
        files: &'a Files,
    ) -> Self {
        Self {
            reason,
            keep_recent: policy.keep_recent,
            generate_summary: policy.generate_summary,
            context_window_size,
            files,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is a summary that is smaller than the messages it is about.
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
    /// Which messages the summary replaces.
    pub plan: Plan,
    /// What to tell about it; its `summary` is the text of the new message.
    pub report: Report,
}

impl Compaction {
    /// Puts the summary in the place of the old messages, in the conversation and in its count.
    /// `system` makes a message of the role [`Role::System`](crate::Role::System) of a text.
    /// Messages that came in the meantime stay. `false`, and no change, if messages are missing
    /// that were there before.
    pub fn apply<T: Turn, C: CountTokens>(
        &self,
        turns: &mut Vec<T>,
        meter: &mut Meter<C>,
        system: impl FnOnce(String) -> T,
    ) -> bool {
        meter.track(turns);
        let is_applied = self.plan.apply(turns, system(self.report.summary.clone()));
        if is_applied {
            meter.replace(&self.plan, &turns[self.plan.leading]);
        }
        is_applied
    }
}

/// What a compaction does, for events and for the one who asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Why it happened.
    pub reason: Reason,
    /// Messages that the summary replaces.
    pub original_turn_count: usize,
    /// Messages after those, which stay as they are.
    pub preserved_turn_count: usize,
    /// What the new message is estimated to take, in tokens.
    pub summary_token_estimate: u64,
    /// Files whose use the new message tells, or would tell if it had no limit.
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
    /// The text of the new message.
    pub summary: String,
    /// Messages that the summary replaces, under the name that a manual compaction tells them by.
    pub compacted_entries: usize,
}

/// Why there is no compaction. The conversation stays as it is, and another try may do better.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompactError {
    /// The model gave no summary.
    #[error("the summary call failed: {0}")]
    Summarize(#[from] SummarizeError),
    /// What the model answered is blank.
    #[error("the summary call failed: the model's summary is empty")]
    EmptySummary,
}

/// Summarises the old messages of a conversation, with a model if there is one and the request
/// wants it, otherwise as [`compact_deterministic`] does. The conversation does not change before
/// [`Compaction::apply`].
///
/// The new message is the [`SUMMARY_TAG`], the summary, and a section File Operations with the
/// files of the request and of earlier summaries. That section is never the model's: one in its
/// answer is removed. A goal that its answer does not tell is taken from the conversation.
///
/// # Errors
///
/// When the model fails, or its answer is blank.
pub async fn compact<T: Turn + Sync, C: CountTokens>(
    turns: &[T],
    meter: &mut Meter<C>,
    request: &Request<'_>,
    model: Option<&dyn Summarize>,
) -> Result<Outcome, CompactError> {
    let Some(model) = model.filter(|_| request.generate_summary) else {
        return Ok(compact_deterministic(turns, meter, request));
    };
    let draft = match Draft::new(turns, meter, request) {
        Ok(draft) => draft,
        Err(outcome) => return Ok(*outcome),
    };
    let conversation = draft.conversation(&*meter);
    let answer = model.summarize(draft.ask(&conversation)).await?;
    let summary = draft.clean(&answer).ok_or(CompactError::EmptySummary)?;
    Ok(draft.finish(&summary, &*meter))
}

/// Summarises the old messages of a conversation without a model: see
/// [`deterministic_summary`](crate::deterministic_summary). The conversation does not change before
/// [`Compaction::apply`].
pub fn compact_deterministic<T: Turn, C: CountTokens>(
    turns: &[T],
    meter: &mut Meter<C>,
    request: &Request<'_>,
) -> Outcome {
    match Draft::new(turns, meter, request) {
        Ok(draft) => {
            let summary = deterministic_summary(draft.old, draft.summary_chars());
            draft.finish(&summary, meter)
        }
        Err(outcome) => *outcome,
    }
}

const INSTRUCTIONS: &str = include_str!("instructions.md");

/// How much of the first request stands in a summary whose writer left it out, in characters.
const GOAL_CHARS: usize = 2_000;

/// A compaction that only lacks the summary.
struct Draft<'a, T> {
    request: &'a Request<'a>,
    plan: Plan,
    turns: usize,
    old: &'a [T],
    old_tokens: u64,
    tokens_before: u64,
    tracked_file_count: usize,
    /// The section File Operations.
    files: String,
}

impl<'a, T: Turn> Draft<'a, T> {
    /// What can be known before there is a summary, or why none is needed.
    fn new<C: CountTokens>(
        turns: &'a [T],
        meter: &mut Meter<C>,
        request: &'a Request<'a>,
    ) -> Result<Self, Box<Outcome>> {
        meter.track(turns);
        let plan = plan(turns, request.keep_recent).ok_or(Outcome::NothingOld)?;
        let old = &turns[plan.range()];
        let mut files = request.files.clone();
        for summary in old.iter().filter(|turn| is_summary(*turn)) {
            files.merge(Files::parse(&summary.text()));
        }
        let window = request.context_window_size.unwrap_or(u64::MAX);
        let file_chars = usize::try_from(window.clamp(2_000, 32_000)).unwrap_or(usize::MAX);
        let draft = Self {
            request,
            plan,
            turns: turns.len(),
            old,
            old_tokens: meter.old_tokens(&plan),
            tokens_before: meter.tokens(),
            tracked_file_count: files.count(),
            files: files.block(file_chars),
        };
        // Nobody is asked for a summary that cannot help.
        match draft.finish("", meter) {
            Outcome::Compacted(_) => Ok(draft),
            outcome => Err(Box::new(outcome)),
        }
    }

    /// The old messages as the model gets to read them: at most three quarters of its window, so
    /// that instructions and answer find room. After an overflow the window is no larger than
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

    fn ask<'b>(&self, conversation: &'b str) -> SummaryRequest<'b> {
        let max_output_tokens = (self.summary_chars() as u64 / 3).max(256);
        SummaryRequest { instructions: INSTRUCTIONS, conversation, max_output_tokens }
    }

    /// How long a summary should be: an eighth of the window, half of what it replaces, and 3,000
    /// tokens at most.
    fn summary_chars(&self) -> usize {
        let window = self.request.context_window_size.unwrap_or(u64::MAX);
        let tokens = (window / 8).min(self.old_tokens / 2).clamp(100, 3_000);
        tokens as usize * 4
    }

    /// A model's answer without what is added here, and with a goal. `None` if nothing is left.
    fn clean(&self, answer: &str) -> Option<String> {
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
        let (title, next) = (Section::Goal.title(), Section::Progress.title());
        let heading = if first.section.is_none() { format!("## {next}\n") } else { String::new() };
        Some(format!("## {title}\n{goal}\n\n{heading}{summary}"))
    }

    fn finish<C: CountTokens>(&self, summary: &str, meter: &Meter<C>) -> Outcome {
        let between = if summary.is_empty() || self.files.is_empty() { "" } else { "\n\n" };
        let message = format!("{SUMMARY_TAG}\n{summary}{between}{}", self.files);
        let summary_token_estimate = meter.counter().count(&message) as u64;
        let tokens_after = self
            .tokens_before
            .saturating_sub(self.old_tokens)
            .saturating_add(summary_token_estimate);
        if summary_token_estimate >= self.old_tokens {
            return Outcome::NotSmaller { tokens_before: self.tokens_before, tokens_after };
        }
        let report = Report {
            reason: self.request.reason,
            original_turn_count: self.plan.replaced,
            preserved_turn_count: self.plan.kept,
            summary_token_estimate,
            tracked_file_count: self.tracked_file_count,
            messages_before: self.turns,
            messages_after: self.turns - self.plan.replaced + 1,
            tokens_before: self.tokens_before,
            tokens_after,
            summary: message,
            compacted_entries: self.plan.replaced,
        };
        Outcome::Compacted(Compaction { plan: self.plan, report })
    }
}

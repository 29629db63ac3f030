//! What may be left of a conversation, in tokens.

use fabro_tokens::CountTokens;

use crate::request::Request;
use crate::{Meter, Plan, Reason};

/// What a summary takes at least, in tokens.
pub(crate) const LEAST_SUMMARY: u64 = 150;

/// What may be left of a conversation, in tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The messages that the policy keeps are too many when more than this is expected.
    keep: u64,
    /// They are too many when less than this of the conversation is replaced.
    least_replaced: u64,
    /// What is to be left when they are too many.
    pub(crate) target: u64,
    /// What is to be left when results are cut.
    pub(crate) cut_to: u64,
    /// The model is known to take no more, so that results are cut rather than sent.
    pub(crate) window: Option<u64>,
}

impl Limits {
    /// The limits, where `shortest` is the plan that keeps the fewest messages.
    pub(crate) fn of<C: CountTokens>(
        request: &Request<'_>,
        meter: &Meter<C>,
        shortest: &Plan,
    ) -> Self {
        match request.reason {
            Reason::Manual => Self::NONE,
            Reason::Threshold => Self::at_threshold(request, meter, shortest),
            Reason::Overflow => Self::after_overflow(request.context_window_size, meter),
        }
    }

    const NONE: Self = Self {
        keep: u64::MAX,
        least_replaced: 0,
        target: u64::MAX,
        cut_to: u64::MAX,
        window: None,
    };

    fn at_threshold<C: CountTokens>(
        request: &Request<'_>,
        meter: &Meter<C>,
        shortest: &Plan,
    ) -> Self {
        let window = request.context_window_size;
        let Some(threshold) = request.threshold else { return Self::NONE };
        let least = meter.tokens() - meter.old_tokens(shortest);
        let keep = if least.saturating_add(LEAST_SUMMARY) <= threshold {
            threshold
        } else {
            // Every compaction is followed by the next one, so only the window counts.
            threshold.max(window.unwrap_or(threshold))
        };
        // So that the next compaction is not due after the next turn.
        Self { keep, least_replaced: 0, target: keep / 8 * 5, cut_to: keep, window }
    }

    /// The model refused the conversation: the estimate, or the window in the catalog, may be wrong.
    fn after_overflow<C: CountTokens>(window: Option<u64>, meter: &Meter<C>) -> Self {
        let tokens = meter.tokens();
        match window {
            Some(window) if tokens > window => Self {
                keep: window / 10 * 9,
                least_replaced: 0,
                target: window / 4 * 3,
                cut_to: window / 4 * 3,
                window: Some(window),
            },
            // Far from the window: the size of the messages cannot be the reason.
            Some(window) if tokens <= window / 2 => Self { target: tokens, ..Self::NONE },
            // The window is smaller than known, or the estimate too low.
            _ => Self {
                keep: tokens,
                least_replaced: meter.message_tokens() / 10,
                target: tokens / 4 * 3,
                cut_to: tokens / 4 * 3,
                window: Some(tokens / 10 * 9),
            },
        }
    }

    /// Whether a conversation may stay that takes so much, where so much of it is replaced.
    pub(crate) fn allow(&self, expected: u64, replaced: u64) -> bool {
        expected <= self.keep && replaced >= self.least_replaced
    }

    /// Whether a conversation of this size is too large for the model.
    pub(crate) fn must_cut(&self, tokens: u64) -> bool {
        self.window.is_some_and(|window| tokens > window)
    }

    /// What the summary may take beside the other messages.
    pub(crate) fn room(&self, others: u64) -> u64 {
        let keep = self.keep.saturating_sub(others);
        if keep >= LEAST_SUMMARY {
            keep
        } else {
            keep.max(self.window.unwrap_or(u64::MAX).saturating_sub(others))
        }
    }
}

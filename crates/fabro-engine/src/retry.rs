//! Retries: whether a failed attempt is followed by another (`max_retries`, the retry policy), and when (backoff).

use std::time::Duration;

use fabro_plan::RetryPolicy;
use fabro_types::{Failure, FailureClass};

use crate::random;

const MAX_DELAY_MS: u64 = 60_000;

/// The delay before the next attempt in milliseconds; `None` when this was the last one. The
/// attempts before a pause because no model or agent was available (`attempts_before`) are left out
/// of the count. Rules: `docs/workflow-language.md`, "Failures and retries".
pub(crate) fn delay(
    policy: &RetryPolicy,
    attempt: u32,
    attempts_before: u32,
    failure: &Failure,
    random: &random::Source<'_>,
) -> Option<u64> {
    let never = matches!(failure.class, FailureClass::Canceled | FailureClass::Structural);
    if never || failure.terminal {
        return None;
    }
    let tried = attempt.saturating_sub(attempts_before);
    let allowed = match failure.class {
        FailureClass::TransientInfra => true,
        FailureClass::Deterministic => policy.any_failure && !policy.spares_deterministic,
        _ => policy.any_failure,
    };
    if !allowed || tried >= policy.attempts {
        return None;
    }
    if let Some(asked) = failure.retry_after_ms {
        return Some(asked.min(MAX_DELAY_MS));
    }
    let factor = policy.backoff_factor.saturating_pow(tried.saturating_sub(1));
    let plain = policy.first_delay_ms.saturating_mul(factor).min(MAX_DELAY_MS);
    // A jitter of 0.5 to 1.5, in thousandths, from the run's seed.
    let jitter = 500 + random.below(1_001, &format!("retry {attempt}"));
    Some((plain.saturating_mul(jitter) / 1_000).min(MAX_DELAY_MS))
}

/// The failure of a stage or a fan-out that reached its timeout.
pub(crate) fn timed_out(limit: Duration) -> Failure {
    let failure = Failure::new(FailureClass::TransientInfra, format!("timed out after {limit:?}"));
    Failure { details: Some("raise its `timeout` if it needs longer".to_owned()), ..failure }
}

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fabro_types::{FailureClass, Usage};
use tokio::time::Instant;

use crate::{ErrorKind, Model, ModelError, Part, Reply, Request, collect};

/// When a failed request is retried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// All requests to one model, the first included.
    pub tries: u32,
    /// The delay before the first retry.
    pub first: Duration,
    /// How much longer each delay is than the one before.
    pub factor: f64,
    /// The longest delay. When a provider asks for a longer one, the request is not retried.
    pub cap: Duration,
    /// Delays vary by up to half of their length, so that requests which were refused together are not
    /// retried together. Delays that the provider asks for do not vary.
    pub jitter: bool,
}

impl Default for RetryPolicy {
    /// Three tries; one second, twice as long each time, at most a minute, with jitter.
    fn default() -> Self {
        Self {
            tries: 3,
            first: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_mins(1),
            jitter: true,
        }
    }
}

impl RetryPolicy {
    /// One try, no retry.
    pub fn none() -> Self {
        Self { tries: 1, ..Self::default() }
    }

    /// The delay after the `failed`th failed try, counted from 1; `None` to give up.
    fn delay(&self, error: &ModelError, failed: u32, seed: u64) -> Option<Duration> {
        if failed >= self.tries || error.class() != FailureClass::TransientInfra {
            return None;
        }
        if let Some(asked) = error.retry_after {
            return (asked <= self.cap).then_some(asked);
        }
        let exponent = i32::try_from(failed - 1).unwrap_or(i32::MAX);
        let jitter = if self.jitter { 0.5 + fraction(seed, failed) } else { 1.0 };
        let seconds = self.first.as_secs_f64() * self.factor.powi(exponent) * jitter;
        // Settings that give no valid number of seconds: the longest.
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or(self.cap);
        Some(delay.min(self.cap))
    }
}

/// Another model to use when the first one fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fallback {
    /// The provider; `None` lets the model's name decide.
    pub provider: Option<String>,
    /// The model; `None` leaves the choice to the provider.
    pub model: Option<String>,
}

impl Fallback {
    /// A model by its name, `provider/model`, or a provider alone: the routing of the request decides
    /// which it is.
    pub fn new(name: impl Into<String>) -> Self {
        Self { provider: None, model: Some(name.into()) }
    }
}

impl std::fmt::Display for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.provider, &self.model) {
            (Some(provider), Some(model)) => write!(f, "{provider}/{model}"),
            (Some(name), None) | (None, Some(name)) => f.write_str(name),
            (None, None) => f.write_str("the default"),
        }
    }
}

/// How long a model that was given up is not asked again, unless all others fail too.
const REST: Duration = Duration::from_mins(5);

/// Models that were given up for another one a short time ago. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct RestingModels(Arc<Mutex<BTreeMap<Fallback, Instant>>>);

impl RestingModels {
    /// Leaves it alone for [`REST`], or longer where its provider says so.
    fn rest(&self, model: &Fallback, asked: Option<Duration>) {
        let until = Instant::now().checked_add(REST.max(asked.unwrap_or_default()));
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        models.extend(until.map(|until| (model.clone(), until)));
    }

    fn wake(&self, model: &Fallback) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(model);
    }

    fn is_resting(&self, model: &Fallback) -> bool {
        let models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        models.get(model).is_some_and(|until| Instant::now() < *until)
    }
}

/// Retries and failover of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestPolicy {
    /// Retries with the same model.
    pub retry: RetryPolicy,
    /// The models to use after that, in order.
    pub fallbacks: Vec<Fallback>,
    /// The seed of the jitter.
    pub seed: u64,
    /// Models that are asked last for now.
    pub resting: RestingModels,
}

/// What happens during [`ask`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A piece of the answer. When [`Progress::Retrying`] or [`Progress::Failover`] follows, the
    /// pieces so far are discarded.
    Part(&'a Part),
    /// The request failed and is retried.
    Retrying {
        /// Why it failed.
        error: &'a ModelError,
        /// The delay before the retry.
        wait: Duration,
        /// The request that failed, counted from 1 for each model.
        failed: u32,
    },
    /// The next model is used.
    Failover {
        /// The next model.
        to: &'a Fallback,
        /// Why the last request failed.
        error: &'a ModelError,
    },
}

/// Gets one whole turn from a model, with retries and failover.
///
/// Transient failures ([`FailureClass::TransientInfra`]) are retried, among them a stream that broke
/// off; a partial answer is discarded. When retries are used up, or the key, the quota or the model's name
/// is the problem, each fallback is used in order, with its own retries. A failure that the request itself
/// caused (it is invalid, too long, or filtered) ends this without failover.
///
/// A model that was given up rests for five minutes, or for as long as its provider said: requests with
/// the same [`RestingModels`] begin with the next one, and ask it only when all others fail.
///
/// The usage of an answer and of an error is that of all requests made.
///
/// # Errors
///
/// The error of the first model; where fallbacks failed too, the first transient one of all their
/// errors, with the messages of the others.
pub async fn ask(
    model: &(impl Model + ?Sized),
    mut request: Request,
    policy: &RequestPolicy,
    mut watch: impl FnMut(Progress<'_>) + Send,
) -> Result<Reply, ModelError> {
    let mut used = Usage::default();
    let mut errors: Vec<ModelError> = Vec::new();
    let first = Fallback { provider: request.provider.take(), model: request.model.take() };
    let models = in_order(first, policy);
    for (number, at) in models.iter().enumerate() {
        request.provider.clone_from(&at.provider);
        request.model.clone_from(&at.model);
        let error = match with_retries(model, &request, policy, &mut used, &mut watch).await {
            Ok(mut reply) => {
                policy.resting.wake(at);
                used.add(&reply.usage);
                reply.usage = used;
                return Ok(reply);
            }
            Err(error) => error,
        };
        let may_fail_over = may_fail_over(error.kind);
        if may_fail_over && !policy.fallbacks.is_empty() {
            policy.resting.rest(at, error.retry_after);
        }
        let next = models.get(number + 1).filter(|_| may_fail_over);
        if let Some(to) = next {
            watch(Progress::Failover { to, error: &error });
        }
        let is_last = next.is_none();
        errors.push(error);
        if is_last {
            break;
        }
    }
    Err(combined(errors, used))
}

/// The models to ask: those that rest last.
fn in_order(first: Fallback, policy: &RequestPolicy) -> Vec<Fallback> {
    let all = std::iter::once(first).chain(policy.fallbacks.iter().cloned());
    let (resting, mut models): (Vec<_>, Vec<_>) = all.partition(|it| policy.resting.is_resting(it));
    models.extend(resting);
    models
}

/// Sends a request to one model until it answers or the retries are used up.
async fn with_retries(
    model: &(impl Model + ?Sized),
    request: &Request,
    policy: &RequestPolicy,
    used: &mut Usage,
    watch: &mut (impl FnMut(Progress<'_>) + Send),
) -> Result<Reply, ModelError> {
    let mut failed = 0;
    loop {
        let stream = model.stream(request.clone());
        let error = match collect(stream, |part| watch(Progress::Part(part))).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        failed += 1;
        used.add(&error.usage);
        let Some(wait) = policy.retry.delay(&error, failed, policy.seed) else {
            return Err(error);
        };
        watch(Progress::Retrying { error: &error, wait, failed });
        tokio::time::sleep(wait).await;
    }
}

fn may_fail_over(kind: ErrorKind) -> bool {
    kind.class() == FailureClass::TransientInfra
        || matches!(kind, ErrorKind::Auth | ErrorKind::Quota | ErrorKind::UnknownModel)
}

fn combined(errors: Vec<ModelError>, usage: Usage) -> ModelError {
    let is_transient = |error: &ModelError| error.class() == FailureClass::TransientInfra;
    let chosen = errors.iter().position(is_transient).unwrap_or(0);
    let messages: Vec<_> = errors.iter().map(|error| error.message.clone()).collect();
    let error = errors.into_iter().nth(chosen);
    let error = error.unwrap_or_else(|| ModelError::new(ErrorKind::BrokenStream));
    let message = match messages.split_first() {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{first}; the fallbacks failed too: {}", rest.join("; "))
        }
        _ => error.message.clone(),
    };
    ModelError { message, usage: Box::new(usage), ..error }
}

/// A number from 0 up to 1 that follows from the seed (`SplitMix64`).
fn fraction(seed: u64, failed: u32) -> f64 {
    let step = u64::from(failed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut bits = seed.wrapping_add(step);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;

use std::time::Duration;

use fabro_types::{FailureClass, Usage};

use crate::{ErrorKind, Model, ModelError, Part, Reply, Request, collect};

/// When to ask again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Requests in all to one model, the first included.
    pub tries: u32,
    /// The wait after the first failed one.
    pub first: Duration,
    /// How much longer each wait is than the one before.
    pub factor: f64,
    /// The longest wait. A provider that asks for a longer one is not asked again.
    pub cap: Duration,
    /// Waits are made up to half as long again, or as short, so that many who were refused together
    /// do not come back together. Not those that the provider asks for.
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
    /// One try.
    pub fn none() -> Self {
        Self { tries: 1, ..Self::default() }
    }

    /// The wait after the `failed`th failed try, counted from 1; `None` to give up.
    fn wait(&self, error: &ModelError, failed: u32, seed: u64) -> Option<Duration> {
        if failed >= self.tries || error.class() != FailureClass::TransientInfra {
            return None;
        }
        if let Some(asked) = error.retry_after {
            return (asked <= self.cap).then_some(asked);
        }
        let exponent = i32::try_from(failed - 1).unwrap_or(i32::MAX);
        let jitter = if self.jitter { 0.5 + fraction(seed, failed) } else { 1.0 };
        let seconds = self.first.as_secs_f64() * self.factor.powi(exponent) * jitter;
        // Not a number of seconds at all: the longest.
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or(self.cap);
        Some(wait.min(self.cap))
    }
}

/// Another model to ask when the first one cannot be had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fallback {
    /// The provider; `None` lets the model's name decide.
    pub provider: Option<String>,
    /// The model; `None` leaves the choice to the provider.
    pub model: Option<String>,
}

impl Fallback {
    /// A model by its name, `provider/model`, or a provider alone: whoever routes the request knows
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

/// How hard to try.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asking {
    /// When to ask the same model again.
    pub retry: RetryPolicy,
    /// Whom to ask after that, in order.
    pub fallbacks: Vec<Fallback>,
    /// Varies the waits: the same seed makes the same ones.
    pub seed: u64,
}

/// What happens while a model is asked.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A piece of the answer. When [`Progress::Retrying`] or [`Progress::Failover`] follows, the
    /// pieces so far are void.
    Part(&'a Part),
    /// The request failed and is made again.
    Retrying {
        /// Why it failed.
        error: &'a ModelError,
        /// After this time.
        wait: Duration,
        /// The request that failed, counted from 1 for each model.
        failed: u32,
    },
    /// The model is given up for another one.
    Failover {
        /// The other one.
        to: &'a Fallback,
        /// Why the last request failed.
        error: &'a ModelError,
    },
}

/// Asks a model for one whole turn: again when that may help, then others.
///
/// Failures that pass ([`FailureClass::TransientInfra`]) are tried again, a stream that broke off
/// among them; half an answer is dropped. When that does not help, or the key or the quota is the
/// matter, each fallback is asked in turn, with tries of its own. What the request itself brought
/// about (it is invalid, too long, or filtered) is not asked of anybody else.
///
/// The usage of an answer and of an error is that of all requests made. [`Origin::taken`] of the
/// request counts on for the asking node with every one that failed.
///
/// # Errors
///
/// The error of the model that was to be asked; where fallbacks failed too, the first of all these
/// errors that may pass, with what the others said.
///
/// [`Origin::taken`]: crate::Origin::taken
pub async fn ask(
    model: &(impl Model + ?Sized),
    mut request: Request,
    asking: &Asking,
    mut watch: impl FnMut(Progress<'_>) + Send,
) -> Result<Reply, ModelError> {
    let mut used = Usage::default();
    let mut errors: Vec<ModelError> = Vec::new();
    let mut fallbacks = asking.fallbacks.iter();
    loop {
        let error = match persist(model, &mut request, asking, &mut used, &mut watch).await {
            Ok(mut reply) => {
                used.add(&reply.usage);
                reply.usage = used;
                return Ok(reply);
            }
            Err(error) => error,
        };
        let next = if others_may_help(error.kind) { fallbacks.next() } else { None };
        if let Some(to) = next {
            watch(Progress::Failover { to, error: &error });
            request.provider.clone_from(&to.provider);
            request.model.clone_from(&to.model);
            errors.push(error);
        } else {
            errors.push(error);
            return Err(summed_up(errors, used));
        }
    }
}

/// Asks one model until it answers or it is no use.
async fn persist(
    model: &(impl Model + ?Sized),
    request: &mut Request,
    asking: &Asking,
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
        let node = request.origin.node.clone();
        *request.origin.taken.entry(node).or_default() += 1;
        let Some(wait) = asking.retry.wait(&error, failed, asking.seed) else { return Err(error) };
        watch(Progress::Retrying { error: &error, wait, failed });
        tokio::time::sleep(wait).await;
    }
}

fn others_may_help(kind: ErrorKind) -> bool {
    kind.class() == FailureClass::TransientInfra
        || matches!(kind, ErrorKind::Auth | ErrorKind::Quota)
}

fn summed_up(errors: Vec<ModelError>, usage: Usage) -> ModelError {
    let passes = |error: &ModelError| error.class() == FailureClass::TransientInfra;
    let chosen = errors.iter().position(passes).unwrap_or(0);
    let messages: Vec<_> = errors.iter().map(|error| error.message.clone()).collect();
    let error = errors.into_iter().nth(chosen);
    let error = error.unwrap_or_else(|| ModelError::new(ErrorKind::BrokenStream));
    let message = match messages.split_first() {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{first}; the fallbacks failed too: {}", rest.join("; "))
        }
        _ => error.message.clone(),
    };
    ModelError { message, usage, ..error }
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

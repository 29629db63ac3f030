use std::time::Duration;

use fabro_types::{Failure, FailureClass, Usage};
use serde::Deserialize;

/// A turn that failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ModelError {
    /// What went wrong; decides how the failure is treated.
    pub kind: ErrorKind,
    /// The same as a sentence.
    pub message: String,
    /// How long to wait before the next request, where the provider says so.
    pub retry_after: Option<Duration>,
    /// What was used: one failed request for each try, and its tokens where they are known.
    pub usage: Box<Usage>,
}

impl ModelError {
    /// An error of this kind, with the kind's own message.
    pub fn new(kind: ErrorKind) -> Self {
        Self {
            kind,
            message: kind.message().to_owned(),
            retry_after: None,
            usage: Box::new(Usage { failed_requests: 1, ..Usage::default() }),
        }
    }

    /// The same error with another message.
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// How the failure is treated.
    pub fn class(&self) -> FailureClass {
        self.kind.class()
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        let class = error.class();
        let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Self {
            retry_after_ms: error.retry_after.map(millis),
            unavailable: error.kind.remedy().map(str::to_owned),
            ..Self::new(class, error.message)
        }
    }
}

/// What went wrong in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// Too many requests.
    RateLimit,
    /// The provider cannot take the request now.
    Overloaded,
    /// No answer, or the rest of it, in time.
    Timeout,
    /// No connection: no such host, or it refuses.
    Unreachable,
    /// The key is missing, wrong or not authorized.
    Auth,
    /// The account has no quota or credit left.
    Quota,
    /// The provider does not know the model, or there is no such address.
    UnknownModel,
    /// The conversation is larger than the model's context window.
    ContextOverflow,
    /// The provider refuses to answer this.
    ContentFilter,
    /// The provider refuses the request as invalid.
    InvalidRequest,
    /// The answer stopped in the middle: the connection broke, or the provider ended it.
    BrokenStream,
    /// The answer is whole, but of no use: it is not valid, or the model failed to make it.
    UnusableAnswer,
    /// The answer, or one event of it, is larger than the limit.
    TooLarge,
    /// The script has no answer for the node.
    #[serde(skip)]
    Script,
}

impl ErrorKind {
    /// How a failure of this kind is treated.
    pub fn class(self) -> FailureClass {
        match self {
            Self::RateLimit
            | Self::Overloaded
            | Self::Timeout
            | Self::Unreachable
            | Self::BrokenStream
            | Self::UnusableAnswer => FailureClass::TransientInfra,
            Self::Quota | Self::ContextOverflow => FailureClass::BudgetExhausted,
            Self::Auth
            | Self::UnknownModel
            | Self::ContentFilter
            | Self::InvalidRequest
            | Self::TooLarge
            | Self::Script => FailureClass::Deterministic,
        }
    }

    /// Its name in records and settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimit => "rate_limit",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::UnknownModel => "unknown_model",
            Self::ContextOverflow => "context_overflow",
            Self::ContentFilter => "content_filter",
            Self::InvalidRequest => "invalid_request",
            Self::BrokenStream => "broken_stream",
            Self::UnusableAnswer => "unusable_answer",
            Self::TooLarge => "too_large",
            Self::Script => "script",
        }
    }

    /// What to do when the model could not be asked at all; `None` for an error of the request or of
    /// its answer.
    pub fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Self::RateLimit | Self::Overloaded | Self::Timeout | Self::BrokenStream => {
                "wait and ask again, or add a fallback model"
            }
            Self::Unreachable => "check the network and the provider's base_url",
            Self::Auth => {
                "set a valid key in the provider's environment variable, or name the variable by `api_key_env`"
            }
            Self::Quota => "add credit at the provider, or use another one",
            Self::UnknownModel => "correct the model's name, or the provider's base_url",
            Self::Script => "add turns for the node, or for `*`, to the model script",
            Self::ContextOverflow
            | Self::ContentFilter
            | Self::InvalidRequest
            | Self::UnusableAnswer
            | Self::TooLarge => return None,
        })
    }

    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::RateLimit => "the model's rate limit is reached: try again later",
            Self::Overloaded => "the model's server is overloaded or has failed: try again later",
            Self::Timeout => "the model did not answer in time: try again later",
            Self::Unreachable => "the model's provider cannot be reached: check its address",
            Self::Auth => "the model's provider refused the key: check it",
            Self::Quota => "the quota at the model's provider is used up: raise it",
            Self::UnknownModel => "the model's provider does not know the model or the address",
            Self::ContextOverflow => {
                "the conversation exceeds the model's context window: shorten it, or choose a larger model"
            }
            Self::ContentFilter => "the model's provider refused to answer: change the prompt",
            Self::InvalidRequest => "the model's provider refused the request as invalid",
            Self::BrokenStream => "the model's answer stopped before its end: try again",
            Self::UnusableAnswer => "the model's answer cannot be used: try again",
            Self::TooLarge => "the model's answer is too large: check the provider",
            Self::Script => "the model script has no turns for this node: add some",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_classes() {
        let kinds = [
            ErrorKind::RateLimit,
            ErrorKind::Overloaded,
            ErrorKind::Timeout,
            ErrorKind::Unreachable,
            ErrorKind::Auth,
            ErrorKind::Quota,
            ErrorKind::UnknownModel,
            ErrorKind::ContextOverflow,
            ErrorKind::ContentFilter,
            ErrorKind::InvalidRequest,
            ErrorKind::BrokenStream,
            ErrorKind::UnusableAnswer,
            ErrorKind::TooLarge,
            ErrorKind::Script,
        ];
        for kind in kinds.iter().filter(|kind| **kind != ErrorKind::Script) {
            assert_eq!(serde_json::from_value::<ErrorKind>(kind.as_str().into()).unwrap(), *kind);
        }
        let lines = kinds.map(|kind| {
            let mark = if kind.remedy().is_some() { " unavailable" } else { "" };
            format!("{} {}{mark}", kind.as_str(), kind.class())
        });
        insta::assert_snapshot!(lines.join("\n"), @r"
        rate_limit transient_infra unavailable
        overloaded transient_infra unavailable
        timeout transient_infra unavailable
        unreachable transient_infra unavailable
        auth deterministic unavailable
        quota budget_exhausted unavailable
        unknown_model deterministic unavailable
        context_overflow budget_exhausted
        content_filter deterministic
        invalid_request deterministic
        broken_stream transient_infra unavailable
        unusable_answer transient_infra
        too_large deterministic
        script deterministic unavailable
        ");
    }

    #[test]
    fn a_failure_keeps_retry_after() {
        let mut error = ModelError::new(ErrorKind::RateLimit).with_message("429");
        error.retry_after = Some(Duration::from_millis(1500));
        let failure = Failure::from(error);
        assert_eq!(failure.retry_after_ms, Some(1500));
        assert_eq!(failure.to_string(), "429 (transient_infra)");
    }
}

use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

/// Somebody who writes summaries: a model, as a rule the one whose conversation it is.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait Summarize: Send + Sync {
    /// Answers the request with the text of a summary. Nothing but the answer is asked for: no
    /// stream and no tools.
    ///
    /// # Errors
    ///
    /// When there is no answer. The conversation stays as it is then.
    async fn summarize(&self, request: SummaryRequest<'_>) -> Result<String, SummarizeError>;
}

/// What a summary is asked for with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryRequest<'a> {
    /// What to write: the system prompt of the call.
    pub instructions: &'a str,
    /// The messages to summarise, written down: the user's message of the call.
    pub conversation: &'a str,
    /// The most tokens that the summary should have.
    pub max_output_tokens: u64,
}

/// Why there is no summary.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct SummarizeError {
    /// What happened, as a fragment of a sentence.
    pub message: String,
    /// The failure itself.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl SummarizeError {
    /// A failure that only has words.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// The failure of a model's client, with its own words as the message.
    pub fn from_source(source: impl Error + Send + Sync + 'static) -> Self {
        Self { message: source.to_string(), source: Some(Box::new(source)) }
    }
}

#[async_trait]
impl<S: Summarize + ?Sized> Summarize for &S {
    async fn summarize(&self, request: SummaryRequest<'_>) -> Result<String, SummarizeError> {
        (**self).summarize(request).await
    }
}

#[async_trait]
impl<S: Summarize + ?Sized> Summarize for Arc<S> {
    async fn summarize(&self, request: SummaryRequest<'_>) -> Result<String, SummarizeError> {
        (**self).summarize(request).await
    }
}

/// Summaries by a function that need not wait: for tests, and for what is no model.
#[derive(Clone, Copy, Debug)]
pub struct SummarizeWith<F>(pub F);

#[async_trait]
impl<F> Summarize for SummarizeWith<F>
where
    F: Fn(SummaryRequest<'_>) -> Result<String, SummarizeError> + Send + Sync,
{
    async fn summarize(&self, request: SummaryRequest<'_>) -> Result<String, SummarizeError> {
        (self.0)(request)
    }
}

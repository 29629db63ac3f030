use std::error::Error;

use async_trait::async_trait;

/// Writes summaries, as a rule with the model of the conversation itself.
///
/// A function or closure `|request| async move { … }` is one; a type implements it under
/// `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait Summarize: Send + Sync {
    /// Replies with the text of a summary, without streaming and without tools.
    ///
    /// # Errors
    ///
    /// When the call fails. The conversation stays as it is; after an overflow a deterministic
    /// summary takes its place.
    async fn summarize(&self, request: SummaryRequest) -> Result<String, SummarizeError>;
}

/// A request to a model for a summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRequest {
    /// What to write: the system prompt of the call.
    pub instructions: &'static str,
    /// The messages to summarise, as text: the user message of the call.
    pub conversation: String,
    /// The most tokens that the summary should have.
    pub max_output_tokens: u64,
}

/// Why a summary failed: the error of the model's client, or a string.
pub type SummarizeError = Box<dyn Error + Send + Sync>;

#[async_trait]
impl<F, R> Summarize for F
where
    F: Fn(SummaryRequest) -> R + Send + Sync,
    R: Future<Output = Result<String, SummarizeError>> + Send,
{
    async fn summarize(&self, request: SummaryRequest) -> Result<String, SummarizeError> {
        self(request).await
    }
}

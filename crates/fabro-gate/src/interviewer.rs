use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use fabro_events::{GateOption, QuestionType, ShownText, default_option};
use fabro_types::RunId;

use crate::{GateAnswer, NoMatch, match_answer};

/// The default answer where only free text is accepted.
const APPROVAL: &str = "approved";

/// Answers questions: a person, a file, a default.
///
/// Implement it under `#[async_trait]`, of the crate `async-trait` 0.1.
#[async_trait]
pub trait Interviewer: Send + Sync {
    /// Asks once and waits for the answer, which may take days; dropping the future withdraws the
    /// question.
    ///
    /// The answer is the raw text. The caller matches it with [`match_answer`](crate::match_answer), and
    /// asks again when it does not match.
    ///
    /// # Errors
    ///
    /// The person postponed the answer, or the prompt failed. An interviewer without a person replies
    /// [`Reply::Unavailable`] instead.
    async fn ask(&self, question: &Question) -> Result<Reply, AskError>;
}

#[async_trait]
impl<I: Interviewer + ?Sized> Interviewer for Arc<I> {
    async fn ask(&self, question: &Question) -> Result<Reply, AskError> {
        (**self).ask(question).await
    }
}

/// The question of a gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The gate.
    pub node: Arc<str>,
    /// Which visit of it, from 1.
    pub visit: u32,
    /// The branch of a fan-out it stands in; `None` on the main line.
    pub branch: Option<Arc<str>>,
    /// The stage whose sub-workflow asks, `[BRANCH/]NODE@VISIT`; `None` outside of sub-workflows.
    pub within: Option<String>,
    /// The question itself.
    pub text: String,
    /// The list element that it asks about.
    pub item: Option<String>,
    /// The failures before it.
    pub failures: Vec<String>,
    /// The texts that are displayed with the question.
    pub show: Vec<ShownText>,
    /// Its run, where the full texts can be read.
    pub run: Option<RunId>,
    /// How it is asked.
    pub question_type: QuestionType,
    /// The options, in the order of the edges, without the freeform edge.
    pub options: Vec<GateOption>,
    /// Free text is accepted too, by a freeform edge.
    pub freeform: bool,
    /// That edge; its key is empty where only a text chooses it.
    pub text_option: Option<GateOption>,
    /// The default option, by its target, key or label.
    pub default_choice: Option<Arc<str>>,
    /// When the gate takes the default, or fails without one.
    pub deadline: Option<Instant>,
}

impl Question {
    /// The answer that a text is: see [`match_answer`].
    ///
    /// # Errors
    ///
    /// The text is not an answer to this question.
    pub fn read(&self, text: &str) -> Result<GateAnswer, NoMatch> {
        let text_option = self.text_option.as_ref();
        match_answer(&self.options, self.freeform, text_option, self.question_type, text)
    }
}

/// The reply to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An answer.
    Answer {
        /// Its text, as it was given.
        text: String,
        /// Where it came from: `terminal`, `answers`, `auto`, ….
        source: &'static str,
    },
    /// Not answered: there is no person, or no answer left.
    Unavailable,
}

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The person pressed Escape or Ctrl-C.
    #[error("question interrupted: answer it later")]
    Interrupted,
    /// The terminal failed.
    #[error("ask at the terminal: {reason}")]
    Terminal {
        /// The system error.
        reason: String,
    },
}

/// Answers every question immediately: with the default choice, else the first option that can be
/// chosen, else, where only free text is accepted, `approved`. The source is `auto`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AutoApprove;

#[async_trait]
impl Interviewer for AutoApprove {
    async fn ask(&self, question: &Question) -> Result<Reply, AskError> {
        let only_text = question.question_type == QuestionType::Freeform && !question.freeform;
        let options = if only_text { &[] } else { question.options.as_slice() };
        let is_available = |option: &&GateOption| option.unavailable.is_none();
        let text_option = question.text_option.as_ref().filter(|_| !only_text);
        let default = default_option(options, text_option, question.default_choice.as_deref());
        let first = || options.iter().find(is_available);
        let chosen = default.filter(is_available).or_else(first);
        let takes_text = only_text || question.freeform;
        let text = match chosen {
            Some(option) => option.key.clone(),
            None if takes_text => APPROVAL.to_owned(),
            None => return Ok(Reply::Unavailable),
        };
        Ok(Reply::Answer { text, source: "auto" })
    }
}

/// Never answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unavailable;

#[async_trait]
impl Interviewer for Unavailable {
    async fn ask(&self, _question: &Question) -> Result<Reply, AskError> {
        Ok(Reply::Unavailable)
    }
}

/// Asks the first, and falls back to the second when the first is unavailable.
#[derive(Clone, Copy, Debug)]
pub struct Chain<A, B>(
    /// Asked first.
    pub A,
    /// Asked when the first one is unavailable.
    pub B,
);

#[async_trait]
impl<A: Interviewer, B: Interviewer> Interviewer for Chain<A, B> {
    async fn ask(&self, question: &Question) -> Result<Reply, AskError> {
        match self.0.ask(question).await? {
            Reply::Unavailable => self.1.ask(question).await,
            answer @ Reply::Answer { .. } => Ok(answer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;

    async fn auto(question: Question) -> GateAnswer {
        match Chain(Unavailable, AutoApprove).ask(&question).await.unwrap() {
            Reply::Answer { text, source: "auto" } => question.read(&text).unwrap(),
            reply => panic!("{reply:?}"),
        }
    }

    #[tokio::test]
    async fn the_default_goes_before_the_first() {
        let options = options([("[N] No", "a"), ("Approved", "b")]);
        let question = Question { options, ..Question::default() };
        assert_eq!(auto(question.clone()).await, GateAnswer::Option(0));
        let default_choice = Some("b".into());
        assert_eq!(
            auto(Question { default_choice, ..question.clone() }).await,
            GateAnswer::Option(1)
        );
        let default_choice = Some("elsewhere".into());
        let elsewhere = Question { default_choice, ..question };
        assert_eq!(auto(elsewhere.clone()).await, GateAnswer::Option(0));
        let mut closed = Question { default_choice: Some("a".into()), ..elsewhere };
        closed.options[0].unavailable = Some("x".to_owned());
        assert_eq!(auto(closed).await, GateAnswer::Option(1));
    }

    #[tokio::test]
    async fn every_type_of_question_gets_a_matching_answer() {
        let options = options([("", "next"), ("", "north")]);
        let ask = |question_type, freeform| {
            let options = options.clone();
            auto(Question { question_type, options, freeform, ..Question::default() })
        };
        assert_eq!(ask(QuestionType::YesNo, false).await, GateAnswer::Option(0));
        assert_eq!(ask(QuestionType::MultiSelect, false).await, GateAnswer::Options(vec![0]));
        assert_eq!(ask(QuestionType::Freeform, true).await, GateAnswer::Option(0));
        assert_eq!(
            ask(QuestionType::Freeform, false).await,
            GateAnswer::Text("approved".to_owned())
        );
        let none = Question { freeform: true, ..Question::default() };
        assert_eq!(auto(none).await, GateAnswer::Text("approved".to_owned()));
    }

    #[tokio::test]
    async fn a_chain_ends_unavailable() {
        let unavailable: Arc<dyn Interviewer> = Arc::new(Unavailable);
        let chain: Arc<dyn Interviewer> = Arc::new(Chain(unavailable, Unavailable));
        assert_eq!(chain.ask(&Question::default()).await.unwrap(), Reply::Unavailable);
    }
}

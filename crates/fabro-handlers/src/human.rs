//! Human gates: the outgoing edges are the options, and the first answer decides.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fabro_engine::{Context, Handler, InboxId, Message, ReportError, Stage, StageEnd, keys};
use fabro_events::{EventBody, PauseReason, QuestionType};
use fabro_gate::{
    AskError, GateAnswer, Interviewer, NoMatch, Question, Reply, match_answer, options,
};
use fabro_redact::Redactor;
use fabro_types::{Failure, FailureClass, Outcome, strip_accelerator};

use crate::common::{canceled, text_of, warn};

/// Asks people.
pub struct HumanHandler {
    interviewer: Arc<dyn Interviewer>,
    redactor: Redactor,
}

impl HumanHandler {
    /// Questions go to `interviewer`, and to any process that answers through the run's inbox; free
    /// text is redacted before it is recorded.
    pub fn new(interviewer: Arc<dyn Interviewer>, redactor: Redactor) -> Self {
        Self { interviewer, redactor }
    }

    /// What a text means here, without the secrets in it.
    fn read(&self, gate: &Gate, text: &str) -> Result<GateAnswer, NoMatch> {
        match gate.read(text) {
            Ok(GateAnswer::Text(text)) => {
                Ok(GateAnswer::Text(self.redactor.redact(&text).into_owned()))
            }
            Ok(chosen) => Ok(chosen),
            Err(mut no_match) => {
                no_match.answer = self.redactor.redact(&no_match.answer).into_owned();
                Err(no_match)
            }
        }
    }
}

/// An answer that is not recorded yet.
struct ReceivedAnswer {
    text: String,
    source: String,
    inbox_id: Option<InboxId>,
}

#[async_trait]
impl Handler for HumanHandler {
    async fn execute(&self, mut stage: Stage) -> StageEnd {
        let gate = Gate::of(&stage);
        if gate.question.options.is_empty() && !gate.takes_text() {
            let message = "the gate has no edge to choose: add one with a label";
            return Failure::new(FailureClass::Structural, message).into();
        }
        if let Some(text) = &stage.at.gate_answer
            && let Ok(answer) = gate.read(text)
        {
            return gate.chosen(&answer).outcome(&stage.context).into();
        }
        let asked_ms = stage.at.gate_asked_ms.unwrap_or(stage.started_ms);
        let limit = stage.spec().timeout.filter(|limit| !limit.is_zero());
        let deadline_ms = limit.map(|limit| asked_ms.saturating_add(millis(limit)));
        let is_new = stage.at.gate_asked_ms.is_none();
        if is_new && stage.reporter.report(gate.asked(deadline_ms)).await.is_err() {
            return canceled().into();
        }
        let left = deadline_ms.map(|deadline| {
            Duration::from_millis(u64::try_from(deadline - stage.started_ms).unwrap_or_default())
        });
        let mut timer = std::pin::pin!(sleep_or_forever(left));
        let cancel = stage.cancel.clone();
        let mut ask = true;
        loop {
            let asking = async {
                if ask { self.interviewer.ask(&gate.question).await } else { pending().await }
            };
            let received = tokio::select! {
                biased;
                () = cancel.cancelled() => return canceled().into(),
                answer = next_answer(&mut stage) => match answer {
                    Some(answer) => answer,
                    None => return canceled().into(),
                },
                () = timer.as_mut() => {
                    timer.set(sleep_or_forever(None));
                    let Some(chosen) = gate.by_default(limit) else {
                        return timed_out(limit).into();
                    };
                    if let Some(end) = settle(&stage, chosen, "timeout".to_owned(), None).await {
                        return end;
                    }
                    ask = false;
                    continue;
                }
                reply = asking => {
                    if let Err(error @ AskError::Terminal { .. }) = &reply {
                        warn(&stage.reporter, "gate", error.to_string()).await;
                    }
                    match reply {
                        Ok(Reply::Answer { text, source }) => {
                            ReceivedAnswer { text, source: source.to_owned(), inbox_id: None }
                        }
                        // No person is here, but there is time for an answer from elsewhere.
                        Ok(Reply::Unavailable) | Err(AskError::Terminal { .. })
                            if limit.is_some() =>
                        {
                            ask = false;
                            continue;
                        }
                        Ok(Reply::Unavailable) | Err(_) => {
                            match stage.messages.try_recv().ok().and_then(received) {
                                Some(answer) => answer,
                                None => return StageEnd::Suspended(PauseReason::Human),
                            }
                        }
                    }
                }
            };
            let ReceivedAnswer { text, source, inbox_id } = received;
            let answer = match self.read(&gate, &text) {
                Ok(answer) => answer,
                Err(no_match) => {
                    warn(&stage.reporter, "gate", no_match.to_string()).await;
                    let Some(inbox_id) = inbox_id else { continue };
                    // Asked again, the gate takes another answer in place of this one.
                    let asked = vec![gate.asked(deadline_ms).into()];
                    match stage.reporter.record(asked, Vec::new(), vec![inbox_id]).await {
                        Ok(()) => continue,
                        Err(_) => return canceled().into(),
                    }
                }
            };
            match settle(&stage, gate.chosen(&answer), source, inbox_id).await {
                Some(end) => return end,
                None => ask = false,
            }
        }
    }
}

/// Records what was chosen; `None` when another answer won the race, which the mailbox brings.
async fn settle(
    stage: &Stage,
    chosen: GateChoice,
    source: String,
    inbox_id: Option<InboxId>,
) -> Option<StageEnd> {
    let answer = vec![chosen.event(source).into()];
    match stage.reporter.record(answer, Vec::new(), inbox_id.into_iter().collect()).await {
        Ok(()) => Some(chosen.outcome(&stage.context).into()),
        Err(ReportError::AlreadyAnswered) => None,
        Err(_) => Some(canceled().into()),
    }
}

/// The failure of a gate without an answer and without a default.
fn timed_out(limit: Option<Duration>) -> Failure {
    Failure::new(FailureClass::TransientInfra, no_answer(limit))
}

fn no_answer(limit: Option<Duration>) -> String {
    format!("no answer within {:?}", limit.unwrap_or_default())
}

/// The next answer from outside; other messages are not for gates.
async fn next_answer(stage: &mut Stage) -> Option<ReceivedAnswer> {
    loop {
        if let Some(received) = received(stage.messages.recv().await?) {
            return Some(received);
        }
    }
}

fn received((id, message): (InboxId, Message)) -> Option<ReceivedAnswer> {
    match message {
        Message::Answer { choice, source, .. } => {
            Some(ReceivedAnswer { text: choice, source, inbox_id: Some(id) })
        }
        _ => None,
    }
}

async fn sleep_or_forever(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => pending().await,
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A gate: its question, and what each answer means.
pub struct Gate {
    question: Question,
    /// The labels of the options' edges; empty where an edge has none.
    labels: Vec<String>,
    /// Label and target of the edge for free text.
    freeform: Option<(String, Arc<str>)>,
}

/// What an answer to a gate means for its stage.
pub struct GateChoice {
    key: String,
    label: String,
    text: Option<String>,
    preferred: Option<String>,
    next: Vec<String>,
    notes: Option<String>,
}

impl Gate {
    /// The gate of this stage.
    pub fn of(stage: &Stage) -> Self {
        let node = stage.spec();
        let mut freeform = None;
        let mut choices = Vec::new();
        let mut unnamed = Vec::new();
        let own = stage.plan.node(&node.id);
        for edge in own.into_iter().flat_map(|(ix, _)| stage.plan.outgoing(ix)) {
            let label = edge.label.as_deref().unwrap_or_default();
            let to = Arc::clone(&stage.plan.spec(edge.to).id);
            if edge.freeform {
                freeform = Some((strip_accelerator(label).to_owned(), to));
            } else if edge.condition.is_none() || !label.is_empty() {
                choices.push((label, to));
            } else {
                unnamed.push((label, to));
            }
        }
        // Edges that have nothing but a condition are for the result of the gate, such as a timeout,
        // unless there is nothing else to choose.
        if choices.is_empty() && freeform.is_none() {
            choices = unnamed;
        }
        let preview = preview(stage);
        let labels = choices.iter().map(|(label, _)| strip_accelerator(label).to_owned()).collect();
        let question = Question {
            node: Arc::clone(&node.id),
            visit: stage.at.visit,
            branch: stage.branch.clone(),
            text: node.label.to_string(),
            preview,
            question_type: node
                .human()
                .map_or(QuestionType::MultipleChoice, |human| human.question_type),
            options: options(choices),
            freeform: freeform.is_some(),
            default_choice: node.human().and_then(|human| human.default_choice.clone()),
        };
        Self { question, labels, freeform }
    }

    /// The question.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// The answer that a text is.
    pub fn read(&self, text: &str) -> Result<GateAnswer, NoMatch> {
        let Question { options, freeform, question_type, .. } = &self.question;
        match_answer(options, *freeform, *question_type, text)
    }

    fn takes_text(&self) -> bool {
        self.question.freeform || self.question.question_type == QuestionType::Freeform
    }

    /// The event of asking.
    pub fn asked(&self, deadline_ms: Option<i64>) -> EventBody {
        EventBody::GateAsked {
            question: self.question.text.clone(),
            question_type: self.question.question_type,
            options: self.question.options.clone(),
            freeform: self.question.freeform,
            deadline_ms,
        }
    }

    /// What an answer means.
    pub fn chosen(&self, answer: &GateAnswer) -> GateChoice {
        match answer {
            GateAnswer::Option(index) => self.options(&[*index]),
            GateAnswer::Options(indices) => self.options(indices),
            GateAnswer::Text(text) => {
                let (label, to) = self.freeform.clone().unzip();
                GateChoice {
                    key: "freeform".to_owned(),
                    label: label.clone().unwrap_or_default(),
                    text: Some(text.clone()),
                    preferred: label.filter(|label| !label.is_empty()),
                    next: to.iter().map(ToString::to_string).collect(),
                    notes: None,
                }
            }
        }
    }

    fn options(&self, indices: &[usize]) -> GateChoice {
        let options: Vec<_> =
            indices.iter().filter_map(|index| self.question.options.get(*index)).collect();
        let join = |texts: Vec<&str>| texts.join(", ");
        // A label that two edges have does not tell which of them is meant; the target does.
        let same = |a: &str, b: &str| a.trim().to_lowercase() == b.trim().to_lowercase();
        let is_unique = |label: &&String| {
            let others = self.labels.iter().chain(self.freeform.iter().map(|(label, _)| label));
            others.filter(|other| same(other, label)).count() == 1
        };
        let first = indices.first().and_then(|index| self.labels.get(*index)).filter(is_unique);
        GateChoice {
            key: join(options.iter().map(|option| option.key.as_str()).collect()),
            label: join(options.iter().map(|option| option.label.as_str()).collect()),
            text: None,
            preferred: first.filter(|label| !label.is_empty()).cloned(),
            next: options.iter().map(|option| option.to.to_string()).collect(),
            notes: None,
        }
    }

    /// What is chosen at the timeout.
    fn by_default(&self, limit: Option<Duration>) -> Option<GateChoice> {
        let default = self.question.default_choice.as_ref();
        let index = self.question.options.iter().position(|option| Some(&option.to) == default);
        let chosen = match (index, &self.freeform) {
            (Some(index), _) => self.options(&[index]),
            (None, Some((_, to))) if Some(to) == default => {
                self.chosen(&GateAnswer::Text(String::new()))
            }
            _ => return None,
        };
        let notes = format!("{}: the default was taken", no_answer(limit));
        Some(GateChoice { notes: Some(notes), ..chosen })
    }
}

impl GateChoice {
    /// The event of answering.
    pub fn event(&self, source: String) -> EventBody {
        EventBody::GateAnswered {
            selected: self.key.clone(),
            label: self.label.clone(),
            text: self.text.clone(),
            source,
        }
    }

    /// The stage's outcome. A text that an earlier gate took does not stay beside this answer.
    pub fn outcome(self, context: &Context) -> Outcome {
        let is_stale = !context.text(keys::HUMAN_TEXT).is_empty();
        let text = self.text.or(is_stale.then(String::new));
        let mut outcome = Outcome::succeeded()
            .with_update(keys::HUMAN_SELECTED, self.key)
            .with_update(keys::HUMAN_LABEL, self.label);
        if let Some(text) = text {
            outcome = outcome.with_update(keys::HUMAN_TEXT, text);
        }
        outcome.preferred_label = self.preferred;
        outcome.suggested_next_ids = self.next;
        outcome.notes = self.notes;
        outcome
    }
}

/// How much of an answer a person is shown before the question.
const PREVIEW_LINES: usize = 30;

/// The beginning of the last answer that a model gave on this line.
fn preview(stage: &Stage) -> Option<String> {
    let asked = stage.history.iter().rev().find(|record| record.handler.is_llm())?;
    let key = format!("{}{}", keys::RESPONSE_PREFIX, asked.node);
    let response = asked.end.outcome.context_updates.get(&key)?;
    let text = text_of(stage, response).ok()?;
    let mut lines = text.trim().lines();
    let mut shown: Vec<String> =
        lines.by_ref().take(PREVIEW_LINES).map(|line| line.chars().take(200).collect()).collect();
    let left = lines.count();
    if left > 0 {
        shown.push(format!("… ({left} more lines)"));
    }
    (!shown.is_empty()).then(|| shown.join("\n"))
}

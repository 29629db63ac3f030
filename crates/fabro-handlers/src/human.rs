//! Human gates: the outgoing edges are the options, and the first answer decides. At the timeout the default
//! choice (`human.default_choice`) answers.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fabro_engine::{
    EdgeSpec, Handler, InboxId, Message, Mode, NodeSpec, Reading, RecordedAnswer, ReportError,
    Stage, StageEnd, TextTemplate, keys,
};
use fabro_events::{AnsweredBy, EventBody, GateOption, ParentStage, PauseReason, QuestionType};
use fabro_gate::{
    AskError, GateAnswer, Interviewer, NoMatch, Question, Reply, default_option, options,
};
use fabro_redact::Redactor;
use fabro_types::{
    BranchPath, ClauseResult, Failure, FailureClass, Outcome, excerpt, one_line, strip_accelerator,
};
use serde_json::Value;

use crate::common::{canceled, value_of, warn};
use crate::render::render;
use crate::shown_texts::shown;

/// Asks people.
pub struct HumanHandler {
    interviewer: Arc<dyn Interviewer>,
    user: String,
    redactor: Redactor,
}

impl HumanHandler {
    /// Questions go to `interviewer`, and to any process that answers through the run's inbox; free
    /// text is redacted before it is recorded. `user` is who answers the interviewer.
    pub fn new(interviewer: Arc<dyn Interviewer>, user: String, redactor: Redactor) -> Self {
        Self { interviewer, user, redactor }
    }

    /// An answer from the interviewer.
    fn answered(&self, text: String, source: &str) -> ReceivedAnswer {
        let by = AnsweredBy::new(&self.user, source);
        ReceivedAnswer { text, source: source.to_owned(), by: Some(by), inbox_id: None }
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
    by: Option<AnsweredBy>,
    inbox_id: Option<InboxId>,
}

#[async_trait]
impl Handler for HumanHandler {
    async fn execute(&self, mut stage: Stage) -> StageEnd {
        let mut gate = match Gate::of(&stage) {
            Ok(gate) => gate,
            Err(failure) => return failure.into(),
        };
        if let Some(failure) = gate.without_choice() {
            return failure.into();
        }
        if let Some(recorded) = &stage.at.gate_answer
            && let Some(answer) = gate.recorded(recorded)
        {
            return gate.chosen(&answer).outcome(&stage).into();
        }
        let asked_ms = stage.at.gate_asked_ms.unwrap_or(stage.started_ms);
        let limit = stage.spec().timeout.filter(|limit| !limit.is_zero());
        let deadline_ms = limit.map(|limit| asked_ms.saturating_add(millis(limit)));
        let is_new = stage.at.gate_asked_ms.is_none();
        if is_new && stage.reporter.report(gate.asked(deadline_ms)).await.is_err() {
            return canceled().into();
        }
        let left = deadline_ms.map(|deadline| {
            let left = u64::try_from(deadline.saturating_sub(stage.started_ms)).unwrap_or_default();
            // No longer than from the beginning, when the clock was set back since.
            Duration::from_millis(left).min(limit.unwrap_or_default())
        });
        gate.question.deadline = left.map(|left| (tokio::time::Instant::now() + left).into_std());
        let mut timer = std::pin::pin!(sleep_or_forever(left));
        let cancel = stage.cancel.clone();
        let mut ask = true;
        let mut invalid = 0;
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
                        return gate.timed_out(limit).into();
                    };
                    if let Some(end) = settle(&stage, chosen.event("timeout".to_owned(), None), chosen, None).await {
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
                        Ok(Reply::Answer { text, source }) => self.answered(text, source),
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
            let ReceivedAnswer { text, source, by, inbox_id } = received;
            let answer = match self.read(&gate, &text) {
                Ok(answer) => answer,
                Err(no_match) => {
                    warn(&stage.reporter, "gate", no_match.to_string()).await;
                    let Some(inbox_id) = inbox_id else {
                        invalid += 1;
                        if invalid < MAX_INVALID {
                            continue;
                        }
                        return StageEnd::Suspended(PauseReason::Human);
                    };
                    // Asked again, the gate takes another answer in place of this one.
                    let asked = vec![gate.asked(deadline_ms).into()];
                    match stage.reporter.record(asked, Vec::new(), vec![inbox_id]).await {
                        Ok(()) => continue,
                        Err(_) => return canceled().into(),
                    }
                }
            };
            let chosen = gate.chosen(&answer);
            match settle(&stage, chosen.event(source, by), chosen, inbox_id).await {
                Some(end) => return end,
                None => ask = false,
            }
        }
    }
}

/// How many invalid answers an interviewer may give to one question: one that gives no other would be
/// asked forever.
const MAX_INVALID: u32 = 100;

/// Records what was chosen; `None` when another answer won the race, which the mailbox brings.
async fn settle(
    stage: &Stage,
    answered: EventBody,
    chosen: GateChoice,
    inbox_id: Option<InboxId>,
) -> Option<StageEnd> {
    let answer = vec![answered.into()];
    match stage.reporter.record(answer, Vec::new(), inbox_id.into_iter().collect()).await {
        Ok(()) => Some(chosen.outcome(stage).into()),
        Err(ReportError::AlreadyAnswered) => None,
        Err(_) => Some(canceled().into()),
    }
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
        Message::Answer { choice, source, by, .. } => {
            Some(ReceivedAnswer { text: choice, source, by, inbox_id: Some(id) })
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
    /// The labels of the options' edges, rendered; empty where an edge has none.
    labels: Vec<String>,
    /// Which labels come from templates. Such an edge is found by its target, not by its rendered label.
    is_template: Vec<bool>,
    /// The edge for free text.
    freeform: Option<TextEdge>,
    /// The question, when the label has templates.
    asked: Option<String>,
}

/// An edge for free text.
#[derive(Clone)]
struct TextEdge {
    label: String,
    to: Arc<str>,
    is_template: bool,
}

/// What an answer to a gate means for its stage.
pub struct GateChoice {
    key: String,
    label: String,
    /// The labels as written, accelerators included.
    full_label: String,
    text: Option<String>,
    preferred: Option<String>,
    next: Vec<String>,
    notes: Option<String>,
    asked: Option<String>,
    question: String,
    /// The answer as upstream names it: `yes` or `no`, the keys of the options, the text, or `timeout`.
    answer: String,
}

impl Gate {
    /// The gate of this stage.
    ///
    /// # Errors
    ///
    /// A template of its label, its options or its shown texts cannot be rendered.
    pub fn of(stage: &Stage) -> Result<Self, Failure> {
        let node = stage.spec();
        let own = stage.plan.node(&node.id);
        let edges = own.map(|(ix, _)| stage.plan.gate_options(ix)).unwrap_or_default();
        let edges: Vec<_> = edges.into_iter().map(|edge| stage.plan.edge(edge)).collect();
        let (text_edges, edges): (Vec<&EdgeSpec>, Vec<&EdgeSpec>) =
            edges.into_iter().partition(|edge| edge.freeform);
        let label = |edge: &EdgeSpec| option_label(stage, edge);
        let to = |edge: &EdgeSpec| Arc::clone(&stage.plan.spec(edge.to).id);
        let freeform = match text_edges.last() {
            Some(edge) => Some(TextEdge {
                label: label(edge)?,
                to: to(edge),
                is_template: edge.option.is_some(),
            }),
            None => None,
        };
        let labels = edges.iter().map(|edge| label(edge)).collect::<Result<Vec<_>, _>>()?;
        let is_template = edges.iter().map(|edge| edge.option.is_some()).collect();
        // The edge for free text comes last: so that the others get the letters they want.
        let named = freeform.iter().filter(|edge| !edge.label.is_empty());
        let named = named.map(|edge| (edge.label.as_str(), Arc::clone(&edge.to)));
        let targets = edges.iter().map(|edge| to(edge));
        let mut choices = options(labels.iter().map(String::as_str).zip(targets).chain(named));
        let text_option = freeform.as_ref().map(|edge| {
            let named = if choices.len() > edges.len() { choices.pop() } else { None };
            named.unwrap_or_else(|| GateOption {
                key: String::new(),
                label: String::new(),
                to: Arc::clone(&edge.to),
                unavailable: None,
            })
        });
        let human = node.human();
        let question = Question {
            node: Arc::clone(&node.id),
            visit: stage.at.visit,
            branch: stage.branch.clone(),
            within: stage.run.parent.as_ref().map(ParentStage::name),
            text: question_text(stage)?,
            item: element(stage)?,
            failures: failures(stage),
            // A person answers what was shown when the gate was asked, so it is not read again.
            show: match &stage.at.gate_show {
                Some(show) => show.to_vec(),
                None => shown(stage, &option_details(&choices, &edges))?,
            },
            run: Some(stage.run_id),
            question_type: human.map_or(QuestionType::MultipleChoice, |human| human.question_type),
            options: choices,
            freeform: freeform.is_some(),
            text_option,
            default_choice: human.and_then(|human| human.default_choice.clone()),
            deadline: None,
        };
        let asks = human.filter(|human| !human.question.template.is_plain());
        let asked = asks.map(|_| question.text.clone());
        let mut gate = Self { question, labels, is_template, freeform, asked };
        for (index, edge) in edges.iter().enumerate() {
            gate.question.options[index].unavailable = gate.why_not(stage, index, edge);
        }
        // A dry run has no values to decide by; it may go every way.
        if stage.run.dry_run && gate.is_closed() {
            gate.question.options.iter_mut().for_each(|option| option.unavailable = None);
        }
        Ok(gate)
    }

    /// Why an option cannot be chosen: the condition of its edge would not hold after the answer.
    fn why_not(&self, stage: &Stage, index: usize, edge: &EdgeSpec) -> Option<String> {
        let condition = edge.condition.as_ref()?;
        let outcome = self.options(&[index]).outcome(stage);
        let mut context = stage.context.clone();
        context.apply(&outcome.context_updates);
        context.set(keys::OUTCOME, Value::from(outcome.reads_as()));
        let preferred = outcome.preferred_label.as_deref().unwrap_or_default();
        context.set(keys::PREFERRED_LABEL, Value::from(preferred));
        context.set(keys::LAST_STAGE, Value::from(&*self.question.node));
        let reading = Reading { context: &context, blobs: &stage.store };
        match reading.evaluate(&condition.parsed) {
            Ok(result) if result.holds => None,
            Ok(result) => Some(failed_clauses(&condition.text, &result.clauses)),
            Err(error) => Some(error.to_string()),
        }
    }

    /// No option can be chosen, and no text is taken.
    fn is_closed(&self) -> bool {
        self.question.options.iter().all(|option| option.unavailable.is_some())
            && !self.takes_text()
    }

    /// The failure of a gate at which nothing can be chosen.
    fn without_choice(&self) -> Option<Failure> {
        if !self.is_closed() {
            return None;
        }
        if self.question.options.is_empty() {
            let message = "the gate has no edge to choose: add one with a label";
            return Some(Failure::new(FailureClass::Structural, message));
        }
        let reasons = self.question.options.iter().map(|option| {
            let reason = option.unavailable.as_deref().unwrap_or_default();
            format!("[{}] {}: {reason}", option.key, option.label)
        });
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        let message = format!("no option of the gate can be chosen: {reasons}");
        Some(Failure::new(FailureClass::Deterministic, message))
    }

    /// The question.
    pub fn question(&self) -> &Question {
        &self.question
    }

    /// The answer that a text is.
    pub fn read(&self, text: &str) -> Result<GateAnswer, NoMatch> {
        self.question.read(text)
    }

    /// The answer that the log has; `None` where it cannot be given any more.
    fn recorded(&self, answer: &RecordedAnswer) -> Option<GateAnswer> {
        match &answer.text {
            Some(text) if self.takes_text() => Some(GateAnswer::Text(text.to_string())),
            Some(text) => self.read(text).ok(),
            None => self.read(&answer.selected).ok(),
        }
    }

    fn takes_text(&self) -> bool {
        self.question.freeform || self.question.question_type == QuestionType::Freeform
    }

    /// The event of asking.
    pub fn asked(&self, deadline_ms: Option<i64>) -> EventBody {
        let Question { text, question_type, options, freeform, .. } = &self.question;
        EventBody::GateAsked {
            question: text.clone(),
            question_type: *question_type,
            options: options.clone(),
            freeform: *freeform,
            text_option: self.question.text_option.clone(),
            default_choice: self.question.default_choice.clone(),
            deadline_ms,
            item: self.question.item.clone(),
            show: self.question.show.clone(),
        }
    }

    /// What an answer means.
    pub fn chosen(&self, answer: &GateAnswer) -> GateChoice {
        match answer {
            GateAnswer::Option(index) => self.options(&[*index]),
            GateAnswer::Options(indices) => self.options(indices),
            GateAnswer::Text(text) => {
                let edge = self.freeform.clone();
                let full_label = edge.as_ref().map(|edge| edge.label.clone()).unwrap_or_default();
                let label = strip_accelerator(&full_label).to_owned();
                let is_literal = edge.as_ref().is_some_and(|edge| !edge.is_template);
                GateChoice {
                    asked: self.asked.clone(),
                    question: self.question.text.clone(),
                    answer: text.clone(),
                    key: "freeform".to_owned(),
                    label: label.clone(),
                    full_label,
                    text: Some(text.clone()),
                    preferred: Some(label).filter(|label| is_literal && !label.is_empty()),
                    next: edge.iter().map(|edge| edge.to.to_string()).collect(),
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
        let plain = |label: &str| strip_accelerator(label).to_lowercase();
        let is_unique = |label: &&String| {
            let others = self.labels.iter().chain(self.freeform.iter().map(|edge| &edge.label));
            others.filter(|other| plain(other) == plain(label)).count() == 1
        };
        let literal = |index: &&usize| self.is_template.get(**index) == Some(&false);
        let first = indices.first().filter(literal);
        let first = first.and_then(|index| self.labels.get(*index)).filter(is_unique);
        let full_label = |index: &usize| match self.labels.get(*index) {
            Some(label) if !label.is_empty() => label.as_str(),
            _ => self.question.options.get(*index).map_or("", |option| &option.label),
        };
        let key = join(options.iter().map(|option| option.key.as_str()).collect());
        GateChoice {
            asked: self.asked.clone(),
            question: self.question.text.clone(),
            answer: self.yes_or_no(indices).map_or_else(|| key.clone(), str::to_owned),
            key,
            label: join(options.iter().map(|option| option.label.as_str()).collect()),
            full_label: join(indices.iter().map(full_label).collect()),
            text: None,
            preferred: first
                .map(|label| strip_accelerator(label).to_owned())
                .filter(|label| !label.is_empty()),
            next: options.iter().map(|option| option.to.to_string()).collect(),
            notes: None,
        }
    }

    /// For a gate that asks yes or no, whether its first option, or the one called `yes`, was chosen.
    fn yes_or_no(&self, indices: &[usize]) -> Option<&'static str> {
        let asks = [QuestionType::YesNo, QuestionType::Confirmation];
        let index = indices.first().filter(|_| asks.contains(&self.question.question_type))?;
        let label = &self.question.options.get(*index)?.label;
        let is_yes = match label.to_lowercase().as_str() {
            "yes" => true,
            "no" => false,
            _ => *index == 0,
        };
        Some(if is_yes { "yes" } else { "no" })
    }

    /// The option that is taken at the timeout.
    fn default(&self) -> Option<&GateOption> {
        let Question { options, text_option, default_choice, .. } = &self.question;
        default_option(options, text_option.as_ref(), default_choice.as_deref())
    }

    /// What is chosen at the timeout.
    fn by_default(&self, limit: Option<Duration>) -> Option<GateChoice> {
        let default = self.default().filter(|option| option.unavailable.is_none())?;
        let index = self.question.options.iter().position(|option| option.key == default.key);
        let chosen = match index {
            Some(index) => self.options(&[index]),
            None => self.chosen(&GateAnswer::Text(String::new())),
        };
        let notes = format!("{}: the default was taken", no_answer(limit));
        Some(GateChoice { notes: Some(notes), answer: "timeout".to_owned(), ..chosen })
    }

    /// The failure of a gate without an answer and without a default that can be chosen.
    fn timed_out(&self, limit: Option<Duration>) -> Failure {
        let mut message = no_answer(limit);
        let mut remedy = "raise its `timeout`, or name a `human.default_choice`";
        if let Some(GateOption { key, label, unavailable: Some(reason), .. }) = self.default() {
            message =
                format!("{message}, and the default [{key}] {label} cannot be chosen: {reason}");
            remedy = "raise its `timeout`, or name another `human.default_choice`";
        }
        let failure = Failure::new(FailureClass::TransientInfra, message);
        Failure { details: Some(remedy.to_owned()), ..failure }
    }
}

/// What kept a condition from holding.
fn failed_clauses(condition: &str, clauses: &[ClauseResult]) -> String {
    let described = |clause: &ClauseResult| match clause.value.as_str() {
        "" => format!("{} does not hold, there is no value", clause.text),
        value => format!("{} does not hold, the value is \"{value}\"", clause.text),
    };
    let failed: Vec<_> = clauses.iter().filter(|clause| !clause.holds).map(described).collect();
    if failed.is_empty() { format!("{condition} does not hold") } else { failed.join(" and ") }
}

impl GateChoice {
    /// The event of answering.
    pub fn event(&self, source: String, by: Option<AnsweredBy>) -> EventBody {
        EventBody::GateAnswered {
            selected: self.key.clone(),
            label: self.label.clone(),
            text: self.text.clone(),
            source,
            by,
        }
    }

    /// The stage's outcome. A text that an earlier gate took does not stay beside this answer.
    pub fn outcome(self, stage: &Stage) -> Outcome {
        let is_stale = !stage.context.text(keys::HUMAN_TEXT).is_empty();
        let own = |name: &str| format!("{}{}.{name}", keys::GATE_PREFIX, stage.at.node);
        let own_label = match &self.text {
            Some(text) if self.full_label.is_empty() => text.clone(),
            _ => self.full_label.clone(),
        };
        let text = self.text.or(is_stale.then(String::new));
        let mut outcome = Outcome::succeeded()
            .with_update(keys::HUMAN_SELECTED, self.key)
            .with_update(keys::HUMAN_LABEL, self.full_label)
            .with_update(own("question"), self.question)
            .with_update(own("answer"), self.answer)
            .with_update(own("label"), own_label);
        if let Some(text) = text {
            outcome = outcome.with_update(keys::HUMAN_TEXT, text);
        }
        if let Some(asked) = self.asked {
            outcome = outcome.with_update(keys::HUMAN_QUESTION, asked);
        }
        outcome.preferred_label = self.preferred;
        outcome.suggested_next_ids = self.next;
        outcome.notes = self.notes;
        outcome
    }
}

/// The maximum length of a question or option label, in characters.
const MAX_QUESTION: usize = 4_000;

/// How many failures are shown before a question.
const MAX_FAILURES: usize = 10;

/// The maximum length of an element name, in characters.
const MAX_ITEM: usize = 60;

fn question_text(stage: &Stage) -> Result<String, Failure> {
    let Some(human) = stage.spec().human() else { return Ok(stage.spec().label.to_string()) };
    Ok(excerpt(&render(stage, &human.question, Mode::Text)?, MAX_QUESTION).into_owned())
}

fn option_label(stage: &Stage, edge: &EdgeSpec) -> Result<String, Failure> {
    match &edge.option {
        Some(label) => Ok(one_line(&render(stage, label, Mode::Text)?, MAX_QUESTION)),
        None => Ok(edge.label.as_deref().unwrap_or_default().trim().to_owned()),
    }
}

/// The options that say more than their label.
fn option_details<'e>(
    options: &[GateOption],
    edges: &[&'e EdgeSpec],
) -> Vec<(String, &'e [TextTemplate])> {
    let all = options.iter().zip(edges).filter(|(_, edge)| !edge.about.is_empty());
    all.map(|(option, edge)| (format!("[{}] {}", option.key, option.label), &*edge.about)).collect()
}

/// The failures before the gate.
fn failures(stage: &Stage) -> Vec<String> {
    let failures = stage.failures_before.iter();
    let failures = failures.map(|it| format!("{}: {}", it.stage(), it.failure.message));
    let mut shown: Vec<String> = failures.clone().take(MAX_FAILURES).collect();
    let left = failures.count() - shown.len();
    if left > 0 {
        shown.push(format!("{left} more failures"));
    }
    shown
}

/// The list elements that the stage runs for, outermost first.
pub(crate) fn element(stage: &Stage) -> Result<Option<String>, Failure> {
    let branch = BranchPath::new(stage.branch.as_deref().unwrap_or_default());
    let mut names: Vec<&Arc<str>> = Vec::new();
    for fan_out in branch.fan_outs() {
        let parallel = stage.plan.find(fan_out.node()).and_then(NodeSpec::parallel);
        let list = parallel.and_then(|parallel| parallel.for_each.as_ref());
        // An inner element shadows an outer one with the same name.
        names.retain(|name| list.is_none_or(|list| **name != list.name));
        names.extend(list.map(|list| &list.name));
    }
    let of_parent = stage.context.text(crate::PARENT_ITEM);
    let mut items: Vec<String> = [of_parent.to_owned()].into();
    items.retain(|item| !item.is_empty());
    for name in names {
        if let Some(value) = stage.context.get(name) {
            items.push(item_name(&*value_of(stage, value)?));
        }
    }
    Ok(Some(items.join(" · ")).filter(|items| !items.is_empty()))
}

/// A short name of an element: its text, its `name`, `title` or `id`, else its JSON.
fn item_name(item: &Value) -> String {
    let field = ["name", "title", "id"].into_iter().find_map(|field| match item.get(field)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    });
    let text = item.as_str().map(str::to_owned).or(field);
    one_line(&text.unwrap_or_else(|| item.to_string()), MAX_ITEM)
}

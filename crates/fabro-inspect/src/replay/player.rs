//! Drives a machine with the inputs of a recorded run. Requests and questions are made anew from
//! the workflow; answers, results of tools and outcomes are the recorded ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use fabro_engine::{
    Batch, Finished, Input, Machine, OutputSpec, Plan, Position, ReadError, Stage, StageEnd,
    read_needs,
};
use fabro_events::{AnsweredBy, Event, EventBody, Note};
use fabro_gate::{GateAnswer, Question};
use fabro_handlers::{
    AgentFile, AgentFiles, FanIn, Gate, GateChoice, Interpretation, LlmHandler, interpret,
    interpret_simulated, invalid_outcome,
};
use fabro_redact::Redactor;
use fabro_store::{MemoryStore, RunLog as _};
use fabro_types::{BranchPath, Failure, FailureClass, NodeKind, Outcome, RunId};

use crate::replay::ReplayError;
use crate::replay::conversation::{Conversation, Turn, with_text};
use crate::replay::record::{End, Key, Record, recorded_message, same_choice};

/// Replays a record.
pub(crate) struct Player {
    pub(crate) machine: Machine,
    pub(crate) run: RunId,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) record: Record,
    /// The recorded workflow.
    pub(crate) own: Arc<Plan>,
    /// The nodes that are the same in it; `None` when all of it is.
    pub(crate) same: Option<BTreeSet<Arc<str>>>,
    /// Prepares the requests of stages. It asks no model.
    pub(crate) llm: LlmHandler,
    pub(crate) redactor: Redactor,
    pub(crate) run_dir: PathBuf,
    pub(crate) now_ms: i64,
    pub(crate) attempts: BTreeMap<Key, Attempt>,
    /// Stages that need something that was not recorded.
    pub(crate) unanswered: Vec<String>,
}

/// What was replayed of an attempt.
#[derive(Default)]
pub(crate) struct Attempt {
    conversation: Conversation,
    /// The gate was asked.
    was_asked: bool,
    /// The choice at a gate, by the workflow that is replayed.
    choice: Option<GateChoice>,
    /// It needs something that was not recorded.
    is_stuck: bool,
}

/// What is replayed next.
enum Next {
    Run,
    Stage(Key),
    Overdue(Arc<str>),
    /// A delay has passed; a replay does not wait.
    Due(Arc<str>),
    /// A stage that needs nothing from outside.
    Free(Key),
}

impl Player {
    /// Passes the record to the machine, in its order as far as the machine starts the same stages.
    pub(crate) async fn play(&mut self, first: Input) -> Result<(), ReplayError> {
        self.handle(first).await?;
        while let Some(next) = self.next() {
            match next {
                Next::Run => {
                    let input = self.record.take_run_input();
                    let missing = || inconsistent("the record has no more inputs of the run");
                    self.handle(input.ok_or_else(missing)?).await?;
                }
                Next::Due(branch) => self.handle(Input::Due { branch }).await?,
                Next::Overdue(branch) => {
                    let limit = self.limit(&branch).unwrap_or_default();
                    self.handle(Input::Overdue { branch, limit }).await?;
                }
                Next::Free(key) => self.finish_free(&key).await?,
                Next::Stage(key) => {
                    let event = self.record.take_of(&key);
                    let missing = || inconsistent(format!("the record has no more of {key}"));
                    self.replay_event(&key, event.ok_or_else(missing)?).await?;
                }
            }
        }
        self.report_unanswered();
        Ok(())
    }

    async fn handle(&mut self, input: Input) -> Result<(), ReplayError> {
        self.machine.handle(self.now_ms, input);
        read_needs(&mut self.machine, self.now_ms, &*self.store).map_err(ReadError::from)?;
        let commit = self.machine.take_commit();
        let expected = self.machine.state().last_seq - commit.events.len() as u64;
        let batch = Batch { events: &commit.events, blobs: &commit.blobs, consumed: &[] };
        self.store.append(self.run, expected, &batch).await?;
        Ok(())
    }

    /// The stages that are running, with their attempts.
    fn running(&self) -> Vec<(Key, NodeKind)> {
        let cursors = self.machine.state().cursors.iter();
        let active = cursors.filter_map(|(branch, cursor)| Some((branch, cursor.active()?)));
        let active = active.map(|(branch, at)| {
            let key = Key {
                branch: Arc::clone(branch),
                node: Arc::clone(&at.node),
                visit: at.visit,
                attempt: at.attempt,
            };
            (key, at.handler)
        });
        active.collect()
    }

    /// The recorded input with the lowest position that the machine can take now.
    fn next(&self) -> Option<Next> {
        let mut first: Option<(u64, Next)> = None;
        let mut offer = |seq: u64, next: Next| {
            if first.as_ref().is_none_or(|(lowest, _)| seq < *lowest) {
                first = Some((seq, next));
            }
        };
        if let Some(seq) = self.record.next_run_input() {
            offer(seq, Next::Run);
        }
        for (key, kind) in self.running() {
            if kind == NodeKind::Parallel {
                let position = &self.machine.state().cursors[&key.branch].position;
                if matches!(position, Position::Active(_)) {
                    // A fan-out that is retried while the budget is used up waits for a resume.
                    if !self.machine.over_budget() {
                        offer(0, Next::Due(Arc::clone(&key.branch)));
                    }
                } else {
                    let name =
                        BranchPath::new(&key.branch).fan_out(&key.node, key.visit, key.attempt);
                    if let Some(seq) = self.record.overdue.get(&*name) {
                        offer(*seq, Next::Overdue(Arc::clone(&key.branch)));
                    }
                }
            } else if self.attempts.get(&key).is_some_and(|attempt| attempt.is_stuck) {
                // Its input was not recorded.
            } else if let Some(seq) = self.record.next_of(&key) {
                offer(seq, Next::Stage(key));
            } else if !self.record.has(&key) && self.is_free(&key, kind) {
                offer(0, Next::Free(key));
            }
        }
        first.map(|(_, next)| next)
    }

    /// A stage whose outcome needs no input from outside.
    fn is_free(&self, key: &Key, kind: NodeKind) -> bool {
        let spec = self.machine.plan().find(&key.node);
        match kind {
            NodeKind::Wait => true,
            NodeKind::FanIn => spec.is_some_and(|spec| spec.llm().is_none()),
            _ => false,
        }
    }

    fn limit(&self, branch: &str) -> Option<std::time::Duration> {
        let cursor = self.machine.state().cursors.get(branch)?;
        self.machine.plan().find(&cursor.active()?.node)?.timeout
    }

    /// The running stage.
    fn stage(&self, key: &Key) -> Result<Stage, ReplayError> {
        let store = Arc::clone(&self.store) as _;
        let stage = self.machine.detached_stage(&key.branch, store, self.run_dir.clone());
        stage.ok_or_else(|| inconsistent(format!("{key} is replayed and not running")))
    }

    async fn finish_free(&mut self, key: &Key) -> Result<(), ReplayError> {
        let stage = self.stage(key)?;
        let end = match stage.spec().kind {
            NodeKind::FanIn => fan_in(&stage),
            _ => Outcome::succeeded().into(),
        };
        self.end(key, end).await
    }

    async fn replay_event(&mut self, key: &Key, event: Event) -> Result<(), ReplayError> {
        let body = &event.entry.body;
        if let Some(end) = End::of(body) {
            return self.replay_end(key, end).await;
        }
        match body {
            EventBody::GateAsked { .. } => return self.ask(key).await,
            EventBody::GateAnswered { selected, label, text, source, by } => {
                let choice =
                    |question: &Question| same_choice(selected, label, text.as_deref(), question);
                return self.answer(key, choice, source, by.clone()).await;
            }
            EventBody::ContextRefused { .. } if !self.is_same(key) => return Ok(()),
            EventBody::AgentToolCompleted(_) if event.entry.parent_session_id.is_none() => {
                self.attempt(key).conversation.await_answer();
            }
            _ => {}
        }
        let mut message = None;
        if let EventBody::AgentMessage { role, message: Some(value), .. } = body {
            message = Some(recorded_message(&*self.store, role, value, event.seq)?);
        }
        let before = self.attempt(key).conversation.reply(AgentFiles::default()).is_some();
        match self.attempt(key).conversation.read(&event, message.as_ref()) {
            Turn::Request => self.request(key, &event).await,
            Turn::Correction if before && !self.is_same(key) => self.correct(key, &event).await,
            Turn::Correction => {
                self.attempt(key).conversation.correct();
                self.note(key, &event, event.entry.body.clone()).await
            }
            Turn::Other => self.note(key, &event, event.entry.body.clone()).await,
        }
    }

    /// The request of the stage, prepared anew.
    async fn request(&mut self, key: &Key, event: &Event) -> Result<(), ReplayError> {
        let stage = self.stage(key)?;
        let prepared = match stage.spec().kind {
            NodeKind::FanIn if stage.spec().llm().is_none() => Ok(None),
            NodeKind::Agent | NodeKind::Prompt | NodeKind::FanIn => {
                // A summary of older turns is the recorded one.
                let recorded = stage.recorded().await?;
                self.llm.prepare_from(&stage, &recorded).await.map(|it| Some(it.message))
            }
            _ => Ok(None),
        };
        match prepared {
            Ok(Some(message)) => {
                self.note(key, event, with_text(&event.entry.body, &message)).await
            }
            // The changed node asks no model: it ends as such a node does.
            Ok(None) => Ok(()),
            // The stage ends without a request.
            Err(end) => self.end(key, end).await,
        }
    }

    /// A changed stage may take the answer that was not valid before, or need another correction.
    async fn correct(&mut self, key: &Key, event: &Event) -> Result<(), ReplayError> {
        let mut files = AgentFiles::default();
        if self.had_to_route(key)
            && let EventBody::AgentMessage { role, message: Some(value), .. } = &event.entry.body
        {
            let told = recorded_message(&*self.store, role, value, event.seq)?.text();
            files = AgentFiles::Rejected(told);
        }
        match self.interpret(key, files)? {
            Some(Interpretation::Invalid { feedback, .. }) if self.may_correct(key) => {
                self.attempt(key).conversation.correct();
                self.note(key, event, with_text(&event.entry.body, &feedback)).await
            }
            interpretation => {
                let end = self.record.skip(key);
                self.end_changed(key, end.as_ref(), interpretation).await
            }
        }
    }

    /// The interpretation of the answer; `None` when there is no complete one.
    fn interpret(
        &mut self,
        key: &Key,
        files: AgentFiles,
    ) -> Result<Option<Interpretation>, ReplayError> {
        let Some(reply) = self.attempt(key).conversation.reply(files) else { return Ok(None) };
        let stage = self.stage(key)?;
        if stage.spec().kind == NodeKind::FanIn {
            return Ok(FanIn::of(&stage).ok().map(|fan_in| fan_in.interpret(&key.node, &reply)));
        }
        Ok(Some(if stage.run.dry_run {
            interpret_simulated(&key.node, &reply)
        } else {
            interpret(self.machine.plan(), &key.node, &reply, &self.redactor)
        }))
    }

    /// The corrections that the node allows are not used up.
    fn may_correct(&mut self, key: &Key) -> bool {
        let spec = self.machine.plan().find(&key.node).and_then(|spec| spec.llm());
        let allowed = spec.map_or(0, |llm| llm.output_retries);
        self.attempt(key).conversation.corrections < allowed
    }

    /// Whether the recorded answer had to have directives.
    fn had_to_route(&self, key: &Key) -> bool {
        let own = self.own.find(&key.node).and_then(|spec| spec.llm());
        own.is_some_and(|llm| matches!(llm.output, OutputSpec::Routing))
    }

    async fn ask(&mut self, key: &Key) -> Result<(), ReplayError> {
        // A gate that asks again was given an answer that matches nothing.
        if std::mem::replace(&mut self.attempt(key).was_asked, true) {
            return Ok(());
        }
        let stage = self.stage(key)?;
        match stage.spec().kind {
            NodeKind::Human => match Gate::of(&stage) {
                Ok(gate) => self.report(key, gate.asked(None)).await,
                // A changed template lacks a value, so there is no question.
                Err(_) => Ok(()),
            },
            // The changed node is not a gate any more.
            _ => Ok(()),
        }
    }

    async fn answer(
        &mut self,
        key: &Key,
        choice: impl Fn(&Question) -> Option<GateAnswer>,
        source: &str,
        by: Option<AnsweredBy>,
    ) -> Result<(), ReplayError> {
        let stage = self.stage(key)?;
        if stage.spec().kind != NodeKind::Human {
            // The changed node is not a gate any more.
            return Ok(());
        }
        let Ok(gate) = Gate::of(&stage) else {
            self.stuck(key);
            return Ok(());
        };
        let answer = choice(gate.question());
        let Some(chosen) = answer.map(|answer| gate.chosen(&answer)) else {
            self.stuck(key);
            return Ok(());
        };
        let body = chosen.event(source.to_owned(), by);
        self.attempt(key).choice = Some(chosen);
        self.report(key, body).await
    }

    /// How the attempt ends: as recorded where its node is the same, else as follows from what was
    /// recorded of it.
    async fn replay_end(&mut self, key: &Key, end: End) -> Result<(), ReplayError> {
        if self.is_same(key) {
            return self.end(key, taken(&end)).await;
        }
        let stage = self.stage(key)?;
        match stage.spec().kind {
            NodeKind::FanIn if stage.spec().llm().is_none() => {
                return self.end(key, fan_in(&stage)).await;
            }
            NodeKind::Agent | NodeKind::Prompt | NodeKind::FanIn => {}
            NodeKind::Human => {
                let end = match self.attempt(key).choice.take() {
                    Some(choice) => {
                        let outcome = choice.outcome(&stage);
                        Outcome { notes: end.outcome().notes, ..outcome }.into()
                    }
                    None => taken(&end),
                };
                return self.end(key, end).await;
            }
            _ => return self.end(key, taken(&end)).await,
        }
        let directives = end.directives(self.had_to_route(key));
        let file = |text| AgentFile { text, ..AgentFile::default() };
        let files = AgentFiles::Contents(directives.map(file).into_iter().collect());
        let interpretation = self.interpret(key, files)?;
        self.end_changed(key, Some(&end), interpretation).await
    }

    /// The end of an attempt of a changed node that asks a model.
    async fn end_changed(
        &mut self,
        key: &Key,
        recorded: Option<&End>,
        interpretation: Option<Interpretation>,
    ) -> Result<(), ReplayError> {
        match interpretation {
            Some(Interpretation::Valid { outcome, notices }) => {
                for notice in notices {
                    self.report(key, notice).await?;
                }
                let mut outcome = *outcome;
                if let Some(recorded) = recorded.map(End::outcome) {
                    outcome.usage = recorded.usage;
                    outcome.files_touched = recorded.files_touched;
                    // What the stage wrote besides its answer: notes of agents, summaries.
                    let internal = |key: &str| key.starts_with("internal.");
                    let others = recorded.context_updates.into_iter();
                    outcome.context_updates.extend(others.filter(|(key, _)| internal(key)));
                }
                self.end(key, outcome.into()).await
            }
            Some(Interpretation::Invalid { .. }) if self.may_correct(key) => {
                self.stuck(key);
                Ok(())
            }
            Some(Interpretation::Invalid { problem, .. }) => {
                let conversation = &self.attempt(key).conversation;
                let corrections = conversation.corrections;
                let reply = conversation.reply(AgentFiles::default()).unwrap_or_default();
                let outcome = invalid_outcome(&key.node, &reply, corrections, problem);
                self.end(key, outcome.into()).await
            }
            // The model failed, or the stage was ended from outside.
            None => {
                if let Some(end) = recorded.filter(|end| end.is_failure()) {
                    self.end(key, taken(end)).await
                } else {
                    self.stuck(key);
                    Ok(())
                }
            }
        }
    }

    async fn end(&mut self, key: &Key, end: StageEnd) -> Result<(), ReplayError> {
        let finished = match end {
            StageEnd::Finished(finished) => finished,
            StageEnd::CannotRecord { message } => {
                Box::new(Outcome::failed(Failure::new(FailureClass::Structural, message)).into())
            }
            StageEnd::Suspended(_) => {
                self.stuck(key);
                return Ok(());
            }
        };
        self.record.skip(key);
        self.handle(Input::Ended { branch: Arc::clone(&key.branch), finished }).await
    }

    async fn report(&mut self, key: &Key, body: EventBody) -> Result<(), ReplayError> {
        let branch = Arc::clone(&key.branch);
        let blobs = Vec::new();
        self.handle(Input::Note { branch, notes: vec![body.into()], blobs }).await
    }

    /// A note like a recorded event, with this body.
    async fn note(&mut self, key: &Key, like: &Event, body: EventBody) -> Result<(), ReplayError> {
        let note = Note {
            body,
            session_id: like.entry.session_id.clone(),
            parent_session_id: like.entry.parent_session_id.clone(),
        };
        let branch = Arc::clone(&key.branch);
        self.handle(Input::Note { branch, notes: vec![note], blobs: Vec::new() }).await
    }

    fn attempt(&mut self, key: &Key) -> &mut Attempt {
        self.attempts.entry(key.clone()).or_default()
    }

    fn stuck(&mut self, key: &Key) {
        self.attempt(key).is_stuck = true;
    }

    fn is_same(&self, key: &Key) -> bool {
        self.same.as_ref().is_none_or(|same| same.contains(&key.node))
    }

    /// Stages that cannot continue, though the record does.
    fn report_unanswered(&mut self) {
        for (key, kind) in self.running() {
            let is_stuck = self.attempts.get(&key).is_some_and(|attempt| attempt.is_stuck);
            let is_expected = self.record.has(&key) || !self.record.is_whole;
            if kind == NodeKind::Parallel || (is_expected && !is_stuck) {
                continue;
            }
            self.unanswered.push(format!("{key} needs something that was not recorded"));
        }
    }
}

fn fan_in(stage: &Stage) -> StageEnd {
    match FanIn::of(stage) {
        Ok(fan_in) => fan_in.best(Outcome::succeeded()).into(),
        Err(end) => end,
    }
}

/// The recorded end, with the prompt and the script that it names.
fn taken(end: &End) -> StageEnd {
    let mut finished = Finished::from(end.outcome());
    if let End::Completed(done) = end {
        finished.prompt = done.prompt;
        finished.script.clone_from(&done.script);
        finished.env.clone_from(&done.env);
    }
    finished.into()
}

fn inconsistent(what: impl Into<String>) -> ReplayError {
    ReplayError::Inconsistent(what.into())
}

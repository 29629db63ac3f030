//! The backends `cli` and `acp`: another program answers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use fabro_engine::{Backend, LimitReached, Reservation, Stage, StageEnd};
use fabro_events::{CompletedTool, Event, EventBody, MessagePurpose, Note, PauseReason};
use fabro_external_agents::{
    Acp, Backend as Program, BackendError, Cli, CliAgent, ContextServer, Done, Progress, Session,
    Task,
};
use fabro_redact::Unredacted;
use fabro_sandbox::git::Snapshot;
use fabro_types::{Failure, FailureClass, Outcome, Usage};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::exchange::{Conversation, NextMessage, NoReply};
use super::interpret::Reply;
use super::journal::StageJournal;
use super::prepare::StageRequest;
use super::recorded::{LastMessage, ProgramSession, RecordedConversation};
use super::{LlmHandler, canceled_with, cannot_record, context_server};
use crate::common::{known, preview, warn};
use crate::files::AgentStatus;

/// Precedes the request in a session that was interrupted.
const INTERRUPTED: &str = "Your work on this request was interrupted. Check what is done already, \
    then finish it and answer. The request was:";

/// A program that answers the request of a stage. Each message is a run of it, which continues the
/// session of the run before where the program can.
pub(super) struct ExternalConversation<'a> {
    handler: &'a LlmHandler,
    program: Box<dyn Program>,
    name: String,
    /// Who serves the program's models, where that is known.
    vendor: Option<String>,
    request: &'a str,
    work_dir: PathBuf,
    /// Tells the program what the workflow knows.
    context_server: Option<ContextServer>,
    before: Option<Arc<Snapshot>>,
    status: AgentStatus,
    so_far: RecordedConversation,
    /// The session that could not be continued.
    lost_session: Option<String>,
    journal: StageJournal,
    /// The price of something it used is not known.
    unpriced: Arc<AtomicBool>,
    /// It answered without a report of what it used.
    unreported: bool,
}

/// The next run of the program.
struct Run {
    /// What it is asked in a new session.
    prompt: String,
    /// What it is asked in the session of the run before.
    continuation: Option<String>,
    /// The message to record, unless it is recorded already.
    message: Option<Note>,
}

/// What became known of a run while it ran.
#[derive(Default)]
struct RunReport {
    usage: Vec<Usage>,
    session: Option<String>,
    /// The model answered.
    has_worked: bool,
}

impl<'a> ExternalConversation<'a> {
    pub(super) async fn new(
        handler: &'a LlmHandler,
        stage: &Stage,
        request: &'a StageRequest,
        recorded: &[Event],
    ) -> Result<Self, StageEnd> {
        let ExternalProgram { name, vendor, program } = program(handler, stage)?;
        let work_dir = Path::new(&stage.run.work_dir).to_owned();
        let status = AgentStatus::before(&work_dir, recorded.first().map(|first| first.ts_ms));
        let before = known(stage, handler.tree.before(&work_dir).await).await;
        let mut so_far = RecordedConversation::read(stage, recorded)?;
        for note in &request.notes {
            if let Some(usage) = note.body.request_usage() {
                so_far.usage.add(usage);
            }
        }
        Ok(Self {
            handler,
            program,
            name,
            vendor,
            request: &request.message,
            work_dir,
            context_server: context_server::of(handler, stage, request).await,
            before,
            status,
            so_far,
            lost_session: None,
            journal: StageJournal::new(stage.reporter.clone()),
            unpriced: Arc::default(),
            unreported: false,
        })
    }

    /// Whether the conversation was begun before, and resumes now.
    pub(super) fn is_interrupted(&self) -> bool {
        self.so_far.last.is_some()
    }

    /// Warns when the spending limit of the run does not count what was used.
    pub(super) async fn warn_of_unknown_price(&self, stage: &Stage) {
        let model = self.so_far.usage.model.clone();
        let model = model.unwrap_or_else(|| format!("the model of {}", self.name));
        if self.unpriced.load(Ordering::Relaxed) {
            super::settings::warn_of_unknown_price(stage, &format!("the price of {model}")).await;
        } else if self.unreported {
            super::settings::warn_of_unknown_price(stage, &format!("what {} uses", self.name))
                .await;
        }
    }

    /// Runs the program, in a session that it continues, and records what is known of the run.
    async fn run(
        &mut self,
        stage: &Stage,
        prompt: &str,
        session: Option<&ProgramSession>,
        budget_usd: Option<f64>,
        message: &mut Option<Note>,
    ) -> Result<(Result<Done, BackendError>, RunReport), StageEnd> {
        let agents = &self.handler.agents;
        let logs = stage.dir();
        let model = self.handler.model_name(stage);
        let reporter = stage.reporter.clone();
        let (sessions, mut begun) = mpsc::unbounded_channel();
        let report = Mutex::new(RunReport::default());
        let on_event = |progress| {
            reporter.touch();
            match progress {
                // The receiver lives as long as this run.
                Progress::Session(id) => drop(sessions.send(id)),
                Progress::Usage(usage) => {
                    let mut report = report.lock();
                    report.has_worked |= usage.iter().any(|used| used.output_tokens > 0);
                    report.usage = usage;
                }
                Progress::Text(_) | Progress::Tool { .. } => report.lock().has_worked = true,
                _ => {}
            }
        };
        let task = Task {
            model: model.as_deref(),
            env: &agents.backend_env,
            keys: &agents.backend_keys,
            permissions: self.handler.permissions(stage),
            cancel: stage.cancel.clone(),
            resume: session.map(|session| Session { id: &session.id, used: &session.used }),
            budget_usd,
            redactor: agents.redactor.clone(),
            on_event: &on_event,
            sandbox: agents.sandbox.as_deref(),
            context_server: self.context_server.as_ref(),
            ..Task::new(prompt, &self.work_dir, &logs)
        };
        let mut running = std::pin::pin!(self.program.run(task));
        let mut session_id = None;
        let ended = loop {
            tokio::select! {
                biased;
                Some(id) = begun.recv() => {
                    // A driver that dies from now on continues the session.
                    record_message(&self.journal, message, &id).await?;
                    session_id = Some(id);
                }
                ended = &mut running => break ended,
            }
        };
        while let Ok(id) = begun.try_recv() {
            session_id = Some(id);
        }
        let mut report = std::mem::take(&mut *report.lock());
        report.session = session_id;
        for used in &mut report.usage {
            used.provider.clone_from(&self.vendor);
            self.handler.price_sum(used, &self.unpriced);
        }
        Ok((ended, report))
    }

    /// Reserves a share of the remaining budget, if the program accepts a spending limit.
    fn reserve(&self, stage: &Stage) -> Result<Option<Reservation>, StageEnd> {
        let reserved = if self.program.takes_budget() {
            stage.budget.reserve()
        } else if stage.budget.may_spend() {
            Ok(None)
        } else {
            Err(LimitReached)
        };
        // The stage continues when budget is available again.
        reserved.map_err(|LimitReached| StageEnd::Suspended(PauseReason::Budget))
    }

    /// Runs the program for a message: in the session of the run before where that is possible.
    async fn send(&mut self, stage: &Stage, run: Run) -> Result<Done, NoReply> {
        let mut message = run.message;
        if let (Some(prompt), Some(session)) = (&run.continuation, self.so_far.session.clone()) {
            let reservation = self.reserve(stage)?;
            let budget_usd = reservation.as_ref().map(Reservation::dollars);
            let (ended, report) =
                self.run(stage, prompt, Some(&session), budget_usd, &mut message).await?;
            match ended {
                Err(error) if !report.has_worked && error.may_be_of_session() => {
                    let warning = format!("{error}; a new session is started");
                    warn(&stage.reporter, "backend", warning).await;
                    self.lost_session = self.so_far.session.take().map(|session| session.id);
                }
                ended => return self.ended(stage, ended, report, (message, reservation)).await,
            }
        }
        let reservation = self.reserve(stage)?;
        let budget_usd = reservation.as_ref().map(Reservation::dollars);
        let (ended, report) = self.run(stage, &run.prompt, None, budget_usd, &mut message).await?;
        self.ended(stage, ended, report, (message, reservation)).await
    }

    /// Records a run that has ended.
    async fn ended(
        &mut self,
        stage: &Stage,
        ended: Result<Done, BackendError>,
        report: RunReport,
        (message, reservation): (Option<Note>, Option<Reservation>),
    ) -> Result<Done, NoReply> {
        let mut used = Usage::default();
        report.usage.iter().for_each(|of_model| used.add(of_model));
        let is_used = used.input_tokens + used.output_tokens > 0 || used.cost_usd > 0.0;
        self.unreported |= ended.is_ok() && !is_used;
        let is_unknown_end = matches!(ended, Err(BackendError::Log { .. }));
        let mut notes = Vec::new();
        match &ended {
            Ok(done) => {
                used.turns = used.turns.max(1);
                if !is_used {
                    used.unpriced_requests = used.turns;
                }
                notes.push(note("assistant", &done.text, Some(used.clone()), None));
            }
            Err(error) if is_used => {
                let text = preview(&error.to_string());
                // What it used is known, and it is no part of the conversation.
                notes.push(usage_note(text, used.clone()));
            }
            Err(_) => used = Usage::default(),
        }
        if report.session.is_some() || !notes.is_empty() {
            notes.splice(0..0, message);
        }
        self.so_far.usage.add(&used);
        self.so_far.used(report.session.as_deref(), &used);
        for note in &mut notes {
            note.session_id = report.session.as_deref().map(Arc::from);
        }
        let recorded = record(&self.journal, notes).await;
        match (&ended, reservation) {
            (Err(BackendError::Budget { .. }), Some(part)) => part.used_up(used.cost_usd),
            // Releases the rest of the reservation.
            (_, part) => drop(part),
        }
        match ended {
            Ok(done) => {
                recorded?;
                for warning in &done.warnings {
                    warn(&stage.reporter, "backend", warning.clone()).await;
                }
                Ok(done)
            }
            Err(error) => {
                let is_stopped = matches!(error, BackendError::Canceled) || is_unknown_end;
                // A driver that ends takes no more records.
                if !is_stopped {
                    recorded?;
                }
                Err(self.no_reply(stage, error, is_used).await)
            }
        }
    }

    async fn no_reply(&mut self, stage: &Stage, error: BackendError, is_used: bool) -> NoReply {
        let usage = self.so_far.usage.clone();
        let failed_turns = u32::from(!is_used);
        match error {
            BackendError::Canceled => {
                let turns = usage.turns.saturating_sub(u32::from(is_used));
                return NoReply::Failed(Box::new(canceled_with(Usage { turns, ..usage })));
            }
            BackendError::Log { path, source } => {
                return cannot_record(format!("write {}: {source}", path.display())).into();
            }
            _ => {}
        }
        let files_touched = self.touched(stage).await;
        if let Err(end) = self.record_touched(&files_touched).await {
            return end.into();
        }
        if matches!(error, BackendError::Budget { .. }) {
            // The session continues when there is more to spend.
            return StageEnd::Suspended(PauseReason::Budget).into();
        }
        let usage = Some(Usage { turns: usage.turns + failed_turns, ..usage });
        let failure = Failure::from(error);
        let failed = Outcome::failed(match &self.lost_session {
            Some(session) => with_session(failure, session),
            None => failure,
        });
        NoReply::Failed(Box::new(Outcome { usage, files_touched, ..failed }))
    }

    /// The files that all runs touched.
    async fn touched(&self, stage: &Stage) -> Vec<String> {
        let touched = self.handler.tree.touched(&self.work_dir, self.before.as_deref()).await;
        let mut all = self.so_far.files_touched.clone();
        all.extend(known(stage, touched).await);
        all.into_iter().collect()
    }

    /// Records files that were touched: a driver that resumes the stage compares with what it finds.
    async fn record_touched(&mut self, files: &[String]) -> Result<(), StageEnd> {
        if files.iter().all(|file| self.so_far.files_touched.contains(file)) {
            return Ok(());
        }
        self.so_far.files_touched.extend(files.iter().cloned());
        let body = EventBody::AgentToolCompleted(Box::new(CompletedTool {
            call_id: self.name.clone(),
            tool: self.name.clone(),
            is_error: false,
            output: Arc::new(Value::from("")),
            files_read: Vec::new(),
            files_modified: files.to_vec(),
            files_seen: [].into(),
            duration_ms: 0,
        }));
        record(&self.journal, vec![body.into()]).await
    }

    async fn reply(&self, stage: &Stage, text: String, unredacted: Option<Unredacted>) -> Reply {
        Reply {
            text,
            unredacted,
            is_cut_off: false,
            is_unchanged: false,
            usage: self.so_far.usage.clone(),
            files_touched: self.touched(stage).await,
            files: self.handler.agent_files(stage, &self.status, None).await,
        }
    }

    /// The run that corrects an answer.
    fn correction(&self, answer: &str, feedback: &str) -> Run {
        let prompt = format!("{}\n\nYou answered:\n\n{answer}\n\n{feedback}", self.request);
        Run { prompt, continuation: Some(feedback.to_owned()), message: None }
    }

    /// The run after an interruption; `None` when the answer was recorded already.
    fn resumed(&self) -> Option<Run> {
        let interrupted = |text: &str| Some(format!("{INTERRUPTED}\n\n{text}"));
        match &self.so_far.last {
            Some(LastMessage::Answer) => None,
            Some(LastMessage::Correction(feedback)) => {
                let answer = self.so_far.answer.as_deref().unwrap_or_default();
                let run = self.correction(answer, feedback);
                Some(Run { continuation: interrupted(feedback), ..run })
            }
            Some(LastMessage::Request) | None => Some(Run {
                prompt: self.request.to_owned(),
                continuation: interrupted(self.request),
                message: None,
            }),
        }
    }
}

#[async_trait]
impl Conversation for ExternalConversation<'_> {
    async fn ask(&mut self, stage: &mut Stage, message: NextMessage) -> Result<Reply, NoReply> {
        let run = match message {
            NextMessage::Correction { feedback, answer } => {
                let touched = self.touched(stage).await;
                self.record_touched(&touched).await?;
                self.so_far.corrections += 1;
                let sent = note("user", &feedback, None, Some(MessagePurpose::Correction));
                Run { message: Some(sent), ..self.correction(&answer, &feedback) }
            }
            NextMessage::Request(prompt) => {
                let sent = note("user", &prompt, None, Some(MessagePurpose::Request));
                Run { prompt, continuation: None, message: Some(sent) }
            }
            NextMessage::Resume => match (self.resumed(), self.so_far.answer.clone()) {
                (None, Some(answer)) => return Ok(self.reply(stage, answer, None).await),
                (run, _) => run.ok_or_else(|| cannot_record("an answer is lost"))?,
            },
        };
        let done = self.send(stage, run).await?;
        Ok(self.reply(stage, done.text, done.unredacted).await)
    }

    fn corrections(&self) -> u32 {
        self.so_far.corrections
    }
}

fn note(role: &str, text: &str, usage: Option<Usage>, purpose: Option<MessagePurpose>) -> Note {
    EventBody::AgentMessage {
        role: role.to_owned(),
        text: preview(text),
        message: Some(Value::from(text).into()),
        usage,
        given: None,
        purpose,
    }
    .into()
}

/// What a run used that gave no answer.
fn usage_note(text: String, usage: Usage) -> Note {
    let role = "system".to_owned();
    let usage = Some(usage);
    EventBody::AgentMessage { role, text, message: None, usage, given: None, purpose: None }.into()
}

/// Records the message that a session was given, once.
async fn record_message(
    journal: &StageJournal,
    message: &mut Option<Note>,
    session: &str,
) -> Result<(), StageEnd> {
    let Some(message) = message.take() else { return Ok(()) };
    record(journal, vec![Note { session_id: Some(session.into()), ..message }]).await
}

async fn record(journal: &StageJournal, notes: Vec<Note>) -> Result<(), StageEnd> {
    if notes.is_empty() {
        return Ok(());
    }
    let record = fabro_agent::Record { notes, tickets: Vec::new() };
    fabro_agent::Journal::record(journal, record).await.map_err(cannot_record)
}

/// Adds to the failure which session could not be continued.
fn with_session(failure: Failure, session: &str) -> Failure {
    let text = format!(
        "session {session} could not be continued; `fabro rewind` the run to the previous stage to start over with a new session"
    );
    match failure.unavailable {
        Some(remedy) => Failure { unavailable: Some(format!("{remedy}; {text}")), ..failure },
        None => Failure { details: Some(text), ..failure },
    }
}

/// The program that a stage runs.
struct ExternalProgram {
    name: String,
    /// Who serves its models, where that is known.
    vendor: Option<String>,
    program: Box<dyn Program>,
}

fn program(handler: &LlmHandler, stage: &Stage) -> Result<ExternalProgram, Failure> {
    let failed = |message: String| Failure::new(FailureClass::Structural, message);
    if let Backend::Acp { command, config } = super::backend(stage) {
        let Some(command) = command else {
            let message = "backend=acp needs acp.command: the program to start";
            return Err(failed(message.to_owned()));
        };
        let none = Value::Object(Map::new());
        let agent = Acp::new(command, config.as_ref().unwrap_or(&none))?;
        let name = agent.name().to_owned();
        return Ok(ExternalProgram { name, vendor: None, program: Box::new(agent) });
    }
    let provider = handler.provider_name(stage).or_else(|| {
        let model = handler.model_name(stage)?;
        handler.agents.catalog.find(&model)?.provider.clone()
    });
    let provider = provider.as_deref().unwrap_or("anthropic");
    match CliAgent::of_provider(provider) {
        Some(agent) => Ok(ExternalProgram {
            name: agent.name().to_owned(),
            vendor: Some(provider.to_owned()),
            program: Box::new(Cli::new(agent)),
        }),
        None => Err(failed(format!(
            "no command-line agent for provider `{provider}`: use anthropic (claude), openai (codex), gemini or antigravity (agy)"
        ))),
    }
}

//! The session: what it keeps, and the loop of its turns.

mod agents;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use fabro_compaction::Compactor;
use fabro_events::{EventBody, Given, MessagePurpose, Note};
use fabro_llm::{Message, Role, ToolSpec};
use fabro_redact::Unredacted;
use fabro_tools::ToolSet;
use fabro_types::Usage;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::agents::Agents;
use crate::conversation::Conversation;
use crate::ledger::Ledger;
use crate::message::{Turned, preview, shorten_results, user_note};
use crate::prefix::{is_same, meter, opened, recorded_prefix};
use crate::repeats::{self, RepeatAction, Repeats};
use crate::steering::{SteeringQueue, steering};
use crate::transcript::{Earlier, INTERRUPTED, OpenCalls};
use crate::{Parts, Record, SessionError, Steer, Steering, Transcript};

/// Asks the model to continue an answer that reached its token limit.
pub(crate) const CONTINUE: &str = "[Your answer reached its limit of tokens and was cut off. Go on \
    exactly where it stopped; do not repeat what you said.]";

/// Asks for an answer where there was none.
pub(crate) const NUDGE: &str = "[Your answer was empty. Go on with the work if it is not done; \
    otherwise answer now with what was asked for.]";

/// Where that message comes from, in its note.
pub(crate) const NUDGE_SOURCE: &str = "empty_answer";

/// The kind of the warning that reports a correction.
const CORRECTION_WARNING: &str = "output_schema";

/// What a result may have in any window, in characters.
const LEAST_RESULT: usize = 1_000;

/// How often in a row an answer that was cut off is continued.
pub(crate) const MAX_CONTINUATIONS: u32 = 3;

/// A conversation of a model with its tools, until the model has answered.
pub struct Session {
    pub(crate) parts: Arc<Parts>,
    /// The tools of the parts, and those for agents of the session's own.
    pub(crate) tools: ToolSet,
    pub(crate) specs: Arc<[ToolSpec]>,
    pub(crate) system: Option<Arc<Message>>,
    pub(crate) messages: Conversation,
    /// Its policy, window, file list and token count.
    pub(crate) compactor: Compactor,
    /// What the model gets besides the messages, until it is recorded.
    pub(crate) given: Option<Box<Given>>,
    pub(crate) ledger: Arc<Ledger>,
    /// What the next record begins with.
    pub(crate) pending: Record,
    /// What failed requests used since the last answer.
    pub(crate) carried: Usage,
    pub(crate) steering: Steering,
    pub(crate) steering_queue: SteeringQueue,
    pub(crate) repeats: Repeats,
    pub(crate) turns: u32,
    /// Answers in a row that were cut off.
    pub(crate) cuts: u32,
    /// The parts of the current answer that were cut off and continued.
    pub(crate) partial_answer: String,
    /// The current answer before redaction, with its parts joined; `None` for an answer restored
    /// from the log.
    pub(crate) unredacted: Option<String>,
    /// The last answer is not whole, and is not continued any more.
    pub(crate) is_cut_off: bool,
    pub(crate) corrections: u32,
    /// Ids of all calls there ever were, so that each is there once, in the record too.
    pub(crate) ids: HashSet<String>,
    /// Calls of an earlier process, or from before a pause, that have no results yet.
    pub(crate) open: Option<OpenCalls>,
    /// What loop detection does about the last turn of an earlier process.
    due: RepeatAction,
    /// Tools for which the user has been warned that they are not permitted.
    pub(crate) refused: BTreeSet<String>,
    /// The window was nearly full the last time.
    pub(crate) is_tight: bool,
    /// The next summary is requested after this many turns.
    pub(crate) shorten_from: u32,
    /// Compaction left more than the window takes.
    pub(crate) is_stuck: bool,
    pub(crate) agents: Option<Arc<Agents>>,
    /// Gets a message when the model has the first request.
    pub(crate) began: Option<oneshot::Sender<()>>,
}

/// The result of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The text of the last answer; parts of one that was cut off are joined.
    pub text: String,
    /// The text before redaction, if redaction changed it; `None` for an answer restored from the
    /// log.
    pub unredacted: Option<Unredacted>,
    /// It is not whole: it reached its limit of tokens again and again.
    pub is_cut_off: bool,
    /// What the session has used so far: before a crash, for summaries and by agents that it began
    /// too.
    pub usage: Usage,
    /// Files that were written, changed or removed by calls that succeeded, sorted, each once.
    pub files_touched: Vec<String>,
    /// The last of them in time.
    pub last_file_touched: Option<String>,
    /// How many turns the model has had.
    pub turns: u32,
}

impl Session {
    /// A session without messages.
    pub fn new(parts: Parts) -> Self {
        Self::in_family(parts, Arc::default())
    }

    /// A session that counts what it uses together with others.
    pub(crate) fn in_family(parts: Parts, ledger: Arc<Ledger>) -> Self {
        let parts = Arc::new(parts);
        let settings = &parts.settings;
        let mut tools = parts.tools.clone();
        if let Some(window) = settings.window {
            // A token is estimated at four characters: one result takes a quarter of the window.
            let chars = usize::try_from(window).unwrap_or(usize::MAX);
            tools = tools.bounded(chars.max(LEAST_RESULT));
        }
        let agents = (settings.subagent_depth > 0).then(|| Agents::new(&parts, &ledger));
        if let Some(agents) = &agents {
            tools = agents.tools().into_iter().fold(tools, ToolSet::with);
        }
        let (steering, steering_queue) = steering();
        let specs = tools.specs(settings.permissions);
        let system = (!settings.system.is_empty())
            .then(|| Arc::new(Message::system(settings.system.clone())));
        let mut session = Self {
            compactor: Compactor {
                meter: meter(settings, &specs),
                ..Compactor::new(settings.compaction, settings.window)
            },
            given: recorded_prefix(settings, &specs),
            specs,
            tools,
            system,
            messages: Conversation::default(),
            ledger,
            pending: Record::default(),
            carried: Usage::default(),
            steering,
            steering_queue,
            repeats: Repeats::default(),
            turns: 0,
            cuts: 0,
            partial_answer: String::new(),
            unredacted: None,
            is_cut_off: false,
            corrections: 0,
            ids: HashSet::new(),
            open: None,
            due: RepeatAction::None,
            refused: BTreeSet::new(),
            is_tight: false,
            shorten_from: 0,
            is_stuck: false,
            agents,
            began: None,
            parts,
        };
        if let Some(warning) = session.parts.settings.compaction.replay_warning() {
            session.warn("compaction", warning);
        }
        session
    }

    /// Puts the conversation of an earlier stage before what follows: the session continues its
    /// thread and knows the files that were read there. The usage and files of that stage are not
    /// this session's.
    pub fn recall(&mut self, thread: Transcript) {
        let Transcript { files, open, .. } = self.take_messages(thread);
        self.compactor.files.merge(files);
        if let Some(open) = open {
            // Recalling it again gives the same, so it needs no record.
            let (message, _) = open.settle(&mut Repeats::default());
            self.push(Arc::new(message));
        }
    }

    /// Restores this session's own conversation where it was interrupted: after [`recall`], if
    /// there is a thread, and before the first message.
    ///
    /// [`recall`]: Self::recall
    pub fn restore(&mut self, transcript: Transcript) {
        let has_begun = !transcript.is_empty();
        let transcript = self.take_messages(transcript);
        self.turns += transcript.turns;
        self.corrections += transcript.corrections;
        self.cuts = transcript.cuts;
        self.repeats = transcript.repeats.clone();
        self.ledger.restore(transcript.totals.clone());
        let subagents = transcript.subagents.clone();
        match &self.agents {
            Some(agents) => agents.restore(transcript.spawned, subagents),
            None => self.closed(subagents.into_keys()),
        }
        if has_begun {
            self.has_begun(transcript.given.as_deref());
        }
        self.due = transcript.due.clone();
        let Transcript { files, open, .. } = transcript;
        self.compactor.files.merge(files);
        self.open = open;
    }

    /// Sends a message to the model and runs turns until it answers without a call. `cancel` ends
    /// the model's turn or the running tools; nothing of those is recorded.
    ///
    /// # Errors
    ///
    /// There is no answer: see [`SessionError`]. What was recorded before that stays.
    pub async fn send(
        &mut self,
        text: String,
        cancel: &CancellationToken,
    ) -> Result<Answer, SessionError> {
        self.send_for(MessagePurpose::Request, text, cancel).await
    }

    async fn send_for(
        &mut self,
        purpose: MessagePurpose,
        text: String,
        cancel: &CancellationToken,
    ) -> Result<Answer, SessionError> {
        self.resume_agents(cancel).await?;
        self.settle();
        self.repeats = Repeats::default();
        self.due = RepeatAction::None;
        self.cuts = 0;
        let given = self.given.take();
        let opening = given.as_ref().and_then(|given| given.opening.as_ref());
        let shown = match opening.and_then(|opening| opening.as_str()) {
            Some(opening) => opened(opening, &text),
            None => text.clone(),
        };
        self.note(user_note(&text, purpose, given));
        self.push(Arc::new(Message::user(shown)));
        self.run(cancel).await
    }

    /// Sends a correction: what is wrong with the last answer.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn correct(
        &mut self,
        text: String,
        cancel: &CancellationToken,
    ) -> Result<Answer, SessionError> {
        self.corrections += 1;
        self.warn(CORRECTION_WARNING, &preview(&text));
        self.send_for(MessagePurpose::Correction, text, cancel).await
    }

    /// Resumes a conversation that was [restored](Self::restore): gives its answer when it has
    /// one, without asking again; shows the model calls without a result as interrupted otherwise,
    /// and runs turns until it answers.
    ///
    /// # Errors
    ///
    /// [`SessionError::NothingToResume`] without any message; else as [`send`](Self::send).
    pub async fn resume(&mut self, cancel: &CancellationToken) -> Result<Answer, SessionError> {
        let is_finished =
            self.open.is_none() && self.is_answered() && self.steering_queue.is_empty();
        if is_finished {
            let interrupted = self.agents.as_ref().map(|agents| agents.forget());
            self.closed(interrupted.unwrap_or_default());
        } else {
            self.resume_agents_and_wait(cancel).await?;
        }
        self.settle();
        let due = std::mem::take(&mut self.due);
        self.warn_or_stop(due)?;
        match self.messages.last() {
            None => Err(SessionError::NothingToResume),
            Some(Turned(last))
                if last.role == Role::Assistant && self.steering_queue.is_empty() =>
            {
                self.flush().await?;
                Ok(self.answer())
            }
            Some(_) => self.run(cancel).await,
        }
    }

    /// Sends messages to the agent while it is running.
    pub fn steering(&self) -> Steering {
        self.steering.clone()
    }

    /// The conversation, oldest message first, without the system prompt.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = &Arc<Message>> {
        self.messages.iter().map(|message| &message.0)
    }

    /// What the session has used so far, agents that it began included.
    pub fn usage(&self) -> Usage {
        self.ledger.usage()
    }

    /// Files that were written, changed or removed so far, as in an [`Answer`].
    pub fn files_touched(&self) -> Vec<String> {
        self.ledger.get().touched.into_iter().collect()
    }

    /// How many [corrections](Self::correct) there were, those before a crash included.
    pub fn corrections(&self) -> u32 {
        self.corrections
    }

    /// What the conversation is estimated to take of the model's window, in tokens.
    pub fn estimated_tokens(&mut self) -> u64 {
        self.window_use().estimated_tokens
    }

    /// The answer so far, whether or not the conversation has ended.
    pub(crate) fn answer(&self) -> Answer {
        let totals = self.ledger.get();
        let text = self.last_text();
        let unredacted = self.unredacted.as_ref().filter(|unredacted| **unredacted != text);
        Answer {
            unredacted: unredacted.map(Unredacted::new),
            text,
            is_cut_off: self.is_cut_off,
            usage: totals.usage,
            files_touched: totals.touched.into_iter().collect(),
            last_file_touched: totals.last_touched,
            turns: self.turns,
        }
    }

    async fn run(&mut self, cancel: &CancellationToken) -> Result<Answer, SessionError> {
        let end = self.run_turns(cancel).await;
        self.close(end, cancel).await?;
        Ok(self.answer())
    }

    async fn run_turns(&mut self, cancel: &CancellationToken) -> Result<(), SessionError> {
        loop {
            self.take_steering();
            self.check_limits()?;
            self.make_room(cancel).await?;
            let reply = self.ask(cancel).await?;
            let calls = self.take_reply(reply).await?;
            if !calls.is_empty() {
                self.run_calls(calls, cancel).await?;
            } else if self.is_answered() && self.steering_queue.is_empty() {
                return Ok(());
            }
        }
    }

    fn is_answered(&self) -> bool {
        self.messages.last().is_some_and(|last| last.0.role == Role::Assistant)
    }

    /// Whether the model may have another turn.
    fn check_limits(&self) -> Result<(), SessionError> {
        let settings = &self.parts.settings;
        if self.turns >= settings.max_turns {
            return Err(SessionError::TurnLimit { max: settings.max_turns });
        }
        match &settings.may_ask {
            Some(may_ask) if !may_ask(&self.ledger.usage()) => Err(SessionError::Budget),
            _ => Ok(()),
        }
    }

    fn take_steering(&mut self) {
        for Steer { text, source, ticket } in self.steering_queue.take() {
            self.pending.tickets.extend(ticket);
            self.push_steering(text, &source);
        }
    }

    pub(crate) fn push_steering(&mut self, text: String, source: &str) {
        self.note(EventBody::AgentSteered { text: text.clone(), source: source.to_owned() });
        self.push(Arc::new(Message::user(text)));
    }

    /// Warns or stops an agent that repeats its calls.
    pub(crate) fn warn_or_stop(&mut self, action: RepeatAction) -> Result<(), SessionError> {
        match action {
            RepeatAction::Warn(text) if self.parts.settings.loop_detection => {
                self.push_steering(text, repeats::SOURCE);
                Ok(())
            }
            RepeatAction::Stop { calls } if self.parts.settings.loop_detection => {
                Err(SessionError::Loop { warnings: repeats::MOST_WARNINGS, calls })
            }
            _ => Ok(()),
        }
    }

    /// Gives calls of an earlier process their results: those that are known, and for the others
    /// that they were interrupted.
    pub(crate) fn settle(&mut self) {
        let Some(open) = self.open.take() else { return };
        for call in open.missing() {
            let done = fabro_events::CompletedTool {
                call_id: call.id.clone(),
                tool: call.name.clone(),
                is_error: true,
                output: Arc::new(INTERRUPTED.into()),
                files_read: Vec::new(),
                files_modified: Vec::new(),
                files_seen: BTreeMap::new(),
                duration_ms: 0,
            };
            self.note(EventBody::AgentToolCompleted(Box::new(done)));
        }
        let (message, action) = open.settle(&mut self.repeats);
        self.push(Arc::new(message));
        self.due = action;
    }

    /// The last answer, with the parts before it that were cut off.
    fn last_text(&self) -> String {
        match self.messages.last() {
            Some(Turned(last)) if last.role == Role::Assistant => {
                format!("{}{}", self.partial_answer, last.text())
            }
            _ => String::new(),
        }
    }

    /// The first message was sent, with this.
    fn has_begun(&mut self, before: Option<&Given>) {
        let Some(now) = &mut self.given else { return };
        now.opening = None;
        let is_known = before.is_some_and(|before| is_same(before, now));
        if is_known || **now == Given::default() {
            self.given = None;
        }
    }

    /// Puts the messages of a transcript behind those that are there.
    fn take_messages(&mut self, mut transcript: Transcript) -> Transcript {
        self.ids.extend(std::mem::take(&mut transcript.ids));
        let messages = self.messages.change();
        let mut shortened = std::mem::take(&mut transcript.shortened_before);
        if !shortened.is_empty() {
            let before = std::mem::take(messages).into_iter();
            let mut before: Vec<_> = before.map(|message| message.0).collect();
            shorten_results(&mut before, &mut shortened);
            *messages = before.into_iter().map(Turned).collect();
        }
        match std::mem::take(&mut transcript.earlier) {
            Earlier::Whole => {}
            Earlier::Gone => messages.clear(),
            Earlier::Last { summary, count } => {
                let old = messages.len().saturating_sub(count);
                messages.splice(..old, [Turned(summary)]);
            }
        }
        // What was counted may be gone.
        self.compactor.meter.track::<Turned>(&[]);
        self.tools.add_known_files(&transcript.files_seen);
        for message in std::mem::take(&mut transcript.messages) {
            self.push(message);
        }
        self.partial_answer = std::mem::take(&mut transcript.partial_answer);
        self.is_cut_off = transcript.is_cut_off;
        transcript
    }

    pub(crate) fn push(&mut self, message: Arc<Message>) {
        self.is_cut_off = false;
        if message.role != Role::Assistant {
            self.partial_answer.clear();
            self.unredacted = None;
        }
        self.messages.push(message);
    }

    /// Adds a note to the next record.
    pub(crate) fn note(&mut self, body: EventBody) {
        let note = self.parts.note(body);
        self.pending.notes.push(note);
    }

    pub(crate) fn warn(&mut self, kind: &str, message: &str) {
        self.note(EventBody::AgentWarning {
            kind: kind.to_owned(),
            message: message.to_owned(),
            window: None,
        });
    }

    /// Records what is still to be recorded.
    pub(crate) async fn flush(&mut self) -> Result<(), SessionError> {
        let record = std::mem::take(&mut self.pending);
        if record == Record::default() {
            return Ok(());
        }
        Ok(self.parts.journal.record(record).await?)
    }
}

impl Parts {
    pub(crate) fn note(&self, body: EventBody) -> Note {
        Note {
            body,
            session_id: Some(Arc::clone(&self.id)),
            parent_session_id: self.parent.clone(),
        }
    }
}

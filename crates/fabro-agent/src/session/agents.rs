//! The subagents of a session: started, sent messages, paused, resumed and closed.

mod session;
mod tools;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use fabro_events::EventBody;
use fabro_tools::Tool;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::ledger::Ledger;
use crate::message::preview;
use crate::subagent_calls::{SOURCE, SUBAGENT_TOOLS, SpawnArguments};
use crate::transcript::OpenSubagent;
use crate::{JournalError, Parts, Record, Session, SessionError, Steer, Steering};

/// The agents of one session.
pub(crate) struct Agents {
    /// The session that they belong to.
    parent: Arc<Parts>,
    ledger: Arc<Ledger>,
    state: Mutex<State>,
    /// One of them is paused.
    spent: Arc<watch::Sender<bool>>,
    /// Those that run at the same time; others are queued.
    slots: Arc<Semaphore>,
}

#[derive(Default)]
struct State {
    /// How many were started so far.
    begun: u32,
    agents: BTreeMap<Arc<str>, Arc<Agent>>,
    /// Those that an earlier process had not closed, until they are resumed.
    interrupted: Vec<(String, OpenSubagent)>,
    /// Those that have ended, and why.
    gone: BTreeMap<Arc<str>, &'static str>,
}

struct Agent {
    status: Arc<watch::Sender<Status>>,
    steering: Steering,
    /// Cancels it; so does dropping this.
    cancel: CancellationToken,
    _ends: DropGuard,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// The state of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Status {
    Running,
    Answered(String),
    Failed(String),
    /// It resumes when there is more to spend.
    Paused,
    Ended,
}

/// The first thing that an agent does.
enum Start {
    Task(String),
    Resume,
    /// It waits for a message.
    Wait,
}

const SUBAGENT: &str = "You work for another agent, which gave you a task and sees nothing of your \
    work but your last answer. Do the task and nothing else, and answer with what was asked for: \
    results, names of files, and what you could not do.";

impl Agents {
    pub(crate) fn new(parent: &Arc<Parts>, ledger: &Arc<Ledger>) -> Arc<Self> {
        let parent = Arc::clone(parent);
        let ledger = Arc::clone(ledger);
        let spent = Arc::new(watch::Sender::new(false));
        let slots = Arc::new(Semaphore::new(parent.settings.max_subagents.max(1)));
        Arc::new(Self { parent, ledger, state: Mutex::default(), spent, slots })
    }

    /// The tools by which the model controls them.
    pub(crate) fn tools(self: &Arc<Self>) -> Vec<Arc<dyn Tool>> {
        tools::tools(self)
    }

    /// Counts those that an earlier process began, and remembers those that it had not closed.
    pub(crate) fn restore(&self, begun: u32, interrupted: BTreeMap<String, OpenSubagent>) {
        let mut state = self.state.lock();
        state.begun += begun;
        state.interrupted.extend(interrupted);
    }

    /// Resumes agents that an earlier process had not closed, and those that are paused. Gives those
    /// that cannot be resumed.
    pub(crate) async fn resume(&self) -> Vec<String> {
        self.spent.send_replace(false);
        let agents: Vec<_> = self.state.lock().agents.values().cloned().collect();
        for agent in agents {
            agent.status.send_if_modified(|status| {
                let is_paused = *status == Status::Paused;
                if is_paused {
                    *status = Status::Running;
                }
                is_paused
            });
        }
        let mut lost = Vec::new();
        let interrupted = std::mem::take(&mut self.state.lock().interrupted);
        for (id, subagent) in interrupted {
            if !self.restart(&id, subagent).await {
                self.state.lock().gone.insert(Arc::from(id.as_str()), LOST);
                lost.push(id);
            }
        }
        lost
    }

    /// Those of an earlier process that were not resumed: they are forgotten.
    pub(crate) fn forget(&self) -> Vec<String> {
        let interrupted = std::mem::take(&mut self.state.lock().interrupted);
        interrupted.into_iter().map(|(id, _)| id).collect()
    }

    /// Waits until one of them is paused.
    pub(crate) async fn spent(&self) {
        // Its other end is kept here.
        let _ = self.spent.subscribe().wait_for(|spent| *spent).await;
    }

    /// Waits until no subagent is running.
    pub(crate) async fn wait_until_idle(&self) {
        for id in self.ids() {
            // One that has ended is idle.
            let _ = self.wait(&id, |status| *status != Status::Running).await;
        }
    }

    /// Ends all agents without recording it, so that another process may resume them.
    pub(crate) async fn stop_all(&self) {
        let agents = std::mem::take(&mut self.state.lock().agents);
        for agent in agents.values() {
            agent.cancel.cancel();
        }
        for agent in agents.into_values() {
            agent.stop().await;
        }
    }

    /// Ends all agents: those that are queued are not to begin when others end.
    pub(crate) async fn close_all(&self) -> Result<(), JournalError> {
        self.state.lock().agents.values().for_each(|agent| agent.cancel.cancel());
        for id in self.ids() {
            self.close(&id).await?;
        }
        Ok(())
    }

    async fn record(&self, body: EventBody) -> Result<(), JournalError> {
        record(&self.parent, body).await
    }

    /// A message of a model to an agent, redacted: it is recorded with the agent's conversation.
    fn redacted(&self, text: &str) -> String {
        self.parent.settings.redactor.redact(text).into_owned()
    }

    /// Starts an agent; gives its id once the model has its first request.
    async fn spawn(&self, arguments: SpawnArguments) -> Result<Arc<str>, String> {
        let mut parts = self.parts(&arguments)?;
        let task = self.redacted(&arguments.task);
        let number = {
            let mut state = self.state.lock();
            state.begun += 1;
            state.begun
        };
        parts.id = format!("{}/a{number}", self.parent.id).into();
        let id = Arc::clone(&parts.id);
        let body = EventBody::AgentSubSpawned { agent_id: id.to_string(), task: preview(&task) };
        self.record(body).await.map_err(|error| error.to_string())?;
        let mut session = Session::in_family(parts, Arc::clone(&self.ledger));
        let (began, has_begun) = oneshot::channel();
        session.began = Some(began);
        self.start(&id, session, Status::Running, Start::Task(task));
        // The next request of this session comes after it, so that their order is always the same.
        // An agent that ends before its request drops the sender.
        let _ = has_begun.await;
        Ok(id)
    }

    /// Resumes an agent of an earlier process; false when that is impossible.
    async fn restart(&self, id: &str, subagent: OpenSubagent) -> bool {
        let OpenSubagent { spawn, transcript, end, inputs, delivered } = subagent;
        let Ok(arguments) = SpawnArguments::deserialize(&spawn) else { return false };
        let Ok(parts) = self.parts(&arguments) else { return false };
        let id: Arc<str> = id.into();
        let parts = Parts { id: Arc::clone(&id), ..parts };
        let mut session = Session::in_family(parts, Arc::clone(&self.ledger));
        let is_new = transcript.is_empty();
        session.restore(transcript);
        for text in inputs.into_iter().skip(delivered) {
            session.steering().send(Steer::new(self.redacted(&text), SOURCE));
        }
        let (status, start) = match end.filter(|_| session.steering_queue.is_empty()) {
            Some(Ok(())) => (Status::Answered(session.answer().text), Start::Wait),
            Some(Err(message)) => (Status::Failed(message), Start::Wait),
            None if is_new => (Status::Running, Start::Task(self.redacted(&arguments.task))),
            None => (Status::Running, Start::Resume),
        };
        let (began, has_begun) = oneshot::channel();
        session.began = Some(began).filter(|_| !matches!(start, Start::Wait));
        self.start(&id, session, status, start);
        let _ = has_begun.await;
        true
    }

    fn start(&self, id: &Arc<str>, session: Session, status: Status, start: Start) {
        let cancel = CancellationToken::new();
        let status = Arc::new(watch::Sender::new(status));
        let life = Life {
            parent: Arc::clone(&self.parent),
            session,
            status: Arc::clone(&status),
            spent: Arc::clone(&self.spent),
            slots: Arc::clone(&self.slots),
            cancel: cancel.clone(),
        };
        let agent = Agent {
            status,
            steering: life.session.steering(),
            _ends: cancel.clone().drop_guard(),
            cancel,
            task: tokio::sync::Mutex::new(Some(tokio::spawn(life.live(start)))),
        };
        self.state.lock().agents.insert(Arc::clone(id), Arc::new(agent));
    }

    fn parts(&self, spawn: &SpawnArguments) -> Result<Parts, String> {
        let parent = &self.parent;
        let mut settings = parent.settings.clone();
        settings.live = None;
        settings.subagent_depth -= 1;
        settings.output_schema = None;
        settings.takes_empty_answers = false;
        if !settings.system.is_empty() {
            settings.system.push_str("\n\n");
        }
        settings.system.push_str(SUBAGENT);
        if spawn.model.is_some() && spawn.model != settings.model {
            settings.model.clone_from(&spawn.model);
            settings.provider = None;
            settings.window = None;
        }
        let tools = match &spawn.tools {
            None => parent.tools.for_another_agent(),
            Some(names) => {
                let known = parent.tools.names();
                if let Some(name) = names.iter().find(|name| !known.contains(name)) {
                    let known = known.join(", ");
                    return Err(format!("there is no tool `{name}` to give: choose from {known}"));
                }
                parent.tools.select(names).for_another_agent()
            }
        };
        // The system prompt above lists the tools of the agent that began this one.
        let mut names = tools.allowed(settings.permissions).names();
        if settings.subagent_depth > 0 {
            names.extend(SUBAGENT_TOOLS.map(str::to_owned));
        }
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let _ = write!(settings.system, " The tools that you have: {names}.");
        Ok(Parts {
            id: Arc::from(""),
            parent: Some(Arc::clone(&parent.id)),
            model: Arc::clone(&parent.model),
            tools,
            journal: Arc::clone(&parent.journal),
            settings,
            context: parent.context.clone(),
        })
    }

    /// Sends an agent a message: it gets it before its next turn, and resumes if it is idle.
    fn send(&self, id: &str, text: &str) -> Result<(), String> {
        let text = self.redacted(text);
        let agent = self.find(id)?;
        let mut is_there = true;
        // Atomic with the change of the status when the agent has answered.
        agent.status.send_modify(|status| {
            is_there = *status != Status::Ended && agent.steering.send(Steer::new(text, SOURCE));
            if is_there {
                *status = Status::Running;
            }
        });
        if is_there { Ok(()) } else { Err(format!("agent `{id}` has ended: spawn another one")) }
    }

    /// Waits for a status of an agent.
    async fn wait(
        &self,
        id: &str,
        is_awaited: impl FnMut(&Status) -> bool,
    ) -> Result<Status, String> {
        let agent = self.find(id)?;
        let mut status = agent.status.subscribe();
        let status = status.wait_for(is_awaited).await;
        // The agent's own end of the channel is kept with it.
        Ok(status.map_or(Status::Ended, |status| status.clone()))
    }

    /// Ends an agent; gives its status before.
    async fn close(&self, id: &str) -> Result<Status, JournalError> {
        let agent = {
            let mut state = self.state.lock();
            let Some(agent) = state.agents.remove(id) else { return Ok(Status::Ended) };
            state.gone.insert(Arc::from(id), "is closed");
            agent
        };
        let status = agent.status.borrow().clone();
        agent.stop().await;
        self.record(EventBody::AgentSubClosed { agent_id: id.to_owned() }).await?;
        Ok(status)
    }

    fn find(&self, id: &str) -> Result<Arc<Agent>, String> {
        let state = self.state.lock();
        if let Some(agent) = state.agents.get(id) {
            return Ok(Arc::clone(agent));
        }
        if let Some(why) = state.gone.get(id) {
            return Err(format!("agent `{id}` {why}: spawn another one"));
        }
        let known: Vec<_> = state.agents.keys().map(AsRef::as_ref).collect();
        Err(match known.as_slice() {
            [] => format!("there is no agent `{id}`: spawn one first"),
            known => format!("there is no agent `{id}`: there are {}", known.join(", ")),
        })
    }

    fn ids(&self) -> Vec<Arc<str>> {
        self.state.lock().agents.keys().cloned().collect()
    }
}

impl Agent {
    async fn stop(&self) {
        self.cancel.cancel();
        if let Some(task) = self.task.lock().await.take() {
            // Whether it panicked does not matter any more.
            let _ = task.await;
        }
    }
}

/// Why an agent of an earlier process has ended.
const LOST: &str = "was lost when the program stopped";

/// What runs in an agent's task.
struct Life {
    parent: Arc<Parts>,
    session: Session,
    status: Arc<watch::Sender<Status>>,
    spent: Arc<watch::Sender<bool>>,
    slots: Arc<Semaphore>,
    cancel: CancellationToken,
}

impl Life {
    async fn live(mut self, start: Start) {
        let slots = Arc::clone(&self.slots);
        let mut slot = match start {
            Start::Wait => None,
            _ => match self.slot(&slots).await {
                None => return,
                slot => slot,
            },
        };
        let mut end = match start {
            Start::Task(task) => Some(self.session.send(task, &self.cancel).await),
            Start::Resume => Some(self.session.resume(&self.cancel).await),
            Start::Wait => None,
        };
        loop {
            drop(slot.take());
            // No caller waits any longer for a first request.
            self.session.began = None;
            if let Some(end) = end
                && !self.ended(end).await
            {
                return;
            }
            if !self.wait_for_message().await {
                return;
            }
            slot = self.slot(&slots).await;
            if slot.is_none() {
                return;
            }
            end = Some(self.session.resume(&self.cancel).await);
        }
    }

    /// Waits until fewer agents than the limit are running; `None` when it is canceled meanwhile.
    async fn slot<'s>(&mut self, slots: &'s Semaphore) -> Option<SemaphorePermit<'s>> {
        match slots.try_acquire() {
            Ok(slot) => return Some(slot),
            // The caller does not wait for the first request of one that is queued.
            Err(TryAcquireError::NoPermits) => self.session.began = None,
            Err(TryAcquireError::Closed) => return None,
        }
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => None,
            slot = slots.acquire() => slot.ok(),
        }
    }

    /// Reports the result of an agent; false when it is not to be reported.
    async fn ended(&mut self, end: Result<crate::Answer, SessionError>) -> bool {
        let agent_id = self.session.parts.id.to_string();
        let (status, body) = match end {
            Ok(answer) => {
                let text = preview(&answer.text);
                (Status::Answered(answer.text), EventBody::AgentSubCompleted { agent_id, text })
            }
            Err(SessionError::Canceled | SessionError::Journal(_)) => return false,
            Err(SessionError::Budget) => {
                // It is not a result: the session that started it pauses, too.
                self.status.send_replace(Status::Paused);
                self.spent.send_replace(true);
                return true;
            }
            Err(error) => {
                let message = error.to_string();
                (Status::Failed(message.clone()), EventBody::AgentSubFailed { agent_id, message })
            }
        };
        let is_recorded = record(&self.parent, body).await.is_ok();
        let steering_queue = &self.session.steering_queue;
        self.status.send_modify(|now| {
            if steering_queue.is_empty() {
                *now = status;
            }
        });
        is_recorded
    }

    /// True when there is one; false when the agent is to end.
    async fn wait_for_message(&mut self) -> bool {
        let mut status = self.status.subscribe();
        tokio::select! {
            () = self.cancel.cancelled() => false,
            has_message = self.session.steering_queue.wait() => has_message,
            now = status.wait_for(|status| *status == Status::Running) => now.is_ok(),
        }
    }
}

/// Callers that wait for it see that it has ended, even after a panic.
impl Drop for Life {
    fn drop(&mut self) {
        self.status.send_replace(Status::Ended);
    }
}

async fn record(parts: &Parts, body: EventBody) -> Result<(), JournalError> {
    let record = Record { notes: vec![parts.note(body)], tickets: Vec::new() };
    parts.journal.record(record).await
}

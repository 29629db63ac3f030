//! Agents that a session begins: who they are, and what becomes of them.

mod session;
mod tools;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabro_events::EventBody;
use fabro_tools::Tool;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use tools::{begins_one, is_ours, only_waits, tells};

use crate::ledger::Ledger;
use crate::message::preview;
use crate::transcript::Left;
use crate::{JournalError, Parts, Record, Session, SessionError, Steer, Steering};

/// The agents of one session.
pub(crate) struct Agents {
    family: Arc<Family>,
}

struct Family {
    /// The session that they belong to.
    parent: Arc<Parts>,
    ledger: Arc<Ledger>,
    state: Mutex<State>,
    /// One of them is paused.
    spent: Arc<watch::Sender<bool>>,
}

#[derive(Default)]
struct State {
    /// How many there were.
    begun: u32,
    agents: BTreeMap<Arc<str>, Arc<Agent>>,
    /// Those that an earlier process left, until they are resumed.
    left: Vec<(String, Left)>,
    /// Those that are no more, and why.
    gone: BTreeMap<Arc<str>, &'static str>,
}

struct Agent {
    status: Arc<watch::Sender<Status>>,
    steering: Steering,
    /// Ends it; so does dropping this.
    cancel: CancellationToken,
    _ends: DropGuard,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// How it is with an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Status {
    Running,
    Answered(String),
    Failed(String),
    /// It resumes when there is more to spend.
    Paused,
    Ended,
}

/// What an agent begins with.
enum Start {
    Task(String),
    Resume,
    /// There is nothing to do until it is told something.
    Rest,
}

/// What an agent is to be.
struct Task {
    text: String,
    tools: Option<Vec<String>>,
    model: Option<String>,
}

/// Who tells an agent something, in its notes.
pub(crate) const SOURCE: &str = "agent";

const SUBAGENT: &str = "You work for another agent, which gave you a task and sees nothing of your \
    work but your last answer. Do the task and nothing else, and answer with what was asked for: \
    results, names of files, and what you could not do.";

impl Agents {
    pub(crate) fn new(parent: &Arc<Parts>, ledger: &Arc<Ledger>) -> Self {
        let parent = Arc::clone(parent);
        let ledger = Arc::clone(ledger);
        let state = Mutex::default();
        let spent = Arc::new(watch::Sender::new(false));
        Self { family: Arc::new(Family { parent, ledger, state, spent }) }
    }

    /// The tools by which the session deals with them.
    pub(crate) fn tools(&self) -> Vec<Arc<dyn Tool>> {
        tools::tools(&self.family)
    }

    /// Counts those that an earlier process began, and remembers those that it had not closed.
    pub(crate) fn restore(&self, begun: u32, left: BTreeMap<String, Left>) {
        let mut state = self.family.state();
        state.begun += begun;
        state.left.extend(left);
    }

    /// Has agents go on: those that an earlier process left, and those that were paused. Gives those
    /// that cannot.
    pub(crate) async fn go_on(&self) -> Vec<String> {
        self.family.spent.send_replace(false);
        let (left, agents) = {
            let mut state = self.family.state();
            (std::mem::take(&mut state.left), state.agents.values().cloned().collect::<Vec<_>>())
        };
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
        for (id, left) in left {
            if !self.family.revive(&id, left).await {
                self.family.state().gone.insert(Arc::from(id.as_str()), LOST);
                lost.push(id);
            }
        }
        lost
    }

    /// Those that an earlier process left and that have not gone on, which now they never will.
    pub(crate) fn forget(&self) -> Vec<String> {
        let left = std::mem::take(&mut self.family.state().left);
        left.into_iter().map(|(id, _)| id).collect()
    }

    /// Waits until one of them is paused.
    pub(crate) async fn spent(&self) {
        // Its other end is kept here.
        let _ = self.family.spent.subscribe().wait_for(|spent| *spent).await;
    }

    /// Waits until all of them have come to rest.
    pub(crate) async fn rest(&self) {
        for id in self.family.ids() {
            // One that is no more rests.
            let _ = self.family.wait(&id, |status| *status != Status::Running).await;
        }
    }

    /// Ends all agents, so that another process may resume them.
    pub(crate) async fn stop_all(&self) {
        let agents = std::mem::take(&mut self.family.state().agents);
        for agent in agents.into_values() {
            agent.stop().await;
        }
    }

    /// Ends all agents.
    pub(crate) async fn close_all(&self) -> Result<(), JournalError> {
        let agents: Vec<_> = self.family.state().agents.keys().cloned().collect();
        for id in agents {
            self.family.close(&id).await?;
        }
        Ok(())
    }
}

impl Family {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is whole before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn record(&self, body: EventBody) -> Result<(), JournalError> {
        record(&self.parent, body).await
    }

    /// What a model says to an agent without the secrets in it, for it is recorded with the agent's
    /// conversation.
    fn redacted(&self, text: String) -> String {
        match &self.parent.settings.redactor {
            Some(redactor) => redactor.redact(&text).into_owned(),
            None => text,
        }
    }

    /// Begins an agent; gives its id once its first request is on its way.
    async fn spawn(&self, task: Task) -> Result<Arc<str>, String> {
        let task = Task { text: self.redacted(task.text), ..task };
        let mut parts = self.parts(&task)?;
        let number = {
            let mut state = self.state();
            state.begun += 1;
            state.begun
        };
        parts.id = format!("{}/a{number}", self.parent.id).into();
        let id = Arc::clone(&parts.id);
        let body =
            EventBody::AgentSubSpawned { agent_id: id.to_string(), task: preview(&task.text) };
        self.record(body).await.map_err(|error| error.to_string())?;
        let mut session = Session::in_family(parts, Arc::clone(&self.ledger));
        let (began, has_begun) = oneshot::channel();
        session.began = Some(began);
        self.start(&id, session, Status::Running, Start::Task(task.text));
        // So that the next request of this session comes after it, whatever is faster. An agent
        // that ends before it asks lets go of the other end.
        let _ = has_begun.await;
        Ok(id)
    }

    /// Resumes an agent of an earlier process; false when that is impossible.
    async fn revive(&self, id: &str, left: Left) -> bool {
        let Some(Ok((task, parts))) = tools::task_of(&left.task).map(|task| {
            let task = Task { text: self.redacted(task.text), ..task };
            self.parts(&task).map(|parts| (task, Parts { id: Arc::from(id), ..parts }))
        }) else {
            return false;
        };
        let Left { transcript, end, told, heard, .. } = left;
        let mut session = Session::in_family(parts, Arc::clone(&self.ledger));
        let is_new = transcript.is_empty();
        session.restore(transcript);
        let unheard = told.into_iter().skip(heard);
        let is_told = unheard
            .map(|text| session.steering().send(Steer::new(self.redacted(text), SOURCE)))
            .fold(false, |_, is_sent| is_sent);
        let (status, start) = match end.filter(|_| !is_told) {
            Some(Ok(())) => (Status::Answered(session.answer().text), Start::Rest),
            Some(Err(message)) => (Status::Failed(message), Start::Rest),
            None if is_new => (Status::Running, Start::Task(task.text)),
            None => (Status::Running, Start::Resume),
        };
        let (began, has_begun) = oneshot::channel();
        session.began = Some(began).filter(|_| !matches!(start, Start::Rest));
        self.start(&Arc::from(id), session, status, start);
        let _ = has_begun.await;
        true
    }

    fn start(&self, id: &Arc<str>, session: Session, status: Status, start: Start) {
        let cancel = CancellationToken::new();
        let status = Arc::new(watch::Sender::new(status));
        let life = Life {
            parent: Arc::clone(&self.parent),
            steering: session.steering(),
            session,
            status: Arc::clone(&status),
            spent: Arc::clone(&self.spent),
            cancel: cancel.clone(),
        };
        let agent = Agent {
            status,
            steering: life.steering.clone(),
            _ends: cancel.clone().drop_guard(),
            cancel,
            task: tokio::sync::Mutex::new(Some(tokio::spawn(life.live(start)))),
        };
        self.state().agents.insert(Arc::clone(id), Arc::new(agent));
    }

    fn parts(&self, task: &Task) -> Result<Parts, String> {
        let parent = &self.parent;
        let mut settings = parent.settings.clone();
        settings.subagent_depth -= 1;
        settings.output_schema = None;
        if !settings.system.is_empty() {
            settings.system.push_str("\n\n");
        }
        settings.system.push_str(SUBAGENT);
        if task.model.is_some() && task.model != settings.model {
            settings.model.clone_from(&task.model);
            (settings.provider, settings.window) = (None, None);
        }
        let tools = match &task.tools {
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

    /// Tells an agent something: while it works before its next turn, else as a new message.
    fn tell(&self, id: &str, text: String) -> Result<(), String> {
        let text = self.redacted(text);
        let agent = self.find(id)?;
        let mut is_there = true;
        // In one step with what the agent does when it has answered.
        agent.status.send_modify(|status| {
            is_there = *status != Status::Ended && agent.steering.send(Steer::new(text, SOURCE));
            if is_there {
                *status = Status::Running;
            }
        });
        if is_there { Ok(()) } else { Err(format!("agent `{id}` has ended: spawn another one")) }
    }

    /// Waits until it is so with an agent.
    async fn wait(&self, id: &str, is_so: impl FnMut(&Status) -> bool) -> Result<Status, String> {
        let agent = self.find(id)?;
        let mut status = agent.status.subscribe();
        let status = status.wait_for(is_so).await;
        // The agent's own end of the channel is kept with it.
        Ok(status.map_or(Status::Ended, |status| status.clone()))
    }

    /// Ends an agent; gives how it was with it before.
    async fn close(&self, id: &str) -> Result<Status, JournalError> {
        let agent = {
            let mut state = self.state();
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
        let state = self.state();
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
        self.state().agents.keys().cloned().collect()
    }
}

impl Agent {
    async fn stop(&self) {
        self.cancel.cancel();
        if let Some(task) = self.task.lock().await.take() {
            // It has ended, well or not; there is nothing to be had from it.
            let _ = task.await;
        }
    }
}

/// Why an agent is no more that an earlier process began.
const LOST: &str = "was lost when the program stopped";

/// What runs in an agent's task.
struct Life {
    parent: Arc<Parts>,
    session: Session,
    steering: Steering,
    status: Arc<watch::Sender<Status>>,
    spent: Arc<watch::Sender<bool>>,
    cancel: CancellationToken,
}

impl Life {
    async fn live(mut self, start: Start) {
        let mut end = match start {
            Start::Task(task) => Some(self.session.send(task, &self.cancel).await),
            Start::Resume => Some(self.session.resume(&self.cancel).await),
            Start::Rest => None,
        };
        loop {
            // Who waits for its first request need not wait for one that never comes.
            self.session.began = None;
            if let Some(end) = end
                && !self.ended(end).await
            {
                return;
            }
            if !self.is_to_go_on().await {
                return;
            }
            end = Some(self.session.resume(&self.cancel).await);
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
                // That is no outcome: who began it pauses, too.
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

    async fn is_to_go_on(&mut self) -> bool {
        let mut status = self.status.subscribe();
        tokio::select! {
            () = self.cancel.cancelled() => false,
            is_told = self.session.steering_queue.wait() => is_told,
            now = status.wait_for(|status| *status == Status::Running) => now.is_ok(),
        }
    }
}

/// However it ends, no caller waits for it any longer.
impl Drop for Life {
    fn drop(&mut self) {
        self.status.send_replace(Status::Ended);
    }
}

async fn record(parts: &Parts, body: EventBody) -> Result<(), JournalError> {
    let record = Record { notes: vec![parts.note(body)], tickets: Vec::new() };
    parts.journal.record(record).await
}

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    ContentBlock, PermissionOptionKind, ReadTextFileRequest, ReadTextFileResponse,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SelectedPermissionOutcome, SessionUpdate, ToolCallUpdate, UsageUpdate, WriteTextFileRequest,
    WriteTextFileResponse,
};
use agent_client_protocol::{Error, ErrorCode};
use fabro_redact::Stream;
use fabro_sandbox::{ExecError, LocalFiles};
use fabro_types::{Permissions, Usage};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::acp::calls::AnnouncedCall;
use crate::acp::files;
use crate::{BackendError, Done, Progress, Task};

/// The longest answer.
const LONGEST: usize = 16 * 1024 * 1024;

/// How many tool calls are remembered at once, and how many warnings are given.
const MOST: usize = 1000;
const WARNINGS: usize = 20;

/// Our side of a session: answers the agent's requests and collects its answer.
pub(super) struct SessionClient<'a> {
    task: &'a Task<'a>,
    root: PathBuf,
    files: LocalFiles,
    state: Mutex<State>,
    /// The model that the session uses, as far as it is known.
    model: Mutex<Option<String>>,
    /// Fires when the task's budget is used up.
    over_budget: CancellationToken,
}

struct State {
    stream: Stream,
    text: Vec<u8>,
    /// The agent called a tool since its last text.
    acted: bool,
    /// The cost of the whole session.
    cost_usd: Option<f64>,
    /// The largest context so far, in tokens.
    context: u64,
    /// What was announced of each call.
    calls: BTreeMap<String, AnnouncedCall>,
    warnings: Vec<String>,
    phase: Phase,
}

/// How far the session has come.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// No prompt was sent: what an agent reports now is of earlier turns.
    #[default]
    Preparing,
    /// The prompt was sent.
    Prompted,
    /// The agent has reported something about it.
    Taken,
    /// Its model has answered.
    Working,
}

impl State {
    fn add(&mut self, text: &[u8]) {
        let room = LONGEST.saturating_sub(self.text.len());
        self.text.extend_from_slice(&text[..text.len().min(room)]);
    }
}

impl<'a> SessionClient<'a> {
    pub(super) fn new(task: &'a Task<'a>) -> Result<Self, BackendError> {
        let hidden = task.sandbox.map(|sandbox| sandbox.hidden_in(task.work_dir));
        let files = LocalFiles::new(task.work_dir)
            .map(|files| files.hiding(hidden.unwrap_or_default()))
            .map_err(|_| {
                let path = task.work_dir.to_owned();
                BackendError::Exec(ExecError::WorkingDirectory(path))
            })?;
        // In a sandbox, its own commands cannot change `.git` and `.fabro` either.
        let is_full = task.permissions == Permissions::Full && task.sandbox.is_none();
        let files = if is_full { files.with_full_access() } else { files };
        let state = Mutex::new(State {
            stream: task.redactor.stream(),
            text: Vec::new(),
            acted: false,
            cost_usd: None,
            context: 0,
            calls: BTreeMap::new(),
            warnings: Vec::new(),
            phase: Phase::default(),
        });
        let root = files.root().to_owned();
        let model = Mutex::default();
        let over_budget = CancellationToken::new();
        Ok(Self { task, root, files, state, model, over_budget })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn warn(&self, warning: &str) {
        let warning = self.task.redactor.redact(warning).into_owned();
        let mut state = self.state.lock();
        if state.warnings.len() < WARNINGS && !state.warnings.contains(&warning) {
            state.warnings.push(warning);
        }
    }

    pub(super) fn set_model(&self, model: &str) {
        *self.model.lock() = Some(model.to_owned());
    }

    /// The prompt is sent now.
    pub(super) fn prompted(&self) {
        self.state.lock().phase = Phase::Prompted;
    }

    /// Whether the agent's model has answered the prompt.
    pub(super) fn has_worked(&self) -> bool {
        self.state.lock().phase == Phase::Working
    }

    /// Waits until the task's budget is used up.
    pub(super) async fn over_budget(&self) {
        self.over_budget.cancelled().await;
    }

    /// The whole answer of the agent.
    pub(super) fn done(&self, session_id: &str) -> Done {
        self.flush();
        let usage = self.usage();
        let state = self.state.lock();
        Done {
            text: String::from_utf8_lossy(&state.text).trim().to_owned(),
            // Not needed: backend=acp does not support output_schema.
            unredacted: None,
            usage,
            session_id: Some(session_id.to_owned()),
            warnings: state.warnings.clone(),
        }
    }

    /// What this run used. An agent reports the cost of its whole session, and of tokens only how many
    /// are in its context: no fewer were sent.
    fn usage(&self) -> Vec<Usage> {
        let state = self.state.lock();
        if state.cost_usd.is_none() && state.context == 0 {
            return Vec::new();
        }
        let before = self.task.resume.map_or(0.0, |session| session.used.cost_usd);
        let total = state.cost_usd.unwrap_or_default();
        let model = self.model.lock().clone();
        let cost_usd = if total >= before { total - before } else { total };
        let input_tokens = state.context;
        vec![Usage { model, input_tokens, cost_usd, turns: 1, ..Usage::default() }]
    }

    /// Takes an update of the session `id`.
    pub(super) fn update(&self, id: &str, update: SessionUpdate) {
        if !self.advance(id, &update) {
            (self.task.on_event)(Progress::Activity);
            return;
        }
        let progress = match update {
            SessionUpdate::AgentMessageChunk(chunk) => match chunk.content {
                ContentBlock::Text(text) => self.add_text(&text.text),
                _ => Progress::Activity,
            },
            SessionUpdate::ToolCall(call) => {
                self.flush();
                let name = call.name.clone().unwrap_or_else(|| call.title.clone());
                self.announce(&call.into());
                Progress::Tool { name: self.task.redactor.redact(&name).into_owned() }
            }
            SessionUpdate::ToolCallUpdate(call) => {
                self.announce(&call);
                Progress::Activity
            }
            SessionUpdate::UsageUpdate(usage) => self.used(&usage),
            _ => Progress::Activity,
        };
        (self.task.on_event)(progress);
    }

    /// Whether the update is about the prompt. The first one says that the agent has taken it.
    fn advance(&self, id: &str, update: &SessionUpdate) -> bool {
        let is_work = matches!(
            update,
            SessionUpdate::AgentMessageChunk(_)
                | SessionUpdate::AgentThoughtChunk(_)
                | SessionUpdate::ToolCall(_)
                | SessionUpdate::Plan(_)
        );
        let mut state = self.state.lock();
        let before = state.phase;
        state.phase = match before {
            Phase::Preparing | Phase::Working => before,
            _ if is_work => Phase::Working,
            _ => Phase::Taken,
        };
        drop(state);
        if before == Phase::Prompted {
            (self.task.on_event)(Progress::Session(id.to_owned()));
        }
        before != Phase::Preparing
    }

    fn used(&self, usage: &UsageUpdate) -> Progress {
        let mut state = self.state.lock();
        state.context = state.context.max(usage.used);
        if let Some(cost) = usage.cost.as_ref().filter(|cost| cost.currency == "USD") {
            state.cost_usd = Some(cost.amount);
        }
        drop(state);
        let used = self.usage();
        let spent: f64 = used.iter().map(|used| used.cost_usd).sum();
        if self.task.budget_usd.is_some_and(|budget| spent >= budget) {
            self.over_budget.cancel();
        }
        Progress::Usage(used)
    }

    /// Allows what the permissions of the task cover, once, and refuses the rest. Only the id of the
    /// call is certain to be in the request: the rest was announced.
    pub(super) fn permit(&self, request: &RequestPermissionRequest) -> RequestPermissionResponse {
        let cancelled = RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled);
        if self.task.cancel.is_cancelled() {
            return cancelled;
        }
        let call = &request.tool_call;
        self.announce(call);
        let known = self.state.lock().calls.get(&*call.tool_call_id.0).cloned().unwrap_or_default();
        let allowed = known.is_covered_by(self.task.permissions, &self.files);
        let kinds = if allowed {
            [PermissionOptionKind::AllowOnce, PermissionOptionKind::AllowAlways]
        } else {
            let what = known.title.as_deref().unwrap_or("a tool");
            self.warn(&format!(
                "the agent may not use {what} with the permissions {}: raise them to allow it",
                self.task.permissions.as_str()
            ));
            [PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways]
        };
        let mut options = kinds
            .iter()
            .filter_map(|kind| request.options.iter().find(|option| option.kind == *kind));
        let Some(option) = options.next() else { return cancelled };
        let selected = SelectedPermissionOutcome::new(option.option_id.clone());
        RequestPermissionResponse::new(RequestPermissionOutcome::Selected(selected))
    }

    pub(super) fn read(
        &self,
        request: &ReadTextFileRequest,
    ) -> Result<ReadTextFileResponse, Error> {
        (self.task.on_event)(Progress::Activity);
        let text = files::read(&self.files, &request.path, request.line, request.limit);
        text.map(ReadTextFileResponse::new).map_err(failed)
    }

    pub(super) fn write(
        &self,
        request: &WriteTextFileRequest,
    ) -> Result<WriteTextFileResponse, Error> {
        (self.task.on_event)(Progress::Activity);
        if self.task.permissions < Permissions::ReadWrite {
            self.warn("the agent may not write files with the permissions read-only: raise them to allow it");
            return Err(failed("writing needs the permissions read-write"));
        }
        let written = files::write(&self.files, &request.path, &request.content);
        written.map(|()| WriteTextFileResponse::new()).map_err(failed)
    }

    /// Adds what the redactor held back as the possible beginning of a secret: no text follows it.
    fn flush(&self) {
        let mut state = self.state.lock();
        let rest = state.stream.finish();
        state.add(&rest);
        drop(state);
        if !rest.is_empty() {
            (self.task.on_event)(Progress::Text(String::from_utf8_lossy(&rest).into_owned()));
        }
    }

    fn add_text(&self, text: &str) -> Progress {
        let mut state = self.state.lock();
        if state.acted && !state.text.is_empty() && state.text.len() < LONGEST {
            state.text.extend_from_slice(b"\n\n");
        }
        state.acted = false;
        let clean = state.stream.push(text.as_bytes());
        state.add(&clean);
        Progress::Text(String::from_utf8_lossy(&clean).into_owned())
    }

    /// Remembers what is said of a call; what is left out stays.
    fn announce(&self, call: &ToolCallUpdate) {
        let mut state = self.state.lock();
        state.acted = true;
        let id = &*call.tool_call_id.0;
        if state.calls.len() >= MOST && !state.calls.contains_key(id) {
            state.calls.pop_first();
        }
        let known = state.calls.entry(id.to_owned()).or_default();
        known.add(call);
    }
}

fn failed(why: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_PARAMS, why)
}

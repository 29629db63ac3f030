use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{
    ContentBlock, PermissionOptionKind, ReadTextFileRequest, ReadTextFileResponse,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SelectedPermissionOutcome, SessionUpdate, ToolCallContent, ToolCallUpdate, ToolKind,
    WriteTextFileRequest, WriteTextFileResponse,
};
use agent_client_protocol::{Error, ErrorCode};
use fabro_redact::Stream;
use fabro_sandbox::{ExecError, LocalFiles};
use fabro_types::{Permissions, Usage};
use parking_lot::Mutex;

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
}

struct State {
    stream: Stream,
    text: Vec<u8>,
    /// The agent called a tool since its last text.
    acted: bool,
    cost_usd: Option<f64>,
    /// What kind of tool each call is.
    kinds: BTreeMap<String, ToolKind>,
    warnings: Vec<String>,
}

impl State {
    fn add(&mut self, text: &[u8]) {
        let room = LONGEST.saturating_sub(self.text.len());
        self.text.extend_from_slice(&text[..text.len().min(room)]);
    }
}

impl<'a> SessionClient<'a> {
    pub(super) fn new(task: &'a Task<'a>) -> Result<Self, BackendError> {
        let files = LocalFiles::new(task.work_dir).map_err(|_| {
            let path = task.work_dir.to_owned();
            BackendError::Exec(ExecError::WorkingDirectory(path))
        })?;
        let state = Mutex::new(State {
            stream: task.redactor.stream(),
            text: Vec::new(),
            acted: false,
            cost_usd: None,
            kinds: BTreeMap::new(),
            warnings: Vec::new(),
        });
        let root = files.root().to_owned();
        Ok(Self { task, root, files, state })
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

    /// The whole answer of the agent.
    pub(super) fn done(&self, session_id: &str) -> Done {
        self.flush();
        let state = self.state.lock();
        let usage = state.cost_usd.map(|cost_usd| Usage { cost_usd, ..Usage::default() });
        Done {
            text: String::from_utf8_lossy(&state.text).trim().to_owned(),
            usage,
            session_id: Some(session_id.to_owned()),
            warnings: state.warnings.clone(),
        }
    }

    pub(super) fn update(&self, update: SessionUpdate) {
        let progress = match update {
            SessionUpdate::AgentMessageChunk(chunk) => match chunk.content {
                ContentBlock::Text(text) => self.add_text(&text.text),
                _ => Progress::Activity,
            },
            SessionUpdate::ToolCall(call) => {
                let name = call.name.unwrap_or(call.title);
                self.flush();
                self.remember(&call.tool_call_id.0, call.kind);
                Progress::Tool { name: self.task.redactor.redact(&name).into_owned() }
            }
            SessionUpdate::ToolCallUpdate(call) => {
                if let Some(kind) = call.fields.kind {
                    self.remember(&call.tool_call_id.0, kind);
                }
                Progress::Activity
            }
            SessionUpdate::UsageUpdate(usage) => {
                let dollars = usage.cost.filter(|cost| cost.currency == "USD");
                if let Some(cost) = dollars {
                    self.state.lock().cost_usd = Some(cost.amount);
                }
                Progress::Activity
            }
            _ => Progress::Activity,
        };
        (self.task.on_event)(progress);
    }

    /// Allows what the permissions of the task cover, once, and refuses the rest.
    pub(super) fn permit(&self, request: &RequestPermissionRequest) -> RequestPermissionResponse {
        let call = &request.tool_call;
        let known = self.state.lock().kinds.get(&*call.tool_call_id.0).copied();
        let kind = call.fields.kind.or(known).unwrap_or_default();
        let allowed = covers(self.task.permissions, kind, &paths(call), &self.files);
        let kinds = if allowed {
            [PermissionOptionKind::AllowOnce, PermissionOptionKind::AllowAlways]
        } else {
            let what = call.fields.title.as_deref().unwrap_or("a tool");
            self.warn(&format!(
                "the agent may not use {what} with the permissions {}: raise them to allow it",
                self.task.permissions.as_str()
            ));
            [PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways]
        };
        let mut options = kinds
            .iter()
            .filter_map(|kind| request.options.iter().find(|option| option.kind == *kind));
        let outcome = match options.next() {
            Some(option) => RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(
                option.option_id.clone(),
            )),
            None => RequestPermissionOutcome::Cancelled,
        };
        RequestPermissionResponse::new(outcome)
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

    fn remember(&self, call: &str, kind: ToolKind) {
        let mut state = self.state.lock();
        state.acted = true;
        if state.kinds.len() >= MOST {
            state.kinds.clear();
        }
        state.kinds.insert(call.to_owned(), kind);
    }
}

/// Whether the permissions cover a call of a tool of this kind on these files.
fn covers(permissions: Permissions, kind: ToolKind, paths: &[PathBuf], files: &LocalFiles) -> bool {
    match kind {
        _ if permissions == Permissions::Full => true,
        ToolKind::Read | ToolKind::Search | ToolKind::Think => {
            paths.iter().all(|path| files::is_inside(files, path))
        }
        ToolKind::Edit | ToolKind::Delete | ToolKind::Move => {
            // An edit without a path could be one of any file.
            permissions == Permissions::ReadWrite
                && !paths.is_empty()
                && paths.iter().all(|path| files::may_write(files, path))
        }
        _ => false,
    }
}

/// The files that a call names.
fn paths(call: &ToolCallUpdate) -> Vec<PathBuf> {
    let fields = &call.fields;
    let located = fields.locations.iter().flatten().map(|location| location.path.clone());
    let changed = fields.content.iter().flatten().filter_map(|content| match content {
        ToolCallContent::Diff(diff) => Some(diff.path.clone()),
        _ => None,
    });
    let keys = ["path", "file_path", "filePath", "abs_path", "source", "destination"];
    let named = keys
        .iter()
        .filter_map(|key| Some(PathBuf::from(fields.raw_input.as_ref()?.get(key)?.as_str()?)));
    located.chain(changed).chain(named).collect()
}

fn failed(why: impl Into<String>) -> Error {
    Error::new(ErrorCode::INVALID_PARAMS, why)
}

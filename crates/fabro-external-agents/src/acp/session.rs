use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthMethod, AuthenticateRequest, CancelNotification, ClientCapabilities,
    ContentBlock, FileSystemCapabilities, Implementation, InitializeRequest, LoadSessionRequest,
    McpServer, McpServerStdio, NewSessionRequest, PromptRequest, ResumeSessionRequest,
    SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue,
    SessionId, SetSessionConfigOptionRequest, SetSessionModeRequest, StopReason, TextContent,
};
use agent_client_protocol::{
    Agent, Error, ErrorCode, UntypedMessage, is_incoming_transport_closed,
};
use fabro_types::{FailureClass, Permissions};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::acp::client::SessionClient;
use crate::acp::config::Config;
use crate::{BackendError, ContextServer, Done, StatedKind, Task, error};

/// How long an agent may take to stop by itself.
const STOP: Duration = Duration::from_secs(2);

/// Why there is no answer.
pub(super) enum Stop {
    Backend(BackendError),
    /// The agent answered with an error.
    Refused(Error),
    /// It does not answer any more.
    Gone(Error),
}

impl From<BackendError> for Stop {
    fn from(error: BackendError) -> Self {
        Self::Backend(error)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        if is_incoming_transport_closed(&error) { Self::Gone(error) } else { Self::Refused(error) }
    }
}

/// One session with one prompt.
pub(super) async fn converse(
    agent: &ConnectionTo<Agent>,
    task: &Task<'_>,
    config: &Config,
    client: &SessionClient<'_>,
    program: &str,
    is_prompted: &AtomicBool,
) -> Result<Done, Stop> {
    let session = tokio::select! {
        biased;
        () = task.cancel.cancelled() => return Err(BackendError::Canceled.into()),
        session = prepare(agent, task, config, client, program) => session?,
    };
    let id = session.id.clone();
    is_prompted.store(true, Ordering::Relaxed);
    client.prompted();
    let prompt = ContentBlock::Text(TextContent::new(task.prompt));
    let prompt = agent.send_request(PromptRequest::new(id.clone(), vec![prompt])).block_task();
    let mut prompt = std::pin::pin!(prompt);
    let stopped_by = tokio::select! {
        biased;
        () = task.cancel.cancelled() => BackendError::Canceled,
        // An agent that could not continue would lose its work.
        () = client.over_budget(), if session.is_resumable => {
            BackendError::Budget { program: program.to_owned() }
        }
        answered = &mut prompt => return ended(answered?.stop_reason, &id, client, program),
    };
    if agent.send_notification(CancelNotification::new(id)).is_ok() {
        // Whether it stops by itself or not: it is ended.
        let _ = timeout(STOP, prompt).await;
    }
    Err(stopped_by.into())
}

fn ended(
    reason: StopReason,
    id: &SessionId,
    client: &SessionClient<'_>,
    program: &str,
) -> Result<Done, Stop> {
    let stopped = |class, message| Err(BackendError::reported(program, class, message).into());
    match reason {
        StopReason::EndTurn => Ok(client.done(&id.0)),
        StopReason::MaxTokens => {
            stopped(FailureClass::BudgetExhausted, "it reached its limit of tokens")
        }
        StopReason::MaxTurnRequests => {
            stopped(FailureClass::BudgetExhausted, "it reached its limit of requests in a turn")
        }
        StopReason::Refusal => stopped(FailureClass::Deterministic, error::REFUSED),
        StopReason::Cancelled => {
            stopped(FailureClass::Deterministic, "it canceled the turn by itself")
        }
        other => stopped(FailureClass::Deterministic, &format!("it stopped: {other:?}")),
    }
}

/// A session that can be given a prompt.
struct OpenSession {
    id: SessionId,
    has_modes: bool,
    options: Vec<SessionConfigOption>,
    /// Another run can continue it.
    is_resumable: bool,
}

async fn prepare(
    agent: &ConnectionTo<Agent>,
    task: &Task<'_>,
    config: &Config,
    client: &SessionClient<'_>,
    program: &str,
) -> Result<OpenSession, Stop> {
    let files = FileSystemCapabilities::new()
        .read_text_file(true)
        .write_text_file(task.permissions >= Permissions::ReadWrite);
    let hello = InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(ClientCapabilities::new().fs(files))
        .client_info(Implementation::new("fabro", env!("CARGO_PKG_VERSION")));
    let welcome = agent.send_request(hello).block_task().await?;
    if welcome.protocol_version != ProtocolVersion::V1 {
        let message = format!("it speaks version {} of ACP, not 1", welcome.protocol_version);
        return Err(BackendError::reported(program, FailureClass::Deterministic, &message).into());
    }
    if let Some(method) = &config.auth {
        let login = agent.send_request(AuthenticateRequest::new(method.clone())).block_task().await;
        login.map_err(|error| needs_login(error, &welcome.auth_methods, program))?;
    }
    let opened = open(agent, task, client, program, &welcome.agent_capabilities).await;
    let session = opened.map_err(|stop| match stop {
        Stop::Refused(error) => needs_login(error, &welcome.auth_methods, program),
        stop => stop,
    })?;
    configure(agent, task, config, client, program, &session).await?;
    Ok(session)
}

/// A new session, or the one that the task continues.
async fn open(
    agent: &ConnectionTo<Agent>,
    task: &Task<'_>,
    client: &SessionClient<'_>,
    program: &str,
    can: &AgentCapabilities,
) -> Result<OpenSession, Stop> {
    let resumes = can.session_capabilities.resume.is_some();
    let is_resumable = resumes || can.load_session;
    let root = client.root();
    let servers = context_server(task);
    let opened = |id, has_modes, options: Option<Vec<_>>| OpenSession {
        id,
        has_modes,
        options: options.unwrap_or_default(),
        is_resumable,
    };
    let Some(earlier) = &task.resume else {
        let new = agent
            .send_request(NewSessionRequest::new(root).mcp_servers(servers))
            .block_task()
            .await?;
        return Ok(opened(new.session_id, new.modes.is_some(), new.config_options));
    };
    let id = SessionId::new(earlier.id);
    let lost = |error: Error| match error.code {
        ErrorCode::AUTH_REQUIRED => Stop::Refused(error),
        _ if is_incoming_transport_closed(&error) => Stop::Gone(error),
        _ => session_lost(program, &error.message),
    };
    if resumes {
        let request = ResumeSessionRequest::new(id.clone(), root).mcp_servers(servers);
        let found = agent.send_request(request).block_task().await.map_err(lost)?;
        Ok(opened(id, found.modes.is_some(), found.config_options))
    } else if can.load_session {
        let request = LoadSessionRequest::new(id.clone(), root).mcp_servers(servers);
        let found = agent.send_request(request).block_task().await.map_err(lost)?;
        Ok(opened(id, found.modes.is_some(), found.config_options))
    } else {
        Err(session_lost(program, "it cannot load sessions"))
    }
}

/// The servers of a session. Every agent can start one that speaks on stdin and stdout.
fn context_server(task: &Task<'_>) -> Vec<McpServer> {
    let server = task.context_server.map(|ContextServer { program, args }| {
        let server = McpServerStdio::new(ContextServer::NAME, program).args(args.clone());
        McpServer::Stdio(server)
    });
    server.into_iter().collect()
}

fn session_lost(program: &str, message: &str) -> Stop {
    let program = program.to_owned();
    BackendError::SessionLost { program, message: message.to_owned() }.into()
}

fn needs_login(error: Error, methods: &[AuthMethod], program: &str) -> Stop {
    if error.code != ErrorCode::AUTH_REQUIRED {
        return error.into();
    }
    let ids: Vec<_> = methods.iter().map(|method| method.id().0.to_string()).collect();
    let by = match &ids[..] {
        [] => String::new(),
        ids => format!(", or name a method in acp.config's auth: {}", ids.join(", ")),
    };
    let message = format!(
        "it needs a login: start it once by hand and log in, or set its key in acp.config's env{by}"
    );
    let kind = StatedKind::unavailable(FailureClass::Deterministic);
    BackendError::reported(program, kind, &message).into()
}

async fn configure(
    agent: &ConnectionTo<Agent>,
    task: &Task<'_>,
    config: &Config,
    client: &SessionClient<'_>,
    program: &str,
    session: &OpenSession,
) -> Result<(), Stop> {
    let settings = Settings { agent, session };
    let refused = |key: &str, error: &Error| {
        let reason = reported(program, error);
        BackendError::Config(format!("`{key}` in acp.config is not accepted: {reason}"))
    };
    if let Some(mode) = &config.mode {
        settings.mode(mode).await.map_err(|error| refused("mode", &error))?;
    }
    if let Some(model) = &config.model {
        settings.model(model).await.map_err(|error| refused("model", &error))?;
        client.set_model(model);
    } else if let Some(model) = task.model {
        match settings.model(model).await {
            Ok(()) => client.set_model(model),
            Err(error) => {
                let reason = reported(program, &error);
                let warning =
                    format!("the model {model} is not set, the agent uses its own: {reason}");
                client.warn(&warning);
            }
        }
    } else if let Some(model) = settings.current_model() {
        client.set_model(model);
    }
    for (key, value) in &config.options {
        settings.option(key, value).await.map_err(|error| refused(key, &error))?;
    }
    Ok(())
}

/// What can be set in a session.
struct Settings<'a> {
    agent: &'a ConnectionTo<Agent>,
    session: &'a OpenSession,
}

impl Settings<'_> {
    async fn mode(&self, mode: &str) -> Result<(), Error> {
        if !self.session.has_modes
            && let Some(option) = self.category(&SessionConfigOptionCategory::Mode)
        {
            return self.set(option, mode.into()).await;
        }
        let request = SetSessionModeRequest::new(self.session.id.clone(), mode.to_owned());
        self.agent.send_request(request).block_task().await.map(|_| ())
    }

    /// By the option for models, or by the request that came before there were options.
    async fn model(&self, model: &str) -> Result<(), Error> {
        if let Some(option) = self.category(&SessionConfigOptionCategory::Model) {
            return self.set(option, model.into()).await;
        }
        let params = json!({"sessionId": self.session.id, "modelId": model});
        let request = UntypedMessage::new("session/set_model", params)?;
        self.agent.send_request(request).block_task().await.map(|_| ())
    }

    /// The model that the agent chose itself.
    fn current_model(&self) -> Option<&str> {
        match &self.category(&SessionConfigOptionCategory::Model)?.kind {
            SessionConfigKind::Select(select) => Some(&select.current_value.0),
            _ => None,
        }
    }

    async fn option(&self, key: &str, value: &Value) -> Result<(), Error> {
        let Some(option) = self.session.options.iter().find(|option| &*option.id.0 == key) else {
            let names: Vec<_> = self.session.options.iter().map(|option| &*option.id.0).collect();
            let message = format!("the agent has no such option, only [{}]", names.join(", "));
            return Err(Error::new(ErrorCode::INVALID_PARAMS, message));
        };
        match value {
            Value::Bool(on) => self.set(option, (*on).into()).await,
            value => self.set(option, value.as_str().unwrap_or_default().into()).await,
        }
    }

    fn category(&self, category: &SessionConfigOptionCategory) -> Option<&SessionConfigOption> {
        self.session.options.iter().find(|option| option.category.as_ref() == Some(category))
    }

    async fn set(
        &self,
        option: &SessionConfigOption,
        value: SessionConfigOptionValue,
    ) -> Result<(), Error> {
        let session = self.session.id.clone();
        let request = SetSessionConfigOptionRequest::new(session, option.id.clone(), value);
        self.agent.send_request(request).block_task().await.map(|_| ())
    }
}

/// An error that the agent reported.
pub(super) fn reported(program: &str, error: &agent_client_protocol::Error) -> BackendError {
    let data = error.data.as_ref();
    let login = (error.code == ErrorCode::AUTH_REQUIRED)
        .then(|| StatedKind::unavailable(FailureClass::Deterministic));
    let keys = ["type", "code", "kind", "status", "errorKind"];
    let kind = keys.iter().find_map(|key| error::kind_of(data?.get(key)?));
    let detail = data.and_then(|data| data.as_str().or(data["details"].as_str()));
    let message = match detail {
        Some(detail) => format!("{}: {detail}", error.message),
        None => error.message.clone(),
    };
    let kind = login.or(kind).unwrap_or(FailureClass::Deterministic.into());
    BackendError::reported(program, kind, &message)
}

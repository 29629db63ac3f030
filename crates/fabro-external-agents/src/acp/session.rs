use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ClientCapabilities, ContentBlock, FileSystemCapabilities, Implementation,
    InitializeRequest, NewSessionRequest, NewSessionResponse, PromptRequest, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigOptionValue, SetSessionConfigOptionRequest,
    SetSessionModeRequest, StopReason, TextContent,
};
use agent_client_protocol::{
    Agent, Error, ErrorCode, UntypedMessage, is_incoming_transport_closed,
};
use fabro_types::{FailureClass, Permissions};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::acp::client::SessionClient;
use crate::acp::config::Config;
use crate::{BackendError, Done, Task, error};

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
    let id = session.session_id;
    is_prompted.store(true, Ordering::Relaxed);
    let prompt = ContentBlock::Text(TextContent::new(task.prompt));
    let prompt = agent.send_request(PromptRequest::new(id.clone(), vec![prompt])).block_task();
    let mut prompt = std::pin::pin!(prompt);
    let answered = tokio::select! {
        biased;
        () = task.cancel.cancelled() => {
            if agent.send_notification(CancelNotification::new(id)).is_ok() {
                // Whether it stops by itself or not: it is canceled.
                let _ = timeout(STOP, prompt).await;
            }
            return Err(BackendError::Canceled.into());
        }
        answered = &mut prompt => answered?,
    };
    let stopped = |class, message| Err(BackendError::reported(program, class, message).into());
    match answered.stop_reason {
        StopReason::EndTurn => Ok(client.done(&id.0)),
        StopReason::MaxTokens => {
            stopped(FailureClass::BudgetExhausted, "it reached its limit of tokens")
        }
        StopReason::MaxTurnRequests => {
            stopped(FailureClass::BudgetExhausted, "it reached its limit of requests in a turn")
        }
        StopReason::Refusal => {
            stopped(FailureClass::Deterministic, "it refused to continue: change the prompt")
        }
        StopReason::Cancelled => {
            stopped(FailureClass::Deterministic, "it canceled the turn by itself")
        }
        other => stopped(FailureClass::Deterministic, &format!("it stopped: {other:?}")),
    }
}

async fn prepare(
    agent: &ConnectionTo<Agent>,
    task: &Task<'_>,
    config: &Config,
    client: &SessionClient<'_>,
    program: &str,
) -> Result<NewSessionResponse, Stop> {
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
    let request = NewSessionRequest::new(client.root());
    let session = agent.send_request(request).block_task().await;
    let session = session.map_err(|error| needs_login(error, program))?;
    configure(agent, task, config, client, program, &session).await?;
    Ok(session)
}

fn needs_login(error: Error, program: &str) -> Stop {
    if error.code == ErrorCode::AUTH_REQUIRED {
        let message = "it needs a login: start it once by hand and log in, or set its key in acp.config's env";
        return BackendError::reported(program, FailureClass::Deterministic, message).into();
    }
    error.into()
}

async fn configure(
    agent: &ConnectionTo<Agent>,
    task: &Task<'_>,
    config: &Config,
    client: &SessionClient<'_>,
    program: &str,
    session: &NewSessionResponse,
) -> Result<(), Stop> {
    let options = session.config_options.as_deref().unwrap_or_default();
    let settings = Settings { agent, session, options };
    let refused = |key: &str, error: &Error| {
        let reason = reported(program, error);
        BackendError::Config(format!("`{key}` in acp.config is not accepted: {reason}"))
    };
    if let Some(mode) = &config.mode {
        settings.mode(mode).await.map_err(|error| refused("mode", &error))?;
    }
    if let Some(model) = &config.model {
        settings.model(model).await.map_err(|error| refused("model", &error))?;
    } else if let Some(model) = task.model
        && let Err(error) = settings.model(model).await
    {
        let reason = reported(program, &error);
        client.warn(&format!("the model {model} is not set, the agent uses its own: {reason}"));
    }
    for (key, value) in &config.options {
        settings.option(key, value).await.map_err(|error| refused(key, &error))?;
    }
    Ok(())
}

/// What can be set in a session.
struct Settings<'a> {
    agent: &'a ConnectionTo<Agent>,
    session: &'a NewSessionResponse,
    options: &'a [SessionConfigOption],
}

impl Settings<'_> {
    async fn mode(&self, mode: &str) -> Result<(), Error> {
        if self.session.modes.is_none()
            && let Some(option) = self.category(&SessionConfigOptionCategory::Mode)
        {
            return self.set(option, mode.into()).await;
        }
        let request = SetSessionModeRequest::new(self.session.session_id.clone(), mode.to_owned());
        self.agent.send_request(request).block_task().await.map(|_| ())
    }

    /// By the option for models, or by the request that came before there were options.
    async fn model(&self, model: &str) -> Result<(), Error> {
        if let Some(option) = self.category(&SessionConfigOptionCategory::Model) {
            return self.set(option, model.into()).await;
        }
        let params = json!({"sessionId": self.session.session_id, "modelId": model});
        let request = UntypedMessage::new("session/set_model", params)?;
        self.agent.send_request(request).block_task().await.map(|_| ())
    }

    async fn option(&self, key: &str, value: &Value) -> Result<(), Error> {
        let Some(option) = self.options.iter().find(|option| &*option.id.0 == key) else {
            let names: Vec<_> = self.options.iter().map(|option| &*option.id.0).collect();
            let message = format!("the agent has no such option, only [{}]", names.join(", "));
            return Err(Error::new(ErrorCode::INVALID_PARAMS, message));
        };
        match value {
            Value::Bool(on) => self.set(option, (*on).into()).await,
            value => self.set(option, value.as_str().unwrap_or_default().into()).await,
        }
    }

    fn category(&self, category: &SessionConfigOptionCategory) -> Option<&SessionConfigOption> {
        self.options.iter().find(|option| option.category.as_ref() == Some(category))
    }

    async fn set(
        &self,
        option: &SessionConfigOption,
        value: SessionConfigOptionValue,
    ) -> Result<(), Error> {
        let session = self.session.session_id.clone();
        let request = SetSessionConfigOptionRequest::new(session, option.id.clone(), value);
        self.agent.send_request(request).block_task().await.map(|_| ())
    }
}

/// An error that the agent reported.
pub(super) fn reported(program: &str, error: &agent_client_protocol::Error) -> BackendError {
    let data = error.data.as_ref();
    let keys = ["type", "code", "kind", "status", "errorKind"];
    let kind = keys.iter().find_map(|key| error::kind_of(data?.get(key)?));
    let detail = data.and_then(|data| data.as_str().or(data["details"].as_str()));
    let message = match detail {
        Some(detail) => format!("{}: {detail}", error.message),
        None => error.message.clone(),
    };
    BackendError::reported(program, kind.unwrap_or(FailureClass::Deterministic.into()), &message)
}

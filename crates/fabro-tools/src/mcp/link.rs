//! The connection to a server, which is opened again when it breaks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fabro_config::{McpServer, McpTransport};
use fabro_sandbox::Program;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion,
    ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RoleClient, RunningService, ServiceError,
    serve_client_with_lifecycle,
};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::auth::AuthorizationManager;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::mcp::connection::{Client, Connection};
use crate::mcp::error::{ServerError, brief};
use crate::mcp::http::LoginNeed;
use crate::mcp::lenient::Lenient;
use crate::mcp::stdio::ServerProcess;
use crate::mcp::{http, login, result};
use crate::schema::Schema;
use crate::tool::Output;

/// The default timeout from the start of a server to its list of tools.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The default timeout of a call.
const TOOL_TIMEOUT: Duration = Duration::from_mins(2);

/// The timeout of a ping, for a server that did not answer a call in time.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the notices of canceled calls may take.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(1);

/// What is said of a tool that wants an answer of a person.
const ASKS_FOR_INPUT: &str = "the tool asks for input, which is not available here";

/// Where the programs of servers start, their environment, and where logins at servers are kept.
#[derive(Debug)]
pub(crate) struct WorkDir {
    pub(crate) logins: Option<PathBuf>,
    pub(crate) cwd: PathBuf,
    pub(crate) env: Vec<(String, String)>,
}

/// The tools and instructions of a started server.
pub(crate) struct ListedTools {
    /// The listed tools, valid or not.
    pub(crate) tools: Vec<Value>,
    /// A warning about omitted tools.
    pub(crate) left_out: Option<String>,
    pub(crate) instructions: Option<String>,
}

/// A server, with a connection while there is one.
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) settings: McpServer,
    work_dir: Arc<WorkDir>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// It does not speak the protocol without sessions, of 2026.
    is_legacy: AtomicBool,
    /// Fires when the session ends: no new connection is made.
    closed: CancellationToken,
}

impl Link {
    pub(crate) fn new(name: String, settings: McpServer, work_dir: Arc<WorkDir>) -> Self {
        let closed = CancellationToken::new();
        let is_legacy = AtomicBool::new(false);
        Self { name, settings, work_dir, connection: Mutex::default(), is_legacy, closed }
    }

    fn startup_timeout(&self) -> Duration {
        self.settings.startup_timeout.unwrap_or(STARTUP_TIMEOUT)
    }

    /// Starts the server; returns its tools and instructions.
    pub(crate) async fn start(&self) -> Result<ListedTools, ServerError> {
        let started = Instant::now();
        let connection = self.connected().await?;
        let limit = self.startup_timeout();
        match timeout(limit.saturating_sub(started.elapsed()), connection.tools()).await {
            Ok(Ok((tools, left_out))) => {
                let info = connection.service.peer().peer_info();
                let instructions = info.and_then(|info| info.instructions.clone());
                Ok(ListedTools { tools, left_out, instructions })
            }
            Ok(Err(error)) => Err(self.failed(&connection, error).await),
            Err(_) => Err(self.give_up(&connection, startup_timed_out(limit)).await),
        }
    }

    /// Calls a tool. When the server ends meanwhile it is restarted, and the call is retried once if
    /// it is `repeatable`.
    pub(crate) async fn call(
        &self,
        params: CallToolRequestParams,
        repeatable: bool,
        schema: Option<&Schema>,
    ) -> Output {
        let limit = self.settings.tool_timeout.unwrap_or(TOOL_TIMEOUT);
        let mut may_retry = repeatable;
        loop {
            let connection = match self.connected().await {
                Ok(connection) => connection,
                Err(error) => return Output::error(error.to_string()),
            };
            let error = match connection.call(params.clone(), limit).await {
                Ok(ServerResult::CallToolResult(result)) => return result::output(&result, schema),
                Ok(ServerResult::CustomResult(other))
                    if other.0["resultType"] == "input_required" =>
                {
                    return self.error(ASKS_FOR_INPUT);
                }
                Ok(ServerResult::CustomResult(other)) => {
                    return result::unknown(&other.0).unwrap_or_else(|| {
                        self.error(&self.reason(&ServiceError::UnexpectedResponse))
                    });
                }
                Ok(ServerResult::InputRequiredResult(_)) => {
                    return self.error(ASKS_FOR_INPUT);
                }
                Ok(_) => ServiceError::UnexpectedResponse,
                Err(ServiceError::McpError(error)) => return self.error(&brief(&error.message)),
                Err(ServiceError::Timeout { timeout }) => {
                    return self.timed_out(&connection, timeout).await;
                }
                Err(error) => error,
            };
            if !connection.is_broken(&error) {
                if !was_sent(&error) {
                    return self.error(&self.reason(&error));
                }
                if std::mem::take(&mut may_retry) {
                    continue;
                }
                let error = self.server_error(self.reason(&error), String::new());
                return Output::error(format!(
                    "the call was interrupted, and may have taken effect or not: {error}"
                ));
            }
            let error = self.failed(&connection, error).await;
            if !may_retry {
                return self.interrupted(&error).await;
            }
            may_retry = false;
        }
    }

    /// Waits until the server knows of the calls that were canceled, for a second at most: the process may end after
    /// that.
    pub(crate) async fn notices_sent(&self) {
        let sent = async {
            // A connection may be opened meanwhile.
            let connection = self.connection.lock().await.clone();
            if let Some(connection) = connection {
                connection.notices_sent().await;
            }
        };
        // A server that does not take them is left with its calls.
        let _ = timeout(NOTICE_TIMEOUT, sent).await;
    }

    /// Ends the server, for good.
    pub(crate) async fn close(&self) {
        self.closed.cancel();
        let connection = self.connection.lock().await.take();
        if let Some(connection) = connection {
            connection.end().await;
        }
    }

    /// A slow call does not mean that the next one is slow. A server that does not answer at all would
    /// cost each of them its whole timeout.
    async fn timed_out(&self, connection: &Arc<Connection>, limit: Duration) -> Output {
        let seconds = limit.as_secs_f64();
        if connection.answers(limit.min(PING_TIMEOUT)).await {
            let problem = format!("no result within {seconds} s; the call may still take effect");
            return self.error(&problem);
        }
        let problem = format!(
            "no result within {seconds} s, nor an answer to a ping: check the server, or raise its \
             tool_timeout"
        );
        self.interrupted(&self.give_up(connection, problem).await).await
    }

    async fn interrupted(&self, error: &ServerError) -> Output {
        let is_program = matches!(self.settings.transport, McpTransport::Command { .. });
        let now = match self.connected().await {
            Ok(_) if is_program => "the server was started again".to_owned(),
            Ok(_) => "there is a new connection to it".to_owned(),
            Err(again) if is_program => format!("starting the server again failed: {again}"),
            Err(again) => format!("connecting again failed: {again}"),
        };
        Output::error(format!(
            "the call was interrupted, and may have taken effect or not: {error}\n{now}"
        ))
    }

    async fn connected(&self) -> Result<Arc<Connection>, ServerError> {
        let mut held = tokio::select! {
            biased;
            () = self.closed.cancelled() => return Err(self.closed()),
            held = self.connection.lock() => held,
        };
        if let Some(connection) =
            held.as_ref().filter(|it| !it.service.peer().is_transport_closed())
        {
            return Ok(Arc::clone(connection));
        }
        *held = None;
        let opened = tokio::select! {
            biased;
            () = self.closed.cancelled() => return Err(self.closed()),
            opened = self.open() => Arc::new(opened?),
        };
        *held = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Connects by the protocol without sessions first. A server that does not know it may answer in
    /// any way, or end: the older protocol is tried then.
    async fn open(&self) -> Result<Connection, ServerError> {
        let modern = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        };
        if !self.is_legacy.load(Ordering::Relaxed) {
            match self.open_by(modern).await {
                Err(failed) if failed.may_be_legacy => {}
                opened => return opened.map_err(|failed| failed.error),
            }
        }
        let opened = self.open_by(ClientLifecycleMode::Initialize).await;
        self.is_legacy.fetch_or(opened.is_ok(), Ordering::Relaxed);
        opened.map_err(|failed| failed.error)
    }

    async fn open_by(&self, lifecycle: ClientLifecycleMode) -> Result<Connection, NotOpened> {
        let mut config = ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("fabro", env!("CARGO_PKG_VERSION")),
        );
        config.protocol_version = ProtocolVersion::V_2025_11_25;
        let client = Client::new(config);
        let fail = |problem| NotOpened {
            error: self.server_error(problem, String::new()),
            may_be_legacy: false,
        };
        let limit = self.startup_timeout();
        let (process, service) = match &self.settings.transport {
            McpTransport::Command { command, args, env } => {
                let env = env.iter().map(|(name, value)| (name.clone(), value.clone()));
                let env: Vec<_> = self.work_dir.env.iter().cloned().chain(env).collect();
                let program = Program {
                    program: command,
                    args,
                    cwd: &self.work_dir.cwd,
                    env: &env,
                    sandbox: None,
                };
                let started = ServerProcess::start(&program);
                let (process, messages, stdin) =
                    started.map_err(|error| fail(error.to_string()))?;
                let transport = AsyncRwTransport::new_client(messages, stdin);
                (Some(process), timeout(limit, serve(client, transport, lifecycle)).await)
            }
            McpTransport::Http { url, headers } => {
                let config = http::config(url, headers).map_err(fail)?;
                let login = self.login(url, headers).await.map_err(fail)?;
                let serving = if let Some(login) = login {
                    let transport = http::with_login(config, login).map_err(fail)?;
                    http::run(serve(client, transport, lifecycle))
                } else {
                    let transport = http::without_login(config).map_err(fail)?;
                    http::run(serve(client, transport, lifecycle))
                };
                match timeout(limit, serving.map_err(fail)?).await {
                    Ok(joined) => (None, Ok(joined.map_err(|error| fail(error.to_string()))?)),
                    Err(late) => (None, Err(late)),
                }
            }
        };
        let (problem, may_be_legacy) = match service {
            Ok(Ok(service)) => return Ok(Connection::new(service, process)),
            Ok(Err(error)) => {
                let may_be_legacy = may_be_legacy(&error);
                let problem = match login_need(&error) {
                    Some(need) => self.needs_login(&need),
                    None => initialization_failed(error, process.as_ref(), self.url()).await,
                };
                (problem, may_be_legacy)
            }
            Err(_) => (startup_timed_out(limit), false),
        };
        let Some(process) = process else {
            return Err(NotOpened { may_be_legacy, ..fail(problem) });
        };
        process.end().await;
        let error = self.server_error(problem, process.last_lines().await);
        Err(NotOpened { error, may_be_legacy })
    }

    /// The tokens of a login at this server, when there is one.
    async fn login(
        &self,
        url: &str,
        headers: &BTreeMap<String, String>,
    ) -> Result<Option<AuthorizationManager>, String> {
        let Some(logins) = &self.work_dir.logins else { return Ok(None) };
        if headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) {
            return Ok(None);
        }
        let kept = login::kept(url, logins).await;
        kept.map_err(|error| {
            let again = format!("run `fabro mcp login {}` again", self.name);
            format!("its login cannot be used: {error}; {again}")
        })
    }

    /// Gives up a connection that broke.
    async fn failed(&self, connection: &Arc<Connection>, error: ServiceError) -> ServerError {
        self.forget(connection).await;
        let problem = match (&connection.process, error) {
            (Some(process), ServiceError::TransportClosed | ServiceError::TransportSend(_)) => {
                process.problem().await
            }
            (_, error) => self.reason(&error),
        };
        self.give_up(connection, problem).await
    }

    async fn give_up(&self, connection: &Arc<Connection>, problem: String) -> ServerError {
        self.forget(connection).await;
        connection.end().await;
        let stderr = match &connection.process {
            Some(process) => process.last_lines().await,
            None => String::new(),
        };
        self.server_error(problem, stderr)
    }

    async fn forget(&self, connection: &Arc<Connection>) {
        let mut held = self.connection.lock().await;
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, connection)) {
            *held = None;
        }
    }

    fn closed(&self) -> ServerError {
        self.server_error("it was ended with its session".to_owned(), String::new())
    }

    fn server_error(&self, problem: String, stderr: String) -> ServerError {
        ServerError { server: self.name.clone(), problem, stderr }
    }

    fn error(&self, problem: &str) -> Output {
        Output::error(format!("MCP server `{}`: {problem}", self.name))
    }

    fn needs_login(&self, need: &LoginNeed) -> String {
        let name = &self.name;
        match need {
            LoginNeed::Login => format!(
                "it asks for a login: run `fabro mcp login {name}`, or set its Authorization header"
            ),
            LoginNeed::Renewal => "its login has expired, and the authorization server does not \
                renew it at present: try again later"
                .to_owned(),
            LoginNeed::Scope(Some(scopes)) => {
                let options = scope_options(scopes);
                let lacks = format!("the login lacks the scope `{}`", brief(scopes));
                format!("{lacks}: run `fabro mcp login{options} {name}`")
            }
            LoginNeed::Scope(None) => {
                format!(
                    "the login may not do this: run `fabro mcp login {name}` as another user, or with `--scope`"
                )
            }
        }
    }

    fn url(&self) -> Option<&str> {
        match &self.settings.transport {
            McpTransport::Http { url, .. } => Some(url),
            McpTransport::Command { .. } => None,
        }
    }

    fn reason(&self, error: &ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => brief(&error.message),
            ServiceError::TransportSend(error) => match http::login_need(error.error.as_ref()) {
                Some(need) => self.needs_login(&need),
                None => http::chain(error.error.as_ref(), self.url()),
            },
            ServiceError::TransportClosed => "the connection was closed".to_owned(),
            ServiceError::UnexpectedResponse => {
                "it answered with something else than what was asked for".to_owned()
            }
            error => http::chain(error, self.url()),
        }
    }
}

async fn serve<T>(
    client: Client,
    transport: T,
    lifecycle: ClientLifecycleMode,
) -> Result<RunningService<RoleClient, Client>, ClientInitializeError>
where
    T: Transport<RoleClient> + 'static,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    serve_client_with_lifecycle(client, Lenient(transport), lifecycle).await
}

/// The longest list of scopes that is repeated as options, in bytes.
const MAX_SCOPES: usize = 300;

/// The options that ask for scopes; a placeholder for those that a shell could read as something else, as
/// the server chooses them and people copy the command.
fn scope_options(scopes: &str) -> String {
    let is_plain = |scope: &str| {
        scope.chars().all(|c| c.is_ascii_alphanumeric() || ":/._-+@%,=".contains(c))
            && !scope.starts_with('-')
    };
    if scopes.len() > MAX_SCOPES {
        return " --scope SCOPE".to_owned();
    }
    let option = |scope| format!(" --scope {}", if is_plain(scope) { scope } else { "SCOPE" });
    scopes.split_whitespace().map(option).collect()
}

/// Why there is no connection.
struct NotOpened {
    error: ServerError,
    may_be_legacy: bool,
}

/// Whether a server that failed may speak the older protocol only; false where that was tried.
fn may_be_legacy(error: &ClientInitializeError) -> bool {
    login_need(error).is_none()
        && !matches!(error, ClientInitializeError::LegacyFallbackFailed { .. })
}

/// What a login lacks at a server that failed for it.
fn login_need(error: &ClientInitializeError) -> Option<LoginNeed> {
    match error {
        ClientInitializeError::TransportError { error, .. } => {
            http::login_need(error.error.as_ref())
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => login_need(fallback),
        _ => None,
    }
}

/// Whether the server may have done what it was asked for, although its answer is lost.
fn was_sent(error: &ServiceError) -> bool {
    matches!(error, ServiceError::TransportSend(error) if http::was_sent(error.error.as_ref()))
}

fn startup_timed_out(limit: Duration) -> String {
    let limit = limit.as_secs_f64();
    format!("it did not answer within {limit} s: check its command, or raise its startup_timeout")
}

async fn initialization_failed(
    error: ClientInitializeError,
    process: Option<&ServerProcess>,
    url: Option<&str>,
) -> String {
    let error = match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => *fallback,
        error => error,
    };
    match (error, process) {
        (
            ClientInitializeError::ConnectionClosed(_)
            | ClientInitializeError::TransportError { .. },
            Some(process),
        ) => process.problem().await,
        (ClientInitializeError::ConnectionClosed(_), None) => "it ended".to_owned(),
        (ClientInitializeError::TransportError { error, .. }, None) => {
            http::chain(error.error.as_ref(), url)
        }
        (ClientInitializeError::JsonRpcError(error), _) => brief(&error.message),
        (error, _) => http::chain(&error, url),
    }
}

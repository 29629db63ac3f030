//! The connection to a server, which is opened again when it breaks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fabro_config::{McpServer, McpTransport};
use fabro_sandbox::Program;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, ClientRequest,
    Implementation, PaginatedRequestParams, PingRequest, Tool,
};
use rmcp::service::{
    ClientInitializeError, RoleClient, RunningService, ServiceError, serve_client,
};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::mcp::error::{ServerError, brief};
use crate::mcp::stdio::ServerProcess;
use crate::mcp::{http, result};
use crate::tool::Output;

/// The default timeout from the start of a server to its list of tools.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The default timeout of a call.
const TOOL_TIMEOUT: Duration = Duration::from_mins(2);

/// The most tools that are taken from one server.
const MAX_TOOLS: usize = 1000;

/// The timeout of a ping, for a server that did not answer a call in time.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the programs of servers start, and their environment.
#[derive(Debug)]
pub(crate) struct WorkDir {
    pub(crate) cwd: PathBuf,
    pub(crate) env: Vec<(String, String)>,
}

/// A server, with a connection while there is one.
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) settings: McpServer,
    work_dir: Arc<WorkDir>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Fires when the session ends: no new connection is made.
    closed: CancellationToken,
}

impl Link {
    pub(crate) fn new(name: String, settings: McpServer, work_dir: Arc<WorkDir>) -> Self {
        let closed = CancellationToken::new();
        Self { name, settings, work_dir, connection: Mutex::default(), closed }
    }

    fn startup_timeout(&self) -> Duration {
        self.settings.startup_timeout.unwrap_or(STARTUP_TIMEOUT)
    }

    /// Starts the server; returns its tools, and its instructions.
    pub(crate) async fn start(&self) -> Result<(Vec<Tool>, Option<String>), ServerError> {
        let started = Instant::now();
        let connection = self.connected().await?;
        let limit = self.startup_timeout();
        match timeout(limit.saturating_sub(started.elapsed()), connection.tools()).await {
            Ok(Ok(tools)) => {
                let info = connection.service.peer().peer_info();
                Ok((tools, info.and_then(|info| info.instructions.clone())))
            }
            Ok(Err(error)) => Err(self.failed(&connection, error).await),
            Err(_) => Err(self.give_up(&connection, startup_timed_out(limit)).await),
        }
    }

    /// Calls a tool. When the server ends meanwhile it is restarted, and the call is retried once if
    /// it is `repeatable`.
    pub(crate) async fn call(&self, params: CallToolRequestParams, repeatable: bool) -> Output {
        let limit = self.settings.tool_timeout.unwrap_or(TOOL_TIMEOUT);
        let mut may_retry = repeatable;
        loop {
            let connection = match self.connected().await {
                Ok(connection) => connection,
                Err(error) => return Output::error(error.to_string()),
            };
            let called = connection.service.peer().call_tool_once(params.clone());
            let error = match timeout(limit, called).await {
                Ok(Ok(CallToolResponse::Complete(result))) => return result::output(&result),
                Ok(Ok(_)) => {
                    return self.error("the tool asks for input, which is not available here");
                }
                Ok(Err(ServiceError::McpError(error))) => {
                    return self.error(&brief(&error.message));
                }
                Ok(Err(error)) => error,
                Err(_) => return self.timed_out(&connection, limit).await,
            };
            if !connection.is_broken(&error) {
                return self.error(&self.reason(&error));
            }
            let error = self.failed(&connection, error).await;
            if !may_retry {
                return self.interrupted(&error).await;
            }
            may_retry = false;
        }
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

    async fn open(&self) -> Result<Connection, ServerError> {
        let client = ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("fabro", env!("CARGO_PKG_VERSION")),
        );
        let fail = |problem| self.server_error(problem, String::new());
        let limit = self.startup_timeout();
        let (process, service) = match &self.settings.transport {
            McpTransport::Command { command, args, env } => {
                let env = env.iter().map(|(name, value)| (name.clone(), value.clone()));
                let env: Vec<_> = self.work_dir.env.iter().cloned().chain(env).collect();
                let program =
                    Program { program: command, args, cwd: &self.work_dir.cwd, env: &env };
                let started = ServerProcess::start(&program);
                let (process, messages, stdin) =
                    started.map_err(|error| fail(error.to_string()))?;
                let transport = AsyncRwTransport::new_client(messages, stdin);
                (Some(process), timeout(limit, serve_client(client, transport)).await)
            }
            McpTransport::Http { url, headers } => {
                let transport = http::transport(url, headers).map_err(fail)?;
                (None, timeout(limit, serve_client(client, transport)).await)
            }
        };
        let problem = match service {
            Ok(Ok(service)) => return Ok(Connection { service, process }),
            Ok(Err(error)) => initialization_failed(error, process.as_ref(), self.url()).await,
            Err(_) => startup_timed_out(limit),
        };
        let Some(process) = process else { return Err(fail(problem)) };
        process.end().await;
        Err(self.server_error(problem, process.last_lines().await))
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

    fn url(&self) -> Option<&str> {
        match &self.settings.transport {
            McpTransport::Http { url, .. } => Some(url),
            McpTransport::Command { .. } => None,
        }
    }

    fn reason(&self, error: &ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => brief(&error.message),
            ServiceError::TransportSend(error) => http::chain(error.error.as_ref(), self.url()),
            ServiceError::TransportClosed => "the connection was closed".to_owned(),
            ServiceError::UnexpectedResponse => {
                "it answered with something else than what was asked for".to_owned()
            }
            error => http::chain(error, self.url()),
        }
    }
}

struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    process: Option<ServerProcess>,
}

impl Connection {
    async fn tools(&self) -> Result<Vec<Tool>, ServiceError> {
        let mut tools = Vec::new();
        let mut cursor = None;
        loop {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.peer().list_tools(Some(page)).await?;
            let more = !page.tools.is_empty();
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || !more || tools.len() >= MAX_TOOLS {
                tools.truncate(MAX_TOOLS);
                return Ok(tools);
            }
        }
    }

    /// Whether it answers a ping: an error is an answer too.
    async fn answers(&self, limit: Duration) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        match timeout(limit, self.service.peer().send_request(ping)).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => !self.is_broken(&error),
            Err(_) => false,
        }
    }

    /// Whether no further request is possible. A request over HTTP that fails does not mean that the
    /// next one fails.
    fn is_broken(&self, error: &ServiceError) -> bool {
        match error {
            ServiceError::TransportClosed => true,
            ServiceError::TransportSend(_) => {
                self.process.is_some() || self.service.peer().is_transport_closed()
            }
            _ => false,
        }
    }

    async fn end(&self) {
        self.service.cancellation_token().cancel();
        if let Some(process) = &self.process {
            process.end().await;
        }
    }
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
    if error.is_authorization_required() {
        return "it asks for authorization: set its Authorization header".to_owned();
    }
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

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::tool::Output;
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

use crate::mcp::error::{Problem, ServerError, brief};
use crate::mcp::stdio::Child;
use crate::mcp::{Server, Transport, http, result};

/// The most tools that are taken from one server.
const MOST_TOOLS: usize = 1000;

/// How long a server that did not answer a call in time may take to answer a ping.
const PING: Duration = Duration::from_secs(5);

/// Where a server's program runs.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) cwd: PathBuf,
    pub(crate) env: Vec<(String, String)>,
}

/// A server, with a connection while there is one.
pub(crate) struct Link {
    pub(crate) server: Server,
    place: Arc<Place>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// Fires when the session ends: no new connection is made.
    closed: CancellationToken,
}

impl Link {
    pub(crate) fn new(server: Server, place: Arc<Place>) -> Self {
        Self { server, place, connection: Mutex::default(), closed: CancellationToken::new() }
    }

    /// What the server offers, and how it wants to be used. Starts it.
    pub(crate) async fn offers(&self) -> Result<(Vec<Tool>, Option<String>), ServerError> {
        let begun = Instant::now();
        let connection = self.connected().await?;
        let left = self.server.startup_timeout.saturating_sub(begun.elapsed());
        match timeout(left, connection.tools()).await {
            Ok(Ok(tools)) => {
                let info = connection.service.peer().peer_info();
                Ok((tools, info.and_then(|info| info.instructions.clone())))
            }
            Ok(Err(error)) => Err(self.failed(&connection, error).await),
            Err(_) => {
                self.forget(&connection).await;
                connection.end().await;
                let problem = Problem::Silent(self.server.startup_timeout);
                Err(problem.at(&self.server.name, connection.last_words().await))
            }
        }
    }

    /// Calls a tool. When the server ends meanwhile it is restarted, and the call is retried
    /// again if it may be.
    pub(crate) async fn call(&self, params: CallToolRequestParams, repeatable: bool) -> Output {
        let mut first = true;
        loop {
            let connection = match self.connected().await {
                Ok(connection) => connection,
                Err(error) => return Output::error(error.to_string()),
            };
            let called = connection.service.peer().call_tool_once(params.clone());
            let error = match timeout(self.server.tool_timeout, called).await {
                Ok(Ok(CallToolResponse::Complete(result))) => return result::output(&result),
                Ok(Ok(_)) => {
                    return Output::error(
                        self.says("the tool asks for input, which is not available here"),
                    );
                }
                Ok(Err(ServiceError::McpError(error))) => {
                    return Output::error(self.says(&brief(&error.message)));
                }
                Ok(Err(error)) => error,
                Err(_) => return self.timed_out(&connection).await,
            };
            if !connection.is_broken(&error) {
                return Output::error(self.says(&self.reason(&error)));
            }
            let error = self.failed(&connection, error).await;
            if repeatable && first {
                first = false;
                continue;
            }
            return self.interrupted(&error).await;
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

    /// One slow call says little of the next one. A server that answers nothing at all would cost
    /// each of them its whole time.
    async fn timed_out(&self, connection: &Arc<Connection>) -> Output {
        let limit = self.server.tool_timeout;
        if connection.answers(limit.min(PING)).await {
            let limit = limit.as_secs_f64();
            return Output::error(
                self.says(&format!("no result within {limit} s; the call may still take effect")),
            );
        }
        self.forget(connection).await;
        connection.end().await;
        let said = connection.last_words().await;
        self.interrupted(&Problem::Hung(limit).at(&self.server.name, said)).await
    }

    async fn interrupted(&self, error: &ServerError) -> Output {
        let is_program = matches!(self.server.transport, Transport::Stdio { .. });
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
            () = self.closed.cancelled() => return Err(self.ended()),
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
            () = self.closed.cancelled() => return Err(self.ended()),
            opened = Connection::open(&self.server, &self.place) => Arc::new(opened?),
        };
        *held = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Gives up a connection.
    async fn failed(&self, connection: &Arc<Connection>, error: ServiceError) -> ServerError {
        self.forget(connection).await;
        let problem = match (&connection.child, error) {
            (Some(child), ServiceError::TransportClosed | ServiceError::TransportSend(_)) => {
                child.problem().await
            }
            (_, error) => Problem::Refused(self.reason(&error)),
        };
        connection.end().await;
        problem.at(&self.server.name, connection.last_words().await)
    }

    async fn forget(&self, connection: &Arc<Connection>) {
        let mut held = self.connection.lock().await;
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, connection)) {
            *held = None;
        }
    }

    fn ended(&self) -> ServerError {
        Problem::Closed.at(&self.server.name, String::new())
    }

    fn says(&self, what: &str) -> String {
        format!("MCP server `{}`: {what}", self.server.name)
    }

    fn reason(&self, error: &ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => brief(&error.message),
            ServiceError::TransportSend(error) => {
                http::chain(error.error.as_ref(), self.server.transport.url())
            }
            ServiceError::TransportClosed => "the connection was closed".to_owned(),
            ServiceError::UnexpectedResponse => {
                "it answered with something else than what was asked for".to_owned()
            }
            error => http::chain(error, self.server.transport.url()),
        }
    }
}

pub(crate) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    child: Option<Child>,
}

impl Connection {
    async fn open(server: &Server, place: &Place) -> Result<Self, ServerError> {
        let fail = |problem: Problem| problem.at(&server.name, String::new());
        let client = ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("fabro", env!("CARGO_PKG_VERSION")),
        );
        let limit = server.startup_timeout;
        let (child, service) = match &server.transport {
            Transport::Stdio { command, args, env } => {
                let env = [place.env.as_slice(), env.as_slice()].concat();
                let program = Program { program: command, args, cwd: &place.cwd, env: &env };
                let (child, messages, stdin) =
                    Child::start(&program).map_err(|error| fail(error.into()))?;
                let transport = AsyncRwTransport::new_client(messages, stdin);
                (Some(child), timeout(limit, serve_client(client, transport)).await)
            }
            Transport::Http { url, headers } => {
                let transport = http::transport(url, headers).map_err(fail)?;
                (None, timeout(limit, serve_client(client, transport)).await)
            }
        };
        let problem = match service {
            Ok(Ok(service)) => return Ok(Self { service, child }),
            Ok(Err(error)) => initialization(error, child.as_ref(), server.transport.url()).await,
            Err(_) => Problem::Silent(limit),
        };
        let Some(child) = child else { return Err(fail(problem)) };
        child.end().await;
        Err(problem.at(&server.name, child.last_words().await))
    }

    async fn tools(&self) -> Result<Vec<Tool>, ServiceError> {
        let mut tools = Vec::new();
        let mut cursor = None;
        loop {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.peer().list_tools(Some(page)).await?;
            let more = !page.tools.is_empty();
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() || !more || tools.len() >= MOST_TOOLS {
                tools.truncate(MOST_TOOLS);
                return Ok(tools);
            }
        }
    }

    /// Whether it answers at all: an error is an answer too.
    async fn answers(&self, limit: Duration) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        match timeout(limit, self.service.peer().send_request(ping)).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => !self.is_broken(&error),
            Err(_) => false,
        }
    }

    /// Whether nothing more can be asked over it. A request over HTTP that fails says nothing about
    /// the next one.
    fn is_broken(&self, error: &ServiceError) -> bool {
        match error {
            ServiceError::TransportClosed => true,
            ServiceError::TransportSend(_) => {
                self.child.is_some() || self.service.peer().is_transport_closed()
            }
            _ => false,
        }
    }

    async fn end(&self) {
        self.service.cancellation_token().cancel();
        if let Some(child) = &self.child {
            child.end().await;
        }
    }

    async fn last_words(&self) -> String {
        match &self.child {
            Some(child) => child.last_words().await,
            None => String::new(),
        }
    }
}

async fn initialization(
    error: ClientInitializeError,
    child: Option<&Child>,
    url: Option<&str>,
) -> Problem {
    if error.is_authorization_required() {
        return Problem::Authorization;
    }
    match (error, child) {
        (
            ClientInitializeError::ConnectionClosed(_)
            | ClientInitializeError::TransportError { .. },
            Some(child),
        ) => child.problem().await,
        (ClientInitializeError::ConnectionClosed(_), None) => Problem::Ended(None),
        (ClientInitializeError::TransportError { error, .. }, None) => {
            Problem::Refused(http::chain(error.error.as_ref(), url))
        }
        (ClientInitializeError::JsonRpcError(error), _) => Problem::Refused(brief(&error.message)),
        (error, _) => Problem::Refused(http::chain(&error, url)),
    }
}

//! A connection to a server: its requests, with their timeouts and their cancellation.

use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientConfig,
    ClientRequest, ListToolsRequest, PaginatedRequestParams, PingRequest,
    ProgressNotificationParam, ProgressToken, RequestId, ServerResult,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RoleClient, RunningService, ServiceError,
};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::TaskTracker;

use crate::mcp::error::brief;
use crate::mcp::stdio::ServerProcess;

/// The most tools that are taken from one server.
const MAX_TOOLS: usize = 1000;

/// How many timeouts a call may take that reports progress.
const MOST_TIMEOUTS: u32 = 10;

/// How many reports of progress are kept for calls that have not looked yet.
const REPORTS: usize = 64;

/// What a server sees of this program.
pub(crate) struct Client {
    config: ClientConfig,
    /// The calls that report progress.
    progress: broadcast::Sender<ProgressToken>,
}

impl Client {
    pub(crate) fn new(config: ClientConfig) -> Self {
        Self { config, progress: broadcast::Sender::new(REPORTS) }
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        // No call may wait.
        let _ = self.progress.send(params.progress_token);
    }
}

pub(crate) struct Connection {
    pub(crate) service: RunningService<RoleClient, Client>,
    pub(crate) process: Option<ServerProcess>,
    /// Notices of canceled calls that are sent now.
    notices: TaskTracker,
}

/// The warning about tools that are omitted because the server lists too many.
fn left_out(cut: &[Value], is_more: bool) -> String {
    const NAMED: usize = 5;
    let names = cut.iter().filter_map(|tool| tool["name"].as_str()).take(NAMED).map(brief);
    let mut names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if is_more || cut.len() > names.len() {
        names.push("…".to_owned());
    }
    format!("it lists more than {MAX_TOOLS} tools; left out: {}", names.join(", "))
}

impl Connection {
    pub(crate) fn new(
        service: RunningService<RoleClient, Client>,
        process: Option<ServerProcess>,
    ) -> Self {
        Self { service, process, notices: TaskTracker::new() }
    }

    /// The listed tools, valid or not, and a warning if some are omitted.
    pub(crate) async fn tools(&self) -> Result<(Vec<Value>, Option<String>), ServiceError> {
        let mut tools = Vec::new();
        let mut cursor = None;
        loop {
            let (page, next) = self.page(cursor).await?;
            let more = !page.is_empty();
            tools.extend(page);
            cursor = next;
            if cursor.is_none() || !more || tools.len() >= MAX_TOOLS {
                let is_more = more && cursor.is_some();
                let cut = tools.split_off(tools.len().min(MAX_TOOLS));
                let cut = (is_more || !cut.is_empty()).then(|| left_out(&cut, is_more));
                return Ok((tools, cut));
            }
        }
    }

    async fn page(
        &self,
        cursor: Option<String>,
    ) -> Result<(Vec<Value>, Option<String>), ServiceError> {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ListToolsRequest { params: Some(page), ..ListToolsRequest::default() };
        let request = ClientRequest::ListToolsRequest(request);
        match self.service.peer().send_request(request).await? {
            ServerResult::ListToolsResult(list) => {
                // A tool that was read can be written.
                let tools = list.tools.iter().filter_map(|tool| serde_json::to_value(tool).ok());
                Ok((tools.collect(), list.next_cursor))
            }
            // One tool that is not valid makes the whole list another one.
            ServerResult::CustomResult(other) => {
                let tools = other.0["tools"].as_array().cloned();
                let next = other.0["nextCursor"].as_str().map(str::to_owned);
                Ok((tools.ok_or(ServiceError::UnexpectedResponse)?, next))
            }
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }

    /// Calls a tool, and waits until the timeout after the call or its last progress. A call
    /// whose result is no longer awaited is canceled on the server.
    pub(crate) async fn call(
        &self,
        params: CallToolRequestParams,
        limit: Duration,
    ) -> Result<ServerResult, ServiceError> {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut progress = self.service.service().progress.subscribe();
        let late = || ServiceError::Timeout { timeout: limit };
        let last = Instant::now() + limit.saturating_mul(MOST_TIMEOUTS);
        // The timeouts of the request itself would wait until the server has the notice that it is canceled.
        let options = PeerRequestOptions::no_options();
        let sending = self.service.peer().send_cancellable_request(request, options);
        let mut sent = timeout(limit, sending).await.map_err(|_| late())??;
        let mut guard = CancelOnDrop { connection: self, id: Some(sent.id.clone()) };
        let mut until = Instant::now() + limit;
        loop {
            tokio::select! {
                biased;
                ended = &mut sent.rx => {
                    guard.id = None;
                    return ended.map_err(|_| ServiceError::TransportClosed)?;
                }
                () = sleep_until(until.min(last)) => return Err(late()),
                report = progress.recv() => match report {
                    Ok(token) if token != sent.progress_token => {}
                    // Those that were missed may have been of this call.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {
                        until = Instant::now() + limit;
                    }
                    Err(broadcast::error::RecvError::Closed) => {
                        return Err(ServiceError::TransportClosed);
                    }
                },
            }
        }
    }

    /// Waits until the server has the notices of canceled calls.
    pub(crate) async fn notices_sent(&self) {
        // A closed tracker takes new tasks all the same; it can be waited for.
        self.notices.close();
        self.notices.wait().await;
    }

    /// Whether it answers a ping: an error is an answer too.
    pub(crate) async fn answers(&self, limit: Duration) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        match timeout(limit, self.service.peer().send_request(ping)).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => !self.is_broken(&error),
            Err(_) => false,
        }
    }

    /// Whether no further request is possible. A request over HTTP that fails does not mean that the
    /// next one fails.
    pub(crate) fn is_broken(&self, error: &ServiceError) -> bool {
        match error {
            ServiceError::TransportClosed => true,
            ServiceError::TransportSend(_) => {
                self.process.is_some() || self.service.peer().is_transport_closed()
            }
            _ => false,
        }
    }

    pub(crate) async fn end(&self) {
        self.service.cancellation_token().cancel();
        if let Some(process) = &self.process {
            process.end().await;
        }
    }
}

/// Cancels a request that is dropped before its result came.
struct CancelOnDrop<'a> {
    connection: &'a Connection,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let peer = self.connection.service.peer().clone();
        let notice = async move {
            let reason = Some("the call was canceled".to_owned());
            // A server that is gone needs no notice.
            let _ = peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason)).await;
        };
        self.connection.notices.spawn_on(notice, &runtime);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_omitted_tools() {
        let tools: Vec<Value> = (0..7).map(|n| json!({"name": format!("t{n}")})).collect();
        let check = |count: usize, is_more: bool, expect: &str| {
            let text = left_out(&tools[..count], is_more);
            assert_eq!(text, format!("it lists more than 1000 tools; left out: {expect}"));
        };
        check(2, false, "`t0`, `t1`");
        check(2, true, "`t0`, `t1`, …");
        check(7, false, "`t0`, `t1`, `t2`, `t3`, `t4`, …");
        check(0, true, "…");
    }
}

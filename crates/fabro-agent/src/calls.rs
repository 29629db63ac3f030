//! The tools of a turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fabro_events::{CompletedTool, EventBody};
use fabro_tools::Output;
use fabro_types::Permissions;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::message::is_blob_name;
use crate::subagent_calls::{WAIT, is_for_subagents};
use crate::transcript::{CUT_OFF, OpenCalls};
use crate::turn::RequestedCall;
use crate::{Record, Session, SessionError};

/// How many calls that only read run at the same time.
const AT_ONCE: usize = 8;

/// How long canceled calls may take to end: longer than the second of [`fabro_tools::Tool::ends_slowly`].
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

impl Session {
    /// Runs calls, and puts their results into the conversation. Results are recorded in the order of the
    /// calls, as soon as those before them are, so that two runs of the same script record the same.
    pub(crate) async fn run_calls(
        &mut self,
        calls: Vec<RequestedCall>,
        cancel: &CancellationToken,
    ) -> Result<(), SessionError> {
        let mut results = BTreeMap::new();
        let mut rest = calls.as_slice();
        while !rest.is_empty() {
            let readers = rest.iter().take_while(|requested| self.only_reads(requested)).count();
            let (group, after) = rest.split_at(readers.clamp(1, AT_ONCE));
            rest = after;
            match self.run_group(group, cancel, &mut results).await {
                Ok(()) => {}
                Err(error) => {
                    let calls = calls.into_iter().map(|requested| requested.call).collect();
                    // Calls without a result are settled when the session resumes.
                    self.open = Some(OpenCalls { calls, results });
                    return Err(error);
                }
            }
        }
        let calls = calls.into_iter().map(|requested| requested.call).collect();
        let (message, action) = OpenCalls { calls, results }.settle(&mut self.repeats);
        self.push(Arc::new(message));
        self.warn_or_stop(action)
    }

    /// Calls `wait` again where it was interrupted or paused: it has no effect that could happen
    /// twice.
    pub(crate) async fn wait_again(
        &mut self,
        cancel: &CancellationToken,
    ) -> Result<(), SessionError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let waits = open.missing().filter(|call| call.name == WAIT);
        let waits: Vec<_> = waits
            .map(|call| RequestedCall { call: call.clone(), unredacted: None, is_cut: false })
            .collect();
        let mut end = Ok(());
        for requested in waits {
            end = self.run_group(&[requested], cancel, &mut open.results).await;
            if end.is_err() {
                break;
            }
        }
        self.open = Some(open);
        end
    }

    /// Runs calls at the same time, and records the results in the order of the calls.
    async fn run_group(
        &mut self,
        group: &[RequestedCall],
        cancel: &CancellationToken,
        results: &mut BTreeMap<String, (String, bool)>,
    ) -> Result<(), SessionError> {
        let mut done = Vec::new();
        let end = self.run_all(group, cancel, &mut done).await;
        for output in done {
            self.took(&output);
            let text = output.output.as_str().unwrap_or_default().to_owned();
            results.insert(output.call_id, (text, output.is_error));
        }
        end
    }

    async fn run_all(
        &self,
        group: &[RequestedCall],
        cancel: &CancellationToken,
        done: &mut Vec<CompletedTool>,
    ) -> Result<(), SessionError> {
        let mut running: FuturesOrdered<_> =
            group.iter().map(|requested| run(self, requested, cancel)).collect();
        let waits = group.iter().any(|requested| requested.call.name == WAIT);
        let spent = async {
            match &self.agents {
                Some(agents) if waits => agents.spent().await,
                _ => std::future::pending().await,
            }
        };
        tokio::pin!(spent);
        loop {
            let next = tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    if group.iter().any(|requested| self.ends_slowly(requested)) {
                        let ended = async { while running.next().await.is_some() {} };
                        // What is not done by then is dropped.
                        let _ = timeout(CANCEL_TIMEOUT, ended).await;
                    }
                    return Err(SessionError::Canceled);
                }
                next = running.next() => next,
                // The agents that are waited for are paused by the spending limit.
                () = &mut spent => return Err(SessionError::Budget),
            };
            let Some(output) = next else { return Ok(()) };
            let note = self.parts.note(EventBody::AgentToolCompleted(Box::new(output.clone())));
            let record = Record { notes: vec![note], tickets: Vec::new() };
            self.parts.journal.record(record).await?;
            done.push(output);
        }
    }

    fn needs(&self, tool: &str) -> Option<Permissions> {
        self.tools.get(tool).map(|tool| tool.needs())
    }

    /// Whether a call may run beside others.
    fn only_reads(&self, requested: &RequestedCall) -> bool {
        let name = &requested.call.name;
        self.tools.get(name).is_some_and(|tool| tool.only_reads()) && !is_for_subagents(name)
    }

    fn ends_slowly(&self, requested: &RequestedCall) -> bool {
        self.tools.get(&requested.call.name).is_some_and(|tool| tool.ends_slowly())
    }

    /// Remembers what a call did.
    fn took(&mut self, output: &CompletedTool) {
        if !output.is_error {
            self.compactor.files.read.extend(output.files_read.iter().cloned());
            self.compactor.files.modified.extend(output.files_modified.iter().cloned());
            self.ledger.touch(&output.files_modified);
            return;
        }
        let allowed = self.parts.settings.permissions;
        let Some(needed) = self.needs(&output.tool).filter(|needed| *needed > allowed) else {
            return;
        };
        if self.refused.insert(output.tool.clone()) {
            let tool = &output.tool;
            let needed = needed.as_str();
            let allowed = allowed.as_str();
            let message = format!(
                "the agent may not use `{tool}`: it needs permissions \"{needed}\", and has \"{allowed}\""
            );
            self.warn("permission", &message);
        }
    }
}

/// Runs one call to its end.
async fn run(
    session: &Session,
    requested: &RequestedCall,
    cancel: &CancellationToken,
) -> CompletedTool {
    let RequestedCall { call, unredacted, is_cut } = requested;
    let began = Instant::now();
    let Output { mut text, is_error, files_read, files_modified, files_seen } = if *is_cut {
        Output::error(CUT_OFF)
    } else {
        let parts = &session.parts;
        let permissions = parts.settings.permissions;
        let id = &call.id;
        let arguments = unredacted.as_ref().unwrap_or(&call.arguments);
        session.tools.run(&call.name, id, arguments, &parts.context, cancel, permissions).await
    };
    if is_blob_name(&text) {
        // In a record it would stand for a blob.
        text.push('\n');
    }
    CompletedTool {
        call_id: call.id.clone(),
        tool: call.name.clone(),
        is_error,
        output: Arc::new(text.into()),
        files_read,
        files_modified,
        files_seen,
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}

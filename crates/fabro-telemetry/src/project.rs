//! Spans from the logs of a run and of its sub-workflows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use fabro_events::{CompletedTool, Event, EventBody, ParentStage, StageFailure};
use fabro_types::{BranchPath, Failure, NodeKind, RunId, Status, Usage};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::names;
use crate::otlp::{Attribute, Export, Span, SpanEvent, SpanStatus};

/// Inside of the program.
const INTERNAL: u8 = 1;
/// A request to another program.
const CLIENT: u8 = 3;

const WELL: u8 = 1;
const ERROR: u8 = 2;

/// Reads a value of the log back: a reference to a blob, or the value itself.
type Read<'a> = &'a dyn Fn(&Value) -> Value;

/// Whether prompts, answers, and arguments and results of tools are exported.
#[derive(Default)]
#[non_exhaustive]
pub enum Contents<'a> {
    /// They stay in the store.
    #[default]
    Omitted,
    /// They are exported; the function reads a value of the log that may be a reference to a blob.
    With(Read<'a>),
}

/// The trace of a run: of its log, the first one, and of those of its sub-workflows.
pub fn trace(root: RunId, logs: &[&[Event]], contents: &Contents<'_>) -> Export {
    let trace_id = hex(&root.to_bytes());
    let mut spans = Vec::new();
    for log in logs {
        let Some(first) = log.first() else { continue };
        let mut run = RunSpans::new(&trace_id, first, contents);
        for event in *log {
            run.add(event);
        }
        spans.extend(run.finish());
    }
    Export::new(spans)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The id of a span: of what it stands for, so that the same log gives the same ids.
fn span_id(run: RunId, what: &str) -> String {
    let digest = Sha256::new().chain_update(run.to_bytes()).chain_update(what).finalize();
    hex(&digest[..8])
}

fn nanoseconds(ms: i64) -> String {
    (i128::from(ms) * 1_000_000).to_string()
}

/// A span that may still be open.
struct Open {
    span: Span,
    is_ended: bool,
}

/// The spans of one log. Each is found by what it stands for.
struct RunSpans<'a> {
    run: RunId,
    trace_id: &'a str,
    contents: &'a Contents<'a>,
    spans: Vec<Open>,
    by_key: BTreeMap<String, usize>,
    /// The stage of the fan-out that a branch belongs to.
    fan_outs: BTreeMap<Arc<str>, String>,
    /// When a conversation was last waiting for its model: when the last thing before was recorded.
    waiting_since: BTreeMap<String, i64>,
    /// What a model will be sent with its next request, where contents are asked for.
    sent: BTreeMap<String, Vec<Value>>,
    last_ms: i64,
    /// The time of the event that is added, in milliseconds since 1970: by a clock that was never set, so that
    /// spans take as long as what they stand for.
    ms: i64,
    /// By how much the clock of the events was set so far.
    set_ms: i64,
}

impl<'a> RunSpans<'a> {
    fn new(trace_id: &'a str, first: &Event, contents: &'a Contents<'a>) -> Self {
        let mut spans = Self {
            run: first.run_id,
            trace_id,
            contents,
            spans: Vec::new(),
            by_key: BTreeMap::new(),
            fan_outs: BTreeMap::new(),
            waiting_since: BTreeMap::new(),
            sent: BTreeMap::new(),
            last_ms: first.ts_ms,
            ms: first.ts_ms,
            set_ms: 0,
        };
        let mut name = names::INVOKE_WORKFLOW.to_owned();
        let mut attributes = vec![
            Attribute::new(names::OPERATION, names::INVOKE_WORKFLOW),
            Attribute::new(names::RUN_ID, first.run_id.to_string()),
        ];
        let mut parent = String::new();
        if let EventBody::RunCreated(created) = &first.entry.body {
            let _ = write!(name, " {}", created.workflow);
            attributes.push(Attribute::new(names::WORKFLOW_NAME, created.workflow.as_str()));
            parent = created.parent.as_ref().map(span_of_parent).unwrap_or_default();
        }
        spans.open(RUN, name, INTERNAL, parent, first.ts_ms, attributes);
        spans
    }

    fn open(
        &mut self,
        key: &str,
        name: String,
        kind: u8,
        parent_span_id: String,
        start_ms: i64,
        attributes: Vec<Attribute>,
    ) {
        let span = Span {
            trace_id: self.trace_id.to_owned(),
            span_id: span_id(self.run, key),
            parent_span_id,
            name,
            kind,
            start_time_unix_nano: nanoseconds(start_ms),
            end_time_unix_nano: nanoseconds(start_ms),
            attributes,
            events: Vec::new(),
            status: SpanStatus::default(),
        };
        // A stage that is entered again after a rewind has the place of the one that no longer counts.
        let at = *self.by_key.entry(key.to_owned()).or_insert(self.spans.len());
        let open = Open { span, is_ended: false };
        match self.spans.get_mut(at) {
            Some(earlier) => *earlier = open,
            None => self.spans.push(open),
        }
    }

    fn find(&mut self, key: &str) -> Option<&mut Open> {
        let at = *self.by_key.get(key)?;
        self.spans.get_mut(at)
    }

    fn id_of(&mut self, key: &str) -> Option<String> {
        self.find(key).map(|open| open.span.span_id.clone())
    }

    fn end(&mut self, key: &str, ms: i64, status: SpanStatus, attributes: Vec<Attribute>) {
        let Some(open) = self.find(key) else { return };
        open.span.end_time_unix_nano = nanoseconds(ms);
        open.span.status = status;
        // A run that was retried ends again, and keys are unique.
        let is_old = |known: &Attribute| !attributes.iter().any(|new| new.key == known.key);
        open.span.attributes.retain(is_old);
        open.span.attributes.extend(attributes);
        open.is_ended = true;
    }

    /// A moment of a span; nothing when there is no such span.
    fn moment(&mut self, key: &str, name: &str, attributes: Vec<Attribute>) {
        let time_unix_nano = nanoseconds(self.ms);
        if let Some(open) = self.find(key) {
            open.span.events.push(SpanEvent { time_unix_nano, name: name.to_owned(), attributes });
        }
    }

    fn add(&mut self, event: &Event) {
        self.set_ms = self.set_ms.saturating_add(event.entry.clock_set_ms.unwrap_or(0));
        self.ms = event.ts_ms.saturating_sub(self.set_ms);
        self.last_ms = self.last_ms.max(self.ms);
        match &event.entry.body {
            EventBody::RunCompleted { status, usage, unhandled, .. } => {
                let status_of = match unhandled.first() {
                    Some(first) => failed(&text_of(first)),
                    None => SpanStatus { code: WELL, message: String::new() },
                };
                self.end_run(status.as_str(), status_of, usage);
            }
            EventBody::RunFailed { failure, usage, .. } => {
                self.end_run("failed", failed(&failure.text()), usage);
            }
            EventBody::RunCanceled { reason, .. } => {
                self.end_run("canceled", failed(reason), &Usage::default());
            }
            EventBody::RunPaused { message, .. } => {
                self.moment(RUN, "run.paused", vec![Attribute::new("message", message.as_str())]);
            }
            EventBody::RunResumed { .. } => self.moment(RUN, "run.resumed", Vec::new()),
            EventBody::EdgeSelected(edge) => {
                let from = event.entry.node_id.as_deref().unwrap_or_default();
                let attributes = vec![
                    Attribute::new("from", from),
                    Attribute::new("to", &*edge.to),
                    Attribute::new("tier", edge.tier.as_str()),
                ];
                self.moment(RUN, "edge.selected", attributes);
            }
            _ => self.add_to_stage(event),
        }
    }

    fn end_run(&mut self, word: &str, status: SpanStatus, usage: &Usage) {
        let mut attributes = vec![Attribute::new(names::STATUS, word)];
        attributes.extend(usage_attributes(usage));
        self.end(RUN, self.ms, status, attributes);
    }

    fn add_to_stage(&mut self, event: &Event) {
        let Some(stage) = stage_key(event) else { return };
        match &event.entry.body {
            EventBody::StageStarted { handler, .. } => self.start_stage(event, &stage, *handler),
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => {
                let outcome = &end.outcome;
                let mut attributes = vec![
                    Attribute::new(names::STATUS, outcome.status.as_str()),
                    Attribute::new(names::ATTEMPTS, u64::from(end.attempts)),
                ];
                attributes.extend(outcome.usage.iter().flat_map(usage_attributes));
                if let Some(failure) = &outcome.failure {
                    attributes.push(Attribute::new(names::ERROR_TYPE, failure.class.as_str()));
                }
                let status = stage_status(outcome.status, outcome.failure.as_ref());
                self.end(&stage, self.ms, status, attributes);
            }
            EventBody::StageRetrying { attempt, failure, .. } => {
                let attributes = vec![
                    Attribute::new("attempt", u64::from(*attempt)),
                    Attribute::new(names::ERROR_TYPE, failure.class.as_str()),
                    Attribute::new("message", failure.text().into_owned()),
                ];
                self.moment(&stage, "stage.retrying", attributes);
            }
            EventBody::ParallelStarted { branches, .. } => {
                let ids = branches.iter().map(|branch| (Arc::clone(&branch.branch), stage.clone()));
                self.fan_outs.extend(ids);
            }
            EventBody::GateAsked { .. } => self.moment(&stage, "gate.asked", Vec::new()),
            EventBody::GateAnswered { label, source, by, .. } => {
                let mut attributes = vec![
                    Attribute::new("label", label.as_str()),
                    Attribute::new("source", source.as_str()),
                ];
                if let Some(by) = by {
                    attributes.push(Attribute::new("by", by.name.as_str()));
                }
                self.moment(&stage, "gate.answered", attributes);
            }
            _ => self.add_to_session(event, &stage),
        }
    }

    fn start_stage(&mut self, event: &Event, stage: &str, handler: NodeKind) {
        let node = event.entry.node_id.as_deref().unwrap_or_default();
        let operation = (handler == NodeKind::Agent).then_some(names::INVOKE_AGENT);
        let mut attributes = vec![
            Attribute::new(names::NODE, node),
            Attribute::new(names::VISIT, u64::from(event.entry.visit.unwrap_or(1))),
            Attribute::new(names::HANDLER, handler.as_str()),
        ];
        if let Some(operation) = operation {
            attributes.push(Attribute::new(names::OPERATION, operation));
            attributes.push(Attribute::new(names::AGENT_NAME, node));
        }
        if let Some(branch) = &event.entry.branch {
            attributes.push(Attribute::new(names::BRANCH, &**branch));
        }
        let parent = event.entry.branch.as_ref().and_then(|it| self.fan_outs.get(it).cloned());
        let parent = parent.and_then(|key| self.id_of(&key)).or_else(|| self.id_of(RUN));
        let name = format!("{} {node}", operation.unwrap_or("stage"));
        self.open(stage, name, INTERNAL, parent.unwrap_or_default(), self.ms, attributes);
    }

    /// The span that the spans of a conversation are parts of, and the conversation's name.
    fn session(&mut self, event: &Event, stage: &str) -> (String, String) {
        let session = event.entry.session_id.as_deref().unwrap_or(stage).to_owned();
        let key = agent_key(stage, &session);
        let parent = self.id_of(&key).or_else(|| self.id_of(stage));
        (parent.unwrap_or_default(), session)
    }

    fn add_to_session(&mut self, event: &Event, stage: &str) {
        let (parent, session) = self.session(event, stage);
        match &event.entry.body {
            EventBody::AgentMessage { role, message, usage, text, .. } => {
                let whole =
                    || message.as_deref().map_or_else(|| Value::from(text.as_str()), Value::clone);
                if role == "assistant" {
                    self.chat(event, (&parent, &session), usage.as_ref(), Ok(&whole()));
                } else if let Contents::With(read) = self.contents {
                    let sent = json!({"role": role, "content": read(&whole())});
                    self.sent.entry(session.clone()).or_default().push(sent);
                }
                self.waiting_since.insert(session, self.ms);
            }
            EventBody::AgentToolStarted { call_id, tool, arguments } => {
                let mut attributes = vec![
                    Attribute::new(names::OPERATION, names::EXECUTE_TOOL),
                    Attribute::new(names::TOOL_NAME, tool.as_str()),
                    Attribute::new(names::TOOL_CALL_ID, call_id.as_str()),
                ];
                if matches!(self.contents, Contents::With(_)) {
                    attributes.push(Attribute::new(names::TOOL_ARGUMENTS, arguments.as_str()));
                }
                let key = tool_key(stage, &session, call_id);
                let name = format!("{} {tool}", names::EXECUTE_TOOL);
                self.open(&key, name, INTERNAL, parent, self.ms, attributes);
            }
            EventBody::AgentToolCompleted(done) => {
                self.end_tool(event, &tool_key(stage, &session, &done.call_id), done);
                self.waiting_since.insert(session, self.ms);
            }
            EventBody::AgentSubSpawned { agent_id, .. } => {
                let attributes = vec![
                    Attribute::new(names::OPERATION, names::INVOKE_AGENT),
                    Attribute::new(names::AGENT_NAME, agent_id.as_str()),
                    Attribute::new(names::CONVERSATION_ID, agent_id.as_str()),
                ];
                let key = agent_key(stage, agent_id);
                let name = format!("{} {agent_id}", names::INVOKE_AGENT);
                self.open(&key, name, INTERNAL, parent, self.ms, attributes);
            }
            EventBody::AgentSubCompleted { agent_id, .. } => {
                let well = SpanStatus { code: WELL, message: String::new() };
                self.end(&agent_key(stage, agent_id), self.ms, well, Vec::new());
            }
            EventBody::AgentSubFailed { agent_id, message } => {
                self.end(&agent_key(stage, agent_id), self.ms, failed(message), Vec::new());
            }
            EventBody::AgentCompactionCompleted(done) => {
                let attributes = vec![
                    Attribute::new("reason", done.reason.as_str()),
                    Attribute::new("messages_before", done.messages_before),
                    Attribute::new("messages_after", done.messages_after),
                ];
                self.moment(stage, "agent.compaction.completed", attributes);
            }
            EventBody::AgentError { class, message, usage: usage @ Some(_), .. } => {
                let error = (class.as_str(), message.as_str());
                self.chat(event, (&parent, &session), usage.as_ref(), Err(error));
                self.waiting_since.insert(session, self.ms);
            }
            EventBody::AgentError { message, .. } | EventBody::AgentWarning { message, .. } => {
                let attributes = vec![Attribute::new("message", message.as_str())];
                let is_error = matches!(event.entry.body, EventBody::AgentError { .. });
                let name = if is_error { "agent.error" } else { "agent.warning" };
                self.moment(stage, name, attributes);
            }
            _ => {}
        }
    }

    /// A request that was answered, or failed with a class and a message and was sent again: from the last thing
    /// that was recorded of the conversation.
    fn chat(
        &mut self,
        event: &Event,
        (parent, session): (&str, &str),
        usage: Option<&Usage>,
        answer: Result<&Value, (&str, &str)>,
    ) {
        let model = usage.and_then(|usage| usage.model.as_deref());
        let mut attributes = vec![
            Attribute::new(names::OPERATION, names::CHAT),
            Attribute::new(names::CONVERSATION_ID, session),
        ];
        attributes.extend(usage.into_iter().flat_map(usage_attributes));
        let status = match answer {
            Ok(_) => SpanStatus { code: WELL, message: String::new() },
            Err((class, message)) => {
                attributes.push(Attribute::new(names::ERROR_TYPE, class));
                failed(message)
            }
        };
        if let (Contents::With(read), Ok(message)) = (self.contents, answer) {
            let sent = self.sent.remove(session).unwrap_or_default();
            attributes.push(Attribute::new(names::INPUT_MESSAGES, Value::from(sent).to_string()));
            let answered = json!([{"role": "assistant", "content": read(message)}]);
            attributes.push(Attribute::new(names::OUTPUT_MESSAGES, answered.to_string()));
        }
        let name =
            model.map_or_else(|| names::CHAT.to_owned(), |it| format!("{} {it}", names::CHAT));
        let start_ms = self.waiting_since.get(session).copied().unwrap_or(self.ms);
        let key = format!("chat {}", event.seq);
        self.open(&key, name, CLIENT, parent.to_owned(), start_ms, attributes);
        self.end(&key, self.ms, status, Vec::new());
    }

    fn end_tool(&mut self, event: &Event, key: &str, done: &CompletedTool) {
        let mut attributes = Vec::new();
        if let Contents::With(read) = self.contents {
            let result = read(&done.output);
            let text = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
            attributes.push(Attribute::new(names::TOOL_RESULT, text));
            if let Some(sessions) = event.entry.session_id.as_deref() {
                let sent = json!({"role": "tool", "id": done.call_id, "content": result});
                self.sent.entry(sessions.to_owned()).or_default().push(sent);
            }
        }
        let status = if done.is_error {
            failed("the tool failed")
        } else {
            SpanStatus { code: WELL, message: String::new() }
        };
        self.end(key, self.ms, status, attributes);
    }

    /// The spans; one that has no end yet reaches to the last event.
    fn finish(self) -> Vec<Span> {
        let last = nanoseconds(self.last_ms);
        let ended = self.spans.into_iter().map(|Open { mut span, is_ended }| {
            if !is_ended {
                span.end_time_unix_nano.clone_from(&last);
            }
            span
        });
        ended.collect()
    }
}

/// The key of the span of the run itself.
const RUN: &str = "run";

/// Names a stage: its full name, `[BRANCH/]NODE@VISIT`.
fn stage_key(event: &Event) -> Option<String> {
    let branch = BranchPath::new(event.entry.branch.as_deref().unwrap_or_default());
    Some(format!("stage {}", branch.stage(event.entry.node_id.as_deref()?, event.entry.visit?)))
}

fn agent_key(stage: &str, session: &str) -> String {
    format!("{stage} agent {session}")
}

fn tool_key(stage: &str, session: &str, call_id: &str) -> String {
    format!("{stage} tool {session} {call_id}")
}

fn span_of_parent(parent: &ParentStage) -> String {
    let branch = BranchPath::new(parent.branch.as_deref().unwrap_or_default());
    span_id(parent.run_id, &format!("stage {}", branch.stage(&parent.node_id, parent.visit)))
}

fn failed(message: &str) -> SpanStatus {
    SpanStatus { code: ERROR, message: message.to_owned() }
}

fn stage_status(status: Status, failure: Option<&Failure>) -> SpanStatus {
    match (status, failure) {
        (Status::Failed, Some(failure)) => failed(&failure.text()),
        (Status::Failed, None) => failed("failed"),
        _ => SpanStatus { code: WELL, message: String::new() },
    }
}

fn text_of(failure: &StageFailure) -> String {
    format!("{}: {}", failure.node, failure.failure.text())
}

fn usage_attributes(usage: &Usage) -> Vec<Attribute> {
    let provider = usage.provider.as_deref().map(names::provider_name);
    let response_model = usage.response_model.as_ref().or(usage.model.as_ref());
    let answered = response_model.filter(|_| usage.turns > 0).map(String::as_str);
    let named = [
        (names::PROVIDER_NAME, provider),
        (names::REQUEST_MODEL, usage.model.as_deref()),
        (names::RESPONSE_MODEL, answered),
    ];
    let named = named.into_iter().filter_map(|(name, value)| Some(Attribute::new(name, value?)));
    let counts = [
        (names::INPUT_TOKENS, usage.input_tokens),
        (names::OUTPUT_TOKENS, usage.output_tokens),
        (names::CACHE_READ_TOKENS, usage.cached_tokens),
        (names::CACHE_WRITE_TOKENS, usage.cache_write_tokens),
        (names::REASONING_TOKENS, usage.reasoning_tokens),
    ];
    let counts = counts.into_iter().filter(|(_, tokens)| *tokens > 0);
    let counts = counts.map(|(name, tokens)| Attribute::new(name, tokens));
    let cost = (usage.cost_usd > 0.0).then(|| Attribute::new(names::COST, usage.cost_usd));
    named.chain(counts).chain(cost).collect()
}

#[cfg(test)]
mod tests {
    use fabro_events::Entry;
    use fabro_types::{FailureClass, Status};

    use super::*;

    fn event(seq: u64, body: EventBody) -> Event {
        let entry = Entry { node_id: Some("work".into()), visit: Some(1), ..Entry::new(body) };
        Event {
            run_id: RunId::from_parts(0, 7),
            seq,
            ts_ms: 10 * i64::try_from(seq).unwrap(),
            entry,
        }
    }

    fn answer(usage: Usage) -> EventBody {
        EventBody::AgentMessage {
            role: "assistant".to_owned(),
            text: "done".to_owned(),
            message: None,
            usage: Some(usage),
            given: None,
            purpose: None,
        }
    }

    #[test]
    fn a_clock_that_is_set_changes_no_duration() {
        let class = FailureClass::TransientInfra;
        let usage = Some(Usage { failed_requests: 1, ..Usage::default() });
        let mut log = [
            event(1, EventBody::RunStarted {}),
            event(
                2,
                EventBody::AgentError {
                    class,
                    message: "overloaded".to_owned(),
                    usage,
                    retry_in_ms: None,
                },
            ),
            event(3, answer(Usage::default())),
        ];
        let chats_before = chats(&log);
        assert_eq!(chats_before.len(), 2);
        log[2].ts_ms -= 7_200_000;
        log[2].entry.clock_set_ms = Some(-7_200_000);
        assert_eq!(chats(&log), chats_before);
    }

    /// The requests to models: name, times in milliseconds, status, and what the conventions say of the model.
    fn chats(log: &[Event]) -> Vec<String> {
        let export = trace(log[0].run_id, &[log], &Contents::Omitted);
        let export = serde_json::to_value(&export).unwrap();
        let spans = export["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        let chats = spans.iter().filter(|span| span["name"].as_str().unwrap().starts_with("chat"));
        let line = |span: &Value| {
            let ms = |key: &str| span[key].as_str().unwrap().trim_end_matches("000000").to_owned();
            let attributes = span["attributes"].as_array().unwrap().iter().filter_map(|it| {
                let key = it["key"].as_str()?;
                let name = ["provider.name", "request.model", "response.model", "error.type"];
                let name = name.iter().find(|name| key.ends_with(*name))?;
                Some(format!("{name}={}", it["value"]["stringValue"].as_str()?))
            });
            let attributes: Vec<_> = attributes.collect();
            let times = [ms("startTimeUnixNano"), ms("endTimeUnixNano")].join("-");
            let status = &span["status"]["code"];
            format!("{} {times} [{status}] {}", span["name"], attributes.join(" "))
        };
        chats.map(line).collect()
    }

    #[test]
    fn a_run_that_ends_twice_has_one_value_for_each_attribute() {
        let usage = Usage { model: Some("m".to_owned()), turns: 1, ..Usage::default() };
        let ended = |status| EventBody::RunCompleted {
            status,
            usage: usage.clone(),
            artifact_count: 0,
            unhandled: Vec::new(),
            overridden: Vec::new(),
        };
        let log = [
            event(1, EventBody::RunStarted {}),
            event(2, ended(Status::PartiallySucceeded)),
            event(3, ended(Status::Succeeded)),
        ];
        let export = trace(log[0].run_id, &[&log], &Contents::Omitted);
        let export = serde_json::to_value(&export).unwrap();
        let run = &export["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        let attributes = run["attributes"].as_array().unwrap();
        let mut keys: Vec<_> = attributes.iter().map(|it| it["key"].as_str().unwrap()).collect();
        let status = attributes.iter().find(|it| it["key"] == names::STATUS).unwrap();
        assert_eq!(status["value"]["stringValue"], "succeeded");
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }

    #[test]
    fn a_request_names_its_provider_and_its_models() {
        let asked = |provider: &str, model: &str| Usage {
            model: Some(model.to_owned()),
            provider: Some(provider.to_owned()),
            ..Usage::default()
        };
        let failed = Usage { failed_requests: 1, ..asked("openai-responses", "gpt-6.2-sol") };
        let renamed = Some("gemini-4-argon-001".to_owned());
        let answered =
            Usage { turns: 1, response_model: renamed, ..asked("gemini", "gemini-4-argon") };
        let own = Usage { turns: 1, ..asked("my-server", "llama") };
        let class = FailureClass::TransientInfra;
        let message = "asking gemini instead: the model is overloaded".to_owned();
        let log = [
            event(1, EventBody::RunStarted {}),
            event(
                2,
                EventBody::AgentError { class, message, usage: Some(failed), retry_in_ms: None },
            ),
            event(3, answer(answered)),
            event(4, answer(own)),
        ];
        assert_eq!(
            chats(&log),
            [
                r#""chat gpt-6.2-sol" 20-20 [2] provider.name=openai request.model=gpt-6.2-sol error.type=transient_infra"#,
                r#""chat gemini-4-argon" 20-30 [1] provider.name=gcp.gemini request.model=gemini-4-argon response.model=gemini-4-argon-001"#,
                r#""chat llama" 30-40 [1] provider.name=my-server request.model=llama response.model=llama"#,
            ]
        );
    }
}

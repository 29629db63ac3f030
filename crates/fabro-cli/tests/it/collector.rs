//! A trace as a collector of OTLP reads it: strictly, by the fields of the protocol.

use std::collections::{BTreeMap, BTreeSet};

use fabro_fakes::{Response, Server};
use insta::assert_snapshot;
use serde::Deserialize;

use crate::project::Project;

const WORKFLOW: &str = r#"digraph W {
    start -> write -> fork
    write [prompt="Write it", permissions=full]
    fork [shape=component]; fork -> a; fork -> b; a -> join; b -> join
    a [shape=parallelogram, script="true"]
    b [shape=house, stack.child_workflow="child.fabro"]
    join [shape=tripleoctagon]; join -> exit
}"#;
const CHILD: &str =
    "digraph C { start -> x -> exit; x [shape=parallelogram, script=\"echo child\"] }";
const MODEL: &str = r#"{"write": [
    {"text": "looking", "tool_calls": [{"name": "shell", "arguments": {"command": "echo hi"}}],
        "usage": {"input_tokens": 8, "output_tokens": 2}},
    {"text": "done", "usage": {"input_tokens": 10, "output_tokens": 3}}
]}"#;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceSpans {
    resource: Resource,
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scope {
    name: String,
    version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Span {
    trace_id: String,
    #[serde(rename = "spanId")]
    id: String,
    #[serde(default)]
    parent_span_id: String,
    name: String,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    #[serde(default)]
    events: Vec<SpanEvent>,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SpanEvent {
    time_unix_nano: String,
    name: String,
    attributes: Vec<Attribute>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    code: u8,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attribute {
    key: String,
    value: AnyValue,
}

/// Exactly one of these.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
enum AnyValue {
    #[serde(rename = "stringValue")]
    Text(String),
    /// Whole numbers of 64 bits are texts in the JSON of the protocol.
    #[serde(rename = "intValue")]
    Int(String),
    #[serde(rename = "doubleValue")]
    Double(f64),
}

impl Span {
    /// The attributes as text.
    fn values(&self) -> BTreeMap<&str, String> {
        let text = |value: &AnyValue| match value {
            AnyValue::Text(text) => text.clone(),
            AnyValue::Int(number) => number.parse::<i64>().unwrap().to_string(),
            AnyValue::Double(number) => number.to_string(),
        };
        let of_events = self.events.iter().flat_map(|event| &event.attributes);
        of_events.for_each(|it| drop(text(&it.value)));
        let pairs: BTreeMap<_, _> =
            self.attributes.iter().map(|it| (it.key.as_str(), text(&it.value))).collect();
        assert_eq!(pairs.len(), self.attributes.len(), "a name is there twice: {}", self.name);
        pairs
    }

    fn times(&self) -> [u64; 2] {
        [&self.start_time_unix_nano, &self.end_time_unix_nano].map(|time| time.parse().unwrap())
    }
}

/// Checks an id: so many bytes in hexadecimal digits, and not all zero.
fn check_id(id: &str, bytes: usize) {
    assert!(id.len() == 2 * bytes && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{id}");
    assert!(id.bytes().any(|digit| digit != b'0'), "{id}");
}

/// What the conventions for generative AI want of a span: the beginning of its name, its kind, its attributes.
fn check_operation(span: &Span) -> String {
    let values = span.values();
    let Some(operation) = values.get("gen_ai.operation.name") else {
        assert!(values.keys().all(|key| !key.starts_with("gen_ai.")), "{}", span.name);
        return "none".to_owned();
    };
    let (subject, kind) = match operation.as_str() {
        "invoke_workflow" => ("gen_ai.workflow.name", 1),
        "invoke_agent" => ("gen_ai.agent.name", 1),
        "chat" => ("gen_ai.request.model", 3),
        "execute_tool" => ("gen_ai.tool.name", 1),
        other => panic!("`{other}` is no operation of the conventions"),
    };
    assert_eq!(span.name, format!("{operation} {}", values[subject]));
    assert_eq!(span.kind, kind, "{}", span.name);
    if operation == "chat" {
        assert!(values.contains_key("gen_ai.usage.output_tokens"), "{}", span.name);
    }
    if operation == "execute_tool" {
        assert!(values.contains_key("gen_ai.tool.call.id"), "{}", span.name);
    }
    operation.clone()
}

#[test]
fn a_collector_reads_ids_parents_and_operations() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let taken = Response::bytes(200, "application/json", "{}");
    let server = runtime.block_on(Server::start(vec![taken])).unwrap();
    let config = format!("_version = 1\n[telemetry]\notlp = \"{}\"\n", server.url());
    let project = Project::with(&[
        ("w.fabro", WORKFLOW),
        ("child.fabro", CHILD),
        ("model.json", MODEL),
        (".fabro/config.toml", &config),
    ]);
    assert_eq!(project.exit(&["run", "w.fabro", "--model-script", "model.json"]), 0);
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    let request: Request = serde_json::from_value(requests[0].json()).unwrap();
    let [of_resource] = &request.resource_spans[..] else { panic!("one resource") };
    let service = of_resource.resource.attributes.iter().find(|it| it.key == "service.name");
    assert!(matches!(&service.unwrap().value, AnyValue::Text(name) if name == "fabro"));
    let [of_scope] = &of_resource.scope_spans[..] else { panic!("one scope") };
    assert!(!of_scope.scope.name.is_empty() && !of_scope.scope.version.is_empty());

    let spans = &of_scope.spans;
    let by_id: BTreeMap<_, _> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "each span has its own id");
    let traces: BTreeSet<_> = spans.iter().map(|span| span.trace_id.as_str()).collect();
    assert_eq!(traces.len(), 1);
    let mut operations = BTreeMap::<String, usize>::new();
    let mut roots = 0;
    for span in spans {
        check_id(&span.trace_id, 16);
        check_id(&span.id, 8);
        let [start, end] = span.times();
        assert!(0 < start && start <= end, "{}", span.name);
        for event in &span.events {
            let time: u64 = event.time_unix_nano.parse().unwrap();
            assert!((start..=end).contains(&time) && !event.name.is_empty(), "{}", span.name);
        }
        assert!(span.status.code <= 2 && span.status.message.is_empty(), "{}", span.name);
        if span.parent_span_id.is_empty() {
            roots += 1;
        } else {
            let [parent_start, parent_end] = by_id[span.parent_span_id.as_str()].times();
            assert!(parent_start <= start && end <= parent_end, "{}", span.name);
        }
        *operations.entry(check_operation(span)).or_default() += 1;
    }
    assert_eq!(roots, 1);
    assert_snapshot!(format!("{operations:?}"), @r#"{"chat": 2, "execute_tool": 1, "invoke_agent": 1, "invoke_workflow": 2, "none": 9}"#);
}

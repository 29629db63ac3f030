//! The JSON of OTLP (opentelemetry-proto 1.x, `ExportTraceServiceRequest`), as much of it as a trace needs.

use serde::Serialize;

/// A request that exports spans.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Export {
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    resource: Resource,
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<Span>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

/// A name and its value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attribute {
    /// One of [`crate::names`].
    pub key: &'static str,
    /// Its value.
    pub value: Value,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Value {
    /// A text.
    #[serde(rename = "stringValue")]
    Text(String),
    /// A whole number, in JSON a text as OTLP wants it.
    #[serde(rename = "intValue")]
    Int(String),
    /// Another number.
    #[serde(rename = "doubleValue")]
    Double(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(number.to_string())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

impl Attribute {
    pub(crate) fn new(key: &'static str, value: impl Into<Value>) -> Self {
        Self { key, value: value.into() }
    }
}

/// A span.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// The span that this one is a part of; empty for the root.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent_span_id: String,
    /// What it does, and with what.
    pub name: String,
    /// 1 inside of the program, 3 a request to another one.
    pub kind: u8,
    /// Nanoseconds since 1970, as a text.
    pub start_time_unix_nano: String,
    /// Nanoseconds since 1970, as a text.
    pub end_time_unix_nano: String,
    /// What is known of it.
    pub attributes: Vec<Attribute>,
    /// What happened during it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<SpanEvent>,
    /// How it ended.
    pub status: SpanStatus,
}

/// A moment of a span.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpanEvent {
    /// Nanoseconds since 1970, as a text.
    pub time_unix_nano: String,
    /// What happened: the name of the run's event.
    pub name: String,
    /// What is known of it.
    pub attributes: Vec<Attribute>,
}

/// How a span ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpanStatus {
    /// 0 not known, 1 well, 2 with an error.
    pub code: u8,
    /// Why, for an error.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Export {
    /// These spans, as those of this program.
    pub fn new(spans: Vec<Span>) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let attributes = vec![
            Attribute::new("service.name", "fabro"),
            Attribute::new("service.version", version),
        ];
        let scope = Scope { name: "fabro", version };
        let scope_spans = vec![ScopeSpans { scope, spans }];
        Self {
            resource_spans: vec![ResourceSpans { resource: Resource { attributes }, scope_spans }],
        }
    }

    /// The spans.
    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        self.resource_spans.iter().flat_map(|it| &it.scope_spans).flat_map(|it| &it.spans)
    }

    /// The same spans in requests of at most `most` each.
    pub fn batches(self, most: usize) -> Vec<Self> {
        let spans: Vec<Span> = self
            .resource_spans
            .into_iter()
            .flat_map(|it| it.scope_spans)
            .flat_map(|it| it.spans)
            .collect();
        spans.chunks(most.max(1)).map(|spans| Self::new(spans.to_vec())).collect()
    }
}

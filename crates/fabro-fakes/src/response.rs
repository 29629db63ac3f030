use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::wire::{Close, Protocol, Sent, Wire, event};
use crate::{Fault, anthropic, openai};

/// The response to one request.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Fields")]
pub struct Response {
    path: Option<String>,
    kind: Kind,
    headers: Vec<(String, String)>,
    delay: Option<Duration>,
    byte_delay: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Turn(Turn),
    Fault(Fault),
    Bytes { status: u16, body: Vec<u8> },
    Silence(Close),
}

/// A turn of a model, in no protocol yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Turn {
    pub(crate) blocks: Vec<Block>,
    pub(crate) stop: Option<String>,
    pub(crate) usage: Option<Tokens>,
    pub(crate) ending: Ending,
}

/// A piece of a turn.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Block {
    /// Text, in the pieces in which it is streamed.
    Text {
        /// The pieces.
        text: Vec<String>,
    },
    /// A thought. `OpenAI`'s protocol has no place for the signature.
    Thinking {
        /// What is thought.
        text: String,
        /// The provider's seal on it.
        signature: Option<String>,
    },
    /// A thought that only the provider can read; left out in `OpenAI`'s protocol.
    Redacted {
        /// The sealed thought.
        data: String,
    },
    /// A tool call.
    Call {
        /// Its id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments as they are sent: JSON, unless a test wants them broken.
        arguments: String,
    },
}

/// Tokens that a turn says it used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tokens {
    /// Sent, the cached ones included.
    pub input: u64,
    /// Received.
    pub output: u64,
    /// Sent, and read from the provider's cache.
    pub cached: u64,
}

/// How a stream ends, once the content has been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// As it should.
    #[default]
    Whole,
    /// The body ends properly, but the events that end a turn are missing.
    Early,
    /// The connection breaks off.
    Reset,
    /// Nothing more comes, and the connection stays open.
    Hang,
    /// An event that is not JSON, and then the proper end.
    BadJson,
    /// An event with an error, and then the proper end.
    Error(Fault),
}

/// A script that does not parse.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ScriptError(#[from] serde_json::Error);

impl Response {
    fn new(kind: Kind) -> Self {
        Self { path: None, kind, headers: Vec::new(), delay: None, byte_delay: None }
    }

    /// A turn that says this.
    pub fn text(text: impl Into<String>) -> Self {
        Self::turn(vec![Block::Text { text: vec![text.into()] }])
    }

    /// A turn that says this, streamed in these pieces.
    pub fn pieces<T: Into<String>>(pieces: impl IntoIterator<Item = T>) -> Self {
        Self::turn(vec![Block::Text { text: pieces.into_iter().map(Into::into).collect() }])
    }

    /// A turn that calls tools: names and arguments. The ids are `call_1`, `call_2`, ….
    pub fn calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let calls = calls.into_iter().enumerate().map(|(index, (name, arguments))| Block::Call {
            id: format!("call_{}", index + 1),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        });
        Self::turn(calls.collect())
    }

    /// A turn of these blocks.
    pub fn turn(blocks: Vec<Block>) -> Self {
        Self::new(Kind::Turn(Turn { blocks, ..Turn::default() }))
    }

    /// An error, as the provider that was asked tells it.
    pub fn error(fault: Fault) -> Self {
        Self::new(Kind::Fault(fault))
    }

    /// A response of these bytes, whatever the request.
    pub fn bytes(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new(Kind::Bytes { status, body: body.into() }).header("content-type", content_type)
    }

    /// Sends on to another place.
    pub fn redirect(to: &str) -> Self {
        Self::bytes(302, "text/plain", "").header("location", to)
    }

    /// Takes the request, and never answers.
    pub fn silence() -> Self {
        Self::new(Kind::Silence(Close::Hang))
    }

    /// Takes the request, and breaks the connection off.
    pub fn gone() -> Self {
        Self::new(Kind::Silence(Close::Reset))
    }

    /// Answers requests to this path only, its query aside; such responses are played in an order
    /// of their own.
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// With one more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With the header `retry-after`: seconds, or a date.
    pub fn retry_after(self, value: &str) -> Self {
        self.header("retry-after", value)
    }

    /// Waits before it answers.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Waits between any two bytes of the body.
    pub fn byte_delay(mut self, delay: Duration) -> Self {
        self.byte_delay = Some(delay);
        self
    }

    /// A turn that says what it used; does nothing to other responses, as the two below.
    pub fn usage(mut self, input: u64, output: u64, cached: u64) -> Self {
        if let Kind::Turn(turn) = &mut self.kind {
            turn.usage = Some(Tokens { input, output, cached });
        }
        self
    }

    /// A turn that says why it stopped, in the provider's own word. `length` and `content_filter`
    /// are put into Anthropic's words where they are needed.
    pub fn stop(mut self, word: &str) -> Self {
        if let Kind::Turn(turn) = &mut self.kind {
            turn.stop = Some(word.to_owned());
        }
        self
    }

    /// A turn whose stream ends like this.
    pub fn ending(mut self, ending: Ending) -> Self {
        if let Kind::Turn(turn) = &mut self.kind {
            turn.ending = ending;
        }
        self
    }

    /// Reads a list of responses from JSON. Each is an object: a turn by `text` (a string, or a list
    /// of its pieces), `thinking`, `tool_calls` (each with `name`, `arguments` and perhaps `id`) or
    /// exact `blocks`, with `usage`, `stop` and `ending` if wanted; an `error`; plain bytes by
    /// `status` and `body`; or `silence`, which is true. All can have `path`, `headers`,
    /// `retry_after`, `delay_ms` and `byte_delay_ms`.
    ///
    /// # Errors
    ///
    /// The text is not such a list; the error says where.
    pub fn list_from_json(text: &str) -> Result<Vec<Self>, ScriptError> {
        Ok(serde_json::from_str(text)?)
    }

    pub(crate) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The response on the wire.
    pub(crate) fn render(&self, protocol: Protocol, streamed: bool) -> Wire {
        let (status, content_type, body) = match &self.kind {
            Kind::Turn(turn) => turn.render(protocol, streamed),
            Kind::Fault(fault) => {
                let html = *fault == Fault::BadGateway;
                let content_type = if html { "text/html" } else { "application/json" };
                let body = fault.body(protocol).into_bytes();
                (fault.status(protocol), content_type, Sent::Whole(body))
            }
            Kind::Bytes { status, body } => (*status, "", Sent::Whole(body.clone())),
            Kind::Silence(close) => (200, "", Sent::Nothing(*close)),
        };
        let mut headers = Vec::new();
        if !content_type.is_empty() {
            headers.push(("content-type".to_owned(), content_type.to_owned()));
        }
        headers.extend(self.headers.iter().cloned());
        Wire { status, headers, body, delay: self.delay, byte_delay: self.byte_delay }
    }
}

impl Turn {
    fn render(&self, protocol: Protocol, streamed: bool) -> (u16, &'static str, Sent) {
        let anthropic = protocol == Protocol::Anthropic;
        if !streamed {
            let body = if anthropic { anthropic::whole(self) } else { openai::whole(self) };
            return (200, "application/json", Sent::Whole(body.into_bytes()));
        }
        let stream = if anthropic { anthropic::stream } else { openai::stream };
        let (mut events, end) = stream(self);
        let close = match self.ending {
            Ending::Whole | Ending::Early | Ending::BadJson | Ending::Error(_) => Close::Clean,
            Ending::Reset => Close::Reset,
            Ending::Hang => Close::Hang,
        };
        match self.ending {
            Ending::Early | Ending::Reset | Ending::Hang => {}
            Ending::Whole => events.extend(end),
            Ending::BadJson => {
                let name = anthropic.then_some("content_block_delta");
                events.push(event(name, "{\"choices\": [{\"delta\""));
                events.extend(end);
            }
            Ending::Error(fault) if anthropic => {
                events.push(anthropic::named(&fault.anthropic()));
                events.extend(end);
            }
            Ending::Error(fault) => {
                let error = serde_json::json!({"error": fault.open_ai()});
                events.push(event(None, &error.to_string()));
                events.extend(end);
            }
        }
        (200, "text/event-stream", Sent::Pieces(events, close))
    }
}

/// A response as a script writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    text: Option<Pieces>,
    thinking: Option<String>,
    tool_calls: Option<Vec<Call>>,
    blocks: Option<Vec<Block>>,
    usage: Option<Tokens>,
    stop: Option<String>,
    ending: Option<Ending>,
    error: Option<Fault>,
    #[serde(default)]
    silence: bool,
    status: Option<u16>,
    body: Option<String>,
    path: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    retry_after: Option<String>,
    delay_ms: Option<u64>,
    byte_delay_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Pieces {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    id: Option<String>,
    name: String,
    /// An object, or the text that is sent.
    #[serde(default)]
    arguments: Value,
}

impl TryFrom<Fields> for Response {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let turn = fields.text.is_some()
            || fields.thinking.is_some()
            || fields.tool_calls.is_some()
            || fields.blocks.is_some();
        let plain = fields.status.is_some() || fields.body.is_some();
        let kinds = [turn, plain, fields.error.is_some(), fields.silence];
        if kinds.iter().filter(|kind| **kind).count() != 1 {
            return Err("a response is one of `text`, `thinking`, `tool_calls` or `blocks`, \
                        `error`, `status` and `body`, `silence`"
                .to_owned());
        }
        if !turn && (fields.usage.is_some() || fields.stop.is_some() || fields.ending.is_some()) {
            return Err("`usage`, `stop` and `ending` belong to a turn".to_owned());
        }
        let mut headers: Vec<_> = fields.headers.into_iter().collect();
        headers.extend(fields.retry_after.map(|value| ("retry-after".to_owned(), value)));
        let kind = match fields.error {
            Some(fault) => Kind::Fault(fault),
            None if fields.silence => Kind::Silence(Close::Hang),
            None if plain => Kind::Bytes {
                status: fields.status.unwrap_or(200),
                body: fields.body.unwrap_or_default().into_bytes(),
            },
            None => Kind::Turn(Turn {
                blocks: blocks(fields.thinking, fields.text, fields.tool_calls, fields.blocks),
                stop: fields.stop,
                usage: fields.usage,
                ending: fields.ending.unwrap_or_default(),
            }),
        };
        Ok(Self {
            path: fields.path,
            kind,
            headers,
            delay: fields.delay_ms.map(Duration::from_millis),
            byte_delay: fields.byte_delay_ms.map(Duration::from_millis),
        })
    }
}

fn blocks(
    thinking: Option<String>,
    text: Option<Pieces>,
    calls: Option<Vec<Call>>,
    exact: Option<Vec<Block>>,
) -> Vec<Block> {
    let thinking = thinking.map(|text| Block::Thinking { text, signature: Some("sig".to_owned()) });
    let text = text.map(|text| match text {
        Pieces::One(text) => Block::Text { text: vec![text] },
        Pieces::Many(text) => Block::Text { text },
    });
    let calls = calls.into_iter().flatten().enumerate().map(|(index, call)| Block::Call {
        id: call.id.unwrap_or_else(|| format!("call_{}", index + 1)),
        name: call.name,
        arguments: match call.arguments {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text,
            other => other.to_string(),
        },
    });
    thinking.into_iter().chain(text).chain(calls).chain(exact.into_iter().flatten()).collect()
}

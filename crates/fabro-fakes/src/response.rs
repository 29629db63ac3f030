use std::time::Duration;

use serde_json::Value;

use crate::turn::{Block, Ending, Tokens, Turn};
use crate::wire::{Close, Protocol, Sent, Wire, event};
use crate::{Fault, anthropic, gemini, openai, responses};

/// The response to one request.
#[derive(Clone, Debug, PartialEq)]
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

impl Response {
    fn new(kind: Kind) -> Self {
        Self { path: None, kind, headers: Vec::new(), delay: None, byte_delay: None }
    }

    /// A turn with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::turn(vec![Block::Text { text: vec![text.into()] }])
    }

    /// A turn with this text, streamed in these pieces.
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

    /// An error, in the form of the provider that the path belongs to.
    pub fn error(fault: Fault) -> Self {
        Self::new(Kind::Fault(fault))
    }

    /// A response of these bytes to any request.
    pub fn bytes(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new(Kind::Bytes { status, body: body.into() }).header("content-type", content_type)
    }

    /// A redirect.
    pub fn redirect(to: &str) -> Self {
        Self::bytes(302, "text/plain", "").header("location", to)
    }

    /// Reads the request, and never answers.
    pub fn silence() -> Self {
        Self::new(Kind::Silence(Close::Hang))
    }

    /// Reads the request, and resets the connection.
    pub fn gone() -> Self {
        Self::new(Kind::Silence(Close::Reset))
    }

    /// Answers requests to this path only, without regard to its query; such responses are played in
    /// their own order.
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

    /// The token usage of a turn; has no effect on other responses, as the two below.
    pub fn usage(mut self, input: u64, output: u64, cached: u64) -> Self {
        if let Kind::Turn(turn) = &mut self.kind {
            turn.usage = Some(Tokens { input, output, cached });
        }
        self
    }

    /// The token usage of a turn that has none.
    pub(crate) fn with_tokens(mut self, tokens: Tokens) -> Self {
        if let Kind::Turn(turn) = &mut self.kind {
            turn.usage.get_or_insert(tokens);
        }
        self
    }

    /// The stop reason of a turn, in the provider's own word. `length` and `content_filter` are
    /// translated for Anthropic.
    pub fn stop(mut self, word: &str) -> Self {
        if let Kind::Turn(turn) = &mut self.kind {
            turn.stop = Some(word.to_owned());
        }
        self
    }

    /// The end of a turn's stream.
    pub fn ending(mut self, ending: Ending) -> Self {
        if let Kind::Turn(turn) = &mut self.kind {
            turn.ending = ending;
        }
        self
    }

    /// The same with these blocks before those of a turn.
    pub(crate) fn after(mut self, mut blocks: Vec<Block>) -> Self {
        if let Kind::Turn(turn) = &mut self.kind {
            blocks.append(&mut turn.blocks);
            turn.blocks = blocks;
        }
        self
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
        if !streamed {
            let body = match protocol {
                Protocol::Anthropic => anthropic::whole(self),
                Protocol::Responses => responses::whole(self),
                Protocol::Gemini => gemini::whole(self),
                Protocol::OpenAi | Protocol::Plain => openai::whole(self),
            };
            return (200, "application/json", Sent::Whole(body.into_bytes()));
        }
        let (mut events, end) = match protocol {
            Protocol::Anthropic => anthropic::stream(self),
            Protocol::Responses => responses::stream(self),
            Protocol::Gemini => gemini::stream(self),
            Protocol::OpenAi | Protocol::Plain => openai::stream(self),
        };
        let close = match self.ending {
            Ending::Whole | Ending::Early | Ending::BadJson | Ending::Error(_) => Close::Clean,
            Ending::Reset => Close::Reset,
            Ending::Hang => Close::Hang,
        };
        match self.ending {
            Ending::Early | Ending::Reset | Ending::Hang => {}
            Ending::Whole => events.extend(end),
            Ending::BadJson => {
                let name = (protocol == Protocol::Anthropic).then_some("content_block_delta");
                events.push(event(name, "{\"choices\": [{\"delta\""));
                events.extend(end);
            }
            Ending::Error(fault) => {
                events.push(match protocol {
                    Protocol::Anthropic => anthropic::named(&fault.anthropic()),
                    Protocol::Responses => {
                        let mut error = fault.open_ai();
                        error["type"] = "error".into();
                        responses::named(&error)
                    }
                    Protocol::Gemini => event(None, &fault.gemini().to_string()),
                    Protocol::OpenAi | Protocol::Plain => {
                        event(None, &serde_json::json!({"error": fault.open_ai()}).to_string())
                    }
                });
                events.extend(end);
            }
        }
        (200, "text/event-stream", Sent::Pieces(events, close))
    }
}

//! Responses in the form in which they are sent.

use std::time::Duration;

/// How a path is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    OpenAi,
    Responses,
    Anthropic,
    Gemini,
    /// No provider: a turn or an error has the form of `OpenAI`.
    Plain,
}

impl Protocol {
    pub(crate) fn of(path: &str) -> Self {
        let path = path.split('?').next().unwrap_or(path);
        if path.ends_with("/chat/completions") {
            Self::OpenAi
        } else if path.ends_with("/responses") {
            Self::Responses
        } else if path.ends_with("/messages") || is_vertex(path) {
            Self::Anthropic
        } else if path.ends_with(":generateContent") || path.ends_with(":streamGenerateContent") {
            Self::Gemini
        } else {
            Self::Plain
        }
    }
}

/// Whether this is the Messages API on Vertex AI.
pub(crate) fn is_vertex(path: &str) -> bool {
    path.ends_with(":rawPredict") || path.ends_with(":streamRawPredict")
}

/// A response, ready to be written.
#[derive(Debug, PartialEq)]
pub(crate) struct Wire {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Sent,
    /// Before the first byte.
    pub(crate) delay: Option<Duration>,
    /// Between two bytes of the body.
    pub(crate) byte_delay: Option<Duration>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Sent {
    /// With its length.
    Whole(Vec<u8>),
    /// In chunks, then the end of the connection.
    Pieces(Vec<String>, Close),
    /// Nothing is sent.
    Nothing(Close),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    Clean,
    Reset,
    Hang,
}

/// One event of a stream: `event` only where the protocol names them.
pub(crate) fn event(name: Option<&str>, data: &str) -> String {
    match name {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

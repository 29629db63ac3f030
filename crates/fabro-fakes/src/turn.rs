use crate::Fault;

/// A turn of a model, in no protocol yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Turn {
    pub(crate) blocks: Vec<Block>,
    pub(crate) stop: Option<String>,
    pub(crate) usage: Option<Tokens>,
    pub(crate) ending: Ending,
}

/// A piece of a turn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Block {
    /// Text, in the pieces in which it is streamed.
    Text {
        /// The pieces.
        text: Vec<String>,
    },
    /// Reasoning. In Chat Completions there is a field for the signature of a strict server only, that of
    /// `OpenRouter`.
    Thinking {
        /// The text.
        text: String,
        /// The provider's signature of it.
        signature: Option<String>,
    },
    /// Encrypted reasoning; left out in `OpenAI`'s protocol.
    Redacted {
        /// The encrypted reasoning.
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

/// The token usage that a turn reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Sent, the cached ones included.
    pub input: u64,
    /// Received.
    pub output: u64,
    /// Sent, and read from the provider's cache.
    pub cached: u64,
}

/// How a stream ends, once the content has been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Complete.
    #[default]
    Whole,
    /// The body ends properly, but the events that end a turn are missing.
    Early,
    /// The connection is reset.
    Reset,
    /// Nothing more is sent, and the connection stays open.
    Hang,
    /// An event that is not JSON, and then the proper end.
    BadJson,
    /// An event with an error, and then the proper end.
    Error(Fault),
}

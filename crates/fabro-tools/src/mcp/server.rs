use std::time::Duration;

/// The default timeout from the start of a server to its list of tools.
const STARTUP: Duration = Duration::from_secs(30);

/// The default timeout of a call.
const CALL: Duration = Duration::from_mins(2);

/// A server to take tools from.
#[derive(Clone, Debug)]
pub struct Server {
    /// What the user calls it; part of the names of its tools.
    pub name: String,
    /// How it is reached.
    pub transport: Transport,
    /// Calls carry the workflow's memory: `_meta["fabro/context"]` of each call has the summary,
    /// the recent turns and the round.
    pub context: bool,
    /// How long it may take from its start to its list of tools.
    pub startup_timeout: Duration,
    /// How long one call may take.
    pub tool_timeout: Duration,
}

impl Server {
    /// A server without the workflow's memory, with a timeout of 30 seconds to start, and 120 seconds
    /// for each call.
    pub fn new(name: impl Into<String>, transport: Transport) -> Self {
        let name = name.into();
        Self { name, transport, context: false, startup_timeout: STARTUP, tool_timeout: CALL }
    }
}

/// How a server is reached.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Transport {
    /// A program that is started.
    Stdio {
        /// Its path, or a name that is looked for on the `PATH`.
        command: String,
        /// What it is started with.
        args: Vec<String>,
        /// Variables added to the environment it is given.
        env: Vec<(String, String)>,
    },
    /// A server that is there: the streamable HTTP transport.
    Http {
        /// Where it is, `http` or `https`.
        url: String,
        /// Sent with every request.
        headers: Vec<(String, String)>,
    },
}

impl Transport {
    /// The URL of a server that is reached by one.
    pub(crate) fn url(&self) -> Option<&str> {
        match self {
            Self::Http { url, .. } => Some(url),
            Self::Stdio { .. } => None,
        }
    }
}

use fabro_types::one_line;

/// A server that is not used.
#[derive(Debug, thiserror::Error)]
#[error("MCP server `{server}`: {problem}{}", quoted(stderr))]
#[non_exhaustive]
pub struct ServerError {
    /// Its name.
    pub server: String,
    /// What went wrong, and what to do.
    pub problem: String,
    /// The last lines it wrote to stderr, at most 20 of 4 KiB; empty for one over HTTP.
    pub stderr: String,
}

fn quoted(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; its stderr:\n{stderr}") }
}

/// A text of a server on one line, for messages.
pub(crate) fn brief(text: &str) -> String {
    one_line(text, 500)
}

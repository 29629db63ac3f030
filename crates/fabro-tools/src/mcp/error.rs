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

/// A text of a server on one line, for messages. It is cut before a word, because nothing finds the rest of a
/// secret that is cut through.
pub(crate) fn brief(text: &str) -> String {
    let line = one_line(text, 500);
    let Some(cut) = line.strip_suffix('…') else { return line };
    let is_between = |c: char| c.is_whitespace() || "\"'`=,;(){}<>[]".contains(c);
    let end = cut.rfind(is_between).map_or(0, |at| at + 1);
    format!("{}…", &cut[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_words() {
        for (before, kept) in
            [("word ", "word "), ("\"key\":\"", "\"key\":\""), ("TOKEN=", "TOKEN=")]
        {
            let text = format!("{}{before}{}", "x ".repeat(240), "secret".repeat(20));
            assert_eq!(brief(&text), format!("{}{kept}…", "x ".repeat(240)));
        }
        assert_eq!(brief("all of\nit"), "all of it");
    }
}

//! Bodies of responses: their bounds, and their text.

use encoding_rs::{Encoding, UTF_8};
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::client::chain;

/// How much of a body is read, in bytes.
pub(super) const BODY: usize = 1 << 20;

/// How much of a page is looked through for its encoding, in bytes.
const HEAD: usize = 1024;

/// A body that was read.
pub(super) struct Body {
    pub(super) text: String,
    /// Such as `text/html`, in lower case; empty when it was not said.
    pub(super) kind: String,
    /// There was more.
    pub(super) is_cut: bool,
}

/// Reads the start of a body as text.
pub(super) async fn read(mut response: Response) -> Result<Body, String> {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let content_type = header(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_owned();
    if header(CONTENT_ENCODING).is_some_and(|it| !it.trim().eq_ignore_ascii_case("identity")) {
        return Err("the server sends it compressed, unasked".to_owned());
    }
    if !is_text(&kind) {
        return Err(format!("it is {kind}, which is no text"));
    }
    let mut bytes = Vec::new();
    let mut is_cut = false;
    while let Some(chunk) = response.chunk().await.map_err(|error| chain(&error))? {
        let room = BODY - bytes.len();
        bytes.extend_from_slice(&chunk[..room.min(chunk.len())]);
        if chunk.len() > room {
            is_cut = true;
            break;
        }
    }
    if kind.is_empty() && memchr::memchr(0, &bytes).is_some() {
        return Err("it is no text".to_owned());
    }
    let encoding = named(&content_type).or_else(|| {
        let head = &bytes[..bytes.len().min(HEAD)];
        is_html(&kind).then(|| named(&String::from_utf8_lossy(head).to_ascii_lowercase()))?
    });
    // A mark at the start of the text goes before all of that.
    let (text, ..) = encoding.unwrap_or(UTF_8).decode(&bytes);
    Ok(Body { text: text.into_owned(), kind, is_cut })
}

pub(super) fn is_html(kind: &str) -> bool {
    matches!(kind, "text/html" | "application/xhtml+xml")
}

fn is_text(kind: &str) -> bool {
    const APPLICATIONS: [&str; 9] = [
        "json",
        "xml",
        "javascript",
        "x-javascript",
        "x-ndjson",
        "yaml",
        "x-yaml",
        "toml",
        "xhtml+xml",
    ];
    let Some((class, name)) = kind.split_once('/') else { return kind.is_empty() };
    class == "text"
        || class == "application"
            && (APPLICATIONS.contains(&name) || name.ends_with("+json") || name.ends_with("+xml"))
}

/// The encoding that `charset=` names.
fn named(text: &str) -> Option<&'static Encoding> {
    let (_, label) = text.split_once("charset=")?;
    let label = label.trim_start_matches(['"', '\'', ' ']);
    let end = label.find(|c: char| !(c.is_ascii_alphanumeric() || "-_:.".contains(c)));
    Encoding::for_label(&label.as_bytes()[..end.unwrap_or(label.len())])
}

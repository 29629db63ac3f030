//! The body of a response, as text.

use encoding_rs::{Encoding, UTF_8};
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName};

use crate::web::cut::thousands;
use crate::web::error::FetchError;

/// A body that was read.
#[derive(Debug)]
pub(crate) struct Body {
    /// Its media type, without parameters: `text/html`; empty when the response has none.
    pub(crate) media: String,
    pub(crate) text: String,
    /// How many bytes were read.
    pub(crate) bytes: usize,
    /// Whether there is more, which was not read.
    pub(crate) cut: bool,
}

impl Body {
    pub(crate) fn is_html(&self) -> bool {
        let begins = |it: &str| {
            let begin = self.text.trim_start().as_bytes().get(..it.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(it.as_bytes()))
        };
        match &*self.media {
            "" => begins("<!doctype html") || begins("<html"),
            media => HTML.contains(&media),
        }
    }
}

/// Reads at most `limit` bytes of text: by its media type, or by its content without one.
pub(crate) async fn read(mut response: Response, limit: usize) -> Result<Body, FetchError> {
    let content_type = header(response.headers(), &CONTENT_TYPE);
    let declared = content_type.split(';').next().unwrap_or_default().trim();
    let media = declared.to_ascii_lowercase();
    let encoding = header(response.headers(), &CONTENT_ENCODING);
    if !["", "identity"].contains(&&*encoding.trim().to_ascii_lowercase()) {
        return Err(FetchError::Compressed(encoding));
    }
    if !is_text(&media) {
        let size = response.content_length();
        let size = size.map_or("of unknown size".to_owned(), |it| thousands(it) + " bytes");
        return Err(FetchError::NoText { media: declared.to_owned(), size });
    }
    let mut bytes = Vec::new();
    let mut cut = false;
    while let Some(chunk) = response.chunk().await? {
        let room = limit - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            cut = true;
            break;
        }
    }
    let mut text = decode(&bytes, &content_type, HTML.contains(&&*media));
    // Zero bytes mean binary content, independent of the declared type.
    if text.contains('\0') {
        let media =
            if declared.is_empty() { "binary".to_owned() } else { format!("binary ({declared})") };
        let over = if cut { "over " } else { "" };
        let size = format!("{over}{} bytes", thousands(bytes.len() as u64));
        return Err(FetchError::NoText { media, size });
    }
    if cut && text.ends_with('\u{fffd}') {
        // The last character was cut through.
        text.pop();
    }
    Ok(Body { media, text, bytes: bytes.len(), cut })
}

/// A header's value as text; empty when it is not there.
pub(crate) fn header(headers: &HeaderMap, name: &HeaderName) -> String {
    let value = headers.get(name);
    value.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned()).unwrap_or_default()
}

const HTML: [&str; 2] = ["text/html", "application/xhtml+xml"];

fn is_text(media: &str) -> bool {
    const APPLICATION: [&str; 12] = [
        "ecmascript",
        "graphql",
        "javascript",
        "json",
        "ndjson",
        "sql",
        "toml",
        "x-javascript",
        "x-ndjson",
        "x-yaml",
        "xml",
        "yaml",
    ];
    let named = |it: &str| APPLICATION.contains(&it);
    media.is_empty()
        || media.starts_with("text/")
        || media.strip_prefix("application/").is_some_and(named)
        || ["+json", "+xml", "+yaml"].iter().any(|suffix| media.ends_with(suffix))
}

/// Decodes by the byte order mark, else the header, else the page itself, else as UTF-8.
fn decode(bytes: &[u8], content_type: &str, html: bool) -> String {
    let parameters = content_type.split(';').skip(1).filter_map(|it| it.split_once('='));
    let labels = parameters.filter(|(key, _)| key.trim().eq_ignore_ascii_case("charset"));
    let mut encodings = labels.filter_map(|(_, label)| {
        Encoding::for_label(label.trim().trim_matches(['"', '\'']).as_bytes())
    });
    let encoding = encodings.next().or_else(|| html.then(|| of_page(bytes)).flatten());
    let (text, _, _) = encoding.unwrap_or(UTF_8).decode(bytes);
    text.into_owned()
}

/// The encoding in the head of a page: `<meta charset="…">`, or `charset=…` in a longer form of it.
fn of_page(bytes: &[u8]) -> Option<&'static Encoding> {
    const KEY: &[u8] = b"charset=";
    let start = &bytes[..bytes.len().min(1024)];
    let at = start.windows(KEY.len()).position(|it| it.eq_ignore_ascii_case(KEY))?;
    let label = start[at + KEY.len()..].trim_ascii_start();
    let label = label.strip_prefix(b"\"").or(label.strip_prefix(b"'")).unwrap_or(label);
    let end = label.iter().position(|it| b" \t\r\n\"'/>;".contains(it)).unwrap_or(label.len());
    // A page whose ASCII label can be read is not UTF-16.
    Encoding::for_label(&label[..end]).map(Encoding::output_encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_known_by_its_type() {
        for media in ["", "text/html", "text/x-anything", "application/json", "application/ld+json"]
        {
            assert!(is_text(media), "{media}");
        }
        for media in ["application/pdf", "image/png", "application/octet-stream", "json", "x"] {
            assert!(!is_text(media), "{media}");
        }
    }

    #[track_caller]
    fn check(bytes: &[u8], content_type: &str, expect: &str) {
        assert_eq!(decode(bytes, content_type, content_type.contains("html")), expect);
    }

    #[test]
    fn characters_are_read_as_the_answer_says() {
        check("é".as_bytes(), "text/plain", "é");
        check(b"\xe9", "text/plain; charset=ISO-8859-1", "é");
        check(b"\xe9", "text/plain; x=y; Charset=\"latin1\"", "é");
        check(b"\x83e\x83X", "text/plain;charset=shift_jis", "テス");
        check(b"\xff\xfeh\0i\0", "text/plain; charset=utf-8", "hi");
        check(b"\xe9", "text/plain; charset=nonsense", "\u{fffd}");
        check(b"<meta charset='latin1'>\xe9", "text/html", "<meta charset='latin1'>é");
        check(
            b"<meta content=\"x; charset=latin1\">\xe9",
            "text/html",
            "<meta content=\"x; charset=latin1\">é",
        );
        check("<meta charset=utf-16>é".as_bytes(), "text/html", "<meta charset=utf-16>é");
        check(b"charset=latin1 \xe9", "text/plain", "charset=latin1 \u{fffd}");
        check(b"charset=", "text/html", "charset=");
    }
}

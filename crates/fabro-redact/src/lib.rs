//! Redacts secrets in text and streams, known by value or by shape.
//!
//! A [`Redactor`] gets the values to redact, each with a name. It finds them unchanged, JSON-escaped
//! (once and twice), percent-encoded, in hexadecimal and in base64 (standard and URL-safe, at any offset in
//! the encoded data). Without any values it finds what looks like a key of a well-known service, a bearer token or a
//! private key.
//!
//! ```
//! use fabro_redact::Redactor;
//!
//! let redactor = Redactor::new([("DB_PASSWORD", "correct horse")]);
//! assert_eq!(
//!     redactor.redact("postgres://app:correct%20horse@db, Authorization: Bearer abcdefghijklmnop0123"),
//!     "postgres://app:[redacted:DB_PASSWORD]@db, Authorization: Bearer [redacted]",
//! );
//!
//! // A secret that arrives in pieces.
//! let mut stream = redactor.stream();
//! let mut seen = stream.push(b"the password is correct ho");
//! seen.extend(stream.push(b"rse, isn't it"));
//! seen.extend(stream.finish());
//! assert_eq!(seen, b"the password is [redacted:DB_PASSWORD], isn't it");
//! ```
//!
//! Overlapping matches become one mark, with the name of the one that begins first. Text without a
//! secret is returned unchanged and without a copy. The time is linear in the length of the text.
//!
//! Shapes: `sk-…` (`sk-ant-…`, `sk-proj-…`), `gsk_…`, `xai-…`, `AIza…`, `hf_…`, `ghp_…` and its kin,
//! `fabro_key_…`, `github_pat_…`, `glpat-…`, `npm_…`, `xoxb-…` and its kin, `AKIA…` and `ASIA…`, `Bearer …`, JSON
//! Web Tokens, passwords in URLs (`scheme://user:password@`), and PEM blocks of private keys, truncated
//! ones too.
//!
//! # Limits
//!
//! - Values of fewer than 8 characters, without whitespace around them, are ignored: they would match
//!   ordinary text. So are common words that are values of variables but no secrets, such as
//!   `disabled`, `postgres` and `changeme`.
//! - In base64 the first and the last character may contain bits of a neighbour; up to six bits of a
//!   secret stay there. Base64 and hexadecimal broken into lines are found
//!   where the value begins at a line of the usual length (`base64`, `xxd -p`).
//! - Of values longer than 4,096 bytes only the value itself and its JSON forms are found. A redactor
//!   takes about thirty bytes of memory for each byte of each form.
//! - A password in a URL that contains `@`, `/`, `?` or `#` unencoded is found in part or not at all;
//!   common words (`postgres`, `guest`, `secret`) and placeholders (`$PASSWORD`) are not redacted there.
//! - Hexadecimal with separators or in mixed case, other encodings (compression, encryption) and secrets written with gaps are not found.

mod forms;
mod name;
mod rules;
mod scan;
mod shapes;
mod stream;
mod unredacted;
mod value;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

pub use name::is_secret_name;
use rules::Rules;
use scan::Scan;
use serde_json::Value;
pub use stream::Stream;
pub use unredacted::Unredacted;

/// Values shorter than this many characters are ignored.
pub const SHORTEST_VALUE: usize = 8;

/// Redacts secrets. Clones share everything, so cloning is cheap.
///
/// The default has no values, only shapes.
#[derive(Clone)]
pub struct Redactor {
    rules: Arc<Rules>,
}

impl Redactor {
    /// A redactor for these values, each with the name for its mark, and for shapes.
    ///
    /// A value is replaced by `[redacted:NAME]`, or by `[redacted]` when its name is empty. Of a name
    /// the first 64 characters are kept; characters other than ASCII letters, digits, `_`, `-` and `.`
    /// become `_`, so that a mark is valid in any JSON string or shell word. Where two names have the
    /// same value, the first is used. Values shorter than [`SHORTEST_VALUE`] are ignored, and so are
    /// words that are no secrets (see the limits of the crate).
    pub fn new<N: AsRef<str>, V: AsRef<str>>(values: impl IntoIterator<Item = (N, V)>) -> Self {
        Self { rules: Arc::new(Rules::new(values)) }
    }

    /// The text with marks in place of secrets; borrowed when there are none.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // Secrets begin and end between characters, so nothing is lost here.
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// The same for bytes that need not be text.
    pub fn redact_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut scan = Scan::new(&self.rules);
        scan.advance(&self.rules, bytes, 0);
        scan.finish();
        if scan.is_clean() {
            return Cow::Borrowed(bytes);
        }
        let mut out = Vec::with_capacity(bytes.len());
        scan.emit(&self.rules, bytes, 0, &mut out);
        Cow::Owned(out)
    }

    /// The name of a value that the text contains in any of its forms, as passed to
    /// [`new`](Self::new). Shapes have no names and are ignored.
    ///
    /// ```
    /// let redactor = fabro_redact::Redactor::new([("DB_PASSWORD", "correct horse")]);
    /// assert_eq!(redactor.value_in("it is correct%20horse"), Some("DB_PASSWORD"));
    /// assert_eq!(redactor.value_in("it is [redacted:DB_PASSWORD]"), None);
    /// ```
    pub fn value_in(&self, text: &str) -> Option<&str> {
        let mut scan = Scan::new(&self.rules);
        scan.advance(&self.rules, text.as_bytes(), 0);
        self.rules.name(scan.value()?)
    }

    /// Redacts each of these strings in place.
    pub fn redact_all(&self, strings: &mut [String]) {
        for text in strings {
            if let Cow::Owned(redacted) = self.redact(text) {
                *text = redacted;
            }
        }
    }

    /// Redacts every string, key and number of a value in place, at any depth. A number that contains
    /// a secret becomes a string. Where redaction makes two keys of an object equal, the later one gets a
    /// number: no entry is lost.
    pub fn redact_value(&self, value: &mut Value) {
        value::redact(self, value);
    }

    /// The same for JSON text, so that secrets are found with any escapes. The result is compact JSON; text
    /// that is not JSON is redacted by [`redact`](Self::redact).
    ///
    /// ```
    /// let redactor = fabro_redact::Redactor::new([("DB_PASSWORD", "correct horse")]);
    /// let text = r#"{"it is": "\u0063orrect horse"}"#;
    /// assert_eq!(redactor.redact(text), text);
    /// assert_eq!(redactor.redact_json(text), r#"{"it is":"[redacted:DB_PASSWORD]"}"#);
    /// ```
    pub fn redact_json(&self, text: &str) -> String {
        let Ok(mut value) = serde_json::from_str(text) else {
            return self.redact(text).into_owned();
        };
        self.redact_value(&mut value);
        value.to_string()
    }

    /// The password that a URL contains (`postgres://user:password@host`), unless it is a common word or
    /// a placeholder. As a value of [`new`](Self::new) it is found outside of its URL too.
    ///
    /// ```
    /// let url = "postgres://app:hunter2-and-more@db/app";
    /// assert_eq!(fabro_redact::Redactor::url_password(url), Some("hunter2-and-more"));
    /// assert_eq!(fabro_redact::Redactor::url_password("http://localhost:8080/"), None);
    /// ```
    pub fn url_password(url: &str) -> Option<&str> {
        shapes::url_password(url)
    }

    /// A redactor for bytes that arrive in pieces.
    pub fn stream(&self) -> Stream {
        Stream::new(Arc::clone(&self.rules))
    }
}

impl Default for Redactor {
    fn default() -> Self {
        static SHAPES: LazyLock<Redactor> =
            LazyLock::new(|| Redactor::new(std::iter::empty::<(&str, &str)>()));
        SHAPES.clone()
    }
}

/// Shows the number of values only.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("values", &self.rules.values()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

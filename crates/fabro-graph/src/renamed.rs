//! Nodes that an import has given other ids: what reads their keys follows.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// The ids of an imported file, and what they have got in front of them.
#[derive(Debug)]
pub(crate) struct Renamed {
    pub(crate) prefix: Arc<str>,
    pub(crate) ids: HashSet<Arc<str>>,
}

impl Renamed {
    /// A template whose expressions read the keys of these nodes.
    pub(crate) fn template<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut out = String::new();
        let mut done = 0;
        let mut from = 0;
        while let Some(open) = text[from..].find('{').map(|at| from + at) {
            let close = match text.as_bytes().get(open + 1) {
                Some(b'{') => "}}",
                Some(b'%') => "%}",
                _ => {
                    from = open + 1;
                    continue;
                }
            };
            let end = text[open..].find(close).map_or(text.len(), |at| open + at);
            if let Cow::Owned(changed) = self.keys(&text[open..end]) {
                out.push_str(&text[done..open]);
                out.push_str(&changed);
                done = end;
            }
            from = end;
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }

    /// The text of a condition or an expression with `response.ID` and the like of these nodes as they
    /// are called now.
    pub(crate) fn keys<'t>(&self, text: &'t str) -> Cow<'t, str> {
        const ROOTS: [&str; 4] = ["response.", "output.", "child.", "retry_count."];
        let is_word =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        let bytes = text.as_bytes();
        let mut out = String::new();
        let mut done = 0;
        let mut at = 0;
        while at < bytes.len() {
            let length = bytes[at..].iter().take_while(|byte| is_word(byte)).count();
            if length == 0 {
                at += 1;
                continue;
            }
            let word = &text[at..at + length];
            let key = word.strip_prefix("context.").unwrap_or(word);
            let key = key.strip_prefix("internal.").unwrap_or(key);
            if let Some(id) = ROOTS.iter().find_map(|root| key.strip_prefix(root))
                && self.has(id)
            {
                let place = at + length - id.len();
                out.push_str(&text[done..place]);
                out.push_str(&self.prefix);
                out.push('.');
                done = place;
            }
            at += length;
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }

    /// Whether the path is one of the ids, or leads into what it wrote.
    fn has(&self, path: &str) -> bool {
        self.ids.contains(path)
            || path.match_indices('.').any(|(dot, _)| self.ids.contains(&path[..dot]))
    }
}

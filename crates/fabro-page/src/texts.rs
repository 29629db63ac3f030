//! Texts that a run recorded, as parts of a page.

use std::fmt;

use askama::Template;
use fabro_types::clean;
use serde_json::Value;

/// A text without characters that control text or change its direction. Templates escape it.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&clean(self.0))
    }
}

/// For templates.
pub(crate) fn shown<T: AsRef<str> + ?Sized>(text: &T) -> Shown<'_> {
    Shown(text.as_ref())
}

/// How much of long texts is shown at once, and what becomes of the rest.
#[derive(Clone, Debug)]
pub struct Texts {
    /// So many characters of a text are in the page.
    shown: usize,
    /// So many characters of a text can be seen at all.
    kept: usize,
    /// The texts that can be opened, by number; `None` where a page has no place for them.
    packed: Option<Vec<String>>,
    /// How many texts are cut.
    cut: usize,
}

impl Texts {
    /// For a page that has its texts in it: so many characters of each.
    pub fn cut_at(max: usize) -> Self {
        Self { shown: max, kept: max, packed: None, cut: 0 }
    }

    /// For a file: what is longer than `shown` characters is packed, up to `kept`.
    pub(crate) fn packed(shown: usize, kept: usize) -> Self {
        Self { shown: shown.min(kept), kept, packed: Some(Vec::new()), cut: 0 }
    }

    /// The packed texts, and how many were cut.
    pub(crate) fn finish(self) -> (Vec<String>, usize) {
        (self.packed.unwrap_or_default(), self.cut)
    }

    /// A text in a block of its own, character by character below each other.
    pub(crate) fn block(&mut self, text: &str) -> String {
        self.block_of(text, |text| vec![(true, text)])
    }

    /// The same of what a person or a model wrote: only its code is set as code.
    pub(crate) fn prose(&mut self, text: &str) -> String {
        self.block_of(text, pieces)
    }

    fn block_of(&mut self, text: &str, pieces: fn(&str) -> Vec<(bool, &str)>) -> String {
        let text = clean(text);
        let size = text.len();
        let Some(end) = boundary(&text, self.shown) else {
            return render(&Block::new(pieces(&text), size, None, false));
        };
        let is_cut = boundary(&text, self.kept).is_some();
        self.cut += usize::from(is_cut);
        let opens = self.packed.as_mut().filter(|_| self.kept > self.shown).map(|packed| {
            let kept = boundary(&text, self.kept).unwrap_or(text.len());
            packed.push(text[..kept].to_owned());
            packed.len() - 1
        });
        render(&Block::new(pieces(&text[..end]), size, opens, is_cut))
    }

    /// A value as a fragment: of a string its characters, of any other value its JSON.
    pub fn html(&mut self, value: &Value) -> String {
        self.value(value)
    }

    /// What a model answered as a fragment: a string as prose, any other value as JSON.
    pub fn answer(&mut self, value: &Value) -> String {
        match value {
            Value::String(text) => self.prose(text),
            other => self.value(other),
        }
    }

    /// A value in a block of its own: of a string its characters, of any other value its JSON.
    pub(crate) fn value(&mut self, value: &Value) -> String {
        match value {
            Value::String(text) => self.block(text),
            other => self.block(&format!("{other:#}")),
        }
    }
}

/// The pieces of a text in Markdown: what stands between fences, is indented by four columns, or is a row of a table,
/// is code. Together they are the text.
fn pieces(text: &str) -> Vec<(bool, &str)> {
    let mut pieces: Vec<(bool, usize)> = Vec::new();
    let mut fence: Option<&str> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let bare = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| bare.starts_with(marker));
        let is_code = fence.is_some()
            || marker.is_some()
            || line.starts_with("    ")
            || line.starts_with('\t')
            || bare.starts_with('|');
        match (fence, marker) {
            (None, Some(_)) => fence = marker,
            (Some(open), Some(marker)) if open == marker => fence = None,
            _ => {}
        }
        if pieces.last().is_none_or(|(last, _)| *last != is_code) {
            pieces.push((is_code, at));
        }
        at += line.len();
    }
    let ends = pieces.iter().skip(1).map(|(_, start)| *start).chain([text.len()]);
    pieces.iter().zip(ends).map(|((is_code, start), end)| (*is_code, &text[*start..end])).collect()
}

/// Where a text is cut that has more than `max` characters; `None` when it has not.
fn boundary(text: &str, max: usize) -> Option<usize> {
    if text.len() <= max {
        return None;
    }
    text.char_indices().nth(max).map(|(at, _)| at)
}

#[derive(Template)]
#[template(path = "text.html")]
struct Block<'a> {
    /// Whether a piece is code, and the piece.
    pieces: Vec<(bool, &'a str)>,
    /// Not all of it is code.
    is_prose: bool,
    size: usize,
    opens: Option<usize>,
    is_cut: bool,
}

impl<'a> Block<'a> {
    fn new(pieces: Vec<(bool, &'a str)>, size: usize, opens: Option<usize>, is_cut: bool) -> Self {
        let is_prose = pieces.iter().any(|(is_code, _)| !is_code);
        Self { pieces, is_prose, size, opens, is_cut }
    }
}

/// The HTML of a template. Writing into a string cannot fail, and templates have no other errors.
pub(crate) fn render(template: &impl Template) -> String {
    template.render().unwrap_or_else(|error| format!("<p class=\"bad\">{error}</p>"))
}

/// A size in bytes for people.
pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KB", bytes / 1_024),
        _ => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
    }
}

/// A price in US dollars, with as many digits as small ones need.
pub(crate) fn dollars(cost: f64) -> String {
    if cost == 0.0 || cost >= 1.0 { format!("${cost:.2}") } else { format!("${cost:.4}") }
}

/// `1 stage`, `2 stages`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &[(bool, &str)]) {
        let pieces = pieces(text);
        assert_eq!(pieces, expect);
        assert_eq!(pieces.iter().map(|(_, piece)| *piece).collect::<String>(), text);
    }

    #[test]
    fn code_in_prose_is_found() {
        check("", &[]);
        check("one\ntwo", &[(false, "one\ntwo")]);
        check(
            "see\n```rust\nfn a() {}\n\n```\nend",
            &[(false, "see\n"), (true, "```rust\nfn a() {}\n\n```\n"), (false, "end")],
        );
        check("~~~\n```\n~~~\nend", &[(true, "~~~\n```\n~~~\n"), (false, "end")]);
        check(
            "a fence that\n```\nnever ends",
            &[(false, "a fence that\n"), (true, "```\nnever ends")],
        );
        check(
            "| a | b |\n|---|---|\n\tx\n    y\nz",
            &[(true, "| a | b |\n|---|---|\n\tx\n    y\n"), (false, "z")],
        );
    }

    #[test]
    fn prose_is_escaped() {
        let html = Texts::cut_at(100).prose("a <b>\n```\n<i>\n```\n");
        assert!(html.contains("a &#60;b&#62;") && html.contains("&#60;i&#62;"), "{html}");
        assert!(
            html.contains("<code>") && !html.contains("<i>") && !html.contains("<b>"),
            "{html}"
        );
        // Where all of it is code, the block is.
        assert!(Texts::cut_at(100).block("x").starts_with("<pre class=\"text\">x</pre>"));
    }
}

//! What a reader sees of a web page.

use html5gum::emitters::default::{DefaultEmitter, StartTag, Token};
use html5gum::{HtmlString, Tokenizer};
use reqwest::Url;

/// Addresses longer than this are left out, in bytes.
const ADDRESS: usize = 300;

/// Lists are not indented deeper than this.
const DEEPEST: usize = 8;

/// The text of a page, with headings, lists and links as Markdown has them.
///
/// It takes one pass over the tokens, whatever they are: nothing is nested in it.
pub(super) fn to_text(html: &str, base: &Url) -> String {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut page = Page::new(base);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => page.open(&tag),
            Token::EndTag(tag) => page.close(&tag.name),
            Token::String(text) => page.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    page.finish()
}

struct Page<'a> {
    base: &'a Url,
    title: String,
    text: String,
    /// What the text at hand belongs to.
    part: Part,
    /// Line ends to come before the next text.
    breaks: usize,
    /// Whether a blank is to come before the next text.
    blank: bool,
    /// How many `pre` are open.
    pre: usize,
    /// How many lists are open.
    lists: usize,
    /// Whether a cell of the row at hand was there before.
    in_row: bool,
    /// The address of the link at hand, and where its text began.
    link: Option<(String, usize)>,
}

#[derive(PartialEq, Eq)]
enum Part {
    Text,
    Title,
    /// A script or a style sheet.
    Hidden,
}

impl<'a> Page<'a> {
    fn new(base: &'a Url) -> Self {
        Self {
            base,
            title: String::new(),
            text: String::new(),
            part: Part::Text,
            breaks: 0,
            blank: false,
            pre: 0,
            lists: 0,
            in_row: false,
            link: None,
        }
    }

    fn open(&mut self, tag: &StartTag<()>) {
        match &**tag.name {
            b"title" => self.part = Part::Title,
            b"script" | b"style" => self.part = Part::Hidden,
            b"br" => self.line(),
            b"hr" => {
                self.paragraph();
                self.push("---");
                self.paragraph();
            }
            b"pre" => {
                self.paragraph();
                self.push("```");
                self.line();
                self.pre += 1;
            }
            b"ul" | b"ol" => {
                self.breaks = self.breaks.max(if self.lists == 0 { 2 } else { 1 });
                self.lists += 1;
            }
            b"li" => {
                self.line();
                let indent = self.lists.clamp(1, DEEPEST) - 1;
                self.push(&("  ".repeat(indent) + "- "));
            }
            b"tr" => {
                self.line();
                self.in_row = false;
            }
            b"td" | b"th" => {
                if self.in_row {
                    self.push(" | ");
                }
                self.in_row = true;
            }
            b"a" => {
                self.end_link();
                if let Some(address) = attribute(tag, b"href").and_then(|href| self.address(&href))
                {
                    self.push("[");
                    self.link = Some((address, self.text.len()));
                }
            }
            b"img" => {
                if let Some(alt) = attribute(tag, b"alt").filter(|alt| !alt.trim().is_empty()) {
                    self.text(&format!("[image: {alt}]"));
                }
            }
            name => match heading(name) {
                Some(level) => {
                    self.paragraph();
                    self.push(&("#".repeat(level) + " "));
                }
                None if is_block(name) => self.paragraph(),
                None => {}
            },
        }
    }

    fn close(&mut self, name: &HtmlString) {
        match &***name {
            b"title" | b"script" | b"style" => self.part = Part::Text,
            b"pre" if self.pre > 0 => {
                self.pre -= 1;
                self.line();
                self.push("```");
                self.paragraph();
            }
            b"ul" | b"ol" => {
                self.lists = self.lists.saturating_sub(1);
                self.breaks = self.breaks.max(if self.lists == 0 { 2 } else { 1 });
            }
            b"li" | b"tr" => self.line(),
            b"a" => self.end_link(),
            name if heading(name).is_some() || is_block(name) => self.paragraph(),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        match self.part {
            Part::Hidden => {}
            Part::Title => self.title.push_str(text),
            Part::Text if self.pre > 0 => self.push(text),
            Part::Text => {
                let mut words = text.split_ascii_whitespace();
                self.blank |= text.starts_with(|c: char| c.is_ascii_whitespace());
                if let Some(first) = words.next() {
                    self.push(first);
                    for word in words {
                        self.text.push(' ');
                        self.text.push_str(word);
                    }
                    self.blank = text.ends_with(|c: char| c.is_ascii_whitespace());
                }
            }
        }
    }

    /// Puts text behind what is there, with the breaks and blanks that are due.
    fn push(&mut self, text: &str) {
        if self.text.is_empty() {
            self.breaks = 0;
        }
        if self.breaks > 0 {
            self.text.push_str(if self.breaks == 1 { "\n" } else { "\n\n" });
        } else if self.blank && !self.text.is_empty() && !self.text.ends_with([' ', '\n', '[']) {
            self.text.push(' ');
        }
        (self.breaks, self.blank) = (0, false);
        self.text.push_str(text);
    }

    fn line(&mut self) {
        self.breaks = self.breaks.max(1);
    }

    fn paragraph(&mut self) {
        self.breaks = 2;
    }

    fn end_link(&mut self) {
        let Some((address, start)) = self.link.take() else { return };
        if self.text.len() == start {
            // It has no text.
            self.text.truncate(start - 1);
        } else {
            self.text.push_str("](");
            self.text.push_str(&address);
            self.text.push(')');
        }
    }

    /// Where a link leads, if that is another page.
    fn address(&self, href: &str) -> Option<String> {
        if href.starts_with('#') {
            return None;
        }
        let url = self.base.join(href.trim()).ok()?;
        let is_page = matches!(url.scheme(), "http" | "https") && url.as_str().len() <= ADDRESS;
        is_page.then(|| url.into())
    }

    fn finish(mut self) -> String {
        self.end_link();
        let title: Vec<_> = self.title.split_ascii_whitespace().collect();
        let text = self.text.trim();
        if title.is_empty() {
            text.to_owned()
        } else {
            format!("Title: {}\n\n{text}", title.join(" "))
        }
    }
}

fn attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    tag.attributes.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

fn heading(name: &[u8]) -> Option<usize> {
    match name {
        [b'h', level @ b'1'..=b'6'] => Some(usize::from(level - b'0')),
        _ => None,
    }
}

fn is_block(name: &[u8]) -> bool {
    const BLOCKS: [&[u8]; 22] = [
        b"address",
        b"article",
        b"aside",
        b"blockquote",
        b"dd",
        b"details",
        b"div",
        b"dl",
        b"dt",
        b"fieldset",
        b"figcaption",
        b"figure",
        b"footer",
        b"form",
        b"header",
        b"main",
        b"nav",
        b"p",
        b"section",
        b"summary",
        b"table",
        b"body",
    ];
    BLOCKS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(html: &str, expected: &str) {
        let base = Url::parse("https://example.org/a/b").unwrap();
        assert_eq!(to_text(html, &base), expected);
    }

    #[test]
    fn what_a_reader_sees() {
        check(
            "<title>T &amp; U\n</title><p>Hello,\n <b>wor</b>ld!<p>Next",
            "Title: T & U\n\nHello, world!\n\nNext",
        );
        check("<h2>A</h2>b<br>c<hr>d", "## A\n\nb\nc\n\n---\n\nd");
        check("<ul><li>a<li>b<ul><li>c</ul></ul>d", "- a\n- b\n  - c\n\nd");
        check("<pre>a\n  b</pre>c", "```\na\n  b\n```\n\nc");
        check("<table><tr><td>a<td>b<tr><td>c</table>", "a | b\nc");
        check("a<script>if (1 < 2) '</p>'</script><style>p{}</style><!-- x -->b", "ab");
        check("<img alt='A cat'><img>", "[image: A cat]");
        check("&lt;p&gt; &copy; &#x4e2d;", "<p> © 中");
    }

    #[test]
    fn links_lead_on() {
        check(
            "see <a href='../c?d=1'>this  page</a>.",
            "see [this page](https://example.org/c?d=1).",
        );
        check("<a href='#x'>a</a> <a href='javascript:x()'>b</a> <a href='/'></a>c", "a b c");
        check(
            "<a href='/x'>a <a href='/y'>b",
            "[a](https://example.org/x) [b](https://example.org/y)",
        );
    }

    #[test]
    fn garbage_takes_no_time() {
        let deep = "<ul><blockquote><a href=x>".repeat(40_000);
        assert!(to_text(&deep, &Url::parse("https://e.org").unwrap()).len() < 100);
        let mut attributes = "<p ".to_owned();
        let named: Vec<_> = (0..100_000).map(|index| format!("a{index}=1 ")).collect();
        attributes.push_str(&named.concat());
        check(&attributes, "");
        check(&"<".repeat(1 << 20), &"<".repeat(1 << 20));
        check("<!--", "");
        check("</a></li></ul></pre></title>x", "x");
    }
}

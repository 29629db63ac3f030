//! HTML as text that is read from top to bottom.
//!
//! There is no tree: a page is a sequence of tags and text, so that neither depth nor bad nesting costs
//! anything.

use std::convert::Infallible;

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};
use reqwest::Url;

use crate::web::cut::head;
use crate::web::layout::Layout;

/// The text of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) title: String,
    pub(crate) text: String,
    /// It was too long, and its end is left out.
    pub(crate) cut: bool,
}

/// Reads a page that was found at `base`, which its links are relative to.
pub(crate) fn read(html: &str, base: &Url) -> Reading {
    let mut reader = Reader::new(base);
    let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| {
        reader.event(&event);
        None::<Infallible>
    });
    emitter.naively_switch_states(true);
    // No tokens are emitted: everything arrives as events.
    Tokenizer::new_with_emitter(html, emitter).for_each(|_| {});
    let (text, cut) = reader.layout.finish();
    Reading { title: head(&reader.title, LONGEST_TITLE).to_owned(), text, cut }
}

const LONGEST_TITLE: usize = 300;

/// Links that are longer are left out: few are, and all of them can be as long as a page.
const LONGEST_LINK: usize = 500;

/// Elements that are not visible.
const UNSEEN: [&str; 8] =
    ["script", "style", "noscript", "iframe", "noembed", "noframes", "template", "svg"];

struct Reader {
    base: Url,
    /// The page has set the base URL of its links.
    rebased: bool,
    title: String,
    in_title: bool,
    unseen: Option<Unseen>,
    tag: Tag,
    lists: Vec<List>,
    /// The row has a cell already.
    in_row: bool,
    layout: Layout,
}

/// An element that is left out.
struct Unseen {
    name: &'static str,
    depth: usize,
}

/// The start tag that is being read.
#[derive(Default)]
struct Tag {
    name: String,
    attribute: String,
    href: Option<String>,
    alt: Option<String>,
}

/// A list: `None` for one without numbers.
type List = Option<u32>;

impl Reader {
    fn new(base: &Url) -> Self {
        Self {
            base: base.clone(),
            rebased: false,
            title: String::new(),
            in_title: false,
            unseen: None,
            tag: Tag::default(),
            lists: Vec::new(),
            in_row: false,
            layout: Layout::default(),
        }
    }

    fn event(&mut self, event: &CallbackEvent<'_>) {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag = Tag { name: text(name), ..Tag::default() };
            }
            CallbackEvent::AttributeName { name } => self.tag.attribute = text(name),
            CallbackEvent::AttributeValue { value } => self.tag.set(text(value)),
            CallbackEvent::CloseStartTag { self_closing } => {
                let tag = std::mem::take(&mut self.tag);
                self.start(&tag, *self_closing);
            }
            CallbackEvent::EndTag { name } => self.end(&text(name)),
            CallbackEvent::String { value } => self.text(&text(value)),
            CallbackEvent::Comment { .. }
            | CallbackEvent::Doctype { .. }
            | CallbackEvent::Error(_) => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.unseen.is_some() {
            return;
        }
        if !self.in_title {
            return self.layout.text(text);
        }
        for word in text.split_whitespace() {
            if !self.title.is_empty() {
                self.title.push(' ');
            }
            self.title.push_str(word);
        }
    }

    fn start(&mut self, tag: &Tag, self_closing: bool) {
        let name = tag.name.as_str();
        if let Some(unseen) = &mut self.unseen {
            // A paragraph ends a drawing without an end tag.
            if unseen.name != "svg" || lines_around(name) == 0 {
                unseen.depth += usize::from(unseen.name == name && !self_closing);
                return;
            }
            self.unseen = None;
        }
        if let Some(unseen) = UNSEEN.into_iter().find(|it| *it == name) {
            if !(self_closing && unseen == "svg") {
                self.unseen = Some(Unseen { name: unseen, depth: 1 });
            }
            return;
        }
        self.layout.new_lines(self.lines_around(name));
        match name {
            "title" => self.in_title = self.title.is_empty(),
            "base" => self.rebase(tag),
            "br" => self.layout.line_break(),
            "hr" => self.layout.rule(),
            "pre" => self.layout.start_code(),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.layout.heading(level(name)),
            "ul" | "menu" => self.lists.push(None),
            "ol" => self.lists.push(Some(0)),
            "li" => self.item(),
            "tr" => self.in_row = false,
            "td" | "th" => {
                if self.in_row {
                    self.layout.text(" | ");
                }
                self.in_row = true;
            }
            "a" => self.layout.start_link(self.link(tag)),
            "img" => {
                if let Some(alt) = tag.alt.as_deref().filter(|alt| !alt.trim().is_empty()) {
                    self.layout.text(&format!("[image: {}]", alt.trim()));
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if let Some(unseen) = &mut self.unseen {
            if unseen.name == name {
                unseen.depth -= 1;
                if unseen.depth == 0 {
                    self.unseen = None;
                }
            }
            return;
        }
        match name {
            "title" => self.in_title = false,
            "pre" => self.layout.end_code(),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "li" => self.layout.end_item(),
            "ul" | "ol" | "menu" => {
                self.lists.pop();
            }
            "a" => self.layout.end_link(),
            _ => {}
        }
        self.layout.new_lines(self.lines_around(name));
    }

    fn item(&mut self) {
        let depth = self.lists.len();
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number = number.saturating_add(1);
                format!("{number}. ")
            }
            _ => "- ".to_owned(),
        };
        self.layout.item(depth, &mark);
    }

    fn lines_around(&self, name: &str) -> usize {
        match name {
            // A list inside an item continues it.
            "ul" | "ol" | "menu" if !self.lists.is_empty() => 1,
            name => lines_around(name),
        }
    }

    /// Where a link leads, if it leads to another page.
    fn link(&self, tag: &Tag) -> Option<String> {
        let href = tag.href.as_deref()?.trim();
        if href.is_empty() || href.starts_with('#') || href.len() > LONGEST_LINK {
            return None;
        }
        let url = self.base.join(href).ok()?;
        let fits = ["http", "https"].contains(&url.scheme()) && url.as_str().len() <= LONGEST_LINK;
        fits.then(|| url.into())
    }

    fn rebase(&mut self, tag: &Tag) {
        if let Some(url) = self.link(tag).and_then(|url| Url::parse(&url).ok())
            && !self.rebased
        {
            self.base = url;
            self.rebased = true;
        }
    }
}

impl Tag {
    fn set(&mut self, value: String) {
        let place = match self.attribute.as_str() {
            "href" => &mut self.href,
            "alt" => &mut self.alt,
            _ => return,
        };
        // Of two the first one counts.
        place.get_or_insert(value);
    }
}

/// How many line ends stand at least before and after an element.
fn lines_around(name: &str) -> usize {
    match name {
        "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "ul" | "ol" | "menu" | "dl" | "table"
        | "pre" | "blockquote" | "article" | "section" | "header" | "footer" | "main" | "nav"
        | "aside" | "figure" | "form" | "fieldset" | "hr" | "details" | "address" => 2,
        "div" | "li" | "tr" | "dt" | "dd" | "caption" | "thead" | "tbody" | "tfoot" | "summary"
        | "legend" | "option" | "figcaption" | "body" | "html" | "center" | "search"
        | "textarea" => 1,
        _ => 0,
    }
}

fn level(heading: &str) -> usize {
    heading.bytes().last().map_or(1, |digit| usize::from(digit - b'0'))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;

//! Colors, marks, and the last check of what is printed.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use annotate_snippets::renderer::{AnsiColor, Style};
use fabro_types::{Status, clean};

/// A [`Paint`] with colors was made.
static ANY_ON: AtomicBool = AtomicBool::new(false);

/// Colors text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// With colors or without.
    pub fn new(on: bool) -> Self {
        if on {
            ANY_ON.store(true, Ordering::Relaxed);
        }
        Self { on }
    }

    /// Whether this process colors anything; if not, every escape sequence in a text is foreign.
    pub fn is_any_on() -> bool {
        ANY_ON.load(Ordering::Relaxed)
    }

    /// Whether there are colors.
    pub fn is_on(self) -> bool {
        self.on
    }

    /// The word before an error, a failure.
    pub fn error(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }

    /// The word before a warning.
    pub fn warning(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default().bold(), text)
    }

    /// The word before a hint.
    pub fn hint(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default().bold(), text)
    }

    /// Something that went well.
    pub fn good(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default(), text)
    }

    /// Something that went badly.
    pub fn bad(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default(), text)
    }

    /// Something to keep an eye on.
    pub fn odd(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default(), text)
    }

    /// What matters least.
    pub fn dim(self, text: &str) -> String {
        self.with(Style::new().dimmed(), text)
    }

    /// What matters most.
    pub fn bold(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    fn with(self, style: Style, text: &str) -> String {
        if self.on { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// How a line is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mark {
    /// A success.
    Good,
    /// A failure.
    Bad,
    /// A warning.
    Odd,
    /// A question for a person.
    Ask,
    /// Anything else.
    Note,
}

impl Mark {
    /// The mark of a stage with this status.
    pub fn of(status: Status) -> Self {
        match status {
            Status::Succeeded => Self::Good,
            Status::PartiallySucceeded => Self::Odd,
            Status::Skipped => Self::Note,
            Status::Failed => Self::Bad,
        }
    }

    /// One colored character.
    pub fn symbol(self, paint: Paint) -> String {
        match self {
            Self::Good => paint.good("✓"),
            Self::Bad => paint.bad("✗"),
            Self::Odd => paint.odd("!"),
            Self::Ask => paint.odd("?"),
            Self::Note => paint.dim("·"),
        }
    }
}

/// What our own colors are made of, and those of the source excerpts: reset, bold, dim, and the colors
/// that are visible on any background. Others (hidden, reversed, a background) are never ours.
const OWN: [&str; 15] =
    ["0", "1", "2", "31", "32", "33", "34", "35", "36", "91", "92", "93", "94", "95", "96"];

/// A text as [`clean`] makes it, except that our own colors stay: the last check of what is printed.
pub fn clean_painted(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return clean(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        let (before, sequence) = rest.split_at(at);
        let is_parameter = |c: char| c.is_ascii_digit() || c == ';';
        let parameters = sequence[2..].trim_start_matches(is_parameter);
        let end = sequence.len() - parameters.len();
        let is_own = parameters.starts_with('m') && OWN.contains(&&sequence[2..end]);
        // The start of any other sequence is replaced.
        let length = if is_own { end + 1 } else { 0 };
        shown.push_str(&clean(before));
        shown.push_str(&sequence[..length]);
        rest = &sequence[length..];
        if length == 0 {
            shown.push(char::REPLACEMENT_CHARACTER);
            rest = &rest[1..];
        }
    }
    shown.push_str(&clean(rest));
    shown.into()
}

//! Colors, marks, and text without control characters.

use std::borrow::Cow;

use annotate_snippets::renderer::{AnsiColor, Style};
use fabro_types::Status;

/// Colors text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// With colors or without.
    pub fn new(on: bool) -> Self {
        Self { on }
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

/// The text without control characters other than line ends and tabs: what scripts and models
/// print must not move the cursor or change the title of a window.
pub fn clean(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(harmful) { text.replace(harmful, "\u{fffd}").into() } else { text.into() }
}

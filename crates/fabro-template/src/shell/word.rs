//! A word of a script.

use std::ops::Range;

use super::Place;
use crate::misplaced::{Advice, Misplaced};

/// A word as it is written.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what is known of a word is independent")]
pub(super) struct Word {
    /// Without its quotes; everything that is not fixed is one NUL.
    pub(super) text: String,
    pub(super) span: Range<usize>,
    /// The values anywhere in it, also inside `$(…)`.
    pub(super) values: Range<usize>,
    pub(super) heredocs: Range<usize>,
    /// The values that stand in it directly.
    pub(super) direct: Vec<(usize, Place)>,
    /// The variables that are expanded in it.
    pub(super) reads: Range<usize>,
    /// Nothing in it is quoted or expanded.
    pub(super) is_plain: bool,
    /// The last part of the path that it is, when it is not fixed.
    pub(super) file: Option<String>,
    /// Unquoted patterns or braces may make other words of it.
    pub(super) has_pattern: bool,
    /// It is `NAME=…`, `NAME+=…` or `NAME[…]=…`.
    pub(super) assigns: Option<String>,
    /// `>(…)` is part of it, with a command that runs what it reads.
    pub(super) has_sink: bool,
    /// Something that is not quoted is expanded in it, which may make several words.
    pub(super) may_split: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    Argument,
    /// `NAME[…]=` is an assignment here.
    Assignable,
    /// The right side of `=~`.
    Regex,
}

impl Word {
    pub(super) fn has_values(&self) -> bool {
        !self.values.is_empty()
    }

    /// The text that an assignment gives to its variable; the whole of any other word.
    pub(super) fn assigned(&self) -> &str {
        match self.text.split_once('=') {
            Some((_, value)) if self.assigns.is_some() => value,
            _ => &self.text,
        }
    }

    /// Its text when nothing in it depends on anything.
    pub(super) fn fixed(&self) -> Option<&str> {
        (!self.text.contains('\0') && !self.has_pattern).then_some(&*self.text)
    }
}

impl Word {
    pub(super) fn dynamic(&mut self, may_split: bool) {
        self.text.push('\0');
        self.is_plain = false;
        self.may_split |= may_split;
    }

    pub(super) fn note_assignment(&mut self) {
        let name = self.text.strip_suffix('+').unwrap_or(&self.text);
        self.assigns = is_name(name).then(|| name.to_owned());
    }
}

pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

pub(super) fn unclosed(sign: &str) -> Misplaced {
    Misplaced::of(format!("in a script where `{sign}` is not closed"), Advice::Script)
}

pub(super) fn unclear(place: &'static str) -> Misplaced {
    Misplaced::new(place, Advice::Variable)
}

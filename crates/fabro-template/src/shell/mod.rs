//! Puts values into shell scripts so that they stay values.
//!
//! The script is read with the grammar of POSIX shells and bash, each value as one character that no
//! script holds. A value is accepted only where it is proven to be a word, or a part of one, that the
//! command does not evaluate; then it is quoted for that place. Everything else is refused, and so is
//! every value after the first place that shells may read differently.

mod commands;
mod compound;
mod flow;
mod lists;
mod scanner;
mod simple;
mod word;
mod words;

use std::collections::BTreeSet;

use crate::misplaced::{Advice, Misplaced, is_number};

/// Stands for a value while a script is read.
pub(crate) const VALUE: char = '\0';

/// Where a value stands, with what its quoting depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Outside of quotes.
    Word {
        /// Beside `{`, `,` or `..`, where a number may be part of `{1..9}`.
        in_braces: bool,
    },
    Single,
    Double {
        /// Directly after `$NAME`, which the value must not continue.
        after_name: bool,
    },
    /// In the text of a here-document with a quoted end, by its number.
    Heredoc(usize),
}

/// The end of a here-document.
#[derive(Clone, Debug)]
pub(crate) struct HeredocEnd {
    word: String,
    /// `<<-`: tabs at the beginning of lines are removed.
    tabs: bool,
}

/// What was found out about a script.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Of each value, in the order of the text.
    pub(crate) places: Vec<Result<Place, Misplaced>>,
    pub(crate) heredocs: Vec<HeredocEnd>,
    /// Variables whose content the script evaluates: in arithmetic, by `eval` or in the script of
    /// another shell.
    pub(crate) evaluated: BTreeSet<String>,
    /// Variables that stand where the name of a command stands.
    pub(crate) commands: BTreeSet<String>,
    /// The script runs what it reads from its input.
    pub(crate) runs_input: bool,
    /// The script was not read to its end, so that it may evaluate any variable.
    pub(crate) is_unclear: bool,
}

pub(crate) use lists::read;

/// A value for a script.
pub(crate) struct Value<'a> {
    pub(crate) text: &'a str,
    /// It went through `int` or `float`.
    pub(crate) is_numeric: bool,
    /// It went through `py` or `tojson`.
    pub(crate) is_literal: bool,
}

/// The script with its values; on failure the number of the value and why.
pub(crate) fn fill(text: &str, values: &[Value<'_>]) -> Result<String, (usize, Misplaced)> {
    let reading = read(text);
    let mut out = String::with_capacity(text.len() + 64);
    let mut pieces = text.split(VALUE);
    out.push_str(pieces.next().unwrap_or_default());
    let mut in_heredocs = Vec::new();
    for (at, (value, place)) in values.iter().zip(reading.places).enumerate() {
        if value.text.contains('\0') {
            return Err((at, NUL));
        }
        let start = out.len();
        match place {
            Ok(Place::Heredoc(document)) => {
                out.push_str(value.text);
                in_heredocs.push((at, document, start..out.len()));
            }
            Ok(place) => push_quoted(&mut out, value, &place),
            Err(misplaced) if misplaced.takes_numbers() && is_number(value.text) => {
                let is_negative = value.text.starts_with('-') && misplaced.advice == Advice::Number;
                let (open, close) = if is_negative { ("(", ")") } else { ("", "") };
                out.extend([open, value.text, close]);
            }
            Err(misplaced) => return Err((at, misplaced)),
        }
        out.push_str(pieces.next().unwrap_or_default());
    }
    for (at, document, range) in in_heredocs {
        check_heredoc(&out, range, &reading.heredocs[document]).map_err(|why| (at, why))?;
    }
    Ok(out)
}

const NUL: Misplaced = Misplaced::new(
    "in a script, for it holds a NUL character, which no command can take",
    Advice::Script,
);

fn push_quoted(out: &mut String, value: &Value<'_>, place: &Place) {
    match place {
        Place::Word { in_braces: true } if value.is_numeric && is_number(value.text) => {
            out.push_str(value.text);
        }
        Place::Word { .. } => {
            out.extend(["'", &value.text.replace('\'', r"'\''"), "'"]);
        }
        Place::Single => out.push_str(&value.text.replace('\'', r"'\''")),
        Place::Double { after_name } => {
            out.push_str(if *after_name { "\"\"" } else { "" });
            for c in value.text.chars() {
                out.push_str(if matches!(c, '\\' | '"' | '$' | '`') { "\\" } else { "" });
                out.push(c);
            }
        }
        Place::Heredoc(_) => out.push_str(value.text),
    }
}

/// The lines that a value is part of neither end the here-document nor lose characters.
fn check_heredoc(
    out: &str,
    range: std::ops::Range<usize>,
    end: &HeredocEnd,
) -> Result<(), Misplaced> {
    let first = out[..range.start].rfind('\n').map_or(0, |at| at + 1);
    let last = out[range.end..].find('\n').map_or(out.len(), |at| range.end + at);
    let mut at = first;
    for line in out[first..last].split('\n') {
        let bare = if end.tabs { line.trim_start_matches('\t') } else { line };
        let tabs = at..at + (line.len() - bare.len());
        if tabs.end > range.start && tabs.start < range.end && !tabs.is_empty() {
            return Err(Misplaced::new(
                "in a here-document with `<<-`, for its lines begin with tabs, which the shell removes",
                Advice::Variable,
            ));
        }
        // Inside `$(…)` bash takes a line that only begins so, too.
        if bare == end.word || !end.word.is_empty() && bare.starts_with(&end.word) {
            return Err(Misplaced::new(
                "in a here-document, for it holds a line that begins like the end of it",
                Advice::Variable,
            ));
        }
        at += line.len() + 1;
    }
    Ok(())
}

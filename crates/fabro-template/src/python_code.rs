//! Puts values into Python scripts so that they stay values: a value stands inside of a string
//! literal, escaped for it, or is a literal itself.

use crate::misplaced::{Advice, Misplaced};
use crate::python_flow::{self, evaluates, is_code_option};
use crate::shell::VALUE;

/// A string literal that a value stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    quote: char,
    /// `f'…'`: braces are doubled.
    is_formatted: bool,
}

const CODE: Misplaced =
    Misplaced::new("in Python code outside of a string literal", Advice::Python);
const COMMENT: Misplaced = Misplaced::new("in a comment", Advice::Fixed);
const FIELD: Misplaced =
    Misplaced::new("in the braces of an f-string, which are code", Advice::Python);
const ESCAPE: Misplaced = Misplaced::new("after a backslash", Advice::Python);
const RAW: Misplaced = Misplaced::new(
    "in a raw or bytes literal, which has no escapes for every value",
    Advice::Python,
);
const INNER: Misplaced =
    Misplaced::new("in a script for another interpreter, which evaluates it", Advice::InnerScript);
const UNCLEAR: Misplaced =
    Misplaced::new("after a literal of Python that cannot be followed", Advice::Python);

struct Scanner<'t> {
    text: &'t str,
    at: usize,
    places: Vec<Result<Literal, Misplaced>>,
    /// The functions of the brackets that are open.
    calls: Vec<Option<&'t str>>,
    /// An option such as `-c` was in a bracket that is open, by their number.
    code_options: Vec<bool>,
    has_shell: bool,
}

/// Where each value stands.
pub(crate) fn read(text: &str) -> Vec<Result<Literal, Misplaced>> {
    let values = text.matches(VALUE).count();
    let dense: String = text.split_whitespace().collect();
    let has_shell = ["shell=", "shell\":", "shell':"].iter().any(|it| dense.contains(it));
    let mut scanner = Scanner {
        text,
        at: 0,
        places: Vec::new(),
        calls: Vec::new(),
        code_options: Vec::new(),
        has_shell,
    };
    let end = scanner.code(None).err();
    let why = end.unwrap_or(UNCLEAR);
    scanner.places.resize_with(values, || Err(why.clone()));
    for (value, function) in python_flow::follow(text, has_shell) {
        let place = match &*function {
            "-c" => "in a variable whose content is a script for another interpreter".to_owned(),
            _ => format!("in a variable that `{function}(…)` runs"),
        };
        scanner.places[value] = Err(Misplaced::of(place, Advice::Variable));
    }
    scanner.places
}

/// The script with its values; on failure the number of the value and why.
pub(crate) fn fill(
    text: &str,
    values: &[crate::shell::Value<'_>],
) -> Result<String, (usize, Misplaced)> {
    let places = read(text);
    let mut out = String::with_capacity(text.len() + 64);
    let mut pieces = text.split(VALUE);
    out.push_str(pieces.next().unwrap_or_default());
    for (at, (value, place)) in values.iter().zip(places).enumerate() {
        match place {
            Ok(literal) => literal.push(&mut out, value.text),
            Err(misplaced) if takes_literals(&misplaced) && value.is_literal => {
                out.push_str(value.text);
            }
            Err(misplaced)
                if misplaced.takes_numbers() && crate::misplaced::is_number(value.text) =>
            {
                out.push_str(value.text);
            }
            Err(misplaced) => return Err((at, misplaced)),
        }
        out.push_str(pieces.next().unwrap_or_default());
    }
    Ok(out)
}

/// A literal of Python may stand there.
pub(crate) fn takes_literals(why: &Misplaced) -> bool {
    why.advice == Advice::Python
}

impl Literal {
    fn push(&self, out: &mut String, value: &str) {
        for c in value.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\0' => out.push_str("\\x00"),
                '{' | '}' if self.is_formatted => out.extend([c, c]),
                _ if c == self.quote => out.extend(['\\', c]),
                _ => out.push(c),
            }
        }
    }
}

impl<'t> Scanner<'t> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn refuse(&mut self, why: Misplaced) {
        self.at += 1;
        self.places.push(Err(why));
    }

    /// Code up to the end of the text, or to the brace that closes a field of an f-string in these
    /// quotes.
    fn code(&mut self, field_of: Option<char>) -> Result<(), Misplaced> {
        let mut brackets = 0_usize;
        while let Some(c) = self.peek() {
            match c {
                VALUE => {
                    let why = self.evaluating().unwrap_or(CODE);
                    self.refuse(if field_of.is_some() { FIELD } else { why });
                }
                '#' | '\\' if field_of.is_some() => return Err(UNCLEAR),
                '#' => self.comment(),
                '\'' | '"' if field_of == Some(c) => return Err(UNCLEAR),
                '\'' | '"' => self.string(c)?,
                '(' | '[' | '{' => {
                    let called = (c == '(').then(|| self.called()).filter(|it| !it.is_empty());
                    self.calls.push(called);
                    self.code_options.push(false);
                    brackets += 1;
                    self.at += 1;
                }
                '}' if field_of.is_some() && brackets == 0 => return Ok(()),
                ')' | ']' | '}' => {
                    brackets = brackets.saturating_sub(1);
                    self.calls.pop();
                    self.code_options.pop();
                    self.at += 1;
                }
                _ => self.at += c.len_utf8(),
            }
        }
        if field_of.is_some() { Err(UNCLEAR) } else { Ok(()) }
    }

    fn comment(&mut self) {
        while let Some(c) = self.peek().filter(|c| !matches!(c, '\n' | '\r')) {
            match c {
                VALUE => self.refuse(COMMENT),
                _ => self.at += c.len_utf8(),
            }
        }
    }

    /// The function that a bracket here calls; also `eval ("…")`, `(os.system)("…")` and
    /// `getattr(os, "system")("…")`.
    fn called(&self) -> &'t str {
        let before = self.text[..self.at].trim_end_matches([' ', '\t']);
        let before = before.trim_end_matches([')', '"', '\'', ' ']);
        let name = before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
        &before[name.len()..]
    }

    /// The letters and digits directly before this place.
    fn name_before(&self) -> &'t str {
        let before = &self.text[..self.at];
        let name = before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
        &before[name.len()..]
    }

    fn string(&mut self, quote: char) -> Result<(), Misplaced> {
        let before = self.places.len();
        let read = self.literal(quote);
        if read.is_err() {
            self.places.truncate(before);
        }
        read
    }

    fn literal(&mut self, quote: char) -> Result<(), Misplaced> {
        let prefix = self.name_before().to_ascii_lowercase();
        let is_known =
            ["", "u", "r", "b", "br", "rb", "f", "fr", "rf", "t", "tr", "rt"].contains(&&*prefix);
        if !is_known {
            return Err(UNCLEAR);
        }
        let triple = [quote; 3].iter().collect::<String>();
        let is_triple = self.text[self.at..].starts_with(&triple);
        let end = if is_triple { triple } else { quote.to_string() };
        let is_formatted = prefix.contains(['f', 't']);
        let is_raw = prefix.contains(['r', 'b']);
        let literal = Literal { quote, is_formatted };
        // The script in `["bash", "-c", "…"]`, also one that is put together.
        let is_inner = self.code_options.iter().any(|is_code| *is_code);
        self.at += end.len();
        let start = self.at;
        loop {
            let Some(c) = self.peek() else { return Err(UNCLEAR) };
            let rest = &self.text[self.at..];
            if rest.starts_with(&end) {
                break;
            }
            match c {
                VALUE => {
                    let place = if is_inner {
                        Err(INNER)
                    } else {
                        self.place_in(&self.text[start..self.at], &literal, is_raw)
                    };
                    self.places.push(place);
                    self.at += 1;
                }
                '\n' if !is_triple => return Err(UNCLEAR),
                '\\' if is_formatted && rest.starts_with("\\N") => return Err(UNCLEAR),
                '\\' => {
                    self.at += 1;
                    self.at += self.peek().filter(|c| *c != VALUE).map_or(0, char::len_utf8);
                }
                '{' | '}' if is_formatted && rest[1..].starts_with(c) => self.at += 2,
                '{' if is_formatted => {
                    self.at += 1;
                    self.code(Some(quote))?;
                    self.at += 1;
                }
                _ => self.at += c.len_utf8(),
            }
        }
        if is_code_option(&self.text[start..self.at])
            && let Some(is_code) = self.code_options.last_mut()
        {
            *is_code = true;
        }
        self.at += end.len();
        Ok(())
    }

    fn place_in(
        &self,
        before: &str,
        literal: &Literal,
        is_raw: bool,
    ) -> Result<Literal, Misplaced> {
        if is_raw {
            return Err(RAW);
        }
        if ends_in_escape(before) {
            return Err(ESCAPE);
        }
        self.evaluating().map_or_else(|| Ok(literal.clone()), Err)
    }

    /// A function that runs what it gets is called around this place.
    fn evaluating(&self) -> Option<Misplaced> {
        if self.code_options.iter().any(|is_code| *is_code) {
            return Some(INNER);
        }
        let name = self.calls.iter().flatten().find(|name| evaluates(name, self.has_shell))?;
        let place = format!("in a text for `{name}(…)`, which runs it");
        Some(Misplaced::of(place, Advice::Variable))
    }
}

/// The text ends in an escape that the next characters may belong to.
fn ends_in_escape(text: &str) -> bool {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            continue;
        }
        let (digits, radix) = match chars.next() {
            None => return true,
            Some('x') => (2, 16),
            Some('u') => (4, 16),
            Some('U') => (8, 16),
            Some('0'..='7') => (2, 8),
            Some('N') => {
                if chars.by_ref().all(|c| c != '}') {
                    return true;
                }
                continue;
            }
            Some(_) => continue,
        };
        let mut missing = digits;
        while missing > 0 && chars.peek().is_some_and(|c| c.is_digit(radix)) {
            chars.next();
            missing -= 1;
        }
        if missing > 0 && chars.peek().is_none() {
            return true;
        }
    }
    false
}

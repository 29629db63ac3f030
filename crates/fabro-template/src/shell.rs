//! Puts values into shell scripts so that they stay values.
//!
//! Single quotes around a value are right only where the script itself is not inside quotes: in
//! `echo "{{ goal }}"` they would be printed, and a `$(…)` in the goal would run. So the text of the
//! script is followed with the quoting rules of POSIX shells and bash, and a value is quoted for the
//! place where it stands. Where that place cannot be told for certain, the value is refused.

use std::collections::VecDeque;

/// The deepest nesting of quotes and brackets that is followed.
const MAX_DEPTH: usize = 64;

/// Where the script is at the moment; the innermost is the last of a stack.
#[derive(Debug)]
enum Place {
    /// Words of commands: the script itself, or `( … )`, `$( … )` inside of something.
    Words,
    /// `$(( … ))` or `(( … ))`, with the brackets open in it.
    Arithmetic(usize),
    Single,
    /// `$'…'`.
    Escaped,
    Double,
    Backticks,
    /// `${ … }`; inside double quotes or a here-document single quotes mean nothing in it.
    Parameter {
        quoted: bool,
    },
    Comment,
    Heredoc(Heredoc),
    /// After a `case` in brackets, for its `)` cannot be told from theirs, or after a `\'` in
    /// `$'…'`, which ends that string in some shells.
    Unsure,
}

#[derive(Debug)]
struct Heredoc {
    end: String,
    /// `<<-`: tabs at the beginning of the last line do not count.
    tabs: bool,
    /// The word was not quoted: `$` and backticks in the text are expanded.
    expands: bool,
    /// The line so far, and whether a value is part of it.
    line: String,
    holds_value: bool,
}

/// A script as it grows, literal text and values in turn.
#[derive(Debug)]
pub(crate) struct Script {
    text: String,
    places: Vec<Place>,
    /// Here-documents whose text begins after the next line end.
    pending: VecDeque<Heredoc>,
    /// The end of the text takes what comes next with it, so that a value cannot come next.
    grip: Option<Refused>,
}

/// The place cannot take a value, in words that follow "cannot be quoted".
pub(crate) type Refused = &'static str;

impl Script {
    pub(crate) fn new() -> Self {
        Self {
            text: String::new(),
            places: vec![Place::Words],
            pending: VecDeque::new(),
            grip: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// The finished script.
    pub(crate) fn finish(mut self) -> Result<String, Refused> {
        if let Some(Place::Heredoc(heredoc)) = self.places.last_mut() {
            heredoc.ends()?;
        }
        Ok(self.text)
    }

    /// Adds a part of the script itself.
    pub(crate) fn push_literal(&mut self, literal: &str) -> Result<(), Refused> {
        let mut at = 0;
        while at < literal.len() {
            let rest = &literal[at..];
            let length = self.step(rest)?;
            self.text.push_str(&rest[..length]);
            at += length;
            self.grip = if length == rest.len() { self.grip_of(rest) } else { None };
        }
        Ok(())
    }

    /// Adds a value, quoted for where it stands.
    pub(crate) fn push_value(&mut self, value: &str) -> Result<(), Refused> {
        if let Some(refused) = self.grip {
            return Err(refused);
        }
        if value.contains('\n') && self.is_within_heredoc() {
            return Err("inside `$(…)` in a here-document, for it has several lines");
        }
        let quoted = match self.places.last_mut() {
            None | Some(Place::Words) => format!("'{}'", value.replace('\'', r"'\''")),
            Some(Place::Single) => value.replace('\'', r"'\''"),
            Some(Place::Double) => escaped(value, &['\\', '"', '$', '`']),
            Some(Place::Comment) => value.replace(['\n', '\r'], " "),
            Some(Place::Heredoc(heredoc)) if heredoc.line.starts_with(&heredoc.end) => {
                return Err("in a line that begins like the end of the here-document");
            }
            Some(Place::Heredoc(heredoc)) => {
                let specials: &[char] = if heredoc.expands { &['\\', '$', '`'] } else { &[] };
                let text = escaped(value, specials);
                heredoc.take_value(value)?;
                text
            }
            Some(Place::Arithmetic(_)) if is_integer(value) => value.to_owned(),
            Some(Place::Arithmetic(_)) => return Err("in arithmetic, for it is no whole number"),
            Some(Place::Escaped) => return Err("inside `$'…'`, which not every shell knows"),
            Some(Place::Backticks) => return Err("inside backticks"),
            Some(Place::Parameter { .. }) => return Err("inside `${…}`"),
            Some(Place::Unsure) => return Err("here, for shells disagree on the quotes before it"),
        };
        self.text.push_str(&quoted);
        Ok(())
    }

    /// What the last piece of a text, not yet closed by a character after it, does to the next.
    fn grip_of(&self, piece: &str) -> Option<Refused> {
        match self.places.last() {
            Some(Place::Single | Place::Comment) => None,
            Some(Place::Heredoc(heredoc)) if !heredoc.expands => None,
            _ if piece == "\\" => Some("after a backslash"),
            _ if piece == "$" => Some("after a `$`"),
            _ if piece.starts_with("<<") && piece != "<<<" => Some("as the end of a here-document"),
            _ => None,
        }
    }

    /// Follows the script over its next piece and tells how long that is; `rest` is not empty.
    fn step(&mut self, rest: &str) -> Result<usize, Refused> {
        let first = rest.chars().next().map_or(1, char::len_utf8);
        // A backslash takes the next character with it.
        let escape =
            rest.starts_with('\\').then(|| 1 + rest.chars().nth(1).map_or(0, char::len_utf8));
        if self.is_lost(rest) {
            self.places.push(Place::Unsure);
        }
        let Some(place) = self.places.last_mut() else { return Ok(first) };
        match place {
            Place::Words => return Ok(self.step_words(rest, first)),
            Place::Unsure => {}
            Place::Comment => {
                if rest.starts_with('\n') {
                    self.places.pop();
                    return self.step(rest);
                }
            }
            Place::Escaped if rest.starts_with("\\'") => {
                self.places.push(Place::Unsure);
                return Ok(2);
            }
            Place::Escaped | Place::Backticks | Place::Double | Place::Parameter { .. }
                if escape.is_some() =>
            {
                return Ok(escape.unwrap_or(first));
            }
            Place::Single | Place::Escaped => self.leave_at(rest, "'"),
            Place::Backticks => self.leave_at(rest, "`"),
            Place::Double => {
                if let Some(length) = self.enter_parameter(rest, true) {
                    return Ok(length);
                }
                self.leave_at(rest, "\"");
            }
            Place::Parameter { quoted } => {
                let quoted = *quoted;
                if let Some(length) = self.enter_parameter(rest, quoted) {
                    return Ok(length);
                }
                match rest.as_bytes()[0] {
                    b'"' => self.places.push(Place::Double),
                    b'\'' if !quoted => self.places.push(Place::Single),
                    b'}' => drop(self.places.pop()),
                    _ => {}
                }
            }
            Place::Arithmetic(depth) => {
                if *depth == 0 && rest.starts_with("))") {
                    self.places.pop();
                    return Ok(2);
                }
                match rest.as_bytes()[0] {
                    b'(' => *depth += 1,
                    b')' => *depth = depth.saturating_sub(1),
                    _ => {}
                }
            }
            Place::Heredoc(_) => return self.step_heredoc(rest, escape.unwrap_or(first)),
        }
        Ok(first)
    }

    /// `length` is that of the next character, of an escaped one with its backslash.
    fn step_heredoc(&mut self, rest: &str, length: usize) -> Result<usize, Refused> {
        let Some(Place::Heredoc(heredoc)) = self.places.last_mut() else { return Ok(length) };
        if rest.starts_with('\n') {
            if heredoc.ends()? {
                self.places.pop();
                self.begin_heredoc();
            }
            return Ok(1);
        }
        if rest.starts_with('\\') && (!heredoc.expands || rest.starts_with("\\\n")) {
            heredoc.line.push('\\');
            return Ok(1);
        }
        heredoc.line.push_str(&rest[..length]);
        let expands = heredoc.expands && length == 1;
        Ok(expands.then(|| self.enter_parameter(rest, true)).flatten().unwrap_or(length))
    }

    /// Nothing that people write: brackets without end, or a `$(…)` of several lines in a
    /// here-document, whose own last line may be among them.
    fn is_lost(&self, rest: &str) -> bool {
        let Some((last, outer)) = self.places.split_last() else { return false };
        if matches!(last, Place::Unsure) {
            return false;
        }
        outer.len() >= MAX_DEPTH || (rest.starts_with('\n') && self.is_within_heredoc())
    }

    /// Inside something that a here-document expands.
    fn is_within_heredoc(&self) -> bool {
        let outer = self.places.split_last().map_or(&[][..], |(_, outer)| outer);
        outer.iter().any(|place| matches!(place, Place::Heredoc(_)))
    }

    fn leave_at(&mut self, rest: &str, end: &str) {
        if rest.starts_with(end) {
            self.places.pop();
        }
    }

    /// `$((`, `$(` and a backtick, which expand in words, double quotes and here-documents.
    fn enter_expansion(&mut self, rest: &str) -> Option<usize> {
        let (place, length) = if rest.starts_with("$((") {
            (Place::Arithmetic(0), 3)
        } else if rest.starts_with("$(") {
            (Place::Words, 2)
        } else if rest.starts_with('`') {
            (Place::Backticks, 1)
        } else {
            return None;
        };
        self.places.push(place);
        Some(length)
    }

    /// The same, and `${`.
    fn enter_parameter(&mut self, rest: &str, quoted: bool) -> Option<usize> {
        if rest.starts_with("${") {
            self.places.push(Place::Parameter { quoted });
            return Some(2);
        }
        self.enter_expansion(rest)
    }

    fn step_words(&mut self, rest: &str, first: usize) -> usize {
        if let Some(length) = self.enter_parameter(rest, false) {
            return length;
        }
        let (place, length) = match rest.as_bytes()[0] {
            b'\\' => return first + rest[first..].chars().next().map_or(0, char::len_utf8),
            b'\'' => (Place::Single, 1),
            b'"' => (Place::Double, 1),
            b'$' if rest.starts_with("$'") => (Place::Escaped, 2),
            b'$' if rest.starts_with("$#") => return 2,
            b'(' if rest.starts_with("((") && self.at_word_start() => (Place::Arithmetic(0), 2),
            b'(' => (Place::Words, 1),
            b')' => {
                // The outermost `)` belongs to a `case` and closes nothing.
                if self.places.len() > 1 {
                    self.places.pop();
                }
                return 1;
            }
            b'#' if self.at_word_start() => (Place::Comment, 1),
            b'<' if rest.starts_with("<<<") => return 3,
            b'<' if rest.starts_with("<<") => return self.announce_heredoc(rest),
            b'\n' => {
                self.begin_heredoc();
                return 1;
            }
            b'c' if self.places.len() > 1 && self.at_word_start() && is_case(rest) => {
                (Place::Unsure, 4)
            }
            _ => return first,
        };
        self.places.push(place);
        length
    }

    fn at_word_start(&self) -> bool {
        self.text.ends_with([' ', '\t', '\n', ';', '&', '|', '(', ')']) || self.text.is_empty()
    }

    /// Reads `<<WORD`, `<<-WORD` and the like.
    fn announce_heredoc(&mut self, rest: &str) -> usize {
        let tabs = rest.starts_with("<<-");
        let mut at = if tabs { 3 } else { 2 };
        at += rest[at..].len() - rest[at..].trim_start_matches([' ', '\t']).len();
        let mut end = String::new();
        let mut expands = true;
        let mut quote = None;
        for c in rest[at..].chars() {
            match (quote, c) {
                (Some(open), _) if c == open => quote = None,
                (Some(_), '\n') => break,
                (None, '\'' | '"') => (quote, expands) = (Some(c), false),
                (None, '\\') => expands = false,
                (None, c) if c.is_whitespace() || "|&;()<>".contains(c) => break,
                _ => end.push(c),
            }
            at += c.len_utf8();
        }
        if !end.is_empty() || !expands {
            let line = String::new();
            self.pending.push_back(Heredoc { end, tabs, expands, line, holds_value: false });
        }
        at
    }

    fn begin_heredoc(&mut self) {
        if let Some(next) = self.pending.pop_front() {
            self.places.push(Place::Heredoc(next));
        }
    }
}

impl Heredoc {
    /// At a line end: whether the line was the last one. One that is so through a value would turn
    /// the rest of the value's text into commands.
    fn ends(&mut self) -> Result<bool, Refused> {
        let line = std::mem::take(&mut self.line);
        let line = if self.tabs { line.trim_start_matches('\t') } else { &line };
        let ends = line == self.end;
        if std::mem::take(&mut self.holds_value) && ends {
            return Err("in a here-document, for it holds the line that ends it");
        }
        Ok(ends)
    }

    fn take_value(&mut self, value: &str) -> Result<(), Refused> {
        self.holds_value = true;
        for (at, part) in value.split('\n').enumerate() {
            if at > 0 {
                self.ends()?;
                self.holds_value = true;
            }
            self.line.push_str(part);
        }
        Ok(())
    }
}

fn is_case(rest: &str) -> bool {
    rest.strip_prefix("case")
        .is_some_and(|rest| rest.starts_with([' ', '\t', '\n', '"', '$', '\'']))
}

fn is_integer(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn escaped(value: &str, specials: &[char]) -> String {
    let mut text = String::with_capacity(value.len() + 8);
    for c in value.chars() {
        if specials.contains(&c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

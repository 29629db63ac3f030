//! Words: quotes and expansions.

use std::ops::Range;

use super::Place;
use super::flow;
use super::scanner::{End, Flow, Read, Scan, Scanner};
use super::word::{Syntax, Word, is_name, unclear, unclosed};
use crate::misplaced::{Advice, Misplaced};

const BACKTICKS: Misplaced = Misplaced::new("inside backticks", Advice::Variable);
const PARAMETER: Misplaced = Misplaced::new("inside `${…}`", Advice::Variable);
const ANSI: Misplaced =
    Misplaced::new("inside `$'…'`, which not every shell knows", Advice::Variable);
const LOCALE: Misplaced = Misplaced::new("inside `$\"…\"`", Advice::Variable);
const DOLLAR: Misplaced = Misplaced::new("after a `$`", Advice::Fixed);
const BACKSLASH: Misplaced = Misplaced::new("after a backslash", Advice::Variable);
const AFTER_ESCAPE: Misplaced =
    Misplaced::new("in a word with an escaped space, line end or sign before it", Advice::Variable);
pub(super) const ARITHMETIC: Misplaced =
    Misplaced::new("in arithmetic, which shells evaluate", Advice::Number);
const SUBSCRIPT: Misplaced =
    Misplaced::new("in a subscript, which shells evaluate", Advice::Number);

impl Scanner<'_> {
    /// Reads a word; it is empty where none begins.
    pub(super) fn word(&mut self, syntax: Syntax) -> Scan<Word> {
        let mut word = Word { is_plain: true, ..Word::default() };
        let start = (self.at, self.next, self.heredocs.len(), self.reads.len());
        let mut brackets = 0_usize;
        let mut is_escaped = false;
        while let Some(first) = self.peek() {
            let inside = syntax == Syntax::Regex && brackets > 0;
            match first {
                b'(' if syntax == Syntax::Regex => {
                    brackets += 1;
                    self.literal(&mut word);
                }
                b')' if inside => {
                    brackets -= 1;
                    self.literal(&mut word);
                }
                b'|' if syntax == Syntax::Regex && !self.is("||") => self.literal(&mut word),
                b' ' | b'\t' | b'<' | b'>' if inside => self.literal(&mut word),
                b'<' | b'>' if self.peek_at(1) == Some(b'(') => {
                    self.at += 2;
                    let runners = self.input_runners.len();
                    self.nested()?;
                    if first == b'>' {
                        word.has_sink |= self.input_runners.len() > runners;
                        self.input_runners.truncate(runners);
                    }
                    word.dynamic(true);
                }
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')' => break,
                b'[' if syntax == Syntax::Assignable && word.is_plain && is_name(&word.text) => {
                    self.subscript(&mut word)?;
                }
                b'=' if word.is_plain && word.assigns.is_none() => {
                    word.note_assignment();
                    self.literal(&mut word);
                }
                0 => self.direct_value(&mut word, is_escaped),
                b'\\' => is_escaped |= self.escape(&mut word),
                _ => self.part(&mut word)?,
            }
        }
        word.span = start.0..self.at;
        if word.text.contains('\0') {
            word.file = Some(flow::file_in(&self.text[word.span.clone()]).into_owned());
        }
        word.values = start.1..self.next;
        word.heredocs = start.2..self.heredocs.len();
        word.reads = start.3..self.reads.len();
        let is_multiline = !self.pending.is_empty() && self.text[word.span.clone()].contains('\n');
        if is_multiline {
            return Err(Misplaced::new(
                "after a word of several lines on the line where a here-document begins",
                Advice::Variable,
            ));
        }
        Ok(word)
    }

    /// Quotes, expansions and ordinary characters.
    fn part(&mut self, word: &mut Word) -> Scan<()> {
        match self.peek() {
            Some(b'\'') => self.single(word)?,
            Some(b'"') => self.double(word)?,
            Some(b'`') => {
                self.backticks()?;
                word.dynamic(true);
            }
            Some(b'$') => self.dollar(word)?,
            Some(b'*' | b'?' | b'[' | b'{') => {
                word.has_pattern = true;
                self.literal(word);
            }
            _ => self.literal(word),
        }
        Ok(())
    }

    fn literal(&mut self, word: &mut Word) {
        let c = self.text[self.at..].chars().next();
        word.text.extend(c);
        self.at += c.map_or(1, char::len_utf8);
    }

    fn direct_value(&mut self, word: &mut Word, is_escaped: bool) {
        let before = self.at.checked_sub(1).map(|at| self.bytes[at]);
        let in_braces = matches!(before, Some(b'{' | b',' | b'.'));
        let value = self.take();
        if is_escaped {
            self.refuse(value..value + 1, &AFTER_ESCAPE);
        } else {
            word.direct.push((value, Place::Word { in_braces }));
        }
        word.dynamic(false);
    }

    /// A backslash outside of quotes; true when it takes away the meaning of what follows.
    fn escape(&mut self, word: &mut Word) -> bool {
        word.is_plain = false;
        self.at += 1;
        match self.peek() {
            Some(0) => {
                let value = self.take();
                self.refuse(value..value + 1, &BACKSLASH);
                word.dynamic(false);
                false
            }
            Some(b'\n') => {
                self.at += 1;
                true
            }
            Some(next) => {
                self.literal(word);
                next.is_ascii_whitespace() || b"|&;()<>#".contains(&next)
            }
            None => false,
        }
    }

    fn single(&mut self, word: &mut Word) -> Scan<()> {
        word.is_plain = false;
        self.at += 1;
        let from = self.at;
        loop {
            match self.peek() {
                None => return Err(unclosed("'")),
                Some(b'\'') => break,
                Some(0) => {
                    let value = self.take();
                    word.direct.push((value, Place::Single));
                    word.dynamic(false);
                }
                Some(_) => self.literal(word),
            }
        }
        self.may_be_script(from..self.at);
        self.at += 1;
        Ok(())
    }

    /// Notes a quoted text that would expand or evaluate something if it were run.
    pub(super) fn may_be_script(&mut self, text: Range<usize>) {
        if self.text[text.clone()].contains(['$', '(', '[']) {
            self.reads.push(Read::Script(text));
        }
    }

    fn double(&mut self, word: &mut Word) -> Scan<()> {
        word.is_plain = false;
        self.at += 1;
        let from = self.at;
        let mut name_end = None;
        let mut has_script = false;
        loop {
            match self.peek() {
                None => return Err(unclosed("\"")),
                Some(b'"') => break,
                Some(0) => {
                    let after_name = name_end == Some(self.at);
                    let value = self.take();
                    word.direct.push((value, Place::Double { after_name }));
                    word.dynamic(false);
                }
                Some(b'\\') => {
                    let next = self.peek_at(1);
                    self.at += 1;
                    if next == Some(0) {
                        let value = self.take();
                        self.refuse(value..value + 1, &BACKSLASH);
                        word.dynamic(false);
                    } else if next == Some(b'\n') {
                        // Some shells read a name on over the line end.
                        let continues = name_end == Some(self.at - 1);
                        self.at += 1;
                        name_end = continues.then_some(self.at);
                    } else {
                        if !matches!(next, Some(b'$' | b'`' | b'"' | b'\\')) {
                            word.text.push('\\');
                        }
                        has_script |= next == Some(b'$');
                        if next.is_some() {
                            self.literal(word);
                        }
                    }
                }
                Some(b'`') => {
                    self.backticks()?;
                    word.dynamic(false);
                }
                Some(b'$') => {
                    if self.expansion(true)? {
                        word.dynamic(false);
                        name_end =
                            Some(self.at).filter(|at| !matches!(self.bytes[at - 1], b'}' | b')'));
                    } else {
                        word.text.push('$');
                    }
                }
                Some(_) => self.literal(word),
            }
        }
        if has_script {
            self.may_be_script(from..self.at);
        }
        self.at += 1;
        Ok(())
    }

    /// A `$` outside of quotes.
    fn dollar(&mut self, word: &mut Word) -> Scan<()> {
        let start = self.next;
        match self.peek_at(1) {
            Some(b'\'') => {
                self.at += 2;
                loop {
                    match self.peek() {
                        None => return Err(unclosed("$'")),
                        Some(b'\'') => break,
                        Some(b'\\') if self.peek_at(1) == Some(b'\'') => {
                            return Err(Misplaced::new(
                                "after `\\'` in `$'…'`, for shells disagree on where it ends",
                                Advice::Variable,
                            ));
                        }
                        Some(b'\\') if self.peek_at(1) != Some(0) => {
                            self.at += 1;
                            self.skip();
                        }
                        Some(_) => self.skip(),
                    }
                }
                self.at += 1;
                self.refuse(start..self.next, &ANSI);
                word.dynamic(false);
            }
            Some(b'"') => {
                self.at += 1;
                self.double(word)?;
                self.refuse(start..self.next, &LOCALE);
                word.dynamic(false);
            }
            _ if self.expansion(false)? => word.dynamic(true),
            _ => word.text.push('$'),
        }
        Ok(())
    }

    /// What a `$` expands; false when it stands for itself.
    fn expansion(&mut self, quoted: bool) -> Scan<bool> {
        self.at += 1;
        let start = self.next;
        match self.peek() {
            Some(b'(') if self.is("((") => {
                self.at += 2;
                self.arithmetic(false)?;
            }
            Some(b'(') => {
                self.at += 1;
                self.nested()?;
            }
            Some(b'{') => {
                self.deeper()?;
                self.parameter(quoted)?;
                self.depth -= 1;
                self.refuse(start..self.next, &PARAMETER);
            }
            Some(b'[') => {
                self.old_arithmetic()?;
                self.refuse(start..self.next, &ARITHMETIC);
            }
            Some(0) => {
                let value = self.take();
                self.refuse(value..value + 1, &DOLLAR);
            }
            Some(first) if first.is_ascii_alphabetic() || first == b'_' => {
                let from = self.at;
                self.at += self.name_length(from);
                self.reads.push(Read::Variable(from..self.at));
            }
            Some(first) if first.is_ascii_digit() || b"@*#?-$!".contains(&first) => {
                if first.is_ascii_digit() || b"@*".contains(&first) {
                    self.reads.push(Read::Variable(self.at..self.at + 1));
                }
                self.at += 1;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn name_length(&self, from: usize) -> usize {
        let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        self.bytes[from..].iter().take_while(is_name).count()
    }

    /// `${…}` from its brace on.
    fn parameter(&mut self, quoted: bool) -> Scan<()> {
        self.at += 1;
        if matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'|')) {
            return Err(unclear("after `${` with a command"));
        }
        let from = self.at + usize::from(matches!(self.peek(), Some(b'#' | b'!')));
        let is_list = matches!(self.bytes.get(from), Some(b'@' | b'*'));
        let length = self.name_length(from).max(usize::from(is_list));
        let first_read = self.reads.len();
        if length > 0 {
            self.reads.push(Read::Variable(from..from + length));
        }
        let assigns = self.text[from + length..].trim_start_matches(':').starts_with('=');
        let mut ignored = Word::default();
        loop {
            match self.peek() {
                None => return Err(unclosed("${")),
                Some(b'}') => break,
                Some(b'\\') => {
                    self.at += 1;
                    self.skip();
                }
                Some(b'\'') if quoted => {
                    let rest = &self.text[self.at + 1..];
                    let length = rest.find('\'').ok_or_else(|| unclosed("'"))?;
                    if rest[..length].contains(['}', '"', '\\', '$', '`', '{', '\n', '\0']) {
                        return Err(unclear("after a quote inside a quoted `${…}`"));
                    }
                    self.at += length + 2;
                }
                Some(b'\'') => self.single(&mut ignored)?,
                Some(b'"') => {
                    let start = self.at;
                    self.deeper()?;
                    self.double(&mut ignored)?;
                    self.depth -= 1;
                    if quoted && self.text[start..self.at].contains('}') {
                        return Err(unclear("after a quote inside a quoted `${…}`"));
                    }
                }
                Some(b'`') => self.backticks()?,
                Some(b'$') if !quoted && matches!(self.peek_at(1), Some(b'\'' | b'"')) => {
                    self.dollar(&mut ignored)?;
                }
                Some(b'$') => drop(self.expansion(quoted)?),
                Some(b'<' | b'>') if self.peek_at(1) == Some(b'(') => {
                    return Err(unclear("after `<(…)` inside `${…}`"));
                }
                Some(_) => self.skip(),
            }
        }
        self.evaluate_parameter(from..self.at);
        if assigns && length > 0 {
            let to = self.text[from..from + length].to_owned();
            let reads = first_read + 1..self.reads.len();
            self.assigned.push(Flow { reads, to, leads: true, ..Flow::default() });
        }
        self.at += 1;
        Ok(())
    }

    /// What `${…}` evaluates: subscripts, offsets, `${!NAME}` and `${NAME@P}`.
    fn evaluate_parameter(&mut self, inside: Range<usize>) {
        let name_end = inside.start + self.name_length(inside.start);
        let after = &self.text[name_end..inside.end];
        let lists_keys = after == "[@]" || after == "[*]";
        let is_indirect = self.bytes[inside.start - 1] == b'!' && !lists_keys;
        let has_offset = after.starts_with(':') && !after[1..].starts_with(['-', '=', '?', '+']);
        if is_indirect || after.ends_with("@P") {
            if flow::is_positional(&self.text[inside.clone()]) {
                self.sinks.evaluated.insert(flow::ARGUMENTS.to_owned());
            }
            self.evaluate(inside);
        } else if after.starts_with('[') || has_offset {
            self.evaluate(name_end..inside.end);
        }
    }

    /// Arithmetic up to and with its `))`. The command `((` is no arithmetic in every shell.
    pub(super) fn arithmetic(&mut self, is_command: bool) -> Scan<()> {
        let from = self.at;
        let start = self.next;
        let mut brackets = 0_usize;
        let mut ignored = Word::default();
        self.deeper()?;
        loop {
            match self.peek() {
                None => return Err(unclosed("((")),
                Some(b')') if brackets > 0 => {
                    brackets -= 1;
                    self.at += 1;
                }
                Some(b')') if self.is("))") => break,
                Some(b'(') => {
                    brackets += 1;
                    self.at += 1;
                }
                Some(b'<') if is_command && self.is("<<") => {
                    return Err(unclear("after `<<` inside `((…))`"));
                }
                Some(b'#') if is_command => return Err(unclear("after `#` inside `((…))`")),
                Some(b'"') if !is_command => self.double(&mut ignored)?,
                Some(b')' | b'\'' | b'"' | b'\\') => {
                    return Err(unclear("after arithmetic that cannot be followed"));
                }
                Some(b'`') => self.backticks()?,
                Some(b'$') => drop(self.expansion(true)?),
                Some(_) => self.skip(),
            }
        }
        self.depth -= 1;
        self.evaluate(from..self.at);
        self.at += 2;
        self.refuse(start..self.next, &ARITHMETIC);
        Ok(())
    }

    /// `$[…]`, which is arithmetic in bash and text elsewhere.
    fn old_arithmetic(&mut self) -> Scan<()> {
        let from = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                Some(b']') => break,
                Some(byte) if byte.is_ascii_alphanumeric() || b"\0_+-*/%$ ".contains(&byte) => {
                    self.skip();
                }
                _ => return Err(unclear("after `$[…]` that cannot be followed")),
            }
        }
        self.evaluate(from..self.at);
        self.at += 1;
        Ok(())
    }

    /// `[…]` after a name that may be assigned.
    fn subscript(&mut self, word: &mut Word) -> Scan<()> {
        let start = self.next;
        let from = self.at;
        self.literal(word);
        loop {
            match self.peek() {
                Some(b']') => break,
                Some(b'$') => {
                    self.expansion(false)?;
                    word.dynamic(true);
                }
                Some(b'"') => self.double(word)?,
                Some(byte) if byte.is_ascii_alphanumeric() || b"\0_@*+-:./".contains(&byte) => {
                    self.skip();
                }
                _ => return Err(unclear("after a subscript that cannot be followed")),
            }
        }
        self.evaluate(from..self.at);
        self.refuse(start..self.next, &SUBSCRIPT);
        self.literal(word);
        if self.is("=") || self.is("+=") {
            let name: String = self.text[..from]
                .chars()
                .rev()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            word.assigns = Some(name.chars().rev().collect());
        }
        Ok(())
    }

    fn backticks(&mut self) -> Scan<()> {
        let start = self.next;
        self.at += 1;
        let from = self.at;
        loop {
            match self.peek() {
                None => return Err(unclosed("`")),
                Some(b'`') => break,
                Some(b'\\') if self.peek_at(1) != Some(0) => {
                    self.at += 1;
                    self.skip();
                }
                Some(_) => self.skip(),
            }
        }
        self.uses_any(from..self.at);
        self.at += 1;
        self.refuse(start..self.next, &BACKTICKS);
        Ok(())
    }

    /// Text that is not followed: each word in it may be a variable, a file or a function.
    pub(super) fn uses_any(&mut self, part: Range<usize>) {
        let is_part = |c: char| c.is_alphanumeric() || "_.-".contains(c);
        let text = &self.text[part.clone()];
        let mut from = 0;
        for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
            if is_part(c) {
                continue;
            }
            let span = part.start + from..part.start + at;
            if !span.is_empty() {
                self.reads.push(Read::Variable(span.clone()));
                self.reads.push(Read::File(span.clone()));
                self.reads.push(Read::Output(span));
            }
            from = at + c.len_utf8();
        }
    }

    /// Commands up to and with their `)`.
    pub(super) fn nested(&mut self) -> Scan<()> {
        self.deeper()?;
        let outer = std::mem::take(&mut self.pending);
        self.list(End::Paren)?;
        if !self.pending.is_empty() {
            return Err(unclear("after a here-document that does not end inside its `$(…)`"));
        }
        self.pending = outer;
        self.depth -= 1;
        self.at += 1;
        Ok(())
    }
}

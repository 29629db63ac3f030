//! The tokens of one `{{ … }}` or `{% … %}`, and the chains of names in them that read values.

use fabro_types::Span;

use crate::{Read, ReadTarget, SyntaxError};

/// The longest expression, in tokens: the expression engine nests as deep as an expression is long.
const MAX_TOKENS: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Name,
    Number,
    Text,
    Sign,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) start: usize,
}

impl Token<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    pub(crate) fn span(&self) -> Span {
        Span::new(self.start, self.end())
    }

    fn is_sign(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && self.text == sign
    }

    fn is_name_of(&self, names: &[&str]) -> bool {
        self.kind == Kind::Name && names.contains(&self.text)
    }
}

/// A tag without its delimiters.
pub(crate) struct Tag<'a> {
    pub(crate) tokens: Vec<Token<'a>>,
    /// Where the inside ends.
    pub(crate) end: usize,
    /// Where the text after the tag begins.
    pub(crate) after: usize,
    /// The tag ends in `-`: whitespace after it is removed.
    pub(crate) trims: bool,
}

/// Reads a tag from just after its opening up to and with its closing, `}}` or `%}`.
pub(crate) fn tag<'a>(
    text: &'a str,
    open: usize,
    from: usize,
    close: &str,
) -> Result<Tag<'a>, SyntaxError> {
    let bytes = text.as_bytes();
    let mut tokens: Vec<Token<'a>> = Vec::new();
    let mut at = from;
    let mut depth = 0_usize;
    while at < bytes.len() {
        let rest = &text[at..];
        if depth == 0 {
            let trimmed = rest.strip_prefix(['-', '+']).filter(|rest| rest.starts_with(close));
            if trimmed.is_some() || rest.starts_with(close) {
                let width = close.len() + usize::from(trimmed.is_some());
                let trims = trimmed.is_some() && bytes[at] == b'-';
                return Ok(Tag { tokens, end: at, after: at + width, trims });
            }
        }
        let Some(first) = rest.chars().next() else { break };
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let after_dot = tokens.last().is_some_and(|token| token.is_sign("."));
        let (kind, length) = token_at(rest, first, after_dot)
            .ok_or_else(|| unclosed("the quote is not closed", at, at + 1))?;
        match first {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        tokens.push(Token { kind, text: &rest[..length], start: at });
        at += length;
        if tokens.len() > MAX_TOKENS {
            let message = format!("the expression has more than {MAX_TOKENS} parts");
            return Err(SyntaxError::new(message, Span::new(open, at))
                .with_fix("let a stage work it out and write it into the context"));
        }
    }
    Err(unclosed(&format!("`{}` is not closed", &text[open..open + 2]), open, open + 2)
        .with_fix(format!("add `{close}`")))
}

fn unclosed(message: &str, start: usize, end: usize) -> SyntaxError {
    SyntaxError::new(message, Span::new(start, end))
}

/// Kind and length of the first token; `None` for a quote that is not closed.
fn token_at(rest: &str, first: char, after_dot: bool) -> Option<(Kind, usize)> {
    let run = |more: fn(char) -> bool| rest.find(|c| !more(c)).unwrap_or(rest.len());
    Some(match first {
        'a'..='z' | 'A'..='Z' | '_' => (Kind::Name, run(|c| c.is_ascii_alphanumeric() || c == '_')),
        '0'..='9' if after_dot => (Kind::Number, run(|c| c.is_ascii_digit())),
        '0'..='9' => (Kind::Number, run(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))),
        '"' | '\'' => (Kind::Text, quoted_length(rest, first)?),
        _ => (Kind::Sign, first.len_utf8()),
    })
}

fn quoted_length(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// The values that a tag reads by name, and where they stand.
pub(crate) fn reads(tokens: &[Token<'_>]) -> Result<Vec<Read>, SyntaxError> {
    let mut reads = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if is_root(tokens, at)
            && let Some(read) = read(tokens, at, token)?
        {
            reads.push(read);
        }
    }
    Ok(reads)
}

/// The name is one of ours, and not that of an attribute, a filter, a test or an argument.
fn is_root(tokens: &[Token<'_>], at: usize) -> bool {
    let is = |at: Option<usize>, sign: &str| {
        at.and_then(|at| tokens.get(at)).is_some_and(|token| token.is_sign(sign))
    };
    let attribute_or_filter = is(at.checked_sub(1), ".") || is(at.checked_sub(1), "|");
    let argument = is(Some(at + 1), "=") && !is(Some(at + 2), "=");
    tokens[at].is_name_of(&["goal", "inputs", "context"]) && !attribute_or_filter && !argument
}

fn read(tokens: &[Token<'_>], root: usize, token: &Token<'_>) -> Result<Option<Read>, SyntaxError> {
    if token.text == "goal" {
        return Ok(Some(Read { target: ReadTarget::Goal, span: token.span(), optional: false }));
    }
    let (segments, next) = chain(tokens, root + 1);
    let Some(last) = next.checked_sub(1).filter(|_| !segments.is_empty()) else {
        // A computed key, `context[name]`: what it reads shows only when it is rendered.
        if tokens.get(next).is_some_and(|token| token.is_sign("[")) {
            return Ok(None);
        }
        let name = token.text;
        return Err(SyntaxError::new(format!("`{name}` is not a value"), token.span())
            .with_fix(format!("name one of its keys: `{name}.KEY` or `{name}[\"KEY\"]`")));
    };
    let key = segments.join(".");
    let target = match token.text {
        "inputs" => ReadTarget::Input(key),
        _ => ReadTarget::Context(key),
    };
    Ok(Some(Read {
        target,
        span: Span::new(token.start, tokens[last].end()),
        optional: is_optional(tokens, root, next),
    }))
}

/// The names after a root, `.name`, `.0`, `["name"]` and `[0]`, and the token after them. The name
/// of a method is not among them.
fn chain<'a>(tokens: &[Token<'a>], mut at: usize) -> (Vec<&'a str>, usize) {
    let mut segments = Vec::new();
    loop {
        let part = |by: usize| tokens.get(at + by);
        match (part(0), part(1), part(2)) {
            (Some(dot), Some(name), after)
                if dot.is_sign(".")
                    && matches!(name.kind, Kind::Name | Kind::Number)
                    && !after.is_some_and(|token| token.is_sign("(")) =>
            {
                segments.push(name.text);
                at += 2;
            }
            (Some(open), Some(key), Some(close)) if open.is_sign("[") && close.is_sign("]") => {
                let inner = match key.kind {
                    Kind::Text if !key.text.contains('\\') => &key.text[1..key.text.len() - 1],
                    Kind::Number if key.text.bytes().all(|byte| byte.is_ascii_digit()) => key.text,
                    _ => break,
                };
                segments.push(inner);
                at += 3;
            }
            _ => break,
        }
    }
    (segments, at)
}

/// Whether the expression says itself what to do when the value is missing.
fn is_optional(tokens: &[Token<'_>], root: usize, next: usize) -> bool {
    let after = |by: usize| tokens.get(next + by);
    let asked = |token: Option<&Token<'_>>| {
        token.is_some_and(|token| token.is_name_of(&["defined", "undefined"]))
    };
    let defaulted = after(0).is_some_and(|token| token.is_sign("|"))
        && after(1).is_some_and(|token| token.is_name_of(&["default", "d"]));
    let tested = after(0).is_some_and(|token| token.is_name_of(&["is"]))
        && (asked(after(1)) || asked(after(2)));
    let condition = root
        .checked_sub(1)
        .is_some_and(|at| tokens[at].is_name_of(&["if", "elif", "and", "or", "not"]))
        || after(0).is_some_and(|token| token.is_name_of(&["and", "or"]));
    defaulted || tested || condition
}

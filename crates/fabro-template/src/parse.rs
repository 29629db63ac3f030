use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use fabro_types::Span;
use minijinja::{Error, ErrorKind};

use crate::bounds::{EMITTED, OPERAND};
use crate::engine::{self, DOLLAR_GOAL, EXPRESSIONS};
use crate::scan::{self, Kind, Tag, Token};
use crate::{Body, Read, ReadTarget, SyntaxError, Template};

/// The most `elif`s of one template file: the engine nests each in the one before it.
const MAX_ELIFS: usize = 100;

/// A piece of a template of ours.
pub(crate) enum Part {
    Literal(String),
    /// `$goal`, which prompts expand.
    DollarGoal,
    Expression(Formula),
}

/// An expression that compiles.
pub(crate) struct Formula {
    /// As it is written.
    pub(crate) text: String,
    /// As it is run. It is compiled for each run: compiled expressions take kilobytes each.
    pub(crate) source: String,
    /// The context key that it reads first, for messages that name a file.
    pub(crate) key: Option<String>,
    /// What it can do without.
    pub(crate) optional: Vec<ReadTarget>,
    /// Where it stands, its braces included.
    pub(crate) span: Span,
    pub(crate) kind: FormulaKind,
}

/// What the last filter of an expression makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormulaKind {
    Any,
    /// `int`, `float`, `length` and `count`.
    Number,
    /// `py` and `tojson`, in a Python script.
    Literal,
    Raw,
}

impl FormulaKind {
    /// The filter counts only when it applies to the whole expression.
    fn of(tokens: &[Token<'_>]) -> Self {
        let mut depth = 0_usize;
        let mut last = None;
        for (at, token) in tokens.iter().enumerate() {
            match (token.kind, token.text) {
                (Kind::Sign, "(" | "[" | "{") => depth += 1,
                (Kind::Sign, ")" | "]" | "}") => depth = depth.saturating_sub(1),
                _ if depth > 0 => {}
                (Kind::Sign, "|") => last = tokens.get(at + 1).map(|filter| filter.text),
                (Kind::Sign, ".") | (Kind::Number | Kind::Text, _) => {}
                (Kind::Name, "if" | "else" | "and" | "or" | "not" | "in" | "is")
                | (Kind::Sign, _) => {
                    return Self::Any;
                }
                (Kind::Name, _) => {}
            }
        }
        match last {
            Some("int" | "float" | "length" | "count") => Self::Number,
            Some("py" | "tojson") => Self::Literal,
            Some("raw") => Self::Raw,
            _ => Self::Any,
        }
    }
}

/// Reads text in which `{{ goal … }}`, `{{ inputs… }}` and `{{ context… }}` are expressions.
pub(crate) fn ours(text: &str) -> Result<Template, SyntaxError> {
    // Most texts have neither expressions nor `$goal`.
    if memchr::memchr2(b'{', b'$', text.as_bytes()).is_none() {
        return Ok(Template { body: Body::Plain(text.into()), reads: Vec::new() });
    }
    let mut parts = Vec::new();
    let mut reads = Vec::new();
    let mut done = 0;
    let mut from = 0;
    let mut trims = false;
    while let Some(open) = text[from..].find("{{").map(|at| from + at) {
        let Some((inside, trims_before)) = expression_start(text, open) else {
            from = open + 1;
            continue;
        };
        let tag = scan::tag(text, open, inside, "}}")?;
        push_literal(&mut parts, &text[done..open], trims, trims_before);
        let found = scan::reads(&tag.tokens)?;
        let span = Span::new(open, tag.after);
        parts.push(Part::Expression(Formula { span, ..formula(text, inside, &tag, &found)? }));
        reads.extend(found);
        (done, from, trims) = (tag.after, tag.after, tag.trims);
    }
    push_literal(&mut parts, &text[done..], trims, false);
    share_optional(&mut reads);
    Ok(Template { body: Body::Parts(Arc::new(parts)), reads })
}

/// Where the inside of an expression of ours begins, and whether it opens with `{{-`.
fn expression_start(text: &str, open: usize) -> Option<(usize, bool)> {
    let inside = &text[open + 2..];
    let body = inside.strip_prefix(['-', '+']).unwrap_or(inside);
    let start = text.len() - body.len();
    let name = body.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '(');
    ["goal", "inputs", "context"]
        .iter()
        .filter_map(|root| name.strip_prefix(root))
        .any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        .then(|| (start, inside.starts_with('-')))
}

fn push_literal(parts: &mut Vec<Part>, text: &str, trims_start: bool, trims_end: bool) {
    let text = if trims_start { text.trim_start() } else { text };
    let text = if trims_end { text.trim_end() } else { text };
    let mut pieces = split_dollar_goal(text);
    let first = pieces.next();
    parts.extend(first.map(|text| Part::Literal(text.to_owned())));
    for piece in pieces {
        parts.push(Part::DollarGoal);
        parts.push(Part::Literal(piece.to_owned()));
    }
}

/// The text around each `$goal`; `$goals` and `$goal_1` are none.
fn split_dollar_goal(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let at = text
            .match_indices("$goal")
            .map(|(at, found)| (at, at + found.len()))
            .find(|(_, end)| !text[*end..].starts_with(|c: char| c.is_alphanumeric() || c == '_'));
        let Some((at, end)) = at else { return Some(text) };
        rest = Some(&text[end..]);
        Some(&text[..at])
    })
}

fn formula(
    text: &str,
    inside: usize,
    tag: &Tag<'_>,
    reads: &[Read],
) -> Result<Formula, SyntaxError> {
    let source = &text[inside..tag.end];
    let original = EXPRESSIONS
        .compile_expression(source)
        .map_err(|error| syntax_error(text, &error, Span::new(inside, tag.end)))?;
    check_names(&tag.tokens)?;
    check_undeclared(original.undeclared_variables(false), |name| {
        place_of(&tag.tokens, name).unwrap_or(Span::new(inside, tag.end))
    })?;
    let rewritten = rewritten(text, inside..tag.end, &tag.tokens, reads);
    EXPRESSIONS
        .compile_expression(&rewritten)
        .map_err(|error| syntax_error(text, &error, Span::new(inside, tag.end)))?;
    let key = reads.iter().find_map(|read| match &read.target {
        ReadTarget::Context(key) => Some(key.clone()),
        _ => None,
    });
    let optional = reads.iter().filter(|read| read.optional);
    let optional = optional.map(|read| read.target.clone()).collect();
    let kind = FormulaKind::of(&tag.tokens);
    let span = Span::new(inside, tag.end);
    Ok(Formula { text: source.trim().to_owned(), source: rewritten, key, optional, span, kind })
}

/// The source with every chain of names as one look-up, `context["a.b"]` for `context.a.b`: only so
/// can a flat key with dots in it be found. What stands before `~` and `+` goes through a filter that
/// bounds it.
fn rewritten(text: &str, range: Range<usize>, tokens: &[Token<'_>], reads: &[Read]) -> String {
    let mut edits = Vec::new();
    for read in reads {
        let (root, key) = match &read.target {
            ReadTarget::Goal => continue,
            ReadTarget::Input(name) => ("inputs", name),
            ReadTarget::Context(key) => ("context", key),
        };
        // JSON's escapes are among those of the engine.
        let key = serde_json::Value::from(key.as_str());
        edits.push((read.span.start..read.span.end, format!("{root}[{key}]")));
    }
    for pair in tokens.windows(2) {
        let [before, sign] = pair else { continue };
        let is_joined = sign.kind == Kind::Sign && matches!(sign.text, "~" | "+");
        // `1e+2` is one number of the engine's.
        let is_exponent = before.kind == Kind::Number && before.end() == sign.start;
        if is_joined && !is_exponent {
            let start = sign.span().start;
            edits.push((start..start, format!("|{OPERAND}")));
        }
    }
    edits.sort_by_key(|(place, _)| place.start);
    let mut source = String::with_capacity(range.len());
    let mut done = range.start;
    for (place, edit) in edits {
        source.push_str(&text[done..place.start]);
        source.push_str(&edit);
        done = place.end;
    }
    source.push_str(&text[done..range.end]);
    source
}

/// Filters and tests that there are not are found before anything runs.
fn check_names(tokens: &[Token<'_>]) -> Result<(), SyntaxError> {
    let mut state = EXPRESSIONS.empty_state();
    for (at, token) in tokens.iter().enumerate() {
        let name = |at: usize| tokens.get(at).filter(|token| token.kind == Kind::Name);
        let (unknown, token) = match (token.kind, token.text) {
            (Kind::Sign, "|") => {
                let Some(name) = name(at + 1) else { continue };
                let error = state.apply_filter(name.text, &[]).err();
                (is_kind(error.as_ref(), ErrorKind::UnknownFilter).then_some("filter"), name)
            }
            (Kind::Name, "is") if at > 0 => {
                let negated = name(at + 1).is_some_and(|token| token.text == "not");
                let Some(name) = name(at + 1 + usize::from(negated)) else { continue };
                let error = state.perform_test(name.text, &[]).err();
                (is_kind(error.as_ref(), ErrorKind::UnknownTest).then_some("test"), name)
            }
            _ => continue,
        };
        if let Some(what) = unknown {
            let message = format!("there is no {what} `{}`", token.text);
            return Err(SyntaxError::new(message, token.span()));
        }
    }
    Ok(())
}

fn is_kind(error: Option<&Error>, kind: ErrorKind) -> bool {
    error.is_some_and(|error| error.kind() == kind)
}

fn check_undeclared(
    names: impl IntoIterator<Item = String>,
    place: impl Fn(&str) -> Span,
) -> Result<(), SyntaxError> {
    let known = |name: &str| {
        ["goal", "inputs", "context", DOLLAR_GOAL].contains(&name)
            || EXPRESSIONS.globals().any(|(global, _)| global == name)
    };
    let unknown = names.into_iter().filter(|name| !known(name));
    match unknown.map(|name| (place(&name), name)).min_by_key(|(span, _)| span.start) {
        None => Ok(()),
        Some((span, name)) => {
            Err(SyntaxError::new(format!("there is no `{name}` in templates"), span).with_fix(
                format!("read `goal`, `inputs.{name}` or `context.{name}`, or quote a text"),
            ))
        }
    }
}

fn place_of(tokens: &[Token<'_>], name: &str) -> Option<Span> {
    tokens.iter().find(|token| token.kind == Kind::Name && token.text == name).map(Token::span)
}

fn syntax_error(text: &str, error: &Error, whole: Span) -> SyntaxError {
    let range = error.range().map(|range| (whole.start + range.start, whole.start + range.end));
    let span = range.filter(|(start, end)| start < end && *end <= whole.end).map_or(
        whole,
        |(start, end)| {
            // The engine marks a single byte where it knows no more.
            Span::new(text.floor_char_boundary(start), text.ceil_char_boundary(end))
        },
    );
    let reason = engine::reason(error);
    let is_open = reason.ends_with("expected end of block");
    let error = SyntaxError::new(reason, span);
    if is_open {
        error.with_fix("close each {% if %} with {% endif %}, each {% for %} with {% endfor %}")
    } else {
        error
    }
}

/// A value that is asked about in one place is guarded in the others.
fn share_optional(reads: &mut [Read]) {
    let asked: BTreeSet<_> =
        reads.iter().filter(|read| read.optional).map(|read| read.target.clone()).collect();
    for read in reads {
        read.optional |= asked.contains(&read.target);
    }
}

/// Reads a template file in the whole of Jinja.
pub(crate) fn jinja(text: &str) -> Result<Template, SyntaxError> {
    let mut file = File { text, source: String::with_capacity(text.len()), ..File::default() };
    file.read()?;
    let check = engine::environment();
    let original = check.template_from_str(text).map_err(|error| {
        let mut found = syntax_error(text, &error, Span::new(0, text.len()));
        if error.range().is_none() {
            found.span = line_span(text, error.line().unwrap_or(1));
        }
        found
    })?;
    check_undeclared(original.undeclared_variables(false), |name| {
        file.names.get(name).copied().unwrap_or_default()
    })?;
    let mut environment = engine::environment();
    environment
        .add_template_owned(TEMPLATE, file.source)
        .map_err(|error| syntax_error(text, &error, Span::new(0, text.len())))?;
    share_optional(&mut file.reads);
    let plain = file.plain;
    Ok(Template {
        body: Body::Jinja { environment: Arc::new(environment), plain },
        reads: file.reads,
    })
}

/// The name of a template file in its engine.
pub(crate) const TEMPLATE: &str = "template";

fn line_span(text: &str, line: usize) -> Span {
    let start = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let length = text[start..].find('\n').unwrap_or(text.len() - start);
    Span::new(start, start + length)
}

/// The body of a loop, a macro or a call.
struct RepeatedBody {
    /// Where it begins in the source for the engine.
    start: usize,
    /// How many bytes of text it writes by itself.
    text: usize,
    /// The whitespace at its beginning is removed.
    trims: bool,
}

/// A template file on its way to the engine.
#[derive(Default)]
struct File<'a> {
    text: &'a str,
    source: String,
    reads: Vec<Read>,
    /// The first place of every name in a tag.
    names: BTreeMap<&'a str, Span>,
    elifs: usize,
    plain: bool,
    /// The bodies that are open: what may be written many times.
    bodies: Vec<RepeatedBody>,
    closed_bodies: Vec<RepeatedBody>,
}

impl<'a> File<'a> {
    fn read(&mut self) -> Result<(), SyntaxError> {
        self.plain = true;
        let mut done = 0;
        while let Some((open, sign)) = next_tag(self.text, done) {
            self.push_literal(done, open);
            self.plain = false;
            done = match sign {
                b'#' => self.comment(open)?,
                b'{' => self.tag(open, "}}")?,
                _ => match tag_of(&self.text[open..], "raw") {
                    Some(length) => self.raw_block(open, open + length)?,
                    None => self.tag(open, "%}")?,
                },
            };
        }
        self.push_literal(done, self.text.len());
        self.count_bodies();
        Ok(())
    }

    /// Has the engine count what each body writes, every time that it does: a text may be kept
    /// instead of printed, and the engine bounds steps only.
    fn count_bodies(&mut self) {
        let mut bodies = std::mem::take(&mut self.closed_bodies);
        bodies.sort_by_key(|body| std::cmp::Reverse(body.start));
        for body in bodies.into_iter().filter(|body| body.text > 0) {
            let trims = if body.trims { "-" } else { "" };
            let count = format!("{{{{{EMITTED}({}){trims}}}}}", body.text);
            self.source.insert_str(body.start, &count);
        }
    }

    fn count(&mut self, bytes: usize) {
        if let Some(body) = self.bodies.last_mut() {
            body.text += bytes;
        }
    }

    fn push_literal(&mut self, from: usize, to: usize) {
        self.count(to - from);
        for (at, piece) in split_dollar_goal(&self.text[from..to]).enumerate() {
            if at > 0 {
                self.plain = false;
                let _ = write!(self.source, "{{{{ {DOLLAR_GOAL} }}}}");
            }
            self.source.push_str(piece);
        }
    }

    fn copy(&mut self, from: usize, to: usize) -> usize {
        self.source.push_str(&self.text[from..to]);
        to
    }

    /// Copies a `{% raw %}` block, whose content is text.
    fn raw_block(&mut self, open: usize, inside: usize) -> Result<usize, SyntaxError> {
        let mut tags = self.text[inside..].match_indices("{%").map(|(at, _)| inside + at);
        if let Some(end) = tags.find_map(|at| Some(at + tag_of(&self.text[at..], "endraw")?)) {
            self.count(end - inside);
            Ok(self.copy(open, end))
        } else {
            let error = SyntaxError::new("`{% raw %}` is not closed", Span::new(open, inside));
            Err(error.with_fix("add `{% endraw %}`"))
        }
    }

    fn comment(&mut self, open: usize) -> Result<usize, SyntaxError> {
        match self.text[open..].find("#}") {
            Some(length) => Ok(self.copy(open, open + length + 2)),
            None => Err(SyntaxError::new("the comment is not closed", Span::new(open, open + 2))
                .with_fix("add `#}`")),
        }
    }

    fn tag(&mut self, open: usize, close: &str) -> Result<usize, SyntaxError> {
        let marked = self.text[open + 2..].starts_with(['-', '+']);
        let inside = open + 2 + usize::from(marked);
        let tag = scan::tag(self.text, open, inside, close)?;
        if close == "%}" {
            self.check_statement(&tag)?;
        }
        check_names(&tag.tokens)?;
        let reads = scan::reads(&tag.tokens)?;
        self.source.push_str(&self.text[open..inside]);
        self.source.push_str(&rewritten(self.text, inside..tag.after, &tag.tokens, &reads));
        self.reads.extend(reads);
        if close == "%}" {
            self.open_or_close_body(&tag);
        }
        for token in tag.tokens.iter().filter(|token| token.kind == Kind::Name) {
            self.names.entry(token.text).or_insert_with(|| token.span());
        }
        Ok(tag.after)
    }

    fn open_or_close_body(&mut self, tag: &Tag<'a>) {
        match tag.tokens.first().map(|first| first.text) {
            Some("for" | "macro" | "call") => {
                let start = self.source.len();
                self.bodies.push(RepeatedBody { start, text: 0, trims: tag.trims });
            }
            Some("endfor" | "endmacro" | "endcall") => self.closed_bodies.extend(self.bodies.pop()),
            _ => {}
        }
    }

    fn check_statement(&mut self, tag: &Tag<'a>) -> Result<(), SyntaxError> {
        let Some(first) = tag.tokens.first() else { return Ok(()) };
        self.elifs += usize::from(first.text == "elif");
        if self.elifs > MAX_ELIFS {
            let message = format!("there are more than {MAX_ELIFS} `elif`s");
            return Err(SyntaxError::new(message, first.span()));
        }
        if ["include", "import", "from", "extends"].contains(&first.text) {
            let is_fixed = tag.tokens.get(1).is_none_or(|path| path.kind == Kind::Text);
            let (message, fix) = if is_fixed || first.text != "include" {
                let message = format!("`{}` cannot read other files here", first.text);
                (message, "put the text into this file")
            } else {
                let message = "the path of an `include` is a text in quotes, not a value";
                (message.to_owned(), "choose with {% if … %} between includes of fixed paths")
            };
            return Err(SyntaxError::new(message, first.span()).with_fix(fix));
        }
        Ok(())
    }
}

/// The next `{{`, `{%` or `{#` and its second sign.
fn next_tag(text: &str, from: usize) -> Option<(usize, u8)> {
    text[from..].match_indices('{').find_map(|(at, _)| {
        let sign = *text.as_bytes().get(from + at + 1)?;
        matches!(sign, b'{' | b'%' | b'#').then_some((from + at, sign))
    })
}

/// The length of the tag at the beginning of the text if it has nothing but this name in it.
fn tag_of(text: &str, name: &str) -> Option<usize> {
    const TRIMS: [char; 2] = ['-', '+'];
    let inside = text.strip_prefix("{%")?.trim_start_matches(TRIMS).trim_start();
    let after = inside.strip_prefix(name)?.trim_start().trim_start_matches(TRIMS);
    let after = after.strip_prefix("%}")?;
    Some(text.len() - after.len())
}

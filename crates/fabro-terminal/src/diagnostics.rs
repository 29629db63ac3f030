//! Findings about a file, drawn as rustc draws them, or as data.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use fabro_types::{Diagnostic, Position, Severity, Span, clean, one_line};
use serde::Serialize;

use crate::paint::Paint;

/// The longest stretch of source that is drawn, in bytes.
const DRAWN: usize = 4_096;

/// How many findings of one file are shown.
const MOST: usize = 50;

/// How many findings of one rule are drawn. Others have a line each.
const ALIKE: usize = 5;

/// A finding as data.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The stable name of the rule.
    pub rule: String,
    /// `error` or `warning`.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// Where it begins: line and column in characters, from 1.
    pub line: usize,
    /// See `line`.
    pub column: usize,
    /// Where it ends: one past the last character.
    pub end_line: usize,
    /// See `end_line`.
    pub end_column: usize,
    /// What to do about it.
    pub fix: Option<String>,
}

/// The findings as data, with lines and columns.
pub fn as_data(source: &str, findings: &[Diagnostic]) -> Vec<Finding> {
    let positions = Positions::new(source, findings);
    let data = findings.iter().map(|finding| {
        let (start, end) = positions.of(finding.span);
        Finding {
            rule: finding.rule.to_owned(),
            severity: finding.severity,
            message: finding.message.clone(),
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            fix: finding.fix.clone(),
        }
    });
    data.collect()
}

/// The findings, one after another, each with the source lines it is about; then in a line each
/// those of which there are many, and how many more there are.
pub fn render(file: &str, source: &str, findings: &[Diagnostic], paint: Paint) -> String {
    let renderer = if paint.is_on() { Renderer::styled() } else { Renderer::plain() };
    let shown = most_severe(findings);
    let positions = Positions::new(source, shown.iter().copied());
    let mut drawn = BTreeMap::new();
    let mut text = String::new();
    let mut rest = String::new();
    for finding in &shown {
        let (start, _) = positions.of(finding.span);
        let alike: &mut usize = drawn.entry(finding.rule).or_default();
        *alike += 1;
        if *alike > ALIKE {
            rest.push_str(&line(file, start, finding, paint));
            continue;
        }
        text.push_str(&draw(file, source, start, finding, &renderer));
        text.push('\n');
    }
    let left = findings.len() - shown.len();
    if left > 0 {
        let file = clean(file);
        let _ = writeln!(rest, "… and {left} more in {file}; the JSON output lists all");
    }
    if !rest.is_empty() {
        text.push_str(&rest);
        text.push('\n');
    }
    text
}

/// The first findings, a line each: the place, the message and the fix. The number of those left out
/// is returned too.
pub fn short(
    file: &str,
    source: &str,
    findings: &[Diagnostic],
    most: usize,
    paint: Paint,
) -> (String, usize) {
    let shown = &findings[..findings.len().min(most)];
    let positions = Positions::new(source, shown);
    let mut text = String::new();
    for finding in shown {
        let (start, _) = positions.of(finding.span);
        text.push_str(line(file, start, finding, paint).trim_end());
        if let Some(fix) = &finding.fix {
            let _ = write!(text, " ({})", one_line(fix, 200));
        }
        text.push('\n');
    }
    (text, findings.len() - shown.len())
}

/// As many findings as a person may want to read, errors before warnings, in their order.
fn most_severe(findings: &[Diagnostic]) -> Vec<&Diagnostic> {
    let is_error = |finding: &&Diagnostic| finding.severity == Severity::Error;
    let errors = findings.iter().filter(is_error).count();
    let mut errors_left = MOST;
    let mut warnings_left = MOST.saturating_sub(errors);
    let has_room = |finding: &&Diagnostic| {
        let left = if is_error(finding) { &mut errors_left } else { &mut warnings_left };
        let has_room = *left > 0;
        *left = left.saturating_sub(1);
        has_room
    };
    findings.iter().filter(has_room).collect()
}

fn draw(
    file: &str,
    source: &str,
    start: Position,
    finding: &Diagnostic,
    renderer: &Renderer,
) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(clean(&finding.message)).id(finding.rule);
    let window = window(source, finding.span);
    let lines = &source[window.start..window.end];
    let file = clean(file);
    let mut group = if source.is_empty() {
        // The file is unreadable or empty.
        title.element(Origin::path(&*file))
    } else if lines.len() > DRAWN {
        let origin = Origin::path(&*file).line(start.line).char_column(start.column);
        title.element(origin)
    } else {
        let from = finding.span.start.saturating_sub(window.start);
        let from = lines.floor_char_boundary(from);
        let to = lines.ceil_char_boundary(finding.span.end.saturating_sub(window.start)).max(from);
        let annotation = AnnotationKind::Primary.span(from..to);
        title.element(
            Snippet::source(lines).path(&*file).line_start(start.line).annotation(annotation),
        )
    };
    if let Some(fix) = &finding.fix {
        group = group.element(Level::HELP.message(clean(fix)));
    }
    renderer.render(&[group]) + "\n"
}

/// A finding on one line.
fn line(file: &str, at: Position, finding: &Diagnostic, paint: Paint) -> String {
    let message = clean(&finding.message);
    let place = format!("{}:{}:{}", clean(file), at.line, at.column);
    format!("{place}: {}[{}]: {message}\n", severity(finding, paint), finding.rule)
}

fn severity(finding: &Diagnostic, paint: Paint) -> String {
    match finding.severity {
        Severity::Error => paint.error("error"),
        Severity::Warning => paint.warning("warning"),
    }
}

/// The whole lines that a span touches; of a span over many lines the first.
fn window(source: &str, span: Span) -> Span {
    let start = source.floor_char_boundary(span.start.min(source.len()));
    let end = source.ceil_char_boundary(span.end.clamp(start, source.len()));
    let from = source[..start].rfind('\n').map_or(0, |at| at + 1);
    let to = |at: usize| source[at..].find('\n').map_or(source.len(), |next| at + next);
    let whole = Span::new(from, to(end));
    if whole.end - whole.start > DRAWN { Span::new(from, to(start)) } else { whole }
}

/// Lines and columns of spans, found in one pass over the text: a file of one long line may have
/// thousands of findings.
struct Positions(BTreeMap<usize, Position>);

impl Positions {
    fn new<'a>(source: &str, findings: impl IntoIterator<Item = &'a Diagnostic>) -> Self {
        let mut places: BTreeMap<usize, Position> = BTreeMap::new();
        for finding in findings {
            places.insert(finding.span.start, Position { line: 1, column: 1 });
            places.insert(finding.span.end, Position { line: 1, column: 1 });
        }
        let mut done = 0;
        let mut at = Position { line: 1, column: 1 };
        for (offset, position) in &mut places {
            let offset = source.floor_char_boundary((*offset).min(source.len()));
            for c in source[done..offset.max(done)].chars() {
                if c == '\n' {
                    at = Position { line: at.line + 1, column: 1 };
                } else {
                    at.column += 1;
                }
            }
            done = offset.max(done);
            *position = at;
        }
        Self(places)
    }

    fn of(&self, span: Span) -> (Position, Position) {
        let at =
            |offset: usize| self.0.get(&offset).copied().unwrap_or(Position { line: 1, column: 1 });
        (at(span.start), at(span.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, span: (usize, usize)) -> String {
        let finding = Diagnostic::error("rule", Span::new(span.0, span.1), "wrong");
        let data = as_data(source, std::slice::from_ref(&finding));
        let [at] = data.as_slice() else { panic!("one finding") };
        let place = format!("{}:{}-{}:{}", at.line, at.column, at.end_line, at.end_column);
        format!("{place}\n{}", render("f", source, &[finding], Paint::new(false)))
    }

    #[test]
    fn columns_count_characters() {
        insta::assert_snapshot!(check("a\n\u{e7}d \u{1f600} e\n", (11, 12)), @r"
        2:6-2:7
        error[rule]: wrong
         --> f:2:6
          |
        2 | çd 😀 e
          |       ^
        ");
    }

    #[test]
    fn a_span_over_lines_shows_them() {
        insta::assert_snapshot!(check("one\ntwo\nthree\n", (1, 9)), @r"
        1:2-3:2
        error[rule]: wrong
         --> f:1:2
          |
        1 |   one
          |  __^
        2 | | two
        3 | | three
          | |_^
        ");
    }

    #[test]
    fn no_span_is_out_of_place() {
        insta::assert_snapshot!(check("", (5, 900)), @r"
        1:1-1:1
        error[rule]: wrong
        --> f
        ");
        insta::assert_snapshot!(check("\u{e7}", (1, 1)), @r"
        1:1-1:1
        error[rule]: wrong
         --> f:1:1
          |
        1 | ç
          | ^
        ");
    }

    #[test]
    fn a_line_too_long_to_be_drawn_is_only_named() {
        insta::assert_snapshot!(check(&"x".repeat(9_999), (5_000, 5_001)), @r"
        1:5001-1:5002
        error[rule]: wrong
        --> f:1:5001
        ");
    }

    #[test]
    fn of_what_is_alike_the_first_are_drawn() {
        let finding = |at| Diagnostic::warning("rule", Span::new(at, at + 1), "wrong");
        let findings: Vec<_> = (0..60).map(finding).collect();
        let text = render("f", &"x".repeat(60), &findings, Paint::new(false));
        let ends: Vec<_> = text.lines().skip(ALIKE * 6).collect();
        insta::assert_snapshot!(ends[..3].join("\n"), @r"
        f:1:6: warning[rule]: wrong
        f:1:7: warning[rule]: wrong
        f:1:8: warning[rule]: wrong
        ");
        insta::assert_snapshot!(ends[44..].join("\n"), @r"
        f:1:50: warning[rule]: wrong
        … and 10 more in f; the JSON output lists all
        ");
    }

    #[test]
    fn foreign_text_cannot_move_the_cursor() {
        let finding = Diagnostic::error("rule", Span::new(0, 1), "bad \u{1b}[2J word");
        let text = render("f", "\u{1b}[31mx", &[finding], Paint::new(false));
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}

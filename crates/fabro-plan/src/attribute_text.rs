use fabro_graph::{Attr, Diagnostic, Origin, Span, schema};
use fabro_types::SyntaxError;

/// Maps spans in the text of an attribute, in which escapes are resolved and pieces joined, to
/// spans in the source file.
#[derive(Debug)]
pub struct AttributeText {
    whole: Span,
    /// Offsets in the text and in the source, ascending, where both begin to run in step; empty when
    /// the text does not stand in the source.
    steps: Vec<(usize, usize)>,
}

impl AttributeText {
    /// Reads the attribute's value once.
    pub fn new(source: &str, attr: &Attr) -> Self {
        let whole = attr.span;
        let literal = source.get(whole.start..whole.end).unwrap_or_default();
        let steps = if attr.file.is_some() || attr.origin == Origin::Stylesheet {
            Vec::new()
        } else if literal.starts_with('"') {
            let mut steps = quoted(literal, whole.start);
            // The text of a file attribute that begins with `@@` has lost its first character.
            if literal.starts_with("\"@@") && takes_files(attr) {
                steps.iter_mut().skip(1).for_each(|step| step.0 -= 1);
                steps[0].1 += 1;
            }
            steps
        } else {
            vec![(0, whole.start)]
        };
        Self { whole, steps }
    }

    /// The span in the source of a span in the text; the whole value when the text comes from
    /// another file. Never empty, so that there is something to underline.
    pub fn span(&self, text: Span) -> Span {
        if self.steps.is_empty() {
            return self.whole;
        }
        let start = self.offset(text.start);
        // The last byte, so that a place that ends where a piece ends does not run into the next.
        let end = if text.end > text.start { self.offset(text.end - 1) + 1 } else { start + 1 };
        let within = |at: usize| at.clamp(self.whole.start, self.whole.end);
        Span::new(within(start), within(end.max(start)))
    }

    fn offset(&self, text: usize) -> usize {
        let after = self.steps.partition_point(|(from, _)| *from <= text);
        let (from, to) = self.steps[after.saturating_sub(1)];
        to + text.saturating_sub(from)
    }
}

/// An error of a language inside an attribute, at its position in the source. For the text of
/// another file the message has the line.
pub fn attribute_error(
    source: &str,
    rule: &'static str,
    attr: &Attr,
    error: &SyntaxError,
) -> Diagnostic {
    let SyntaxError { message, span, fix } = error;
    let message = match &attr.file {
        Some(file) => {
            let text = attr.value.as_text();
            let line =
                text.as_bytes().iter().take(span.start).filter(|byte| **byte == b'\n').count();
            format!("{file}, line {}: {message}", line + 1)
        }
        None => message.clone(),
    };
    let fix = fix.as_deref().unwrap_or(match rule {
        "condition-syntax" => "write clauses such as outcome=success, joined by && or ||",
        "stylesheet-syntax" => "write rules such as .hard { model: …; }",
        "template-syntax" => {
            "write {{ context.KEY }}, {{ inputs.NAME }} or {{ goal }}, with filters of Jinja"
        }
        _ => "correct it there",
    });
    Diagnostic::error(rule, AttributeText::new(source, attr).span(*span), message).with_fix(fix)
}

fn takes_files(attr: &Attr) -> bool {
    schema::ATTRIBUTES.iter().any(|known| known.file && known.name == attr.name)
}

/// The steps of `"a" + "b"`, which stands at `start`.
fn quoted(literal: &str, start: usize) -> Vec<(usize, usize)> {
    let bytes = literal.as_bytes();
    let mut steps = vec![(0, start + 1)];
    let mut at = 1;
    let mut text = 0;
    while at < bytes.len() {
        let (taken, made) = match &bytes[at..] {
            [b'"', rest @ ..] => match rest.iter().position(|byte| *byte == b'"') {
                Some(gap) => (gap + 2, 0),
                None => break,
            },
            [b'\\', b'"' | b'\\' | b'n' | b't', ..] => (2, 1),
            [b'\\', b'\n', ..] => (2, 0),
            [b'\\', b'\r', b'\n', ..] => (3, 0),
            [b'\r', b'\n', ..] => (1, 0),
            _ => (1, 1),
        };
        at += taken;
        text += made;
        if taken != made {
            steps.push((text, start + at));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use fabro_graph::Workflow;

    use super::*;

    /// `part` is looked for in the text; what stands at its place in the source must be `expect`.
    #[track_caller]
    fn check(literal: &str, part: &str, expect: &str) {
        let source = format!("digraph {{ graph [goal={literal}] }}");
        let mut workflow = Workflow::from_source("x", &source).unwrap();
        fabro_graph::resolve_files(&mut workflow, &fabro_graph::MemorySources::default());
        let attr = workflow.attrs().get("goal").unwrap();
        let text = attr.value.as_text().into_owned();
        let at = text.find(part).unwrap_or_else(|| panic!("{part:?} is not in {text:?}"));
        let span = AttributeText::new(&source, attr).span(Span::new(at, at + part.len()));
        assert_eq!(&source[span.start..span.end], expect);
    }

    #[test]
    fn places_survive_escapes_and_joins() {
        check("\"plain words\"", "words", "words");
        check("\"a \\\"quoted\\\" word\"", "word", "word");
        check("\"a \\\"quoted\\\" word\"", "\"quoted", "\\\"quoted");
        check("\"one\\n\\ttwo\"", "two", "two");
        check("\"one \\\n two\"", "two", "two");
        check("\"one \\\r\n two\r\n three\"", "three", "three");
        check("\"one\" + \"two\"  +\n \"three\"", "two", "two");
        check("\"one\" + \"two\"  +\n \"three\"", "three", "three");
        check("\"one\" + \"two\"", "one", "one");
        check("\"\\d+ é\\\\ñ x\"", "x", "x");
        check("\"@@mention us\"", "mention", "mention");
        check("\"@@a\\\"b c\"", "b", "b");
        check("bare-word", "word", "word");
    }

    #[test]
    fn an_empty_place_has_something_to_underline() {
        let source = "digraph { graph [goal=\"ab\"] }";
        let workflow = Workflow::from_source("x", source).unwrap();
        let text = AttributeText::new(source, workflow.attrs().get("goal").unwrap());
        let at = |start, end| {
            let span = text.span(Span::new(start, end));
            &source[span.start..span.end]
        };
        assert_eq!([at(0, 0), at(2, 2), at(1, 99)], ["a", "\"", "b\""]);
    }
}

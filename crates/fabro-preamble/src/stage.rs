//! One stage as list items, at each fidelity and degree of detail.

use std::fmt::Write as _;

use fabro_types::{Fidelity, Status};

use crate::text::{Keep, cut_line, cut_lines, fence, inline_code, one_line, short_number};
use crate::{Branch, Detail, Output, Stage};

/// How much of a stage is shown.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    /// Lines of an output.
    lines: usize,
    /// Lines of a model's response.
    response_lines: usize,
    /// Characters of a line.
    line_chars: usize,
    /// Characters of a name, a path or notes.
    field_chars: usize,
    /// Files, branches, suggested nodes.
    items: usize,
}

/// The degrees of detail below the first, most detailed first. After the last there is only the
/// headline.
const REDUCED: [Amount; 2] = [
    Amount { lines: 8, response_lines: 8, line_chars: 300, field_chars: 200, items: 10 },
    Amount { lines: 3, response_lines: 3, line_chars: 100, field_chars: 100, items: 3 },
];

/// A stage as text, with the line ends that go between it and the next.
pub(crate) struct StageBlock {
    pub(crate) text: String,
    /// The context key whose value the block already shows.
    pub(crate) covers: Option<&'static str>,
}

/// The stage with most detail first, then with less and less; at last its headline.
pub(crate) fn variants(stage: &Stage, fidelity: Fidelity) -> impl Iterator<Item = StageBlock> {
    let full = match fidelity {
        Fidelity::SummaryHigh => Some((50, 200, 2_000)),
        Fidelity::SummaryMedium => Some((3, 3, 200)),
        Fidelity::Compact => Some((25, 25, 1_000)),
        Fidelity::SummaryLow | Fidelity::Truncate | Fidelity::Full => None,
    };
    let full = full.map(|(lines, response_lines, line_chars)| Amount {
        lines,
        response_lines,
        line_chars,
        field_chars: 1_000,
        items: 20,
    });
    let reduced = full.map(|_| REDUCED).into_iter().flatten();
    let amounts = full.into_iter().chain(reduced).map(Some).chain([None]);
    amounts.map(move |amount| block(stage, fidelity, amount))
}

/// The stage's headline alone.
pub(crate) fn headline_only(stage: &Stage, fidelity: Fidelity) -> StageBlock {
    block(stage, fidelity, None)
}

fn block(stage: &Stage, fidelity: Fidelity, amount: Option<Amount>) -> StageBlock {
    let mut text = headline(stage, fidelity);
    text.push('\n');
    let mut covers = None;
    if let Some(amount) = amount {
        let indent = if fidelity == Fidelity::SummaryHigh { 0 } else { 2 };
        let mut items = Items { out: &mut text, indent, amount };
        if fidelity == Fidelity::SummaryMedium {
            items.findings(stage);
        } else {
            items.everything(stage, fidelity == Fidelity::SummaryHigh);
        }
        covers = match &stage.detail {
            Detail::Human { text: Some(_), .. } => Some("human.gate.text"),
            Detail::Parallel { .. } => Some("parallel.results"),
            _ => None,
        };
    }
    if fidelity == Fidelity::SummaryHigh {
        text.push('\n');
    }
    StageBlock { text, covers }
}

fn headline(stage: &Stage, fidelity: Fidelity) -> String {
    let node = one_line(&stage.node, 128);
    let visit = if stage.visit > 1 { format!(" (visit {})", stage.visit) } else { String::new() };
    let status = stage.status.short();
    match (fidelity, &stage.failure) {
        (Fidelity::SummaryHigh, _) => format!("### {node}{visit}: {status}"),
        (Fidelity::SummaryLow, Some(failure)) => {
            format!("- **{node}**{visit}: {status}: {}", one_line(failure, 120))
        }
        _ => format!("- **{node}**{visit}: {status}"),
    }
}

/// Writes list items under a stage's headline.
struct Items<'a> {
    out: &'a mut String,
    /// Spaces before an item.
    indent: usize,
    amount: Amount,
}

impl Items<'_> {
    fn everything(&mut self, stage: &Stage, high: bool) {
        match &stage.detail {
            Detail::Command { script, stdout, stderr, exit_code } => {
                self.script(script);
                self.output("Stdout", stdout, self.amount.lines);
                self.output("Stderr", stderr, self.amount.lines);
                // The message of a failure contains it.
                let is_shown = stage.failure.is_some();
                if let Some(code) = exit_code.filter(|code| *code != 0 && !is_shown) {
                    self.item("Exit code", &code.to_string());
                }
                self.names("Files", &stage.files);
            }
            Detail::Llm { model, input_tokens, output_tokens, response } => {
                let input = short_number(*input_tokens);
                let output = short_number(*output_tokens);
                let model = one_line(model, self.amount.field_chars);
                self.item("Model", &format!("{model}, {input} tokens in / {output} out"));
                self.names("Files", &stage.files);
                if high || matches!(response, Output::File(_)) {
                    self.response(response);
                }
            }
            Detail::Human { question, answer, text } => {
                self.field("Question", Some(question));
                self.field("Answer", Some(answer));
                self.text("Text", text.as_deref());
            }
            Detail::Parallel { branches } => self.branches(branches),
            Detail::Other => self.names("Files", &stage.files),
        }
        self.field("Failure", stage.failure.as_ref());
        self.field("Notes", stage.notes.as_ref());
        if high {
            self.directives(stage);
        }
    }

    /// The results only, for little room.
    fn findings(&mut self, stage: &Stage) {
        self.field("Failure", stage.failure.as_ref());
        self.field("Notes", stage.notes.as_ref());
        self.directives(stage);
        match &stage.detail {
            Detail::Command { stdout, stderr, .. } => {
                if !is_empty(stdout) {
                    self.output("Stdout", stdout, self.amount.lines);
                }
                if stage.status == Status::Failed && !is_empty(stderr) {
                    self.output("Stderr", stderr, self.amount.lines);
                }
            }
            Detail::Llm { response, .. } => self.response(response),
            Detail::Human { answer, text, .. } => {
                self.field("Answer", Some(answer));
                self.text("Text", text.as_deref());
            }
            Detail::Parallel { branches } => self.branches(branches),
            Detail::Other => {}
        }
    }

    fn item(&mut self, label: &str, value: &str) {
        let _ = writeln!(self.out, "{:indent$}- {label}: {value}", "", indent = self.indent);
    }

    fn field(&mut self, label: &str, value: Option<&String>) {
        if let Some(value) = value.filter(|value| !value.trim().is_empty()) {
            self.item(label, &one_line(value, self.amount.field_chars));
        }
    }

    fn names(&mut self, label: &str, names: &[String]) {
        if !names.is_empty() {
            let names = self.list(names, |name| name);
            self.item(label, &names);
        }
    }

    fn list(&self, names: &[String], show: impl Fn(String) -> String) -> String {
        let shown = names.iter().take(self.amount.items);
        let mut list = shown.map(|name| show(one_line(name, 200))).collect::<Vec<_>>().join(", ");
        if names.len() > self.amount.items {
            let _ = write!(list, ", … ({} more)", names.len() - self.amount.items);
        }
        list
    }

    fn directives(&mut self, stage: &Stage) {
        self.field("Outcome", stage.word.as_ref());
        self.field("Preferred label", stage.preferred_label.as_ref());
        if !stage.suggested_next_ids.is_empty() {
            let ids = self.list(&stage.suggested_next_ids, |id| inline_code(&id));
            self.item("Suggested next", &ids);
        }
    }

    fn script(&mut self, script: &str) {
        let script = script.trim_matches(['\n', '\r']);
        if script.contains('\n') {
            let most = self.amount.lines.min(10);
            self.lines("Script", cut_lines(script, Keep::First, most, self.amount.line_chars));
        } else {
            self.item("Script", &inline_code(&cut_line(script, self.amount.line_chars)));
        }
    }

    fn text(&mut self, label: &str, text: Option<&str>) {
        match text.map(str::trim) {
            Some(text) if text.contains('\n') => {
                let most = self.amount.lines;
                self.lines(label, cut_lines(text, Keep::First, most, self.amount.line_chars));
            }
            Some(text) if !text.is_empty() => {
                self.item(label, &cut_line(text, self.amount.line_chars));
            }
            _ => {}
        }
    }

    fn response(&mut self, response: &Output) {
        if !is_empty(response) {
            self.output("Response", response, self.amount.response_lines);
        }
    }

    fn output(&mut self, label: &str, output: &Output, most: usize) {
        match output {
            Output::File(path) => self.item(label, &format!("See: {}", one_line(path, 1_024))),
            Output::Text(text) if !text.trim().is_empty() => {
                self.lines(label, cut_lines(text, Keep::Last, most, self.amount.line_chars));
            }
            Output::Text(_) | Output::None => self.item(label, "(empty)"),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "the lines are made for this call")]
    fn lines(&mut self, label: &str, lines: Vec<String>) {
        let _ = writeln!(self.out, "{:indent$}- {label}:", "", indent = self.indent);
        fence(&lines, &" ".repeat(self.indent + 2), self.out);
    }

    fn branches(&mut self, branches: &[Branch]) {
        let _ = writeln!(self.out, "{:indent$}- Branches:", "", indent = self.indent);
        self.indent += 2;
        for branch in branches.iter().take(self.amount.items) {
            self.branch(branch);
        }
        if branches.len() > self.amount.items {
            let more = branches.len() - self.amount.items;
            let _ = writeln!(self.out, "{:indent$}- ({more} more)", "", indent = self.indent);
        }
        self.indent -= 2;
    }

    fn branch(&mut self, branch: &Branch) {
        let id = one_line(&branch.id, 128);
        let status = branch.status.short();
        let _ = writeln!(self.out, "{:indent$}- **{id}**: {status}", "", indent = self.indent);
        self.indent += 2;
        self.field("Notes", branch.notes.as_ref());
        if !is_empty(&branch.output) {
            self.output("Output", &branch.output, self.amount.lines.min(5));
        }
        self.indent -= 2;
    }
}

fn is_empty(output: &Output) -> bool {
    match output {
        Output::Text(text) => text.trim().is_empty(),
        Output::File(_) => false,
        Output::None => true,
    }
}

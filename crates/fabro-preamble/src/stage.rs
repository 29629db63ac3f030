//! One stage as list items, at each fidelity.

use fabro_types::{Fidelity, Status};

use crate::fit::{Block, Field, Shape, Whole};
use crate::text::{Keep, last_lines, one_line, short_number};
use crate::{Branch, Detail, Output, Stage};

/// Lines of the output of a command, and of an answer under `summary:medium`.
fn output_lines(fidelity: Fidelity) -> usize {
    match fidelity {
        Fidelity::SummaryHigh => 50,
        Fidelity::SummaryMedium => 3,
        _ => 25,
    }
}

/// A stage as it is shown while there is room. Its headline is the first part.
pub(crate) fn block(stage: &Stage, fidelity: Fidelity) -> Block {
    let node = one_line(&stage.node, 128);
    let visit = if stage.visit > 1 { format!(" (visit {})", stage.visit) } else { String::new() };
    let status = stage.status.short();
    let mut block = Block::default();
    match (fidelity, &stage.failure) {
        (Fidelity::SummaryLow, Some(failure)) if !failure.trim().is_empty() => {
            let label = format!("**{node}**{visit}: {status}");
            block.field(text_field(0, &label, Shape::Line, failure.trim(), failure));
        }
        (Fidelity::SummaryHigh, _) => block.fixed(format!("### {node}{visit}: {status}\n")),
        _ => block.fixed(format!("- **{node}**{visit}: {status}\n")),
    }
    let mut items = Items { block, indent: item_indent(fidelity), fidelity };
    match fidelity {
        Fidelity::SummaryMedium => items.findings(stage),
        Fidelity::Compact | Fidelity::SummaryHigh => items.everything(stage),
        Fidelity::SummaryLow | Fidelity::Truncate | Fidelity::Full => return items.block,
    }
    let covers = match &stage.detail {
        Detail::Human { text: Some(_), .. } => Some("human.gate.text"),
        Detail::Parallel { .. } => Some("parallel.results"),
        _ => None,
    };
    items.block.with_key(covers.map(str::to_owned))
}

/// The spaces before the items of a stage.
pub(crate) fn item_indent(fidelity: Fidelity) -> usize {
    if fidelity == Fidelity::SummaryHigh { 0 } else { 2 }
}

/// A branch as a section.
pub(crate) fn branch_section(branch: &Branch, fidelity: Fidelity) -> Block {
    let mut block = Block::default();
    block.fixed(format!("### {}: {}\n", one_line(&branch.id, 128), branch.status.short()));
    let mut items = Items { block, indent: 0, fidelity };
    items.branch_items(branch);
    items.block
}

fn text_field(indent: usize, label: &str, shape: Shape, shown: &str, whole: &str) -> Field {
    Field::new(indent, label, shape, shown, Whole::Text(whole.to_owned()))
}

/// Collects the list items under a stage's headline.
struct Items {
    block: Block,
    /// Spaces before an item.
    indent: usize,
    fidelity: Fidelity,
}

impl Items {
    fn everything(&mut self, stage: &Stage) {
        let is_high = self.fidelity == Fidelity::SummaryHigh;
        match &stage.detail {
            Detail::Command { script, stdout, stderr, exit_code } => {
                self.script(script);
                self.command_output("Stdout", stdout);
                self.command_output("Stderr", stderr);
                // The message of a failure contains it.
                let is_shown = stage.failure.is_some();
                if let Some(code) = exit_code.filter(|code| *code != 0 && !is_shown) {
                    self.item("Exit code", &code.to_string());
                }
                self.files(stage);
            }
            Detail::Llm { model, input_tokens, output_tokens, response } => {
                // A program may report neither.
                if !model.is_empty() || input_tokens + output_tokens > 0 {
                    let input = short_number(*input_tokens);
                    let output = short_number(*output_tokens);
                    let model = if model.is_empty() { "unknown" } else { &one_line(model, 200) };
                    self.item("Model", &format!("{model}, {input} tokens in / {output} out"));
                }
                self.files(stage);
                if is_high || matches!(response, Output::File(_)) {
                    self.answer("Response", response);
                }
            }
            Detail::Human { question, answer, text } => {
                self.line("Question", Some(question));
                self.line("Answer", Some(answer));
                self.text("Text", text.as_deref());
            }
            Detail::Parallel { branches } => {
                self.branches(branches);
                self.files(stage);
            }
            Detail::Other => self.files(stage),
        }
        self.line("Failure", stage.failure.as_ref());
        self.line("Notes", stage.notes.as_ref());
        if is_high {
            self.directives(stage);
        }
    }

    /// The results only, for little room.
    fn findings(&mut self, stage: &Stage) {
        self.line("Failure", stage.failure.as_ref());
        self.line("Notes", stage.notes.as_ref());
        self.directives(stage);
        match &stage.detail {
            Detail::Command { stdout, stderr, .. } => {
                if !is_empty(stdout) {
                    self.command_output("Stdout", stdout);
                }
                if stage.status == Status::Failed && !is_empty(stderr) {
                    self.command_output("Stderr", stderr);
                }
            }
            Detail::Llm { response, .. } => self.answer("Response", response),
            Detail::Human { answer, text, .. } => {
                self.line("Answer", Some(answer));
                self.text("Text", text.as_deref());
            }
            Detail::Parallel { branches } => self.branches(branches),
            Detail::Other => {}
        }
    }

    fn item(&mut self, label: &str, value: &str) {
        let indent = self.indent;
        self.block.fixed(format!("{:indent$}- {label}: {value}\n", ""));
    }

    fn field(&mut self, label: &str, shape: Shape, shown: &str, whole: &str) {
        self.block.field(text_field(self.indent, label, shape, shown, whole));
    }

    fn line(&mut self, label: &str, value: Option<&String>) {
        if let Some(value) = value.filter(|value| !value.trim().is_empty()) {
            self.field(label, Shape::Line, value.trim(), value);
        }
    }

    fn names(&mut self, label: &str, names: &[String]) {
        let names = names.join(", ");
        self.line(label, Some(&names));
    }

    fn files(&mut self, stage: &Stage) {
        self.names("Files", &stage.files);
        self.names("Artifacts", &stage.artifacts);
    }

    fn directives(&mut self, stage: &Stage) {
        self.line("Outcome", stage.word.as_ref());
        self.line("Preferred label", stage.preferred_label.as_ref());
        let ids: Vec<_> = stage.suggested_next_ids.iter().map(|id| format!("`{id}`")).collect();
        self.names("Suggested next", &ids);
    }

    fn script(&mut self, script: &str) {
        let shown = script.trim_matches(['\n', '\r']);
        let is_long = shown.contains('\n');
        let shape = if is_long { Shape::Fence(Keep::First) } else { Shape::Code };
        self.field("Script", shape, shown, script);
    }

    fn text(&mut self, label: &str, text: Option<&str>) {
        match text.map(str::trim) {
            None | Some("") => {}
            Some(text) if text.contains('\n') => {
                self.field(label, Shape::Fence(Keep::First), text, text);
            }
            Some(text) => self.field(label, Shape::Line, text, text),
        }
    }

    /// The last lines of what a command wrote.
    fn command_output(&mut self, label: &str, output: &Output) {
        match output {
            Output::File(path) => self.item(label, &format!("See: {}", one_line(path, 1_024))),
            Output::Omitted(what) => self.item(label, &format!("({})", one_line(what, 200))),
            Output::Text(text) if !text.trim().is_empty() => {
                let shown = last_lines(text, output_lines(self.fidelity));
                self.field(label, Shape::Fence(Keep::Last), &shown, text);
            }
            Output::Text(_) | Output::None => self.item(label, "(empty)"),
        }
    }

    /// What a model wrote: its end under `summary:medium`, else all of it.
    fn answer(&mut self, label: &str, output: &Output) {
        match output {
            Output::Text(text)
                if !text.trim().is_empty() && self.fidelity != Fidelity::SummaryMedium =>
            {
                let shown = text.trim_end_matches(['\n', '\r']);
                self.field(label, Shape::Fence(Keep::Last), shown, text);
            }
            output if is_empty(output) => {}
            output => self.command_output(label, output),
        }
    }

    fn branches(&mut self, branches: &[Branch]) {
        let indent = self.indent;
        self.block.fixed(format!("{:indent$}- Branches:\n", ""));
        self.indent += 4;
        for branch in branches {
            let indent = self.indent - 2;
            let id = one_line(&branch.id, 128);
            let status = branch.status.short();
            self.block.fixed(format!("{:indent$}- **{id}**: {status}\n", ""));
            self.branch_items(branch);
        }
        self.indent -= 4;
    }

    fn branch_items(&mut self, branch: &Branch) {
        self.line("Notes", branch.notes.as_ref());
        if !branch.is_command {
            self.answer("Output", &branch.output);
        } else if !is_empty(&branch.output) {
            self.command_output("Output", &branch.output);
        }
    }
}

fn is_empty(output: &Output) -> bool {
    match output {
        Output::Text(text) => text.trim().is_empty(),
        Output::File(_) | Output::Omitted(_) => false,
        Output::None => true,
    }
}

//! Lines of a run, for people.

use std::fmt::Write as _;

use fabro_types::{Status, one_line, took};

use crate::line::Line;
use crate::paint::{Mark, Paint};
use crate::story::{StageLine, StoryLine};

/// The width that the name of a stage is padded to, in characters.
const NAME: usize = 14;

/// The longest label that is shown beside a name, in characters.
const LABEL: usize = 40;

/// A line of a story.
pub fn story_text(line: &StoryLine, paint: Paint) -> String {
    match line {
        StoryLine::Stage(line) => finished(line, paint),
        StoryLine::Note(line) => note_text(line, paint),
    }
}

/// A sentence with its mark.
pub fn note_text(line: &Line, paint: Paint) -> String {
    let indent = "  ".repeat(line.depth);
    let text = if line.mark == Mark::Note { paint.dim(&line.text) } else { line.text.clone() };
    format!("{indent}{} {text}", line.mark.symbol(paint))
}

/// The name of a stage, with its label if it differs.
pub(crate) fn titled(name: &str, label: Option<&str>, paint: Paint) -> String {
    let id = name.split('@').next().unwrap_or(name);
    match label.map(|label| one_line(label, LABEL)) {
        Some(label) if !label.is_empty() && label != id => {
            format!("{} {}", paint.bold(&format!("{name:NAME$}")), paint.dim(&label))
        }
        _ => paint.bold(&format!("{name:NAME$}")),
    }
}

fn finished(line: &StageLine, paint: Paint) -> String {
    let mark = match line.status {
        Status::Succeeded => paint.good("✓"),
        Status::PartiallySucceeded => paint.odd("~"),
        Status::Skipped => paint.dim("-"),
        Status::Failed => paint.bad("✗"),
    };
    let mut text = format!(
        "{}{mark} {}  {}",
        "  ".repeat(line.depth),
        titled(&line.name, line.label.as_deref(), paint),
        paint.dim(&took(line.duration_ms)),
    );
    if line.attempts > 1 {
        text.push_str(&paint.odd(&format!("  {} attempts", line.attempts)));
    }
    if let Some(word) = &line.word {
        let _ = write!(text, "  {}", one_line(word, LABEL));
    }
    if let Some(remark) = &line.remark {
        let remark = format!("  {remark}");
        let is_bad = line.status == Status::Failed;
        text.push_str(&if is_bad { paint.bad(&remark) } else { paint.dim(&remark) });
    }
    if let Some(to) = &line.to {
        let _ = write!(text, "  → {to}");
        if !line.why.is_empty() {
            text.push_str(&paint.dim(&format!(" ({})", line.why)));
        }
    }
    text
}

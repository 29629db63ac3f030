//! `fabro inspect RUN STAGE`: one stage, for people.

use std::fmt::Write as _;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use fabro_blob::BlobStore;
use fabro_context::keys;
use fabro_engine::stage_dir;
use fabro_inspect::{StageReport, TranscriptMessage};
use fabro_store::SqliteStore;
use fabro_terminal::{Paint, clean, one_line, paint_stage, took};
use fabro_types::{Outcome, RunId};
use serde_json::Value;

use super::context::shown;
use super::log_files::open_stored;
use super::run_lines::{failure_line, next_text, questions, readable, usage_text};
use crate::global::{Global, stdout_width};

/// How many of the last lines of an output are shown.
const LINES: usize = 40;

/// How many bytes of a log file are read for its last lines.
const TAIL: u64 = 64 << 10;

/// A stage for people.
pub fn stage_text(
    report: &StageReport,
    store: &SqliteStore,
    run: RunId,
    global: &Global,
) -> String {
    let paint = global.paint_stdout();
    let all = global.command(&format!("inspect {run} {} --json", report.row.name()));
    let row = &report.row;
    let dir = stage_dir(&store.runs_dir().join(run.to_string()), row.rank, &row.node, row.visit);
    let mut text = head(report, paint);
    for child in &report.sub_workflows {
        let command = global.command(&format!("inspect {child}"));
        let _ = writeln!(text, "{} {command}", paint.dim("stages   "));
    }
    if let Some(gate) = &report.gate {
        text.push_str(&questions(std::slice::from_ref(gate), stdout_width(), paint));
    }
    if let Some(answer) = &report.answer {
        let _ = writeln!(text, "{answer}");
    }
    text.push_str(&given(report, paint));
    if report.is_command() {
        text.push_str(&output_text("stdout", report.response.as_ref(), &dir, &all, paint));
        text.push_str(&output_text("stderr", report.stderr.as_ref(), &dir, &all, paint));
    } else {
        // A command that is running, or was ended by its timeout, has its output only there.
        for name in ["stdout", "stderr"] {
            if dir.join(format!("{name}.log")).exists() {
                text.push_str(&output_text(name, None, &dir, &all, paint));
            }
        }
        match &report.response {
            Some(Value::String(response)) => text.push_str(&section("response", response, paint)),
            Some(other) => text.push_str(&section("response", &format!("{other:#}"), paint)),
            None => {}
        }
    }
    if report.transcript.len() > 2 {
        let lines = report.transcript.iter().map(message_line).collect::<Vec<_>>().join("\n");
        text.push_str(&section("conversation", &lines, paint));
        let _ = writeln!(text, "{}", paint.dim(&format!("every message in full: {all}")));
    }
    if let Some(outcome) = &report.outcome {
        let outcome = outcome_text(outcome, &row.node, store);
        if !outcome.is_empty() {
            text.push_str(&section("outcome", &outcome, paint));
        }
    }
    text
}

fn section(title: &str, body: &str, paint: Paint) -> String {
    format!("\n{}\n{}\n", paint.dim(&format!("── {title}")), clean(body.trim_end()))
}

/// The name, the status and the next stage; failures, attempts, usage and files.
fn head(report: &StageReport, paint: Paint) -> String {
    let row = &report.row;
    let name = paint.bold(&row.name());
    let status = paint_stage(row.status, paint);
    let next = match next_text(row) {
        next if next.is_empty() => next,
        next => format!("  → {next}"),
    };
    let time = took(row.duration_ms);
    let mut text = if row.ended_at.is_some() {
        format!("{name} {status} in {time}{next}\n")
    } else {
        format!("{name} has not ended: {status}, {time} so far\n")
    };
    if let Some(failure) = row.failure.as_ref().filter(|_| row.ended_at.is_some()) {
        let _ = writeln!(text, "{}", paint.bad(&clean(&failure.to_string())));
    }
    for warning in &row.warnings {
        let _ = writeln!(text, "{} {}", paint.odd("!"), clean(warning));
    }
    let mut field = |name: &str, value: &str| {
        let _ = writeln!(text, "{} {value}", paint.dim(&format!("{name:9}")));
    };
    field("started", &readable(&row.started_at));
    if row.attempts > 1 {
        field("attempts", &row.attempts.to_string());
    }
    for earlier in &report.earlier_attempts {
        let wait = took(earlier.delay_ms);
        let why = failure_line(&earlier.failure);
        field("", &format!("{}: {why}; the next one after {wait}", earlier.attempt));
    }
    if let Some(usage) = &row.usage {
        let model = usage.model.as_deref().map(|it| format!(", {}", clean(it))).unwrap_or_default();
        field("spent", &format!("{}{model}", usage_text(usage)));
    }
    if !row.files_touched.is_empty() {
        field("wrote", &one_line(&row.files_touched.join(", "), 2_000));
    }
    text
}

/// What the model was given: its tools, its system prompt, the prompt.
fn given(report: &StageReport, paint: Paint) -> String {
    let mut text = String::new();
    if let Some(tools) = report.given.tools.as_ref().and_then(Value::as_array) {
        let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        text.push_str(&section("tools", &names.join(", "), paint));
    }
    if let Some(system) = report.given.system.as_ref().and_then(Value::as_str) {
        text.push_str(&section("system prompt", system, paint));
    }
    let opening = report.given.opening.as_ref().and_then(Value::as_str);
    if let Some(opening) = opening {
        text.push_str(&section("before the prompt", opening, paint));
    }
    if let Some(prompt) = &report.prompt {
        text.push_str(&section("prompt", prompt, paint));
    }
    text
}

/// The last lines of what a command wrote, and where the rest is. Without a value, those of the log
/// file in the stage's directory.
fn output_text(name: &str, value: Option<&Value>, dir: &Path, all: &str, paint: Paint) -> String {
    let file = dir.join(format!("{name}.log"));
    let rest = if file.exists() { file.display().to_string() } else { all.to_owned() };
    let (output, is_whole) = match value {
        Some(Value::String(output)) => (output.clone(), true),
        // Too large to be read back: the value is a reference.
        _ => match tail(&file) {
            Ok(read) => read,
            // The stage has written nothing, or not yet.
            Err(error) if value.is_none() && error.kind() == io::ErrorKind::NotFound => {
                return String::new();
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return section(name, &format!("too large to be shown: {all}"), paint);
            }
            Err(error) => {
                let text = format!("{} cannot be read: {error}", file.display());
                return section(name, &text, paint);
            }
        },
    };
    if output.trim().is_empty() {
        return String::new();
    }
    let lines: Vec<&str> = output.trim_end().lines().collect();
    let left = lines.len().saturating_sub(LINES);
    let shown = lines[left..].join("\n");
    let before = match (left, is_whole) {
        (0, true) => return section(name, &shown, paint),
        (left, true) => format!("… {left} lines before these: {rest}"),
        (_, false) => format!("… the end of {rest}"),
    };
    section(name, &format!("{before}\n{shown}"), paint)
}

/// The end of a file, and whether that is all of it.
fn tail(path: &Path) -> io::Result<(String, bool)> {
    let mut file = open_stored(path)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(TAIL);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), from == 0))
}

/// What later stages get of the stage: what it asked for, its notes and its context updates. Empty
/// when it only succeeded or failed.
fn outcome_text(outcome: &Outcome, node: &str, blobs: &dyn BlobStore) -> String {
    let mut text = String::new();
    let mut field = |name: &str, value: &str| {
        let _ = writeln!(text, "{name} = {}", one_line(value, 400));
    };
    if let Some(word) = &outcome.word {
        field("outcome", word);
    }
    if let Some(label) = &outcome.preferred_label {
        field("preferred_label", label);
    }
    if !outcome.suggested_next_ids.is_empty() {
        field("suggested_next_ids", &outcome.suggested_next_ids.join(", "));
    }
    if let Some(notes) = &outcome.notes {
        field("notes", notes);
    }
    if !outcome.artifacts.is_empty() {
        field("artifacts", &outcome.artifacts.join(", "));
    }
    let response = format!("{}{node}", keys::RESPONSE_PREFIX);
    let is_above =
        |key: &str| key == response || key == keys::COMMAND_OUTPUT || key == keys::COMMAND_STDERR;
    for (key, value) in outcome.context_updates.iter().filter(|(key, _)| !is_above(key)) {
        field(&one_line(key, 200), &shown(value, blobs));
    }
    text
}

/// A message on one line: the role and the beginning; of a truncated one also the length.
fn message_line(message: &TranscriptMessage) -> String {
    const SHOWN: usize = 160;
    let text = match &message.content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let parts = parts.iter().filter_map(|part| match (&part["text"], &part["name"]) {
                (Value::String(text), _) => Some(text.clone()),
                (_, Value::String(tool)) => Some(format!("calls {tool}({})", part["arguments"])),
                _ => None,
            });
            parts.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    };
    let text = one_line(&text, usize::MAX);
    let text = match text.chars().count() {
        0..=SHOWN => text,
        length => format!("{} (cut, {length} characters in all)", one_line(&text, SHOWN)),
    };
    let session = message.session_id.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
    let tool = message.tool.as_deref().map(|it| format!(" {it}")).unwrap_or_default();
    let failed = if message.is_error { " failed" } else { "" };
    format!("{}{tool}{session}{failed}: {text}", message.role)
}

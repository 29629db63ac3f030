//! One stage in full.

use askama::Template;
use fabro_inspect::{ArtifactRow, Considered, Explain, StageReport, TieBreak};
use fabro_types::{Failure, one_line, strip_accelerator, tokens, took};

use crate::artifacts::artifacts;
use crate::conversation::{given, messages};
use crate::cost::cost_of;
use crate::stage_list::class;
use crate::texts::{Texts, counted, dollars, render};
use crate::{Links, patch};

/// For the script: opens and closes the calls and results of a conversation together.
const OPEN_ALL: &str = "<button type=\"button\" class=\"all\">Open or close all</button>\n";

/// The longest value of the context in its table, in characters.
const VALUE: usize = 200;

/// How many bytes of large values are read for a value of the context.
pub const CONTEXT_READ: u64 = 64 << 10;

/// What is shown of a stage besides its report.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageExtras<'a> {
    /// The kind of its node.
    pub kind: Option<fabro_types::NodeKind>,
    /// The label of its node.
    pub label: Option<&'a str>,
    /// Why the run took the edge after it.
    pub explain: Option<&'a Explain>,
    /// What it changed.
    pub patch: Option<&'a [u8]>,
    /// The files that it left and that were kept.
    pub artifacts: &'a [&'a ArtifactRow],
}

struct Fact {
    name: &'static str,
    value: String,
}

/// A part of the page of a stage.
struct Section {
    id: &'static str,
    title: String,
    is_open: bool,
    html: String,
}

#[derive(Template)]
#[template(path = "stage.html")]
struct Stage {
    class: &'static str,
    label: Option<String>,
    facts: Vec<Fact>,
    started_at: String,
    failure: Option<String>,
    warnings: Vec<String>,
    sections: Vec<Section>,
}

/// A stage: its facts, why its edge was taken, what it was sent and answered, what it left.
pub fn stage(
    report: &StageReport,
    extras: StageExtras<'_>,
    texts: &mut Texts,
    links: &Links,
) -> String {
    let row = &report.row;
    let name = row.name();
    let mut sections = Vec::new();
    let mut add = |id, title: String, is_open, html: String| {
        if !html.is_empty() {
            sections.push(Section { id, title, is_open, html });
        }
    };
    if let Some(explain) = extras.explain {
        add("edge", "Why this edge".to_owned(), true, explain_html(explain));
    }
    if !report.earlier_attempts.is_empty() {
        let title = counted(report.earlier_attempts.len(), "earlier attempt");
        add("attempts", title, true, attempts(report));
    }
    if let Some(gate) = &report.gate {
        add("gate", "Waits for a person".to_owned(), true, texts.block(&gate.question));
    }
    if report.transcript.is_empty() {
        add("given", "Given".to_owned(), false, given(&report.given, texts));
        let prompt = report.prompt.as_ref().map(|prompt| texts.block(prompt));
        add("prompt", "Prompt".to_owned(), false, prompt.unwrap_or_default());
        let title = if report.is_command() { "Output" } else { "Response" };
        let is_said = report.response.as_ref().filter(|value| value.as_str() != Some(""));
        let response = is_said.map(|value| texts.value(value));
        add("response", title.to_owned(), true, response.unwrap_or_default());
    } else {
        let count = counted(report.transcript.len(), "message");
        let said =
            given(&report.given, texts) + &messages(&links.id(&name), &report.transcript, texts);
        add("conversation", format!("Conversation · {count}"), true, OPEN_ALL.to_owned() + &said);
    }
    let stderr = report.stderr.as_ref().filter(|value| value.as_str() != Some(""));
    let stderr = stderr.map(|value| texts.value(value));
    add("stderr", "Standard error".to_owned(), true, stderr.unwrap_or_default());
    if let Some(bytes) = extras.patch {
        let title = format!("Changes · {}", patch::summary(bytes));
        add("changes", title, false, patch::patch(bytes));
    }
    if !row.files_touched.is_empty() && extras.patch.is_none() {
        let title = counted(row.files_touched.len(), "file") + " written";
        add("files", title, false, texts.block(&row.files_touched.join("\n")));
    }
    if !extras.artifacts.is_empty() {
        let title = counted(extras.artifacts.len(), "artifact");
        add("artifacts", title, true, artifacts(extras.artifacts, false, links));
    }
    add("context", context_title(report), false, context(report));
    render(&Stage {
        class: class(row),
        label: extras.label.map(str::to_owned),
        facts: facts(report, extras),
        started_at: row.started_at.clone(),
        failure: row.failure.as_ref().map(Failure::to_string),
        warnings: row.warnings.clone(),
        sections,
    })
}

fn facts(report: &StageReport, extras: StageExtras<'_>) -> Vec<Fact> {
    let row = &report.row;
    let mut facts = Vec::new();
    let mut add = |name, value: String| facts.push(Fact { name, value });
    add("status", row.status.to_owned());
    if let Some(kind) = extras.kind {
        add(
            "kind",
            match kind {
                fabro_types::NodeKind::ManagerLoop => "sub-workflow".to_owned(),
                kind => kind.to_string(),
            },
        );
    }
    add("took", took(row.duration_ms));
    if row.attempts > 1 {
        add("attempts", row.attempts.to_string());
    }
    if let Some(usage) = &row.usage {
        if let Some(model) = &usage.model {
            add("model", model.clone());
        }
        if usage.cost_usd > 0.0 || usage.unpriced_requests > 0 {
            add("cost", cost_of(usage));
        }
        let cached = match usage.cached_tokens {
            0 => String::new(),
            cached => format!(" ({} cached)", tokens(cached)),
        };
        let (input, output) = (tokens(usage.input_tokens), tokens(usage.output_tokens));
        add("tokens", format!("{input} in{cached}, {output} out"));
        if usage.turns > 0 {
            add("turns", usage.turns.to_string());
        }
        if usage.failed_requests > 0 {
            add("failed requests", usage.failed_requests.to_string());
        }
    }
    if let Some(outcome) = &report.outcome {
        if let Some(label) = &outcome.preferred_label {
            add("asks for", one_line(label, VALUE));
        }
        if !outcome.suggested_next_ids.is_empty() {
            add("suggests", one_line(&outcome.suggested_next_ids.join(", "), VALUE));
        }
        if let Some(notes) = &outcome.notes {
            add("notes", one_line(notes, VALUE));
        }
    }
    facts
}

struct Attempt {
    number: u32,
    why: String,
    delay: String,
    spent: String,
}

#[derive(Template)]
#[template(path = "attempts.html")]
struct Attempts {
    list: Vec<Attempt>,
}

fn attempts(report: &StageReport) -> String {
    let attempt = |failed: &fabro_inspect::FailedAttempt| Attempt {
        number: failed.attempt,
        why: failed.failure.to_string(),
        delay: took(failed.delay_ms),
        spent: failed.usage.as_ref().map_or_else(String::new, |usage| dollars(usage.cost_usd)),
    };
    render(&Attempts { list: report.earlier_attempts.iter().map(attempt).collect() })
}

struct Clause {
    sign: char,
    class: &'static str,
    text: String,
    saw: String,
}

struct Edge {
    sign: char,
    class: &'static str,
    to: String,
    label: Option<String>,
    condition: Option<String>,
    weight: Option<String>,
    clauses: Vec<Clause>,
}

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainView {
    to: Option<String>,
    why: String,
    gate: Option<String>,
    answer: Option<String>,
    edges: Vec<Edge>,
}

fn explain_html(explain: &Explain) -> String {
    let rule = explain.tier.map(|tier| format!("by rule {}", tier.as_str()));
    let drawn = explain.seed.map(|seed| format!(", drawn by weight with seed {seed}"));
    let tie = explain.tie_break.map_or("", TieBreak::text);
    let why = match &explain.failure {
        Some(failure) => failure.to_string(),
        None => format!("{}{}{tie}", rule.unwrap_or_default(), drawn.unwrap_or_default()),
    };
    render(&ExplainView {
        to: explain.chosen.as_deref().map(str::to_owned),
        why,
        gate: explain.gate.as_deref().map(str::to_owned),
        answer: explain.answer.as_ref().map(ToString::to_string),
        edges: explain.candidates.iter().map(edge).collect(),
    })
}

fn edge(candidate: &Considered) -> Edge {
    let (sign, class) = match (candidate.taken, candidate.holds) {
        (true, _) => ('✓', "good"),
        (false, true) => ('·', "dim"),
        (false, false) => ('✗', "bad"),
    };
    let clause = |clause: &fabro_types::ClauseResult| Clause {
        sign: if clause.holds { '✓' } else { '✗' },
        class: if clause.holds { "good" } else { "bad" },
        text: clause.text.clone(),
        saw: one_line(&clause.value, VALUE),
    };
    Edge {
        sign,
        class,
        to: candidate.to.to_string(),
        label: candidate.label.as_deref().map(|label| strip_accelerator(label).to_owned()),
        condition: candidate.condition.as_deref().map(str::to_owned),
        weight: (!candidate.weight.is_default()).then(|| candidate.weight.to_string()),
        clauses: candidate.clauses.iter().map(clause).collect(),
    }
}

#[derive(Template)]
#[template(path = "context.html")]
struct Context {
    values: Vec<(String, String)>,
}

fn context_title(report: &StageReport) -> String {
    let updates = report.outcome.as_ref().map_or(0, |outcome| outcome.context_updates.len());
    format!("Context · {} set", counted(updates, "key"))
}

/// The keys that the stage set. Large values are cut: the conversation has them.
fn context(report: &StageReport) -> String {
    let Some(outcome) = report.outcome.as_ref().filter(|it| !it.context_updates.is_empty()) else {
        return String::new();
    };
    let value = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => one_line(text, VALUE),
        other => one_line(&other.to_string(), VALUE),
    };
    let pairs = outcome.context_updates.iter();
    render(&Context { values: pairs.map(|(key, it)| (key.clone(), value(it))).collect() })
}

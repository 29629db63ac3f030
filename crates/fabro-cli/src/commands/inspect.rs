//! `fabro inspect`.

use std::fmt::Write as _;

use fabro_engine::read_all;
use fabro_inspect::{Inspect, StageReport, TranscriptMessage};
use fabro_run::{Gate, gate_names, is_driven, open_gates_of_family};
use serde_json::Value;

use crate::drive::answer_command;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use fabro_terminal::{Align, Paint, Table, clean, one_line, paint_run, paint_stage, took};

/// Show a run or one of its stages
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro inspect latest\n  fabro inspect latest plan\n  fabro inspect 01K3 test@2 --json"
)]
pub struct InspectArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// A stage, for its prompt, response and outcome
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]")]
    pub stage: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Shows a run, or one of its stages.
pub async fn inspect(args: &InspectArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let events = read_all(&store, run).await?;
    let paint = global.paint_stdout();
    if let Some(stage) = &args.stage {
        let report = fabro_inspect::stage(&events, stage, &store)?;
        let all = global.command(&format!("inspect {run} {stage} --json"));
        output::report(args.json, &report, || stage_text(&report, &all, paint))?;
        return Ok(Exit::SUCCEEDED);
    }
    let mut report = fabro_inspect::inspect(&events, is_driven(&store, run).await?)?;
    report.gates = open_gates_of_family(&store, run).await?;
    output::report(args.json, &report, || {
        let mut text = run_text(&report, paint);
        if !report.gates.is_empty() {
            let answer = answer_command(run, &report.gates, global);
            let _ = writeln!(text, "\n{}answer with: {answer}", questions(&report.gates, paint));
        }
        text
    })?;
    Ok(Exit::SUCCEEDED)
}

fn run_text(report: &Inspect, paint: Paint) -> String {
    let field = |name: &str, value: &str| format!("{} {value}\n", paint.dim(&format!("{name:9}")));
    let mut text = field("run", &report.id.to_string());
    text.push_str(&field("workflow", &clean(&report.workflow)));
    text.push_str(&field("status", &paint_run(report.status, paint)));
    if let Some(failure) = &report.failure {
        text.push_str(&field("failure", &paint.bad(&clean(&failure.to_string()))));
    }
    if !report.goal.is_empty() {
        text.push_str(&field("goal", &one_line(&report.goal, 200)));
    }
    if !report.inputs.is_empty() {
        let inputs = serde_json::to_string(&report.inputs).unwrap_or_default();
        text.push_str(&field("inputs", &one_line(&inputs, 200)));
    }
    text.push_str(&field("seed", &report.seed.to_string()));
    let usage = &report.usage;
    if usage.turns > 0 {
        let cost =
            if usage.cost_usd > 0.0 { format!(", ${:.2}", usage.cost_usd) } else { String::new() };
        let used = format!(
            "{} turns, {} tokens in, {} out{cost}",
            usage.turns, usage.input_tokens, usage.output_tokens
        );
        text.push_str(&field("usage", &used));
    }
    text.push('\n');
    text.push_str(&stages(report, paint));
    text
}

/// Gates that wait, each with what it asks and what can be chosen.
fn questions(gates: &[Gate], paint: Paint) -> String {
    let mut text = String::new();
    for (gate, name) in gates.iter().zip(gate_names(gates)) {
        let name = paint.bold(&name);
        let _ = writeln!(text, "{} {name} asks: {}", paint.odd("?"), clean(&gate.question));
        for option in &gate.options {
            let label = one_line(&option.label, 100);
            let _ = writeln!(text, "    [{}] {label}  → {}", clean(&option.key), option.to);
        }
        if gate.freeform {
            text.push_str("    or free text\n");
        }
    }
    text
}

fn stages(report: &Inspect, paint: Paint) -> String {
    let mut table = Table::new(&[
        ("rank", Align::Right),
        ("stage", Align::Left),
        ("status", Align::Left),
        ("attempts", Align::Right),
        ("next", Align::Left),
        ("branch", Align::Left),
    ]);
    for row in &report.stages {
        table.row([
            row.rank.to_string(),
            format!("{}@{}", row.node, row.visit),
            row.status.to_owned(),
            row.attempts.to_string(),
            row.edge.as_deref().unwrap_or_default().to_owned(),
            row.branch.as_deref().unwrap_or_default().to_owned(),
        ]);
    }
    table.render(paint, |column, text| match column {
        2 => paint_stage(text, paint),
        5 => paint.dim(text),
        _ => text.to_owned(),
    })
}

/// A stage for people; `all` is the command that shows all of it.
fn stage_text(report: &StageReport, all: &str, paint: Paint) -> String {
    let name = format!("{}@{}", report.node, report.visit);
    let mut text = match &report.outcome {
        None => format!("{} has not ended\n", paint.bold(&name)),
        Some(outcome) => format!(
            "{} {} in {}\n",
            paint.bold(&name),
            paint_stage(outcome.status.as_str(), paint),
            took(outcome.duration_ms)
        ),
    };
    if let Some(failure) = report.outcome.as_ref().and_then(|outcome| outcome.failure.as_ref()) {
        let _ = writeln!(text, "{}", paint.bad(&clean(&failure.to_string())));
    }
    let section = |title: &str, body: &str| {
        format!("\n{}\n{}\n", paint.dim(&format!("── {title}")), clean(body.trim_end()))
    };
    if let Some(gate) = &report.gate {
        text.push_str(&questions(std::slice::from_ref(gate), paint));
    }
    if let Some(tools) = report.given.tools.as_ref().and_then(Value::as_array) {
        let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        text.push_str(&section("tools", &names.join(", ")));
    }
    if let Some(system) = report.given.system.as_ref().and_then(Value::as_str) {
        text.push_str(&section("system prompt", system));
    }
    if let Some(prompt) = &report.prompt {
        text.push_str(&section("prompt", prompt));
    }
    match &report.response {
        Some(Value::String(response)) => text.push_str(&section("response", response)),
        Some(other) => text.push_str(&section("response", &format!("{other:#}"))),
        None => {}
    }
    if report.transcript.len() > 2 {
        let lines = report.transcript.iter().map(message_line).collect::<Vec<_>>().join("\n");
        text.push_str(&section("conversation", &lines));
        let _ = writeln!(text, "{}", paint.dim(&format!("every message in full: {all}")));
    }
    if let Some(outcome) = &report.outcome {
        let outcome = serde_json::to_string_pretty(outcome).unwrap_or_default();
        text.push_str(&section("outcome", &outcome));
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
    format!("{}{tool}{session}: {text}", message.role)
}

//! What a run is, how it ended, and what is to be known about it first.

use askama::Template;
use fabro_inspect::{Cause, Inspect, StageRow};
use fabro_types::{RunStatus, one_line, tokens, took};
use serde_json::Value;

use crate::Links;
use crate::cost::cost_of;
use crate::texts::{counted, render};

/// The longest input in the table of them, in characters.
const INPUT: usize = 400;

struct Trouble {
    stage: Option<String>,
    link: Option<String>,
    message: String,
    details: Option<String>,
    class: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    class: &'static str,
    sign: char,
    status: String,
    workflow: String,
    id: String,
    goal: String,
    dry_run: bool,
    started_at: String,
    facts: Vec<(&'static str, String)>,
    heading: &'static str,
    failure: Option<String>,
    troubles: Vec<Trouble>,
    overridden: Vec<String>,
    pause: Option<String>,
    inputs: Vec<(String, String)>,
}

/// The class of a run's status in [`style`](crate::style).
pub fn class(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Succeeded => "good",
        RunStatus::PartiallySucceeded => "part",
        RunStatus::Failed => "bad",
        RunStatus::Running => "live",
        RunStatus::Paused | RunStatus::Interrupted => "held",
        RunStatus::Canceled => "dim",
    }
}

/// A sign for the same.
pub fn sign(status: RunStatus) -> char {
    match class(status) {
        "good" => '✓',
        "part" => '~',
        "bad" => '✗',
        "live" => '▶',
        "held" => '‖',
        _ => '–',
    }
}

/// The head of a run's page: its workflow, status and figures, what failed first, the goal, the inputs.
pub fn overview(report: &Inspect, links: &Links) -> String {
    let usage = &report.usage;
    let failed = report.stages.iter().filter(|row| row.failure.is_some()).count();
    let mut facts =
        vec![("took", took(report.duration_ms)), ("stages", stages(report.stages.len(), failed))];
    if usage.turns > 0 || usage.cost_usd > 0.0 {
        facts.push(("cost", cost_of(usage)));
        let (input, output) = (tokens(usage.input_tokens), tokens(usage.output_tokens));
        facts.push(("tokens", format!("{input} in, {output} out")));
    }
    if let Some(fork) = &report.forked {
        facts
            .push((if fork.in_place { "rewound" } else { "forked" }, "not resumed yet".to_owned()));
    }
    let causes: Vec<Cause> = if report.unhandled.is_empty() {
        report.cause.clone().into_iter().collect()
    } else {
        report.unhandled.iter().map(Cause::of_stage).collect()
    };
    let failure = report.failure.as_ref();
    let adds = |cause: &Cause| failure.is_none_or(|it| cause.stage.is_some() || cause.adds_to(it));
    let causes: Vec<Cause> = causes.into_iter().filter(adds).collect();
    // What the first cause says is not said again of the run.
    let failure = failure.filter(|it| causes.iter().all(|cause| cause.message != it.message));
    let troubles = causes.into_iter().map(|cause| trouble(cause, &report.stages, links));
    render(&Overview {
        class: class(report.status),
        sign: sign(report.status),
        status: report.status.as_str().replace('_', " "),
        workflow: report.workflow.clone(),
        id: report.id.to_string(),
        goal: report.goal.clone(),
        dry_run: report.dry_run,
        started_at: report.started_at.clone(),
        facts,
        heading: match report.status {
            RunStatus::Failed => "Cause of failure",
            RunStatus::PartiallySucceeded => "Unhandled failures",
            _ => "Why it stopped",
        },
        failure: failure.map(ToString::to_string),
        troubles: troubles.collect(),
        overridden: report.overridden.iter().map(ToString::to_string).collect(),
        pause: report.pause.as_ref().map(|pause| pause.message.clone()),
        inputs: report.inputs.iter().map(|(key, it)| (key.clone(), input(it))).collect(),
    })
}

fn stages(all: usize, failed: usize) -> String {
    let all = counted(all, "stage");
    if failed == 0 { all } else { format!("{all}, {failed} with a failure") }
}

fn input(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text, INPUT),
        other => one_line(&other.to_string(), INPUT),
    }
}

fn trouble(cause: Cause, rows: &[StageRow], links: &Links) -> Trouble {
    let is_here = |name: &&String| rows.iter().any(|row| row.name() == **name);
    Trouble {
        link: cause.stage.as_ref().filter(is_here).map(|name| links.stage(name)),
        stage: cause.stage,
        message: cause.message,
        details: cause.details,
        class: cause.class.to_string(),
    }
}

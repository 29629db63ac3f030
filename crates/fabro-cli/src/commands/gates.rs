//! `fabro gates`.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabro_events::{AnsweredBy, EventBody, GateOption, timestamp};
use fabro_gate::{AskError, Interviewer as _, Question, Reply};
use fabro_run::{Gate, gate_names, now_ms, open_gates_of_family, os_user};
use fabro_store::{RunLog as _, Runs as _, SqliteStore};
use fabro_terminal::{Paint, TerminalInterviewer, clean, one_line, took, wrap};
use fabro_types::{RunId, RunStatus};
use serde::Serialize;
use serde_json::{Map, Value};

use super::answer::{answered_text, resumed_text};
use super::run_lines::gate_text;
use crate::agent;
use crate::exit::Exit;
use crate::global::{Global, stdout_width};
use crate::output;

/// List gates that wait for a person, answer one
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro gates\n  fabro gates --json\n\nOn a terminal, choose a gate and answer it; Escape quits without an answer."
)]
pub struct GatesArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A waiting gate, with its run.
#[derive(Serialize)]
struct OpenGate {
    run: RunId,
    workflow: String,
    goal: String,
    inputs: Map<String, Value>,
    status: RunStatus,
    /// Its name for `fabro answer`.
    name: String,
    asked_at: String,
    waiting_ms: u64,
    #[serde(flatten)]
    gate: Gate,
}

/// Lists open gates, and on a terminal answers one.
pub async fn gates(args: &GatesArgs, global: &Global) -> anyhow::Result<Exit> {
    let gates = open_gates(&global.store_to_read()?, global).await?;
    if args.json {
        output::report(true, &gates, String::new)?;
        return Ok(Exit::SUCCEEDED);
    }
    if gates.is_empty() {
        output::text("No gates are waiting.\n")?;
        return Ok(Exit::SUCCEEDED);
    }
    output::text(&text(&gates, global))?;
    let is_terminal = [
        std::io::stdin().is_terminal(),
        std::io::stdout().is_terminal(),
        std::io::stderr().is_terminal(),
    ];
    if is_terminal.contains(&false) {
        return Ok(Exit::SUCCEEDED);
    }
    agent::refuse()?;
    answer_one(&gates, global).await
}

/// The gates without an answer of all runs that have not ended, the oldest question first. A run that cannot be read
/// is a warning.
async fn open_gates(store: &SqliteStore, global: &Global) -> anyhow::Result<Vec<OpenGate>> {
    let now = now_ms();
    let mut open = Vec::new();
    for run in store.list().await? {
        if run.status.is_final() || run.parent.is_some() {
            continue;
        }
        let gates = match open_gates_of_family(store, run.id).await {
            Ok(gates) => gates,
            Err(error) => {
                global.warn([error.to_string()]);
                continue;
            }
        };
        if gates.is_empty() {
            continue;
        }
        let first = store.read(run.id, 0, 1).await?.pop();
        let inputs = match first.map(|event| event.entry.body) {
            Some(EventBody::RunCreated(created)) => created.inputs.clone(),
            _ => Map::new(),
        };
        for (name, gate) in gate_names(&gates).into_iter().zip(gates) {
            // Already answered: the run reads the answer when it resumes.
            if gate.pending_answer.is_some() {
                continue;
            }
            open.push(OpenGate {
                run: run.id,
                workflow: run.workflow.clone(),
                goal: run.goal.clone(),
                inputs: inputs.clone(),
                status: run.status,
                name,
                asked_at: timestamp(gate.asked_ms),
                waiting_ms: u64::try_from(now.saturating_sub(gate.asked_ms)).unwrap_or_default(),
                gate,
            });
        }
    }
    open.sort_by_key(|it| it.gate.asked_ms);
    Ok(open)
}

fn text(gates: &[OpenGate], global: &Global) -> String {
    let paint = global.paint_stdout();
    let mut text = String::new();
    for open in gates {
        text.push_str(&heading(open, paint));
        text.push_str(&gate_text(&open.gate, &open.name, stdout_width(), paint));
    }
    let answer = global.command("answer RUN GATE CHOICE");
    let _ = writeln!(text, "\nAnswer with: {answer}");
    text
}

/// `demo 01K3…  waiting for 4m 02s`, and below it the goal and the inputs of the run.
fn heading(open: &OpenGate, paint: Paint) -> String {
    let waiting = format!("waiting for {}", took(open.waiting_ms));
    let workflow = paint.bold(&clean(&open.workflow));
    let mut text = format!("{workflow} {}  {}\n", open.run, paint.dim(&waiting));
    for (name, value) in [("goal", open.goal.clone()), ("inputs", inputs_text(&open.inputs))] {
        if !value.is_empty() {
            let line = format!("  {name}: {}", one_line(&value, 200));
            text.push_str(&wrap(&line, stdout_width(), 4));
            text.push('\n');
        }
    }
    text
}

/// `stage=production, count=3`.
fn inputs_text(inputs: &Map<String, Value>) -> String {
    let pair = |(key, value): (&String, &Value)| match value {
        Value::String(value) => format!("{key}={value}"),
        value => format!("{key}={value}"),
    };
    inputs.iter().map(pair).collect::<Vec<_>>().join(", ")
}

/// Lets the person choose a gate, asks its question, and sends the answer.
async fn answer_one(gates: &[OpenGate], global: &Global) -> anyhow::Result<Exit> {
    let terminal = TerminalInterviewer::new();
    let open = match gates {
        [only] => only,
        several => {
            let option = |(at, open): (usize, &OpenGate)| GateOption {
                key: (at + 1).to_string(),
                label: label(open),
                to: open.name.as_str().into(),
                unavailable: None,
            };
            let options: Vec<_> = several.iter().enumerate().map(option).collect();
            let question =
                Question { text: "Which gate?".to_owned(), options, ..Question::default() };
            let Some(chosen) = ask(&terminal, &question).await? else {
                return Ok(Exit::SUCCEEDED);
            };
            let at =
                chosen.trim().parse::<usize>().ok().and_then(|at| several.get(at.checked_sub(1)?));
            let Some(open) = at else { return Ok(Exit::SUCCEEDED) };
            output::text(&format!("\n{}", heading(open, global.paint_stdout())))?;
            open
        }
    };
    // The only gate stands with its texts right above.
    let question = question(&open.gate, gates.len() > 1);
    let Some(choice) = ask(&terminal, &question).await? else { return Ok(Exit::SUCCEEDED) };
    let (store, run) = global.run_to_change(&open.run.to_string()).await?;
    let by = AnsweredBy { process: agent::ancestry(), ..AnsweredBy::new(os_user(), "terminal") };
    let gate = fabro_run::answer(&store, run, Some(&open.name), &choice, by, None).await?;
    output::text(&answered_text(&gate))?;
    output::text(&resumed_text(&Arc::new(store), run, global).await?)?;
    Ok(Exit::SUCCEEDED)
}

/// The question of a gate. With `with_texts` it includes the `show` texts, because the list above has other gates too.
fn question(gate: &Gate, with_texts: bool) -> Question {
    let left = gate.left_ms(now_ms()).map(Duration::from_millis);
    let shown = Question {
        branch: gate.branch.clone(),
        item: gate.item.clone(),
        failures: gate.failures.clone(),
        show: gate.show.clone(),
        run: Some(gate.run),
        ..Question::default()
    };
    Question {
        node: Arc::clone(&gate.node),
        visit: gate.visit,
        text: gate.question.clone(),
        question_type: gate.question_type,
        options: gate.options.clone(),
        freeform: gate.freeform,
        text_option: gate.text_option.clone(),
        default_choice: gate.default_choice.clone(),
        deadline: left.map(|left| Instant::now() + left),
        ..if with_texts { shown } else { Question::default() }
    }
}

/// Tells the gates of several runs of one workflow apart.
fn label(open: &OpenGate) -> String {
    let item = open.gate.item.iter().map(|item| one_line(item, 30));
    let run = [one_line(&inputs_text(&open.inputs), 60), one_line(&open.goal, 60)];
    let age = format!("waiting for {}", took(open.waiting_ms));
    let parts = std::iter::once(open.name.clone())
        .chain(item)
        .chain([one_line(&open.gate.question, 60), open.workflow.clone()])
        .chain(run.into_iter().filter(|text| !text.is_empty()))
        .chain([age]);
    parts.collect::<Vec<_>>().join(" · ")
}

/// Asks at the terminal; `None` without an answer.
async fn ask(
    terminal: &TerminalInterviewer,
    question: &Question,
) -> Result<Option<String>, AskError> {
    match terminal.ask(question).await {
        Ok(Reply::Answer { text, .. }) => Ok(Some(text)),
        Ok(Reply::Unavailable) | Err(AskError::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

//! `fabro gates`.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabro_events::{AnsweredBy, GateOption, timestamp};
use fabro_gate::{AskError, Interviewer as _, Question, Reply};
use fabro_run::{Gate, gate_names, now_ms, open_gates_of_family, os_user};
use fabro_store::{Runs as _, SqliteStore};
use fabro_terminal::{Paint, TerminalInterviewer, clean, one_line, took};
use fabro_types::{RunId, RunStatus};
use serde::Serialize;

use super::answer::{answered_text, resumed_text};
use super::run_lines::gate_text;
use crate::agent;
use crate::exit::Exit;
use crate::global::Global;
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
        for (name, gate) in gate_names(&gates).into_iter().zip(gates) {
            // Already answered: the run reads the answer when it resumes.
            if gate.pending_answer.is_some() {
                continue;
            }
            open.push(OpenGate {
                run: run.id,
                workflow: run.workflow.clone(),
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
        let _ = writeln!(text, "{}", heading(open, paint));
        text.push_str(&gate_text(&open.gate, &open.name, paint));
    }
    let answer = global.command("answer RUN GATE CHOICE");
    let _ = writeln!(text, "\nAnswer with: {answer}");
    text
}

/// `demo 01K3…, waiting for 4m 02s`.
fn heading(open: &OpenGate, paint: Paint) -> String {
    let waiting = format!("waiting for {}", took(open.waiting_ms));
    format!("{} {}  {}", paint.bold(&clean(&open.workflow)), open.run, paint.dim(&waiting))
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
            open
        }
    };
    let gate = &open.gate;
    let left = gate.left_ms(now_ms()).map(Duration::from_millis);
    let question = Question {
        node: Arc::clone(&gate.node),
        visit: gate.visit,
        text: gate.question.clone(),
        question_type: gate.question_type,
        options: gate.options.clone(),
        freeform: gate.freeform,
        text_option: gate.text_option.clone(),
        default_choice: gate.default_choice.clone(),
        deadline: left.map(|left| Instant::now() + left),
        // The list above already has the texts of `show`.
        ..Question::default()
    };
    let Some(choice) = ask(&terminal, &question).await? else { return Ok(Exit::SUCCEEDED) };
    let (store, run) = global.run_to_change(&open.run.to_string()).await?;
    let by = AnsweredBy { process: agent::ancestry(), ..AnsweredBy::new(os_user(), "terminal") };
    let gate = fabro_run::answer(&store, run, Some(&open.name), &choice, by, None).await?;
    output::text(&answered_text(&gate))?;
    output::text(&resumed_text(&Arc::new(store), run, global).await?)?;
    Ok(Exit::SUCCEEDED)
}

fn label(open: &OpenGate) -> String {
    let item = open.gate.item.iter().map(|item| one_line(item, 30));
    let parts = std::iter::once(open.name.clone()).chain(item);
    let run = open.run.to_string();
    let parts = parts.chain([one_line(&open.gate.question, 60), open.workflow.clone(), run]);
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

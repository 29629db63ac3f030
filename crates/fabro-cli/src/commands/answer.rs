//! `fabro answer`.

use std::path::Path;
use std::sync::Arc;

use clap_complete::ArgValueCandidates;
use fabro_events::{AnsweredBy, GateOption};
use fabro_gate::{GateAnswer, match_answer};
use fabro_run::{Gate, ResumedByAnswer, RunError, gate_names, open_gates_of_family, os_user};
use fabro_store::{Runs as _, SqliteStore, StoreError};
use fabro_terminal::clean;
use fabro_types::{RunId, one_line};

use super::run_lines::questions;
use crate::agent;
use crate::complete;
use crate::drive::resume_hint;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, quoted, stderr_width};
use crate::output;

/// The longest label of an option that is shown, in characters.
const LABEL: usize = 80;

/// Answer a gate that waits for a person
#[derive(clap::Args, Clone, Debug)]
#[command(
    override_usage = "fabro answer [OPTIONS] <RUN> [GATE] <CHOICE>",
    after_help = "Examples:\n  fabro answer latest y\n  fabro answer latest review 'Use the other API'\n\n`fabro gates` lists the questions of all runs, `fabro inspect RUN` those of one. GATE is the shortest name that is unique: `review`, `review@2`, `review[3]` for an element of a list, `work[3]/review`. A run that waits for a person continues in the background."
)]
pub struct AnswerArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// An option's key, number or label, or free text; before it the gate if several wait.
    /// Without it the questions are shown
    #[arg(num_args = 0..=2, value_name = "[GATE] CHOICE", add = ArgValueCandidates::new(complete::choices))]
    pub words: Vec<String>,

    /// Only record the answer; `fabro resume` continues the run
    #[arg(long)]
    pub no_resume: bool,
}

/// Answers a gate, of the run or of one of its sub-workflows.
pub async fn answer(args: &AnswerArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = match global.run_to_change(&args.run).await {
        Err(error) if args.words.is_empty() && is_missing(&error) => {
            let word = quoted(Path::new(&args.run));
            let answer = global.command(&format!("answer latest {word}"));
            let next = format!("name the run before the choice: `{answer}`");
            return Err(error::usage(error.to_string(), next));
        }
        found => found?,
    };
    let (name, choice) = match args.words.as_slice() {
        [gate, choice] => (Some(gate.as_str()), choice),
        [choice] => (None, choice),
        _ => return Err(unanswered(&store, run, global).await?),
    };
    let by = AnsweredBy { process: agent::ancestry(), ..AnsweredBy::new(os_user(), "cli") };
    let gate = fabro_run::answer(&store, run, name, choice, by, None).await?;
    output::text(&answered_text(&gate))?;
    let hint = if args.no_resume {
        resume_hint(&store, run, global).await?
    } else {
        resumed_text(&Arc::new(store), run, global).await?
    };
    output::text(&hint)?;
    Ok(Exit::SUCCEEDED)
}

/// Confirms an answer: the gate, and the option that was chosen.
pub(super) fn answered_text(gate: &Gate) -> String {
    let item = gate.item.as_ref().map(|item| format!(" ({})", clean(item))).unwrap_or_default();
    let name = gate_names(std::slice::from_ref(gate)).concat();
    // The first visit is what a node without a visit means.
    let name = name.strip_suffix("@1").unwrap_or(&name);
    format!("answered {}{item}{}\n", clean(name), meaning(gate))
}

/// Resumes a run that waits for people, in the background, and tells how to follow it. For another run, tells how
/// to resume it.
pub(super) async fn resumed_text(
    store: &Arc<SqliteStore>,
    run: RunId,
    global: &Global,
) -> anyhow::Result<String> {
    let root = store.root(run).await?;
    let program = std::env::current_exe()?;
    let resumed = Box::pin(fabro_run::resume_answered(Arc::clone(store), root, &program)).await?;
    let how = match resumed {
        ResumedByAnswer::Resumed(started) => {
            global.warn(&started.warnings);
            "the run continues in the background"
        }
        ResumedByAnswer::Driven => "the run continues",
        ResumedByAnswer::NotWaiting => return resume_hint(store, run, global).await,
    };
    Ok(format!("{how} · follow: {}\n", global.command(&format!("logs {root} -f"))))
}

/// Whether there is no such run.
fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(StoreError::NotFound { .. }))
}

/// How the answer was read, which may not be as it was meant: a word that is no option is free text.
fn meaning(gate: &Gate) -> String {
    let Gate { options, freeform, text_option, question_type, .. } = gate;
    let Some(answer) = &gate.pending_answer else { return String::new() };
    let shown = |option: &GateOption| {
        let key = clean(&option.key);
        let label = one_line(&option.label, LABEL);
        if key.is_empty() { label } else { format!("[{key}] {label}") }
    };
    match match_answer(options, *freeform, text_option.as_ref(), *question_type, answer) {
        Ok(GateAnswer::Option(at)) => format!(": {}", shown(&options[at])),
        Ok(GateAnswer::Options(all)) => {
            let chosen: Vec<_> = all.into_iter().map(|at| shown(&options[at])).collect();
            format!(": {}", chosen.join(", "))
        }
        Ok(GateAnswer::Text(_)) => match text_option {
            Some(option) => format!(": free text, {}", shown(option)),
            None => ": free text".to_owned(),
        },
        // The answer was taken, so it matches.
        Err(_) => String::new(),
    }
}

/// Shows the questions of a run, and the error that says how to answer them.
async fn unanswered(
    store: &SqliteStore,
    run: RunId,
    global: &Global,
) -> anyhow::Result<anyhow::Error> {
    let gates = open_gates_of_family(store, run).await?;
    if gates.is_empty() {
        return Ok(RunError::NoOpenGate { run }.into());
    }
    output::stderr(&questions(&gates, stderr_width(), global.paint_stderr()));
    let names = gate_names(&gates);
    let open = gates.iter().zip(&names).filter(|(gate, _)| gate.pending_answer.is_none());
    if open.clone().next().is_none() {
        let hint = resume_hint(store, run, global).await?;
        let hint = match hint.trim_end() {
            "" => "the run takes the answer by itself",
            hint => hint,
        };
        return Ok(error::usage("every gate has been answered", hint.to_owned()));
    }
    if gates.len() > 1 {
        let command = global.command(&format!("answer {run} GATE CHOICE"));
        let fix = format!("answer with `{command}`: GATE is a name above, such as `{}`", names[0]);
        return Ok(error::usage("the answer is missing", fix));
    }
    let mut commands = Vec::new();
    for (gate, _) in open {
        let options = gate.options.iter().filter(|option| option.unavailable.is_none());
        let keys = options.chain(&gate.text_option).map(|option| clean(&option.key).into_owned());
        let text = gate.freeform.then(|| "\"TEXT\"".to_owned());
        for choice in keys.filter(|key| !key.is_empty()).chain(text) {
            commands.push(format!("`{}`", global.command(&format!("answer {run} {choice}"))));
        }
    }
    Ok(error::usage("the answer is missing", format!("answer with {}", commands.join(" or "))))
}

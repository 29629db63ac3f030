//! `fabro answer`.

use std::path::Path;

use clap_complete::ArgValueCandidates;
use fabro_events::{AnsweredBy, GateOption};
use fabro_gate::{GateAnswer, match_answer};
use fabro_run::{Gate, RunError, gate_names, open_gates_of_family, os_user};
use fabro_store::{SqliteStore, StoreError};
use fabro_terminal::clean;
use fabro_types::{RunId, one_line};

use super::run_lines::questions;
use crate::complete;
use crate::drive::resume_hint;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, quoted};
use crate::output;

/// The longest label of an option that is shown, in characters.
const LABEL: usize = 80;

/// Answer a gate that waits for a person
#[derive(clap::Args, Clone, Debug)]
#[command(
    override_usage = "fabro answer [OPTIONS] <RUN> [GATE] <CHOICE>",
    after_help = "Examples:\n  fabro answer latest y\n  fabro answer latest review 'Use the other API'\n\n`fabro inspect RUN` shows the questions and their options. A run that is paused continues with\n`fabro resume`; one that is being driven continues by itself."
)]
pub struct AnswerArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// An option's key, number or label, or free text; before it the gate (NODE or NODE@VISIT) if
    /// several wait. Without it the questions are shown
    #[arg(num_args = 0..=2, value_name = "[GATE] CHOICE", add = ArgValueCandidates::new(complete::choices))]
    pub words: Vec<String>,
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
    let by = AnsweredBy::new(os_user(), "cli");
    let gate = fabro_run::answer(&store, run, name, choice, by, None).await?;
    let hint = resume_hint(&store, run, global).await?;
    output::text(&format!("answered {}{}\n{hint}", gate.node, meaning(&gate)))?;
    Ok(Exit::SUCCEEDED)
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
    output::stderr(&questions(&gates, global.paint_stderr()));
    let names = gate_names(&gates);
    let several = gates.len() > 1;
    let mut commands = Vec::new();
    let open = gates.iter().zip(&names).filter(|(gate, _)| gate.pending_answer.is_none());
    if open.clone().next().is_none() {
        let hint = resume_hint(store, run, global).await?;
        let hint = match hint.trim_end() {
            "" => "the run takes the answer by itself",
            hint => hint,
        };
        return Ok(error::usage("every gate has been answered", hint.to_owned()));
    }
    for (gate, name) in open {
        let name = if several { format!("{name} ") } else { String::new() };
        let options = gate.options.iter().filter(|option| option.unavailable.is_none());
        let keys = options.chain(&gate.text_option).map(|option| clean(&option.key).into_owned());
        let text = gate.freeform.then(|| "\"TEXT\"".to_owned());
        for choice in keys.filter(|key| !key.is_empty()).chain(text) {
            commands.push(format!("`{}`", global.command(&format!("answer {run} {name}{choice}"))));
        }
    }
    Ok(error::usage("the answer is missing", format!("answer with {}", commands.join(" or "))))
}

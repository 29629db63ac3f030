//! `fabro answer`.

use clap_complete::ArgValueCandidates;

use crate::complete;
use crate::drive::resume_hint;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;

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
    /// several wait
    #[arg(num_args = 1..=2, required = true, value_name = "[GATE] CHOICE", add = ArgValueCandidates::new(complete::choices))]
    pub words: Vec<String>,
}

/// Answers a gate, of the run or of one of its sub-workflows.
pub async fn answer(args: &AnswerArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_change(&args.run).await?;
    let (name, choice) = match args.words.as_slice() {
        [gate, choice] => (Some(gate.as_str()), choice),
        [choice] => (None, choice),
        _ => return Err(error::usage("the answer is missing", "write RUN [GATE] CHOICE")),
    };
    let gate = fabro_run::answer(&store, run, name, choice, "cli", None).await?;
    let hint = resume_hint(&store, run, global).await?;
    output::text(&format!("answered {}\n{hint}", gate.node))?;
    Ok(Exit::SUCCEEDED)
}

//! `fabro answer`.

use std::fmt::Write as _;

use fabro_engine::checkpoint;
use fabro_human::match_answer;
use fabro_report::{Gate, load, open_gates};
use fabro_store::{Inbox as _, Message, SqliteStore};
use fabro_types::RunId;

use super::cancel::family;
use crate::cli::AnswerArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// Answers a gate, of the run or of one of its sub-workflows.
pub fn answer(args: &AnswerArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_change(&args.run)?;
    let (wanted, choice) = match args.words.as_slice() {
        [gate, choice] => (Some(gate.as_str()), choice),
        [choice] => (None, choice),
        _ => return Err(error::usage("there is no answer", "write RUN [GATE] CHOICE")),
    };
    let gates = gates(&store, run)?;
    let (owner, gate) = select(&gates, wanted, global, run)?;
    match_answer(&gate.options, gate.freeform, gate.question_type, choice)
        .map_err(|error| error::usage(error.to_string(), "answer with one of these"))?;
    let message = Message::Answer {
        node: gate.node.to_string(),
        visit: gate.visit,
        branch: gate.branch.as_deref().map(str::to_owned),
        choice: choice.clone(),
        source: "cli".to_owned(),
    };
    store.post(*owner, &message)?;
    let mut text = format!("answered {}\n", gate.node);
    if !store.is_driven(run)? {
        let _ = writeln!(text, "go on with: {}", global.command(&format!("resume {run}")));
    }
    output::stdout(&text)?;
    Ok(exit::SUCCEEDED)
}

/// The gates that wait, each with the run it belongs to.
pub fn gates(store: &SqliteStore, run: RunId) -> anyhow::Result<Vec<(RunId, Gate)>> {
    let mut gates = Vec::new();
    for member in family(store, run)? {
        gates.extend(open_gates(&load(store, member)?).into_iter().map(|gate| (member, gate)));
    }
    Ok(gates)
}

fn select<'a>(
    gates: &'a [(RunId, Gate)],
    wanted: Option<&str>,
    global: &Global,
    run: RunId,
) -> anyhow::Result<&'a (RunId, Gate)> {
    let (node, visit) = wanted.map_or((None, None), checkpoint::split);
    let is_wanted = |(_, gate): &&(RunId, Gate)| {
        node.is_none_or(|node| *gate.node == *node) && visit.is_none_or(|visit| gate.visit == visit)
    };
    let found: Vec<_> = gates.iter().filter(is_wanted).collect();
    match (found.as_slice(), gates) {
        ([one], _) => Ok(one),
        (_, []) => Err(error::usage(
            format!("no gate of run {run} waits for an answer"),
            format!("see where it is with `{}`", global.command(&format!("inspect {run}"))),
        )),
        ([], _) => Err(error::usage(
            format!("no gate `{}` waits for an answer", wanted.unwrap_or_default()),
            format!("waiting: {}", names(gates.iter())),
        )),
        _ => Err(error::usage(
            "several gates wait for an answer",
            format!("name one of them before the choice: {}", names(found.into_iter())),
        )),
    }
}

fn names<'a>(gates: impl Iterator<Item = &'a (RunId, Gate)>) -> String {
    gates.map(|(_, gate)| format!("{}@{}", gate.node, gate.visit)).collect::<Vec<_>>().join(", ")
}

//! `fabro answer`.

use std::fmt::Write as _;

use fabro_engine::checkpoint;
use fabro_human::{Answer, match_answer};
use fabro_report::{Gate, open_gates};
use fabro_setup::{Member, at_work, check_given, root};
use fabro_store::{Inbox as _, Message, SqliteStore};
use fabro_types::RunId;

use crate::cli::AnswerArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use crate::wiring::run_redactor;

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
    let read = match_answer(&gate.options, gate.freeform, gate.question_type, choice);
    if !matches!(read, Ok(Answer::Option(_) | Answer::Options(_))) {
        check_given(&run_redactor(&store, run)?, "the answer", choice)?;
    }
    read.map_err(|error| error::usage(error.to_string(), "answer with one of these"))?;
    let message = Message::Answer {
        node: gate.node.to_string(),
        visit: gate.visit,
        branch: gate.branch.as_deref().map(str::to_owned),
        choice: choice.clone(),
        source: "cli".to_owned(),
    };
    store.post(owner.run, &message)?;
    let mut text = format!("answered {}\n", gate.node);
    let root = root(&store, run)?;
    if !store.is_driven(root)? {
        let _ = writeln!(text, "go on with: {}", global.command(&format!("resume {root}")));
    }
    output::stdout(&text)?;
    Ok(exit::SUCCEEDED)
}

/// The gates that wait, each with the run it belongs to.
pub fn gates(store: &SqliteStore, run: RunId) -> anyhow::Result<Vec<(Member, Gate)>> {
    let mut gates = Vec::new();
    for member in at_work(store, run)? {
        gates.extend(open_gates(&member.events).into_iter().map(|gate| (member.clone(), gate)));
    }
    Ok(gates)
}

fn select<'a>(
    gates: &'a [(Member, Gate)],
    wanted: Option<&str>,
    global: &Global,
    run: RunId,
) -> anyhow::Result<&'a (Member, Gate)> {
    let (node, visit) = wanted.map_or((None, None), checkpoint::split);
    let is_named = |id: &str, at: u32| {
        node.is_none_or(|node| id == node) && visit.is_none_or(|visit| at == visit)
    };
    let mut found: Vec<_> =
        gates.iter().filter(|(_, gate)| is_named(&gate.node, gate.visit)).collect();
    if found.is_empty() {
        // Or the stage that holds the gate in its sub-workflow: a paused run names that one.
        let holds = |member: &Member| member.within.iter().any(|(id, at)| is_named(id, *at));
        found.extend(gates.iter().filter(|(member, _)| holds(member)));
    }
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

/// The names of gates.
pub fn names<'a>(gates: impl Iterator<Item = &'a (Member, Gate)>) -> String {
    gates.map(|(_, gate)| format!("{}@{}", gate.node, gate.visit)).collect::<Vec<_>>().join(", ")
}

//! `fabro answer`.

use std::fmt::Write as _;

use fabro_gate::{Answer, match_answer};
use fabro_inspect::{Gate, find_gates, gate_names, open_gates};
use fabro_run::{at_work, check_given, root};
use fabro_store::{Inbox as _, Message, SqliteStore};
use fabro_types::RunId;

use crate::cli::AnswerArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use crate::wiring::run_redactor;

/// Answers a gate, of the run or of one of its sub-workflows.
pub async fn answer(args: &AnswerArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_change(&args.run).await?;
    let (wanted, choice) = match args.words.as_slice() {
        [gate, choice] => (Some(gate.as_str()), choice),
        [choice] => (None, choice),
        _ => return Err(error::usage("there is no answer", "write RUN [GATE] CHOICE")),
    };
    let (owners, gates) = gates(&store, run).await?;
    let at = select(&gates, wanted, global, run)?;
    let (owner, gate) = (owners[at], &gates[at]);
    let read = match_answer(&gate.options, gate.freeform, gate.question_type, choice);
    if !matches!(read, Ok(Answer::Option(_) | Answer::Options(_))) {
        check_given(&run_redactor(&store, run).await?, "the answer", choice)?;
    }
    read.map_err(|error| error::usage(error.to_string(), "answer with one of these"))?;
    let message = Message::Answer {
        node: gate.node.to_string(),
        visit: gate.visit,
        branch: gate.branch.as_deref().map(str::to_owned),
        choice: choice.clone(),
        source: "cli".to_owned(),
    };
    store.post(owner, &message).await?;
    let mut text = format!("answered {}\n", gate.node);
    let root = root(&store, run).await?;
    if !store.is_driven(root)? {
        let _ = writeln!(text, "go on with: {}", global.command(&format!("resume {root}")));
    }
    output::stdout(&text)?;
    Ok(exit::SUCCEEDED)
}

/// The runs of the gates that wait, and the gates.
pub async fn gates(store: &SqliteStore, run: RunId) -> anyhow::Result<(Vec<RunId>, Vec<Gate>)> {
    let (mut owners, mut gates) = (Vec::new(), Vec::new());
    for member in at_work(store, run).await? {
        let within = member.within.iter().map(|(node, visit)| format!("{node}@{visit}"));
        let within: Vec<_> = within.collect();
        for gate in open_gates(&member.events) {
            owners.push(member.run);
            gates.push(Gate { within: within.clone(), ..gate });
        }
    }
    Ok((owners, gates))
}

/// The place of the gate that is meant.
fn select(
    gates: &[Gate],
    wanted: Option<&str>,
    global: &Global,
    run: RunId,
) -> anyhow::Result<usize> {
    let found = match wanted {
        Some(name) => find_gates(gates, name),
        None => (0..gates.len()).collect(),
    };
    let names = gate_names(gates);
    match found[..] {
        [one] => Ok(one),
        _ if gates.is_empty() => Err(error::usage(
            format!("no gate of run {run} waits for an answer"),
            format!("see where it is with `{}`", global.command(&format!("inspect {run}"))),
        )),
        [] => Err(error::usage(
            format!("no gate `{}` waits for an answer", wanted.unwrap_or_default()),
            format!("waiting: {}", names.join(", ")),
        )),
        _ => {
            let found: Vec<_> = found.iter().map(|at| names[*at].as_str()).collect();
            Err(error::usage(
                "several gates wait for an answer",
                format!("name one of them before the choice: {}", found.join(", ")),
            ))
        }
    }
}

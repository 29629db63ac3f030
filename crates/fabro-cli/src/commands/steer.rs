//! `fabro steer`.

use std::fmt::Write as _;

use fabro_engine::{Phase, RunState, read_all};
use fabro_graph::NodeKind;
use fabro_handlers::Bundle;
use fabro_run::{check_given, family, root};
use fabro_store::{Inbox as _, Message, SqliteStore};
use fabro_types::RunId;

use crate::cli::SteerArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use crate::wiring::run_redactor;

/// A run, or one of its sub-workflows, that is not over.
struct Member {
    run: RunId,
    /// Agents at work, as `NODE@VISIT`; only those that are meant.
    at_work: Vec<String>,
    /// The workflow's agents.
    agents: Vec<String>,
}

/// Tells something to the agents of a run while they are at work.
pub async fn steer(args: &SteerArgs, global: &Global) -> anyhow::Result<Exit> {
    if args.text.trim().is_empty() {
        return Err(error::usage("there is nothing to say", "write RUN \"TEXT\""));
    }
    let (store, run) = global.run_to_change(&args.run).await?;
    check_given(&run_redactor(&store, run).await?, "the text", &args.text)?;
    let node = args.node.as_deref();
    let mut members = Vec::new();
    for id in family(&store, run).await? {
        match member(&store, id, node).await? {
            Ok(member) => members.push(member),
            Err(status) if id == run => {
                return Err(error::usage(
                    format!("run {run} is over: {status}"),
                    format!(
                        "nobody would read it; go back in the run with `{}`",
                        global.command(&format!("rewind {run} NODE@VISIT"))
                    ),
                ));
            }
            Err(_) => {}
        }
    }
    let at_work: Vec<&Member> = members.iter().filter(|it| !it.at_work.is_empty()).collect();
    let told = if at_work.is_empty() { later(&members, node)? } else { at_work };
    for member in &told {
        let message = Message::Steer { text: args.text.clone(), node: args.node.clone() };
        store.post(member.run, &message).await?;
    }
    let root = root(&store, run).await?;
    output::stdout(&said(&told, store.is_driven(root)?, root, global))?;
    Ok(exit::SUCCEEDED)
}

/// What to know of a run; its status when it is over.
async fn member(
    store: &SqliteStore,
    run: RunId,
    node: Option<&str>,
) -> anyhow::Result<Result<Member, fabro_types::RunStatus>> {
    let state = RunState::replay(run, &read_all(store, run).await?);
    if let Phase::Ended(status, _) = state.phase {
        return Ok(Err(status));
    }
    let is_meant = |id: &str| node.is_none_or(|node| node == id);
    let agents_at_work = state.active().filter(|(_, at)| at.handler.as_ref() == "agent");
    let meant = agents_at_work.filter(|(_, at)| is_meant(&at.node));
    let at_work = meant.map(|(_, at)| format!("{}@{}", at.node, at.visit)).collect();
    let Some(created) = &state.created else {
        return Ok(Ok(Member { run, at_work, agents: Vec::new() }));
    };
    let plan = Bundle::load(store, &created.bundle)?.plan()?;
    let agents = plan.workflow().nodes().filter(|node| node.kind == NodeKind::Agent);
    let agents = agents.map(|node| node.id.to_string()).collect();
    Ok(Ok(Member { run, at_work, agents }))
}

/// Who is to be told when the agents that are meant are not at work: their run keeps it for them.
fn later<'m>(members: &'m [Member], node: Option<&str>) -> anyhow::Result<Vec<&'m Member>> {
    let is_agent = |member: &&Member| match node {
        Some(node) => member.agents.iter().any(|agent| agent == node),
        None => !member.agents.is_empty(),
    };
    if let Some(member) = members.iter().find(is_agent) {
        return Ok(vec![member]);
    }
    let agents: Vec<&str> =
        members.iter().flat_map(|member| &member.agents).map(String::as_str).collect();
    Err(match (node, agents.as_slice()) {
        (_, []) => error::usage("the run has no agents", "only agent stages can be told something"),
        (node, agents) => error::usage(
            format!("the run has no agent `{}`", node.unwrap_or_default()),
            format!("it has {}", agents.join(", ")),
        ),
    })
}

fn said(told: &[&Member], is_driven: bool, run: RunId, global: &Global) -> String {
    let at_work: Vec<&str> =
        told.iter().flat_map(|member| &member.at_work).map(String::as_str).collect();
    let mut text = if at_work.is_empty() {
        "no such agent is at work; the next one will be told\n".to_owned()
    } else {
        format!("told {}\n", at_work.join(", "))
    };
    if !is_driven {
        let _ = writeln!(text, "go on with: {}", global.command(&format!("resume {run}")));
    }
    text
}

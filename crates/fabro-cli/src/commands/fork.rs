//! `fabro fork` and `fabro rewind`.

use std::sync::Arc;

use fabro_engine::checkpoint::{self, Checkpoint};
use fabro_engine::{NewBlob, offload_patch, read_all};
use fabro_events::Event;
use fabro_store::{Batch, Inbox as _, InboxId, Message, RunLog as _, SqliteStore};
use fabro_types::{ContextPatch, RunId};
use serde::Serialize;

use crate::cli::ForkArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use crate::values::KeyValue;
use crate::wiring::{now_ms, run_redactor};

#[derive(Serialize)]
struct Forked {
    /// The run that can be resumed.
    id: RunId,
    from: RunId,
    stage: String,
}

/// Copies a run up to where a stage ended.
pub async fn fork(args: ForkArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, from) = global.whole_run_to_change(&args.run, "fork").await?;
    let events = read_all(&store, from).await?;
    let effective = checkpoint::effective(&events);
    let at = find(&effective, args.stage.as_deref(), from, global)?;
    let id: RunId = ulid::Ulid::generate().to_string().parse()?;
    let (set, blobs) = patch(args.set, &store, from).await?;
    let copied = checkpoint::fork(&effective, &at, id, now_ms(), set);
    store.append(id, 0, &Batch { blobs: &blobs, ..Batch::of(&copied) }).await?;
    let verb = format!("forked {from} after {}", at.stage);
    tell(&verb, &Forked { id, from, stage: at.stage }, args.json, global)
}

/// Takes a run back to where a stage ended.
pub async fn rewind(args: ForkArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, id) = global.whole_run_to_change(&args.run, "rewind").await?;
    let _lock = store.lock(id)?;
    let events = read_all(&store, id).await?;
    let effective = checkpoint::effective(&events);
    let at = find(&effective, args.stage.as_deref(), id, global)?;
    let last = events.last().map_or(0, |event| event.seq);
    let (set, blobs) = patch(args.set, &store, id).await?;
    let event = checkpoint::rewind(id, &at, last, now_ms(), set);
    let canceled = meant_for_its_end(&store, id).await?;
    store.append(id, last, &Batch { events: &[event], blobs: &blobs, consumed: &canceled }).await?;
    let verb = format!("rewound {id} to the end of {}", at.stage);
    tell(&verb, &Forked { id, from: id, stage: at.stage }, args.json, global)
}

/// Cancellations that came when the run was over already: they are not for what it goes on with.
async fn meant_for_its_end(store: &SqliteStore, run: RunId) -> anyhow::Result<Vec<InboxId>> {
    let pending = store.pending(run).await?.into_iter();
    let cancel = pending.filter(|(_, message)| matches!(message, Message::Cancel { .. }));
    Ok(cancel.map(|(id, _)| id).collect())
}

fn find(
    events: &[&Event],
    stage: Option<&str>,
    run: RunId,
    global: &Global,
) -> anyhow::Result<Checkpoint> {
    stage.map(|stage| fabro_inspect::check_stage(events, stage)).transpose()?;
    checkpoint::find(events, stage).ok_or_else(|| {
        let message = match stage {
            Some(stage) => format!("run {run} has no end of a stage `{stage}` to go on from"),
            None => format!("no stage of run {run} has ended yet"),
        };
        let look = global.command(&format!("inspect {run}"));
        error::usage(message, format!("see its stages with `{look}`; nothing follows an exit"))
    })
}

/// What is set, with the blobs of large values.
async fn patch(
    set: Vec<KeyValue>,
    store: &SqliteStore,
    run: RunId,
) -> anyhow::Result<(ContextPatch, Vec<NewBlob>)> {
    if !set.is_empty() {
        let values = set.iter().map(|item| (&item.key, &item.value));
        fabro_run::check_values(&run_redactor(store, run).await?, "--set", values)?;
    }
    let mut set = set.into_iter().map(|item| (item.key, Arc::new(item.value))).collect();
    let mut blobs = Vec::new();
    offload_patch(&mut set, &mut blobs);
    Ok((set, blobs))
}

fn tell(verb: &str, forked: &Forked, json: bool, global: &Global) -> anyhow::Result<Exit> {
    if json {
        output::json(forked)?;
    } else {
        let resume = global.command(&format!("resume {}", forked.id));
        output::stdout(&format!("{verb}\ngo on with: {resume}\n"))?;
    }
    Ok(exit::SUCCEEDED)
}

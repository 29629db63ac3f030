//! Changes to a run from outside its driver: answers, messages, cancellation, forks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Bundle;
use crate::worktree::fork_worktree;
use fabro_engine::checkpoint::{self, Checkpoint};
use fabro_engine::{NewBlob, Phase, RunState, offload_patch, read_all};
use fabro_events::{AnsweredBy, Entry, Event, EventBody, Note};
use fabro_gate::{GateAnswer, match_answer};
use fabro_graph::NodeKind;
use fabro_handlers::offload_notes;
use fabro_store::{Batch, InboxId, Lease, Message, RunAt, RunStore, StoreError};
use fabro_types::{ContextPatch, RunId, RunStatus};
use serde_json::{Map, Value};

use crate::family::{cancel_family, end_leftover_processes, holding_stages_of, run_redactor};
use crate::gates::{Gate, earlier_answer, gate_names, open_gates_of_family, select_gate};
use crate::lease::with_lease;
use crate::run_id::new_run_id;
use crate::run_services::now_ms;
use crate::sandbox::remove_canceled_sandbox;
use crate::secrets::{refuse_secret, refuse_secrets};
use crate::{RunError, SetupError};

/// Whether a driver drives a run, or the run that it is a sub-workflow of.
pub async fn is_driven(store: &dyn RunStore, run: RunId) -> Result<bool, StoreError> {
    Ok(store.driver(store.root(run).await?).await?.is_some())
}

/// Checks that the log of a run ends where the caller has seen it end.
pub(crate) async fn check_at(
    store: &dyn RunStore,
    run: RunId,
    at: Option<u64>,
) -> Result<(), RunError> {
    let Some(seq) = at else { return Ok(()) };
    Ok(RunAt { run, seq }.check(store.last_seq(run).await?)?)
}

/// Answers an open gate of a run or of one of its sub-workflows. `gate` is its name when several are
/// open, `source` says where the answer comes from.
///
/// The key of the edge for free text may stand in place of the name of the only open gate: `choice` is
/// then its text.
///
/// `at` is the last sequence number of the run that the caller has seen, where only that counts: it is
/// checked in the transaction of the answer.
///
/// # Errors
///
/// No gate or several match, the gate was answered or gave up, the choice is none of its options, or
/// it holds a secret; [`StoreError::Changed`] when the log of the run does not end at `at`.
pub async fn answer(
    store: &dyn RunStore,
    run: RunId,
    gate: Option<&str>,
    choice: &str,
    by: AnsweredBy,
    at: Option<u64>,
) -> Result<Gate, RunError> {
    check_at(store, run, at).await?;
    let open = open_gates_of_family(store, run).await?;
    let text = gate.and_then(|key| text_behind_key(&open, key, choice));
    let choice = text.as_deref().unwrap_or(choice);
    let name = gate.filter(|_| text.is_none());
    let mut gate = match select_gate(open, run, name) {
        Err(error @ (RunError::NoOpenGate { .. } | RunError::NoSuchGate { .. })) => {
            // Each run is listed after its parent.
            let mut holding: BTreeMap<RunId, Vec<String>> = BTreeMap::new();
            for member in store.family(run).await? {
                let events = read_all(store, member).await?;
                let within = holding_stages_of(&events, &holding);
                if let Some(answered) = earlier_answer(&events, &within, name) {
                    return Err(answered);
                }
                holding.insert(member, within);
            }
            return Err(error);
        }
        found => found?,
    };
    // While the run is driven, its driver decides, by a clock that is never set.
    if gate.left_ms(now_ms()) == Some(0) && !is_driven(store, gate.run).await? {
        return Err(RunError::GateTimedOut { run, gate: gate_names(&[gate]).concat() });
    }
    let Gate { options, freeform, text_option, question_type, .. } = &gate;
    let answer = match_answer(options, *freeform, text_option.as_ref(), *question_type, choice);
    if !matches!(answer, Ok(GateAnswer::Option(_) | GateAnswer::Options(_))) {
        refuse_secret(&run_redactor(store, run).await?, "the answer", choice)?;
    }
    answer?;
    let message = Message::Answer {
        node: gate.node.to_string(),
        visit: gate.visit,
        branch: gate.branch.as_deref().map(str::to_owned),
        choice: choice.to_owned(),
        source: by.channel.clone(),
        by: Some(by),
    };
    store.post_at(gate.run, &message, at.map(|seq| RunAt { run, seq })).await?;
    gate.pending_answer = Some(choice.to_owned());
    Ok(gate)
}

/// The free text of an answer that begins with the key of the free-text edge of the only open gate.
fn text_behind_key(open: &[Gate], key: &str, text: &str) -> Option<String> {
    let [only] = open else { return None };
    let option = only.text_option.as_ref()?;
    let is_key = !option.key.is_empty() && option.key.to_lowercase() == key.to_lowercase();
    (is_key && *only.node != *key).then(|| format!("[{}] {text}", option.key))
}

/// Sends a message to the running agents of a run and of its sub-workflows, or only to those of
/// `node`. If none is running, the message waits for the next one.
///
/// Returns the stages that get it now, as `NODE@VISIT`; empty if it waits.
///
/// # Errors
///
/// The run has ended or has no such agent, or the text is empty or holds a secret; as for [`answer`] when
/// the log of the run does not end at `at`.
pub async fn steer(
    store: &dyn RunStore,
    run: RunId,
    text: &str,
    node: Option<&str>,
    at: Option<u64>,
) -> Result<Vec<String>, RunError> {
    check_at(store, run, at).await?;
    if text.trim().is_empty() {
        return Err(SetupError::new("the message is empty", "write RUN \"TEXT\"").into());
    }
    refuse_secret(&run_redactor(store, run).await?, "the text", text)?;
    let mut members = Vec::new();
    for id in store.family(run).await? {
        match agents(store, id, node).await? {
            Ok(member) => members.push(member),
            Err(status) if id == run => return Err(RunError::Ended { run, status }),
            Err(_) => {}
        }
    }
    let mut receivers: Vec<&Agents> =
        members.iter().filter(|member| !member.running.is_empty()).collect();
    if receivers.is_empty() {
        let has_agent = |member: &&Agents| match node {
            Some(node) => member.all.iter().any(|agent| **agent == *node),
            None => !member.all.is_empty(),
        };
        if let Some(member) = members.iter().find(has_agent) {
            receivers.push(member);
        } else {
            let agents = members.into_iter().flat_map(|member| member.all).collect();
            return Err(RunError::NoAgent { node: node.map(str::to_owned), agents });
        }
    }
    let message = Message::Steer { text: text.to_owned(), node: node.map(str::to_owned) };
    // The first one decides: the message itself may make the run continue.
    let mut at = at.map(|seq| RunAt { run, seq });
    for receiver in &receivers {
        store.post_at(receiver.run, &message, at.take()).await?;
    }
    Ok(receivers.into_iter().flat_map(|member| member.running.clone()).collect())
}

/// The agents of a run that has not ended.
struct Agents {
    run: RunId,
    /// The running stages among those that are wanted, as `NODE@VISIT`.
    running: Vec<String>,
    /// The nodes.
    all: Vec<Arc<str>>,
}

/// The agents of one run; its status when it has ended.
async fn agents(
    store: &dyn RunStore,
    run: RunId,
    node: Option<&str>,
) -> Result<Result<Agents, RunStatus>, RunError> {
    let state = RunState::replay(run, &read_all(store, run).await?);
    if let Phase::Ended(status, _) = state.phase {
        return Ok(Err(status));
    }
    let Some(created) = &state.created else { return Err(RunError::NotCreated { run }) };
    let plan = Bundle::load(store, created)?.plan()?;
    let nodes = plan.workflow().nodes().filter(|node| node.kind == NodeKind::Agent);
    let all: Vec<_> = nodes.map(|node| Arc::clone(&node.id)).collect();
    let running = state
        .active()
        .map(|(_, stage)| stage)
        .filter(|stage| all.contains(&stage.node) && node.is_none_or(|node| *stage.node == *node));
    let running = running.map(|stage| format!("{}@{}", stage.node, stage.visit)).collect();
    Ok(Ok(Agents { run, running, all }))
}

/// How a run was canceled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// It had no driver, and has ended.
    Ended {
        /// Why its sandbox could not be removed. It is removed with the run.
        warning: Option<String>,
    },
    /// Its driver will end it.
    Requested,
}

/// Cancels a run and its sub-workflows.
///
/// # Errors
///
/// The run has ended; as for [`answer`] when the log of the run does not end at `at`.
pub async fn cancel(
    store: &dyn RunStore,
    run: RunId,
    reason: &str,
    at: Option<u64>,
) -> Result<Cancellation, RunError> {
    check_at(store, run, at).await?;
    if let Phase::Ended(status, _) = RunState::replay(run, &read_all(store, run).await?).phase {
        return Err(RunError::Ended { run, status });
    }
    match end_undriven(store, run, reason, at).await {
        Ok(warning) => Ok(Cancellation::Ended { warning }),
        Err(RunError::Store(StoreError::Driven { .. })) => {
            let message = Message::Cancel { reason: reason.to_owned() };
            store.post_at(run, &message, at.map(|seq| RunAt { run, seq })).await?;
            // A driver that was just pausing may have read its messages for the last time.
            if is_driven(store, run).await? {
                return Ok(Cancellation::Requested);
            }
            match end_undriven(store, run, reason, None).await {
                Err(RunError::Store(StoreError::Driven { .. })) => Ok(Cancellation::Requested),
                ended => ended.map(|warning| Cancellation::Ended { warning }),
            }
        }
        Err(error) => Err(error),
    }
}

/// Ends a run that no process drives, and its sub-workflows, as canceled. A sub-workflow runs under
/// the lease of the run at the top. Returns why its sandbox could not be removed: the run is canceled all the same.
async fn end_undriven(
    store: &dyn RunStore,
    run: RunId,
    reason: &str,
    at: Option<u64>,
) -> Result<Option<String>, RunError> {
    let root = store.root(run).await?;
    with_lease(store, root, async |lease| {
        // No other process adds to the log while this one has the lease.
        check_at(store, run, at).await?;
        end_leftover_processes(store, run).await?;
        Ok(cancel_family(store, lease, run, now_ms(), reason).await?)
    })
    .await?;
    if run != root {
        return Ok(None);
    }
    Ok(remove_canceled_sandbox(store, run).await.err().map(|error| error.to_string()))
}

/// Carries out the cancellations that reached a driver while it was pausing, once it has released
/// the run. True when the run itself was canceled. `warn` gets why a sandbox could not be removed.
pub(crate) async fn cancel_as_requested(
    store: &dyn RunStore,
    run: RunId,
    warn: &(dyn Fn(&str) + Send + Sync),
) -> Result<bool, RunError> {
    let mut is_canceled = false;
    for member in store.family(run).await? {
        for (_, message) in store.pending(member).await? {
            let Message::Cancel { reason } = message else { continue };
            match end_undriven(store, member, &reason, None).await {
                Ok(warning) => warning.iter().for_each(|warning| warn(warning)),
                // The process that drives it by now reads the message.
                Err(RunError::Store(StoreError::Driven { .. })) => {}
                Err(error) => return Err(error),
            }
            is_canceled |= member == run;
        }
    }
    Ok(is_canceled)
}

/// Records a compaction of a stage's conversation, while the run is not driven: a resume continues
/// from the shorter conversation. `like` is an event of the stage's own session, and `last` the
/// place of the last event in the log that the compaction was made from.
///
/// # Errors
///
/// The run is being driven, or its log has grown.
pub async fn record_compaction(
    store: &dyn RunStore,
    run: RunId,
    like: &Event,
    last: u64,
    mut notes: Vec<Note>,
) -> Result<(), RunError> {
    let blobs = offload_notes(&mut notes);
    let ts_ms = now_ms();
    let event = |(note, seq): (Note, u64)| Event {
        run_id: run,
        seq,
        ts_ms,
        entry: Entry {
            body: note.body,
            clock_set_ms: None,
            clock_set_total_ms: None,
            ..like.entry.clone()
        },
    };
    let events: Vec<Event> = notes.into_iter().zip(last + 1..).map(event).collect();
    let batch = Batch { blobs: &blobs, ..Batch::of(&events) };
    // A sub-workflow runs under the lease of the run at the top.
    let root = store.root(run).await?;
    with_lease(store, root, async |lease| Ok(store.append_leased(lease, run, last, &batch).await?))
        .await
}

/// Where a run was forked or rewound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkPoint {
    /// The run to resume.
    pub id: RunId,
    /// The stage after which it continues, as `NODE@VISIT`.
    pub stage: String,
}

/// The changes that a fork applies to a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForkChanges {
    /// Context values to set after the stage.
    pub set: Map<String, Value>,
    /// Inputs that replace those of the run. Earlier stages have read the old ones.
    pub inputs: Map<String, Value>,
}

/// Copies a run up to the end of a stage, or of the last one, with these changes.
///
/// # Errors
///
/// There is no such stage, the run is a sub-workflow, a value contains a secret, or a context value has
/// the name of an input; like [`answer`] when the copied log does not end at `at`.
pub async fn fork(
    store: &dyn RunStore,
    from: RunId,
    stage: Option<&str>,
    changes: &ForkChanges,
    at: Option<u64>,
) -> Result<ForkPoint, RunError> {
    let events = read_all(store, from).await?;
    check_last(from, &events, at)?;
    let effective = checkpoint::effective(&events);
    let at = find_checkpoint(store, &effective, from, stage).await?;
    let (set, blobs) = context_patch(store, from, &changes.set).await?;
    let id = new_run_id();
    let mut copied = checkpoint::fork(&effective, &at, id, now_ms(), set);
    if !changes.inputs.is_empty() {
        let redactor = run_redactor(store, from).await?;
        refuse_secrets(&redactor, "the inputs", &changes.inputs)?;
        change_inputs(store, &mut copied, &changes.inputs)?;
    }
    let branch = fork_worktree(&mut copied, id).await?;
    let batch = Batch { blobs: &blobs, ..Batch::of(&copied) };
    let append = async |lease| Ok(store.append_leased(lease, id, 0, &batch).await?);
    if let Err(error) = with_lease(store, id, append).await {
        if let Some(branch) = branch {
            branch.remove().await;
        }
        return Err(error);
    }
    Ok(ForkPoint { id, stage: at.stage })
}

/// Takes a run back to the end of a stage, or of the last one, with these values set in the context.
///
/// # Errors
///
/// There is no such stage, the run is a sub-workflow or is being driven, or a value holds a secret; as for
/// [`answer`] when the log of the run does not end at `at`.
pub async fn rewind(
    store: &dyn RunStore,
    id: RunId,
    stage: Option<&str>,
    set: &Map<String, Value>,
    at: Option<u64>,
) -> Result<ForkPoint, RunError> {
    check_at(store, id, at).await?;
    with_lease(store, id, async |lease| rewind_leased(store, lease, stage, set, at).await).await
}

fn check_last(run: RunId, events: &[Event], at: Option<u64>) -> Result<(), RunError> {
    let Some(seq) = at else { return Ok(()) };
    Ok(RunAt { run, seq }.check(events.last().map_or(0, |event| event.seq))?)
}

async fn rewind_leased(
    store: &dyn RunStore,
    lease: Lease,
    stage: Option<&str>,
    set: &Map<String, Value>,
    at: Option<u64>,
) -> Result<ForkPoint, RunError> {
    let id = lease.run;
    let events = read_all(store, id).await?;
    // The event is appended to the log as it was read.
    check_last(id, &events, at)?;
    let at = find_checkpoint(store, &checkpoint::effective(&events), id, stage).await?;
    let last = events.last().map_or(0, |event| event.seq);
    let (set, blobs) = context_patch(store, id, set).await?;
    let mut event = checkpoint::rewind(id, &at, last, now_ms(), set);
    event.entry.clock_set_total_ms = checkpoint::clock_set_total(&events);
    let consumed = pending_cancellations(store, id).await?;
    let batch = Batch { events: &[event], blobs: &blobs, consumed: &consumed };
    store.append_leased(lease, id, last, &batch).await?;
    Ok(ForkPoint { id, stage: at.stage })
}

/// Cancellations that came after the run had ended: they are not meant for what follows the rewind.
pub(crate) async fn pending_cancellations(
    store: &dyn RunStore,
    run: RunId,
) -> Result<Vec<InboxId>, StoreError> {
    let pending = store.pending(run).await?.into_iter();
    let cancel = pending.filter(|(_, message)| matches!(message, Message::Cancel { .. }));
    Ok(cancel.map(|(id, _)| id).collect())
}

async fn find_checkpoint(
    store: &dyn RunStore,
    events: &[&Event],
    run: RunId,
    stage: Option<&str>,
) -> Result<Checkpoint, RunError> {
    let root = store.root(run).await?;
    if root != run {
        return Err(RunError::SubWorkflow { run, root });
    }
    one_stage(events, stage)?;
    checkpoint::find(events, stage)
        .ok_or_else(|| RunError::NoCheckpoint { run, stage: stage.map(str::to_owned) })
}

/// Replaces inputs in a copied log, and renders the goal with them.
fn change_inputs(
    store: &dyn RunStore,
    copied: &mut [Event],
    inputs: &Map<String, Value>,
) -> Result<(), RunError> {
    let Some(EventBody::RunCreated(created)) = copied.first_mut().map(|it| &mut it.entry.body)
    else {
        return Ok(());
    };
    let created = Arc::make_mut(created);
    let bundle = Bundle::load(store, created)?;
    // Keeps a goal that was passed to the run.
    let is_own = bundle.goal(&created.inputs)?.is_some_and(|goal| goal == created.goal);
    created.inputs.extend(inputs.clone());
    if is_own && let Some(goal) = bundle.goal(&created.inputs)? {
        created.goal = goal;
    }
    Ok(())
}

/// The values as a patch, with the blobs of large ones.
async fn context_patch(
    store: &dyn RunStore,
    run: RunId,
    set: &Map<String, Value>,
) -> Result<(ContextPatch, Vec<NewBlob>), RunError> {
    if let Some(key) = set.keys().find(|key| *key == "inputs" || key.starts_with("inputs.")) {
        return Err(RunError::InputInContext { key: key.clone() });
    }
    if !set.is_empty() {
        refuse_secrets(&run_redactor(store, run).await?, "the values to set", set)?;
    }
    let values = set.iter().map(|(key, value)| (key.clone(), Arc::new(value.clone())));
    let mut patch = values.collect();
    let mut blobs = Vec::new();
    offload_patch(&mut patch, &mut blobs);
    Ok((patch, blobs))
}

/// Checks that the name of a stage means one stage: with a visit, but without its branch, it may mean
/// those of several branches.
fn one_stage(events: &[&Event], stage: Option<&str>) -> Result<(), RunError> {
    let Some(stage) = stage else { return Ok(()) };
    let name = checkpoint::StageName::parse(stage.trim());
    if name.visit.is_none() {
        return Ok(());
    }
    let stages = checkpoint::meant(events, name);
    if stages.len() > 1 {
        return Err(RunError::SeveralStages { stage: stage.to_owned(), stages });
    }
    Ok(())
}

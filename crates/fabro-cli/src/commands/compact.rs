//! `fabro compact`.

use std::fmt::Write as _;
use std::sync::Arc;

use clap_complete::ArgValueCandidates;
use fabro_agent::{MemoryJournal, Parts, Session, Settings, Transcript};
use fabro_compaction::{Overrides, Report};
use fabro_engine::{Phase, RunState, StageRecord, checkpoint, read_all, read_blob};
use fabro_events::{Event, EventBody, Note};
use fabro_handlers::{compaction_policy, price_by};
use fabro_inspect::conversation;
use fabro_llm::{AskingStage, RequestPolicy, RetryPolicy, TurnCounts};
use fabro_run::{Bundle, RunSettings, ServiceBuilder, now_ms};
use fabro_store::SqliteStore;
use fabro_terminal::{Paint, clean};
use fabro_tools::{ToolContext, ToolSet};
use fabro_types::{BlobRef, Fidelity, RunId};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;

/// Compact the conversation of an agent
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro compact latest\n  fabro compact latest implement@2 --keep-recent 10\n  fabro compact latest --no-summary --json | jq -r .summary\n  fabro compact latest implement --apply\n\nWithout --apply nothing is changed: agents compact their conversations automatically."
)]
pub struct CompactArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// The stage [default: the last one that used a model]
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]", add = ArgValueCandidates::new(complete::stages))]
    pub stage: Option<String>,

    /// How many of the last messages stay [default: as in the run's settings]
    #[arg(long, value_name = "N")]
    pub keep_recent: Option<usize>,

    /// Make the summary without a model
    #[arg(long)]
    pub no_summary: bool,

    /// Replace the messages of a stage that waits for `fabro resume`
    #[arg(long)]
    pub apply: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The result of a compaction, as JSON.
#[derive(Serialize)]
struct Preview<'a> {
    summary: Option<&'a str>,
    compacted_entries: usize,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    applied: bool,
}

/// Previews the compaction of a stage's conversation, or records it.
pub async fn compact(args: CompactArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = if args.apply {
        global.run_to_change(&args.run).await?
    } else {
        global.run_to_read(&args.run).await?
    };
    let events = read_all(&store, run).await?;
    let (stage, talk) = conversation(&events, args.stage.as_deref())?;
    let transcript = Transcript::from_events(talk.iter().copied(), |blob| read_blob(&store, blob))?;
    if transcript.is_empty() {
        return Err(error::usage(
            format!("`{stage}` has no conversation"),
            "name a stage that talked with a model",
        ));
    }
    let open = open_conversation(run, &events, &talk);
    if args.apply {
        check_open(&store, run, &stage, open.as_ref()).await?;
    }
    let settings = settings(&store, run, &events)?;
    let journal = Arc::new(MemoryJournal::default());
    let mut session = new_session(&settings, &stage, last_model(&talk), Arc::clone(&journal))?;
    for earlier in open.iter().flat_map(|open| &open.thread) {
        let read = |blob: &BlobRef| read_blob(&store, blob);
        session.recall(Transcript::from_events(earlier.iter().copied(), read)?);
    }
    session.restore(transcript);
    let overrides = Overrides {
        keep_recent_entries: args.keep_recent,
        generate_summary: Some(ServiceBuilder::new(&settings).has_model() && !args.no_summary),
        ..Overrides::default()
    };
    let report = session.compact(&overrides, &CancellationToken::new()).await?;
    if let (None, Some(why)) = (&report, failure(&journal)) {
        return Err(error::failed(why, "leave the model out with --no-summary"));
    }
    let applied = match (&report, open) {
        (Some(_), Some(open)) if args.apply => {
            apply(&store, run, &stage, &open, journal.notes()).await?;
            true
        }
        _ => false,
    };
    let preview = Preview {
        applied,
        compacted_entries: report.as_ref().map_or(0, |report| report.compacted_entries),
        summary: report.as_ref().map(|report| report.summary.as_str()),
    };
    output::report(args.json, &preview, || {
        let mut text =
            text(&stage, report.as_ref(), session.messages().len(), applied, global.paint_stdout());
        if applied {
            let resume = global.command(&format!("resume {run}"));
            let _ = writeln!(text, "\napplied; continue with: {resume}");
        }
        text
    })?;
    Ok(Exit::SUCCEEDED)
}

/// A conversation that a resume continues.
struct OpenConversation<'e> {
    /// An event of the stage's own session.
    like: &'e Event,
    /// The place of the last event in the log.
    last: u64,
    /// The events of the earlier stages of its thread, a list for each.
    thread: Vec<Vec<&'e Event>>,
}

/// The conversation, when its stage has not ended.
fn open_conversation<'e>(
    run: RunId,
    events: &'e [Event],
    talk: &[&'e Event],
) -> Option<OpenConversation<'e>> {
    let is_own = |event: &&&Event| {
        matches!(event.entry.body, EventBody::AgentMessage { .. })
            && event.entry.parent_session_id.is_none()
    };
    let like = *talk.iter().rfind(is_own)?;
    let state = RunState::replay(run, events);
    if matches!(state.phase, Phase::Ended(..)) {
        return None;
    }
    let cursor = state.cursors.get(like.entry.branch.as_deref().unwrap_or_default())?;
    let active = cursor.active()?;
    let is_this = like.entry.node_id.as_ref() == Some(&active.node)
        && like.entry.visit == Some(active.visit)
        && active.talked;
    if !is_this {
        return None;
    }
    let thread = active.thread_id.as_ref().filter(|_| active.fidelity == Fidelity::Full);
    let same =
        cursor.history.iter().filter(|it| thread.is_some() && it.thread_id.as_ref() == thread);
    let effective = checkpoint::effective(events);
    let of_record = |record: &Arc<StageRecord>| -> Vec<&Event> {
        let is_of = |event: &&&Event| {
            let entry = &event.entry;
            (record.since_seq..=record.until_seq).contains(&event.seq)
                && entry.node_id.as_ref() == Some(&record.node)
                && entry.visit == Some(record.visit)
                && entry.branch.as_deref().unwrap_or_default() == &*record.branch
        };
        effective.iter().filter(is_of).copied().collect()
    };
    let thread = same.map(of_record).collect();
    Some(OpenConversation { like, last: events.last()?.seq, thread })
}

/// Refuses what cannot be applied before a model is called.
async fn check_open(
    store: &SqliteStore,
    run: RunId,
    stage: &str,
    open: Option<&OpenConversation<'_>>,
) -> anyhow::Result<()> {
    if fabro_run::is_driven(store, run).await? {
        let message = format!("run {run} is running: its agents compact their conversations");
        return Err(error::failed(message, "interrupt or cancel it, or leave out --apply"));
    }
    if open.is_none() {
        let message = format!("`{stage}` has ended: no resume continues its conversation");
        return Err(error::usage(message, "leave out --apply"));
    }
    Ok(())
}

/// Records the compaction.
async fn apply(
    store: &SqliteStore,
    run: RunId,
    stage: &str,
    open: &OpenConversation<'_>,
    notes: Vec<Note>,
) -> anyhow::Result<()> {
    if notes.iter().any(|note| matches!(note.body, EventBody::AgentSubClosed { .. })) {
        let message = format!("subagents of `{stage}` are still running");
        return Err(error::failed(message, "resume the run, or leave out --apply"));
    }
    let notes = notes.into_iter().filter(|note| note.body.is_of_compaction()).collect();
    Ok(fabro_run::record_compaction(store, run, open.like, open.last, notes).await?)
}

/// The settings the run was created with.
fn settings(store: &SqliteStore, run: RunId, events: &[Event]) -> anyhow::Result<RunSettings> {
    let created = RunState::replay(run, events.get(..1).unwrap_or_default()).created;
    let bundle = created.map(|created| Bundle::load(store, &created)).transpose()?;
    Ok(bundle.map(|bundle| bundle.settings).unwrap_or_default())
}

/// A session that makes the summary. It behaves as that of the stage.
fn new_session(
    settings: &RunSettings,
    stage: &str,
    model: Option<String>,
    journal: Arc<MemoryJournal>,
) -> anyhow::Result<Session> {
    let node = checkpoint::split(stage).0.unwrap_or_default();
    let services = ServiceBuilder::new(settings);
    let catalog = Arc::new(fabro_run::catalog(&settings.models));
    let known = model.as_deref().and_then(|name| catalog.find(name)?.estimated_window());
    let without_retries = RequestPolicy { retry: RetryPolicy::none(), ..RequestPolicy::default() };
    let session_settings = Settings {
        window: settings.agent.context_window.or(known),
        compaction: compaction_policy(&settings.agent.compaction),
        asking: services.request_policy().unwrap_or(without_retries),
        price: Some(price_by(catalog, Arc::new(now_ms), Arc::default())),
        redactor: services.recorded_redactor(),
        subagent_depth: 0,
        cache_key: Some(format!("fabro-{node}")),
        model,
        ..Settings::default()
    };
    Ok(Session::new(Parts {
        id: Arc::from("compact"),
        parent: None,
        model: (services.models()?)(&AskingStage::new(node, &TurnCounts::new())),
        tools: ToolSet::default(),
        journal,
        settings: session_settings,
        context: ToolContext::default(),
    }))
}

/// The model that answered last.
fn last_model(events: &[&Event]) -> Option<String> {
    events.iter().rev().find_map(|event| match &event.entry.body {
        EventBody::AgentMessage { usage: Some(usage), .. } => usage.model.clone(),
        _ => None,
    })
}

/// Why there is no summary.
fn failure(journal: &MemoryJournal) -> Option<String> {
    journal.notes().into_iter().rev().find_map(|note| match note.body {
        EventBody::AgentError { message, .. } => Some(message),
        _ => None,
    })
}

fn text(
    stage: &str,
    report: Option<&Report>,
    messages: usize,
    applied: bool,
    paint: Paint,
) -> String {
    let Some(report) = report else {
        return format!("{stage}: nothing to compact in its {messages} messages\n");
    };
    let verb = if applied { "became" } else { "would become" };
    format!(
        "{} {} of {} messages {verb} one; {} tokens instead of {}\n\n{}\n",
        paint.bold(&clean(stage)),
        report.compacted_entries,
        report.messages_before,
        report.tokens_after,
        report.tokens_before,
        clean(&report.summary),
    )
}

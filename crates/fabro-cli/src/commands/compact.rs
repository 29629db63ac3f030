//! `fabro compact`.

use std::sync::Arc;

use clap_complete::ArgValueCandidates;
use fabro_agent::{MemoryJournal, Parts, Session, Settings, Transcript};
use fabro_compaction::{Overrides, Report};
use fabro_engine::{RunState, checkpoint, read_all, read_blob};
use fabro_events::{Event, EventBody};
use fabro_handlers::compaction_policy;
use fabro_inspect::conversation;
use fabro_llm::TurnCounts;
use fabro_run::{Bundle, RunSettings, ServiceBuilder};
use fabro_store::SqliteStore;
use fabro_terminal::{Paint, clean};
use fabro_tools::{ToolContext, ToolSet};
use fabro_types::RunId;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;

/// Preview the compaction of an agent's conversation
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro compact latest\n  fabro compact latest implement@2 --keep-recent 10\n  fabro compact latest --no-summary --json | jq -r .summary\n\nNothing is changed: agents compact their conversations automatically."
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

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The result of a compaction, as JSON.
#[derive(Serialize)]
struct Preview<'a> {
    summary: Option<&'a str>,
    compacted_entries: usize,
}

/// Previews the compaction of a stage's conversation. Nothing is recorded.
pub async fn compact(args: CompactArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let events = read_all(&store, run).await?;
    let (stage, talk) = conversation(&events, args.stage.as_deref())?;
    let transcript = Transcript::from_events(talk.iter().copied(), |blob| read_blob(&store, blob))?;
    if transcript.is_empty() {
        return Err(error::usage(
            format!("`{stage}` has no conversation"),
            "name a stage that talked with a model",
        ));
    }
    let settings = settings(&store, run, &events)?;
    let node = checkpoint::split(&stage).0.unwrap_or_default();
    let services = ServiceBuilder::new(&settings);
    let journal = Arc::new(MemoryJournal::default());
    let mut session = Session::new(Parts {
        id: Arc::from("compact"),
        parent: None,
        model: (services.models()?)(node, &TurnCounts::new()),
        tools: ToolSet::default(),
        journal: Arc::clone(&journal) as _,
        settings: Settings {
            model: last_model(&talk),
            window: settings.agent.context_window,
            compaction: compaction_policy(&settings.agent.compaction),
            subagent_depth: 0,
            cache_key: Some(format!("fabro-{node}")),
            ..Settings::default()
        },
        context: ToolContext::default(),
    });
    session.restore(transcript);
    let overrides = Overrides {
        keep_recent_entries: args.keep_recent,
        generate_summary: Some(services.has_model() && !args.no_summary),
        ..Overrides::default()
    };
    let report = session.compact(&overrides, &CancellationToken::new()).await?;
    if let (None, Some(why)) = (&report, failure(&journal)) {
        return Err(error::failed(why, "leave the model out with --no-summary"));
    }
    let preview = Preview {
        compacted_entries: report.as_ref().map_or(0, |report| report.compacted_entries),
        summary: report.as_ref().map(|report| report.summary.as_str()),
    };
    output::report(args.json, &preview, || {
        text(&stage, report.as_ref(), session.messages().len(), global.paint_stdout())
    })?;
    Ok(Exit::SUCCEEDED)
}

/// The settings the run was created with.
fn settings(store: &SqliteStore, run: RunId, events: &[Event]) -> anyhow::Result<RunSettings> {
    let created = RunState::replay(run, events.get(..1).unwrap_or_default()).created;
    let bundle = created.map(|created| Bundle::load(store, &created.bundle)).transpose()?;
    Ok(bundle.map(|bundle| bundle.settings).unwrap_or_default())
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

fn text(stage: &str, report: Option<&Report>, messages: usize, paint: Paint) -> String {
    let Some(report) = report else {
        return format!("{stage}: nothing to compact in its {messages} messages\n");
    };
    format!(
        "{} {} of {} messages would become one; {} tokens instead of {}\n\n{}\n",
        paint.bold(stage),
        report.compacted_entries,
        report.messages_before,
        report.tokens_after,
        report.tokens_before,
        clean(&report.summary),
    )
}

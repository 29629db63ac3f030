//! `fabro compact`.

use std::sync::Arc;

use fabro_agent::{MemoryJournal, Parts, Session, Settings, Transcript};
use fabro_compaction::{Overrides, Report};
use fabro_engine::{RunState, checkpoint, read_all, read_blob};
use fabro_events::{Event, EventBody};
use fabro_handlers::compaction_policy;
use fabro_inspect::conversation;
use fabro_llm::TurnCounts;
use fabro_run::ServiceBuilder;
use fabro_run::{Bundle, RunSettings};
use fabro_store::SqliteStore;
use fabro_terminal::{Paint, clean};
use fabro_tools::{ToolContext, ToolSet};
use fabro_types::RunId;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::cli::CompactArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// What a compaction would give, as JSON.
#[derive(Serialize)]
struct Shown {
    summary: Option<String>,
    compacted_entries: usize,
}

/// Shows what a stage's conversation would be shortened to. Nothing is recorded.
pub async fn compact(args: CompactArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let events = read_all(&store, run).await?;
    let (stage, told) = conversation(&events, args.stage.as_deref())?;
    let blobs = store.blobs();
    let transcript = Transcript::from_events(told.iter().copied(), |blob| read_blob(blobs, blob))?;
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
            model: answered(&told),
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
    if args.json {
        output::json(&Shown {
            compacted_entries: report.as_ref().map_or(0, |report| report.compacted_entries),
            summary: report.map(|report| report.summary),
        })?;
    } else {
        let count = session.messages().len();
        output::stdout(&text(&stage, report.as_ref(), count, global.paint_stdout()))?;
    }
    Ok(exit::SUCCEEDED)
}

/// The settings the run was created with.
fn settings(store: &SqliteStore, run: RunId, events: &[Event]) -> anyhow::Result<RunSettings> {
    let created = RunState::replay(run, events.get(..1).unwrap_or_default()).created;
    let bundle = created.map(|created| Bundle::load(store, &created.bundle)).transpose()?;
    Ok(bundle.map(|bundle| bundle.settings).unwrap_or_default())
}

/// The model that answered last.
fn answered(told: &[&Event]) -> Option<String> {
    told.iter().rev().find_map(|event| match &event.entry.body {
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
        return format!("{stage}: there is nothing to shorten in its {messages} messages\n");
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

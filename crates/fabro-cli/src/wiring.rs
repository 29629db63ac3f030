//! What a run is driven with: from the settings kept with it to handlers, model and people.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use fabro_events::{Event, EventBody, EventSink};
use fabro_gate::{AutoApprove, Chain, Interviewer, TerminalInterviewer, Unavailable};
use fabro_handlers::{
    Bundle, BundledChildren, Limits, ModelDefaults, Registry, RunSettings, Services,
};
use fabro_redact::Redactor;
pub use fabro_run::{catalog, client, model, providers};
use fabro_sandbox::{Exec, LocalExec};
use fabro_store::{RunLog as _, SqliteStore};
use fabro_types::RunId;

use crate::cli::ShownArgs;
use crate::error;
use crate::global::Global;
use fabro_terminal::{Mode, Progress};

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// How a run is shown, given what was asked for.
pub fn mode(asked: ShownArgs, global: &Global) -> Mode {
    match (asked.json, asked.quiet) {
        (true, _) => Mode::Json,
        (_, true) => Mode::Quiet,
        _ if global.is_live() => Mode::Live,
        _ => Mode::Plain,
    }
}

/// The handlers of a run. `events` is its log so far: answers that were given are not given again,
/// unless a rewind took them back.
pub fn handlers(
    settings: &RunSettings,
    run: RunId,
    dry_run: bool,
    events: &[Event],
    progress: &Arc<Progress>,
    files: Arc<dyn EventSink>,
) -> anyhow::Result<Arc<Registry>> {
    let redactor = fabro_run::redactor(settings);
    Ok(Registry::new(Services {
        exec: (!dry_run).then(|| Arc::new(LocalExec::new()) as Arc<dyn Exec>),
        env: settings.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        model: model(settings, dry_run)?,
        defaults: ModelDefaults {
            run: settings.model.clone(),
            run_provider: settings.provider.clone(),
            configured: settings.configured_model.clone(),
            configured_provider: settings.configured_provider.clone(),
        },
        agents: fabro_run::agents(settings, Some(run), redactor, dry_run)?,
        limits: Limits::default(),
        interviewer: interviewer(settings, dry_run, events, progress)?,
        // What the run itself does is told to both by its driver.
        children: Arc::new(BundledChildren),
        sink: Arc::new(vec![files, Arc::clone(progress) as _]),
        clock: Arc::new(now_ms),
    }))
}

/// Knows the secrets of a run that is recorded, or of the one that it is a sub-workflow of.
pub async fn run_redactor(store: &SqliteStore, run: RunId) -> anyhow::Result<Redactor> {
    let first = store.read(fabro_run::root(store, run).await?, 0, 1).await?.pop();
    let Some(EventBody::RunCreated(created)) = first.map(|event| event.entry.body) else {
        return Ok(Redactor::default());
    };
    let bundle = Bundle::load(store, &created.bundle)?;
    Ok(fabro_run::recorded_redactor(&bundle.settings, false))
}

fn interviewer(
    settings: &RunSettings,
    dry_run: bool,
    events: &[Event],
    progress: &Arc<Progress>,
) -> anyhow::Result<Arc<dyn Interviewer>> {
    let last: Arc<dyn Interviewer> = if settings.auto_approve || dry_run {
        Arc::new(AutoApprove)
    } else if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        let progress = Arc::clone(progress);
        Arc::new(TerminalInterviewer::new().freed_by(move || progress.suspend()))
    } else {
        Arc::new(Unavailable)
    };
    Ok(match fabro_run::answers(settings, events)? {
        Some(answers) => Arc::new(Chain(answers, last)),
        None => last,
    })
}

/// Reads a text file that an option names.
pub fn read_option(path: &std::path::Path, what: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("{what} {} cannot be read", path.display()))
        .map_err(|error| error::usage(format!("{error:#}"), "check the path"))
}

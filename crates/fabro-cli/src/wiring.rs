//! What a run is driven with: from the settings kept with it to handlers, model and people.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use async_trait::async_trait;
use fabro_config::{ModelEntry, ProviderSettings, Settings};
use fabro_engine::checkpoint;
use fabro_events::{Event, EventBody, EventSink};
use fabro_handlers::{Limits, ModelDefaults, Registry, RunSettings, Services};
use fabro_human::{
    AskError, AutoApprove, Chain, Interviewer, Question, QueueInterviewer, Reply,
    TerminalInterviewer, Unavailable,
};
use fabro_llm::{
    Catalog, Model, ModelInfo, Providers, ScriptedModel, SimulatedModel, Unconfigured,
};
use fabro_redact::Redactor;
use fabro_sandbox::{Exec, LocalExec};
use fabro_types::RunId;

use crate::agents;
use crate::cli::ShownArgs;
use crate::error;
use crate::global::Global;
use crate::run_env;
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
    let redactor = agents::redactor(settings);
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
        agents: agents::agents(settings, Some(run), redactor, dry_run)?,
        limits: Limits::default(),
        interviewer: interviewer(settings, dry_run, events, progress)?,
        // What the run itself does is told to both by its driver.
        sink: Arc::new(vec![files, Arc::clone(progress) as _]),
        clock: Arc::new(now_ms),
    }))
}

/// Who can serve models: what the settings name, and what the environment configures.
pub fn providers(settings: &Settings) -> Vec<ProviderSettings> {
    fabro_config::providers(&settings.providers, |name| std::env::var(name).ok())
}

/// The models that are known, those of the settings among them.
pub fn catalog(models: &BTreeMap<String, ModelEntry>) -> Catalog {
    let mut catalog = Catalog::builtin();
    catalog.extend(models.values().map(|entry| ModelInfo {
        provider: entry.provider.clone(),
        aliases: entry.aliases.clone(),
        context_window: entry.context_window,
        max_output_tokens: entry.max_output_tokens,
        input_cost: entry.input_cost,
        output_cost: entry.output_cost,
        cached_cost: entry.cached_cost,
        ..ModelInfo::new(&entry.name)
    }));
    catalog
}

/// Checks the settings of a run before it exists.
pub fn check(settings: &RunSettings) -> anyhow::Result<()> {
    run_env::expanded(&settings.env)?;
    model(settings, false)?;
    agents::agents(settings, None, Redactor::default(), false)?;
    queue(settings)?;
    Ok(())
}

/// Who answers the LLM stages of a run.
pub fn model(settings: &RunSettings, dry_run: bool) -> anyhow::Result<Arc<dyn Model>> {
    if dry_run {
        return Ok(Arc::new(SimulatedModel));
    }
    match &settings.model_script {
        Some(text) => Ok(Arc::new(ScriptedModel::from_json(text).map_err(|error| {
            error::usage(format!("the model script is not valid: {error}"), "mend the file")
        })?)),
        None if settings.providers.is_empty() => Ok(Arc::new(Unconfigured)),
        None => Ok(Arc::new(client(&settings.providers, &settings.models)?)),
    }
}

/// The client for these providers.
pub fn client(
    providers: &[ProviderSettings],
    models: &BTreeMap<String, ModelEntry>,
) -> anyhow::Result<Providers> {
    let providers = providers.iter().map(agents::provider).collect::<anyhow::Result<_>>()?;
    let client = Providers::new(providers, catalog(models));
    client.map_err(|error| error::usage(error.to_string(), "mend the settings of the provider"))
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
        Arc::new(AtTerminal { progress: Arc::clone(progress) })
    } else {
        Arc::new(Unavailable)
    };
    let Some(queue) = queue(settings)? else { return Ok(last) };
    for event in checkpoint::effective(events) {
        if let EventBody::GateAnswered { source, .. } = &event.entry.body
            && source == "answers"
        {
            queue.skip(event.entry.node_id.as_deref().unwrap_or_default(), 1);
        }
    }
    Ok(Arc::new(Chain(queue, last)))
}

fn queue(settings: &RunSettings) -> anyhow::Result<Option<QueueInterviewer>> {
    let parsed = settings.answers.as_deref().map(QueueInterviewer::from_json).transpose();
    parsed.map_err(|error| {
        error::usage(format!("the answers are not valid: {error}"), "mend the file")
    })
}

/// Asks at the terminal, which the progress display leaves free meanwhile.
struct AtTerminal {
    progress: Arc<Progress>,
}

#[async_trait]
impl Interviewer for AtTerminal {
    async fn ask(&self, question: &Question) -> Result<Reply, AskError> {
        let _free = self.progress.suspend();
        TerminalInterviewer::new().ask(question).await
    }
}

/// Reads a text file that an option names.
pub fn read_option(path: &std::path::Path, what: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path)
        .with_context(|| format!("{what} {} cannot be read", path.display()))
        .map_err(|error| error::usage(format!("{error:#}"), "check the path"))
}

//! The settings that are kept with a run.

use fabro_config::{RunConfig, Settings};
use fabro_handlers::RunSettings;
use fabro_redact::Redactor;

use crate::{SetupError, agents, answers, expanded, model, providers};

/// What a run.toml says, else the project and the user; `configured` has the run.toml's agents,
/// providers and models in it already. What the command line alone can say is left out.
pub fn run_settings(config: RunConfig, configured: Settings) -> RunSettings {
    let own_fallbacks = !config.model.fallbacks.is_empty();
    RunSettings {
        env: config.env,
        prepare: config.prepare.into_iter().map(|step| step.script).collect(),
        model: config.model.name,
        provider: config.model.provider,
        providers: providers(&configured),
        configured_model: configured.model.name,
        configured_provider: configured.model.provider,
        agent: configured.agent,
        models: configured.models,
        fallbacks: if own_fallbacks { config.model.fallbacks } else { configured.model.fallbacks },
        ..RunSettings::default()
    }
}

/// Checks the settings of a run before it exists: everything that they name can be had.
pub fn check(settings: &RunSettings) -> Result<(), SetupError> {
    expanded(&settings.env)?;
    model(settings, false)?;
    agents(settings, None, Redactor::default(), false)?;
    answers(settings, &[])?;
    Ok(())
}

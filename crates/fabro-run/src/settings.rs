//! The settings that are stored with a run.

use crate::RunSettings;
use fabro_config::{RunConfig, Settings};

use crate::models::providers;

/// The settings of a run.toml, with those of the project and the user as defaults; `configured` has
/// the run.toml's agents, providers and models merged in already.
pub(crate) fn run_settings(config: RunConfig, configured: Settings) -> RunSettings {
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

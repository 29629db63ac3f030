use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_config::{ProviderSettings, Settings};
use fabro_handlers::RunSettings;
use fabro_llm::{
    Catalog, Model, ModelInfo, Providers, ScriptedModel, SimulatedModel, Unconfigured,
};

use crate::{SetupError, provider};

/// Who can serve models: what the settings name, and what the environment configures.
pub fn providers(settings: &Settings) -> Vec<ProviderSettings> {
    fabro_config::providers(&settings.providers, |name| std::env::var(name).ok())
}

/// The models that are known, those of the settings among them.
pub fn catalog(models: &BTreeMap<String, ModelInfo>) -> Catalog {
    let mut catalog = Catalog::builtin();
    catalog.extend(models.values().cloned());
    catalog
}

/// Who answers the LLM stages of a run: nobody in a dry run, else a script, else the providers.
///
/// # Errors
///
/// The script is none, or a provider cannot be set up.
pub fn model(settings: &RunSettings, dry_run: bool) -> Result<Arc<dyn Model>, SetupError> {
    if dry_run {
        return Ok(Arc::new(SimulatedModel));
    }
    match &settings.model_script {
        Some(text) => Ok(Arc::new(ScriptedModel::from_json(text).map_err(|error| {
            SetupError::new(format!("the model script is not valid: {error}"), "mend the file")
        })?)),
        None if settings.providers.is_empty() => Ok(Arc::new(Unconfigured)),
        None => Ok(Arc::new(client(&settings.providers, &settings.models)?)),
    }
}

/// The client for these providers, the first being the default.
///
/// # Errors
///
/// A variable is missing, or a provider's settings cannot be used.
pub fn client(
    providers: &[ProviderSettings],
    models: &BTreeMap<String, ModelInfo>,
) -> Result<Providers, SetupError> {
    let providers = providers.iter().map(provider).collect::<Result<_, SetupError>>()?;
    let client = Providers::new(providers, catalog(models));
    client.map_err(|error| match error {
        fabro_llm::SetupError::Client { reason, fix } => {
            SetupError::new(format!("the HTTP client cannot be set up: {reason}"), fix)
        }
        error => SetupError::new(error.to_string(), "mend the settings of the provider"),
    })
}

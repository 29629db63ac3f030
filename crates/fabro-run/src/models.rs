//! Providers and models, from the settings and the environment.

use std::collections::BTreeMap;

use fabro_config::{ProviderSettings, Settings};
use fabro_llm::{Catalog, ModelInfo, Provider, Providers, Secret};

use crate::SetupError;
use crate::secrets::variable;

/// The providers that the settings name, and those that the environment configures.
pub fn providers(settings: &Settings) -> Vec<ProviderSettings> {
    fabro_config::providers(&settings.providers, variable)
}

/// The built-in model catalog with the models of the settings added.
pub fn catalog(models: &BTreeMap<String, ModelInfo>) -> Catalog {
    let mut catalog = Catalog::builtin();
    catalog.extend(models.values().cloned());
    catalog
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
    client.map_err(|error| SetupError::new(error.message, error.fix))
}

/// A provider as the client takes it.
fn provider(settings: &ProviderSettings) -> Result<Provider, SetupError> {
    let missing = |error: fabro_config::MissingVariable| {
        SetupError::new(
            format!("provider `{}`: {error}", settings.name),
            "set the variable, or remove it from the settings",
        )
    };
    let default = Provider::new(&settings.name, settings.kind);
    let key = settings.api_key(variable).map_err(missing)?;
    if key.as_ref().is_some_and(|key| key.contains(char::is_control)) {
        let names: Vec<&str> = match &settings.api_key_env {
            Some(name) => vec![name],
            None => settings.usual_keys().to_vec(),
        };
        let message = format!(
            "provider `{}`: the key in the environment variable `{}` has a line break or another character that no key has",
            settings.name,
            names.join("` or `")
        );
        return Err(SetupError::new(message, "set the variable again, to the key alone"));
    }
    Ok(Provider {
        base_url: settings.base_url.clone(),
        listed_model: settings.listed_model.clone(),
        interface: settings.interface,
        output_schema: settings.output_schema,
        long_cache: settings.long_cache.unwrap_or_default(),
        key: key.map(Secret::new),
        headers: settings.resolved_headers(variable).map_err(missing)?,
        request_timeout: settings.request_timeout.or(default.request_timeout),
        stream_timeout: settings.stream_timeout.or(default.stream_timeout),
        ..default
    })
}

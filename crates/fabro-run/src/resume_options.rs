//! What a resume changes of a run.

use std::collections::BTreeMap;

use fabro_config::{ProviderSettings, Settings};
use fabro_types::ModelInfo;

use crate::RunSettings;

/// What a resume changes. The rest is as when the run was created.
#[derive(Clone, Debug, Default)]
pub struct ResumeOptions {
    /// A new spending limit in US dollars.
    pub max_cost: Option<f64>,
    /// The text of a file of prepared answers.
    pub answers: Option<String>,
    /// The text of a model script.
    pub model_script: Option<String>,
    /// The name of its file.
    pub model_script_file: Option<String>,
    /// The model of stages that name none. A model script no longer answers, if a provider is configured.
    pub model: Option<String>,
    /// Answer every gate with its default, else its first option.
    pub auto_approve: bool,
    /// Providers and models that replace those of the same names.
    pub models: Option<RefreshedModels>,
}

impl ResumeOptions {
    /// Changes what answers the stages that are left.
    pub(crate) fn put_models_into(&mut self, settings: &mut RunSettings) {
        if let Some(models) = self.models.take() {
            models.put_into(settings);
        }
        if self.model.is_some() {
            settings.model = self.model.take();
            // As with `run --model`: it is the model that is to answer.
            if !settings.providers.is_empty() {
                settings.model_script = None;
                settings.model_script_file = None;
            }
        }
        if self.model_script.is_some() {
            settings.model_script = self.model_script.take();
            settings.model_script_file = self.model_script_file.take();
        }
    }
}

/// Providers and models as the settings have them now.
#[derive(Clone, Debug, Default)]
pub struct RefreshedModels {
    /// Providers, by name.
    pub providers: Vec<ProviderSettings>,
    /// Models, by name.
    pub models: BTreeMap<String, ModelInfo>,
    /// `run.model.name` of the settings of project and user: the weakest choice of a model.
    pub model: Option<String>,
    /// The provider beside it.
    pub provider: Option<String>,
}

impl RefreshedModels {
    /// Those of these settings and of the environment.
    pub fn of(settings: &Settings) -> Self {
        Self {
            providers: crate::providers(settings),
            models: settings.models.clone(),
            model: settings.model.name.clone(),
            provider: settings.model.provider.clone(),
        }
    }

    /// Replaces what has the same name, and adds the rest.
    fn put_into(self, settings: &mut RunSettings) {
        for provider in self.providers {
            let known = settings.providers.iter_mut().find(|known| known.name == provider.name);
            match known {
                Some(known) => *known = provider,
                None => settings.providers.push(provider),
            }
        }
        settings.models.extend(self.models);
        if self.model.is_some() || self.provider.is_some() {
            settings.configured_model = self.model;
            settings.configured_provider = self.provider;
        }
    }
}

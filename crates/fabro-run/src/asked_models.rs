//! What the stages of a run ask for: the requests without their messages, which decide the provider and the
//! model, and the one model of a server where no model is named.

use std::collections::{BTreeMap, BTreeSet};

use fabro_config::ProviderSettings;
use fabro_engine::{Backend, LlmSpec, NodeBody, NodeSpec, Plan};
use fabro_graph::NodeKind;
use fabro_handlers::ModelDefaults;
use fabro_llm::{ErrorKind, Fallback, ModelError, Providers, Request};
use fabro_types::MAX_SUB_WORKFLOW_DEPTH;

use crate::bundle::{Bundle, BundleError, RunSettings};
use crate::model_names::serves_any_model;
use crate::models::client;
use crate::secrets::variable;
use crate::{SetupError, reach};

/// How many names of a list are shown.
const SHOWN_NAMES: usize = 10;

/// How many models a line shows.
const SHOWN_MODELS: usize = 3;

/// What servers that host their own models say about the requested models.
#[derive(Default)]
pub(crate) struct ServerModels {
    /// What to do for each provider that is used without a model name and has no default model.
    pub(crate) unnamed: BTreeMap<String, Unnamed>,
    /// By provider: the models that it lists, or why it has no list. Only for reachable providers that
    /// are asked for an unknown model.
    pub(crate) listed: BTreeMap<String, Result<Vec<String>, String>>,
}

/// What a stage asks for first, then its fallbacks and the model that summarizes.
pub(crate) fn stage_requests(
    settings: &RunSettings,
    defaults: &ModelDefaults,
    plan: &Plan,
    spec: &NodeSpec,
    llm: &LlmSpec,
) -> Vec<Request> {
    let first = Fallback {
        provider: defaults.provider_of(plan, spec),
        model: defaults.model_of(plan, spec),
    };
    let fallbacks: Vec<Fallback> = match &llm.fallbacks {
        Some(own) => own.iter().map(|name| Fallback::new(&**name)).collect(),
        None => settings.fallbacks.iter().map(Fallback::new).collect(),
    };
    let summary = settings.agent.summary_model.iter().map(Fallback::new);
    let asked = [first].into_iter().chain(fallbacks).chain(summary);
    let request = |Fallback { provider, model }| {
        let mut request = Request::new(Vec::new());
        request.provider = provider;
        request.model = model;
        request
    };
    asked.map(request).collect()
}

/// What the stages of a workflow and of its sub-workflows ask for.
#[derive(Default)]
pub(crate) struct AskedModels {
    /// The first request of each stage.
    first: Vec<Request>,
    /// Those that follow when it fails, and those of summaries.
    later: Vec<Request>,
    /// The programs that ask a model themselves.
    programs: BTreeSet<String>,
}

impl AskedModels {
    /// Of the stages that can be reached from the start.
    ///
    /// # Errors
    /// A sub-workflow cannot be read.
    pub(crate) fn of(
        bundle: &Bundle,
        plan: &Plan,
        settings: &RunSettings,
    ) -> Result<Self, BundleError> {
        let mut asked = Self::default();
        asked.add(bundle, plan, settings, 0)?;
        Ok(asked)
    }

    pub(crate) fn add(
        &mut self,
        bundle: &Bundle,
        plan: &Plan,
        settings: &RunSettings,
        depth: usize,
    ) -> Result<(), BundleError> {
        let defaults = settings.model_defaults();
        for ix in reach::from_start(plan).into_keys() {
            let spec = plan.spec(ix);
            if let Some(llm) = spec.llm() {
                self.add_stage(settings, &defaults, plan, spec, llm);
            }
            if spec.kind == NodeKind::ManagerLoop && depth < MAX_SUB_WORKFLOW_DEPTH {
                let child = bundle.child(plan.workflow().node(ix))?;
                self.add(&child, &child.plan()?, settings, depth + 1)?;
            }
        }
        Ok(())
    }

    fn add_stage(
        &mut self,
        settings: &RunSettings,
        defaults: &ModelDefaults,
        plan: &Plan,
        spec: &NodeSpec,
        llm: &LlmSpec,
    ) {
        match &llm.backend {
            Backend::Acp { command, .. } if !matches!(spec.body, NodeBody::FanIn(..)) => {
                let program = command.as_deref().and_then(|it| it.split_whitespace().next());
                self.programs.extend(program.map(str::to_owned));
            }
            Backend::Cli if !matches!(spec.body, NodeBody::FanIn(..)) => {
                let provider = defaults.provider_of(plan, spec);
                self.programs.insert(format!(
                    "the command-line agent of {}",
                    provider.as_deref().unwrap_or("the model's provider")
                ));
            }
            _ => {
                let mut requests = stage_requests(settings, defaults, plan, spec, llm).into_iter();
                self.first.extend(requests.next());
                self.later.extend(requests);
            }
        }
    }

    /// Asks servers for their model lists, each once: those used without a model name, and those asked
    /// for a model that neither the catalog nor the settings name. If a server lists a single model and
    /// none was named, the model is stored in the settings. Otherwise the result says what to do.
    ///
    /// # Errors
    /// The settings of a provider cannot be used.
    pub(crate) async fn ask_servers(
        &self,
        settings: &mut RunSettings,
    ) -> Result<ServerModels, SetupError> {
        let mut servers = ServerModels::default();
        if settings.model_script.is_some() || settings.providers.is_empty() {
            return Ok(servers);
        }
        let client = client(&settings.providers, &settings.models)?;
        let requests = self.first.iter().chain(&self.later);
        let unnamed = requests.filter_map(|request| client.provider_of_unnamed(request));
        let names: BTreeSet<String> = unnamed.map(|provider| provider.name.clone()).collect();
        for name in names {
            let listed = client.list_models(&name).await;
            match only(listed) {
                Ok(model) => {
                    let provider = settings.providers.iter_mut().find(|it| it.name == name);
                    if let Some(provider) = provider {
                        provider.listed_model = Some(model);
                    }
                }
                Err(unnamed) => {
                    servers.unnamed.insert(name, unnamed);
                }
            }
        }
        let unknown = self.first.iter().filter_map(|it| provider_of_unknown(&client, settings, it));
        let names: BTreeSet<String> = unknown.collect();
        for name in names {
            let listed = match client.list_models(&name).await {
                Ok(models) => Ok(models),
                Err(error) if has_no_list(error.kind) => Err(error.to_string()),
                // An unreachable server pauses the run at its stage.
                Err(_) => continue,
            };
            servers.listed.insert(name, listed);
        }
        Ok(servers)
    }

    /// Which models answer, and where they are from; `None` when no stage asks any.
    ///
    /// # Errors
    /// The settings of a provider cannot be used.
    pub(crate) fn text(&self, settings: &RunSettings) -> Result<Option<String>, SetupError> {
        let mut texts = match (&settings.model_script, settings.providers.is_empty()) {
            _ if self.first.is_empty() => Vec::new(),
            (Some(_), _) => vec![scripted(settings)],
            (None, true) => Vec::new(),
            (None, false) => self.model_texts(settings)?,
        };
        texts.extend(self.programs.iter().cloned());
        let more = texts.len().saturating_sub(SHOWN_MODELS);
        texts.truncate(SHOWN_MODELS);
        if more > 0 {
            texts.push(format!("{more} more"));
        }
        Ok((!texts.is_empty()).then(|| texts.join(", ")))
    }

    /// Each model with its provider, once.
    fn model_texts(&self, settings: &RunSettings) -> Result<Vec<String>, SetupError> {
        let client = client(&settings.providers, &settings.models)?;
        let mut texts = Vec::new();
        for request in &self.first {
            // One that goes nowhere is reported as missing.
            let Ok((provider, model)) = client.route(request) else { continue };
            let own = settings.providers.iter().find(|it| it.name == provider.name);
            let text = own.map_or_else(String::new, |own| origin(own, &model, &client));
            let text = format!("{}/{model}{text}", provider.name);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        Ok(texts)
    }
}

/// That a script answers, and which model it replaces.
fn scripted(settings: &RunSettings) -> String {
    let file = settings.model_script_file.as_ref();
    let file = file.map(|file| format!(" ({file})")).unwrap_or_default();
    let unasked = settings.model.as_ref().map(|model| format!("; {model} is not asked"));
    let why = match (&unasked, settings.providers.is_empty()) {
        (Some(_), true) => ": no provider is configured",
        _ => "",
    };
    format!("scripted{file}{}{why}", unasked.unwrap_or_default())
}

/// The name of the provider, if it hosts its own models and the requested model is neither in the
/// catalog nor in the settings.
fn provider_of_unknown(
    client: &Providers,
    settings: &RunSettings,
    request: &Request,
) -> Option<String> {
    let (provider, model) = client.route(request).ok()?;
    let is_unknown = serves_any_model(provider.kind, provider.base_url.as_deref())
        && provider.listed_model.as_deref() != Some(&*model)
        && client.catalog().find(&model).is_none()
        && !is_named(settings, request, &model);
    is_unknown.then(|| provider.name.clone())
}

/// Whether run.toml or the settings name the requested model, with or without its provider.
pub(crate) fn is_named(settings: &RunSettings, request: &Request, model: &str) -> bool {
    let written = request.model.as_deref().unwrap_or(model);
    settings.named_models.iter().any(|name| name == written || name == model)
}

/// Whether the server responded but has no readable list.
fn has_no_list(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnknownModel | ErrorKind::UnusableAnswer)
}

/// Where a model comes from, in parentheses.
fn origin(provider: &ProviderSettings, model: &str, client: &Providers) -> String {
    let is_set = |name: &&str| variable(name).is_some_and(|value| !value.trim().is_empty());
    let own = provider.api_key_env.as_deref();
    let key = own.or_else(|| provider.usual_keys().iter().copied().find(is_set));
    let address = provider.base_url.as_ref().and_then(|_| client.address(&provider.name));
    let mut parts: Vec<String> = address.map(str::to_owned).into_iter().collect();
    parts.extend(key.map(|name| format!("key from {name}")));
    if provider.listed_model.as_deref() == Some(model) {
        parts.push("the only one that it lists".to_owned());
    }
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Why no model is taken from the list of a server.
#[derive(Debug)]
pub(crate) struct Unnamed {
    /// Why there is no list; empty when there is one.
    why: String,
    /// What to do.
    pub fix: String,
}

impl Unnamed {
    /// What is wrong, for the provider of this name.
    pub(crate) fn message(&self, provider: &str) -> String {
        format!("{}{}", no_model(provider), self.why)
    }
}

/// That a provider is to answer, without the name of a model.
pub(crate) fn no_model(provider: &str) -> String {
    format!("no model is named for provider `{provider}`")
}

/// The model of a list that has one; else why not.
pub(crate) fn only(listed: Result<Vec<String>, ModelError>) -> Result<String, Unnamed> {
    let name = "set [run.model] name = \"…\" in .fabro/config.toml or pass --model";
    let listed = match listed {
        Ok(mut models) if models.len() == 1 => return Ok(models.remove(0)),
        Ok(models) if models.is_empty() => "the server lists no models".to_owned(),
        Ok(models) => list_text(&models),
        Err(error) => {
            let why = format!(", and its list of models cannot be read: {error}");
            return Err(Unnamed { why, fix: name.to_owned() });
        }
    };
    Err(Unnamed { why: String::new(), fix: format!("{name}; {listed}") })
}

/// The first names of a list.
pub(crate) fn list_text(models: &[String]) -> String {
    let more = models.len().saturating_sub(SHOWN_NAMES);
    let shown = models[..models.len() - more].join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the server lists: {shown}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_model_is_taken() {
        let check = |listed: &[&str]| {
            only(Ok(listed.iter().map(ToString::to_string).collect()))
                .unwrap_or_else(|unnamed| unnamed.fix.split_once("; ").unwrap().1.to_owned())
        };
        assert_eq!(check(&["a"]), "a");
        assert_eq!(check(&[]), "the server lists no models");
        assert_eq!(check(&["a", "b"]), "the server lists: a, b");
        let many: Vec<String> = (0..12).map(|nth| format!("m{nth}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(
            check(&many),
            "the server lists: m0, m1, m2, m3, m4, m5, m6, m7, m8, m9 and 2 more"
        );
        let error = ModelError::new(ErrorKind::Timeout).with_message("too late");
        let unnamed = only(Err(error)).unwrap_err();
        assert_eq!(
            unnamed.message("own"),
            "no model is named for provider `own`, and its list of models cannot be read: too late"
        );
    }
}

//! Names of models and providers that neither the catalog nor the settings know: probably misspelled.

use std::collections::BTreeSet;

use fabro_config::{ProviderSettings, RunFile, ScriptUse, Settings};
use fabro_graph::{Node, NodeKind, Workflow};
use fabro_llm::Catalog;
use fabro_types::{Diagnostic, ProviderKind, Span, nearest};

use crate::models::{catalog, providers};

/// The rule of findings about models.
const MODEL_RULE: &str = "unknown-model";

/// The rule of findings about providers.
const PROVIDER_RULE: &str = "unknown-provider";

/// What is odd about the name of a model, and what to do.
pub(crate) struct UnknownModel {
    pub(crate) message: String,
    pub(crate) fix: String,
    /// The known name that it is nearest to.
    pub(crate) near: Option<String>,
}

/// A finding unless the catalog knows the model, or one of its family.
pub(crate) fn unknown_model(catalog: &Catalog, name: &str) -> Option<UnknownModel> {
    if catalog.find(name).is_some() {
        return None;
    }
    let bare = name.rsplit('/').next().unwrap_or(name);
    let known = catalog.iter().flat_map(|model| {
        std::iter::once(model.name.as_str()).chain(model.aliases.iter().map(String::as_str))
    });
    let near = nearest(bare, known).map(str::to_owned);
    let fix = match &near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("correct the name, or describe the model as [models.\"{name}\"]"),
    };
    let message = format!("neither the catalog nor the settings know the model `{name}`");
    Some(UnknownModel { message, fix, near })
}

/// The message and the fix for an unknown provider.
pub(crate) fn unknown_provider<'a>(
    name: &str,
    configured: impl Iterator<Item = &'a str>,
) -> (String, String) {
    // Common names: the company or its models.
    let alias = match name.to_ascii_lowercase().as_str() {
        "google" => Some("gemini"),
        "claude" => Some("anthropic"),
        "gpt" | "chatgpt" => Some("openai"),
        _ => None,
    };
    let fix = match alias.or_else(|| nearest(name, configured.chain(ProviderKind::NAMES))) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("correct the name, or add [providers.{name}] to the settings"),
    };
    (format!("there is no provider `{name}`"), fix)
}

/// Whether a provider may serve models that are not in the catalog: one at an address of its own.
pub(crate) fn serves_any_model(kind: ProviderKind, base_url: Option<&str>) -> bool {
    kind == ProviderKind::OpenAiCompatible || base_url.is_some()
}

/// Warnings for the models that a workflow, and the run.toml that it is run with, name and that
/// neither the catalog nor a provider of the settings can be expected to know.
pub fn check_model_names(
    workflow: Option<&Workflow>,
    run_file: Option<&RunFile>,
    settings: &Settings,
) -> UnknownModels {
    let names = ModelNames::new(run_file, settings, providers(settings));
    let run_model = run_file.and_then(|file| Some((file, file.config.model.name.as_deref()?)));
    let in_run_file = run_model
        .and_then(|(file, name)| names.check(name, names.provider, file.span_of("run.model.name")));
    UnknownModels {
        in_workflow: workflow.map(|workflow| names.check_workflow(workflow)).unwrap_or_default(),
        in_run_file,
    }
}

/// Warnings by the file that they are in.
#[derive(Clone, Debug, Default)]
pub struct UnknownModels {
    /// The workflow.
    pub in_workflow: Vec<Diagnostic>,
    /// Its run.toml.
    pub in_run_file: Option<Diagnostic>,
}

/// Stages that are answered by a provider, not by an external agent.
pub(crate) fn asks_provider(node: &Node) -> bool {
    let is_fan_in_with_model = node.kind == NodeKind::FanIn && node.attrs.get("prompt").is_some();
    let is_external = matches!(node.attrs.text("backend"), Some("cli" | "acp"));
    is_fan_in_with_model || (node.kind.is_llm() && !is_external)
}

struct ModelNames<'a> {
    catalog: Catalog,
    providers: Vec<ProviderSettings>,
    /// The provider that the run's settings name.
    provider: Option<&'a str>,
    /// A model script answers.
    is_scripted: bool,
}

impl<'a> ModelNames<'a> {
    fn new(
        run_file: Option<&'a RunFile>,
        settings: &'a Settings,
        providers: Vec<ProviderSettings>,
    ) -> Self {
        let own = run_file.map(|file| &file.config.model);
        let scripts = [own.and_then(|own| own.script.as_ref()), settings.model.script.as_ref()];
        let when = [own.and_then(|own| own.script_when), settings.model.script_when];
        let provider = own.and_then(|own| own.provider.as_deref());
        Self {
            catalog: catalog(&settings.models),
            provider: provider.or(settings.model.provider.as_deref()),
            is_scripted: (providers.is_empty() || when.contains(&Some(ScriptUse::Always)))
                && scripts.iter().any(Option::is_some),
            providers,
        }
    }

    fn check_workflow(&self, workflow: &Workflow) -> Vec<Diagnostic> {
        let graph = workflow.attrs();
        let mut findings = self.check_providers(workflow);
        let nodes = workflow.nodes().filter(|node| asks_provider(node)).map(|node| &node.attrs);
        let named = nodes.filter_map(|attrs| Some((attrs, attrs.get("model")?, "provider")));
        let default = graph.get("default_model").map(|attr| (graph, attr, "default_provider"));
        let mut seen = BTreeSet::new();
        for (attrs, attr, provider) in named.chain(default) {
            let Some(name) = attr.value.text() else { continue };
            let provider = attrs.text(provider).or(self.provider);
            let provider = provider.or_else(|| graph.text("default_provider"));
            // Defaults and styles give one to many nodes: one finding a name says enough.
            if seen.insert((name, provider)) {
                findings.extend(self.check(name, provider, attr.span));
            }
        }
        workflow.place(&mut findings);
        findings
    }

    /// Reports providers that are neither built in nor configured, each name once.
    fn check_providers(&self, workflow: &Workflow) -> Vec<Diagnostic> {
        let nodes = workflow.nodes().filter(|node| asks_provider(node));
        let named = nodes.filter_map(|node| node.attrs.get("provider"));
        let mut seen = BTreeSet::new();
        let mut findings = Vec::new();
        for attr in named.chain(workflow.attrs().get("default_provider")) {
            let Some(name) = attr.value.text().filter(|name| !name.contains("{{")) else {
                continue;
            };
            let is_known = ProviderKind::parse(name).is_some()
                || self.providers.iter().any(|provider| provider.name == name);
            if self.is_scripted || is_known || !seen.insert(name) {
                continue;
            }
            let configured = self.providers.iter().map(|provider| provider.name.as_str());
            let (message, fix) = unknown_provider(name, configured);
            findings.push(Diagnostic::warning(PROVIDER_RULE, attr.span, message).with_fix(fix));
        }
        findings
    }

    fn check(&self, name: &str, provider: Option<&str>, span: Span) -> Option<Diagnostic> {
        let prefix = name.split_once('/').map(|(prefix, _)| prefix);
        if self.is_scripted || name.contains("{{") {
            return None;
        }
        // A provider may be named where a model is.
        if self.providers.iter().any(|it| it.name == name) || ProviderKind::parse(name).is_some() {
            return None;
        }
        let UnknownModel { message, fix, near } = unknown_model(&self.catalog, name)?;
        // A server may list it, unless it looks like a misspelled model of the catalog.
        if near.is_none() && self.may_know(provider.or(prefix)) {
            return None;
        }
        Some(Diagnostic::warning(MODEL_RULE, span, message).with_fix(fix))
    }

    /// Whether this provider, or where no model is named one of all, may serve a model that the catalog
    /// does not have.
    fn may_know(&self, provider: Option<&str>) -> bool {
        let serves = |it: &ProviderSettings| serves_any_model(it.kind, it.base_url.as_deref());
        let Some(name) = provider else { return self.providers.iter().any(serves) };
        let kind = ProviderKind::parse(name);
        let own = self.providers.iter().find(|it| it.name == name || Some(it.kind) == kind);
        own.map_or_else(|| kind.is_none_or(|kind| serves_any_model(kind, None)), serves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The warnings for a workflow with this model on a stage, and these settings.
    fn unknown(attributes: &str, settings: &str) -> String {
        let source = format!("digraph {{ start -> a -> exit; a [prompt=x, {attributes}] }}");
        let workflow = Workflow::from_source("w", &source).unwrap();
        let text = format!("_version = 1\n{settings}");
        let settings = fabro_config::parse_settings(&text).unwrap().0;
        let providers = settings.providers.values().cloned().collect();
        let findings = ModelNames::new(None, &settings, providers).check_workflow(&workflow);
        let texts =
            findings.iter().map(|it| format!("{} ({})", it.message, it.fix.as_ref().unwrap()));
        texts.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn names_that_nothing_knows() {
        insta::assert_snapshot!(unknown("model=\"gtp-5\"", ""), @"neither the catalog nor the settings know the model `gtp-5` (did you mean `gpt-5`?)");
        insta::assert_snapshot!(unknown("model=\"anthropic/claude-sonet-4-5\"", ""), @"neither the catalog nor the settings know the model `anthropic/claude-sonet-4-5` (did you mean `claude-sonnet-4-5`?)");
        insta::assert_snapshot!(unknown("model=zorblax", "[providers.openai]"), @r#"neither the catalog nor the settings know the model `zorblax` (correct the name, or describe the model as [models."zorblax"])"#);
        for known in
            ["model=\"gpt-5.2-2030-01-01\"", "model=opus", "model=openai", "model=\"{{ x }}\""]
        {
            assert_eq!(unknown(known, ""), "", "{known}");
        }
    }

    #[test]
    fn reports_unknown_providers() {
        let local = "[providers.local]\nkind = 'openai-compatible'\nbase_url = 'http://h/v1'";
        insta::assert_snapshot!(unknown("provider=antropic", ""), @"there is no provider `antropic` (did you mean `anthropic`?)");
        insta::assert_snapshot!(unknown("provider=google", ""), @"there is no provider `google` (did you mean `gemini`?)");
        insta::assert_snapshot!(unknown("provider=lokal", local), @"there is no provider `lokal` (did you mean `local`?)");
        insta::assert_snapshot!(unknown("model=mine, provider=elsewhere", ""), @"there is no provider `elsewhere` (correct the name, or add [providers.elsewhere] to the settings)");
        for known in ["provider=openai", "provider=local", "provider=x, backend=cli"] {
            assert_eq!(unknown(known, local), "", "{known}");
        }
    }

    #[test]
    fn servers_with_models_of_their_own() {
        let local = "[providers.local]\nkind = 'openai-compatible'\nbase_url = 'http://h/v1'";
        let openai = "[providers.openai]\nbase_url = 'http://h/v1'";
        for (attributes, settings) in [
            ("model=mine", local),
            ("model=mine, provider=local", local),
            ("model=\"local/mine\"", local),
            ("model=mine, provider=openai", openai),
            ("model=\"openrouter/mine\"", ""),
            ("model=mine, backend=cli", ""),
            ("model=mine", "[models.mine]\ncontext_window = 8192"),
            ("model=mine", "[run.model]\nscript = 'turns.json'"),
        ] {
            assert_eq!(unknown(attributes, settings), "", "{attributes}");
        }
        assert_ne!(unknown("model=mine, provider=anthropic", local), "");
        insta::assert_snapshot!(unknown("model=\"claude-sonet-4-5\"", local), @"neither the catalog nor the settings know the model `claude-sonet-4-5` (did you mean `claude-sonnet-4-5`?)");
    }
}

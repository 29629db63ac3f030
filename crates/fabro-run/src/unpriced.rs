//! Models that a run may use and whose prices are not known, found before it starts: a spending limit
//! does not count them.

use std::collections::BTreeMap;

use fabro_engine::{Backend, LlmSpec, NodeBody, NodeSpec, Plan};
use fabro_external_agents::CliAgent;
use fabro_graph::NodeKind;
use fabro_handlers::ModelDefaults;
use fabro_llm::{Catalog, Fallback, ModelInfo, Providers, Request};
use fabro_types::MAX_SUB_WORKFLOW_DEPTH;

use crate::RunError;
use crate::bundle::{Bundle, BundleError, RunSettings};
use crate::models::{catalog, client};
use crate::reach;

/// How many stages a warning names.
const MOST_STAGES: usize = 3;

/// Why a price is not known.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Unpriced {
    /// The model is not in the catalog, or without a price.
    Model(String),
    /// The program chooses the model.
    Chosen(&'static str),
    /// The agent of this command may not say what it costs.
    Agent(String),
}

/// Warnings of what a spending limit would not count, when this run, or the graph of one of its
/// workflows, has a limit.
///
/// # Errors
/// A sub-workflow cannot be read, or a provider's settings cannot be used.
pub(crate) fn unpriced(
    bundle: &Bundle,
    plan: &Plan,
    max_cost: Option<f64>,
) -> Result<Vec<String>, RunError> {
    let settings = &bundle.settings;
    let has_providers = settings.model_script.is_none() && !settings.providers.is_empty();
    let providers =
        if has_providers { Some(client(&settings.providers, &settings.models)?) } else { None };
    let mut search = Search {
        settings,
        providers,
        defaults: settings.model_defaults(),
        catalog: catalog(&settings.models),
        found: BTreeMap::new(),
    };
    search.plan(bundle, plan, max_cost, 0)?;
    Ok(search.found.into_iter().map(|(what, stages)| warning(&what, &stages)).collect())
}

struct Search<'a> {
    settings: &'a RunSettings,
    /// None when a script answers, or nothing is configured.
    providers: Option<Providers>,
    defaults: ModelDefaults,
    catalog: Catalog,
    /// The stages that may use each.
    found: BTreeMap<Unpriced, Vec<String>>,
}

impl Search<'_> {
    fn plan(
        &mut self,
        bundle: &Bundle,
        plan: &Plan,
        max_cost: Option<f64>,
        depth: usize,
    ) -> Result<(), BundleError> {
        let limit = max_cost.or(plan.graph().max_cost);
        for ix in reach::from_start(plan).into_keys() {
            let spec = plan.spec(ix);
            if let Some(llm) = spec.llm().filter(|_| limit.is_some()) {
                self.stage(plan, spec, llm);
            }
            if spec.kind == NodeKind::ManagerLoop && depth < MAX_SUB_WORKFLOW_DEPTH {
                let child = bundle.child(plan.workflow().node(ix))?;
                self.plan(&child, &child.plan()?, limit, depth + 1)?;
            }
        }
        Ok(())
    }

    fn stage(&mut self, plan: &Plan, spec: &NodeSpec, llm: &LlmSpec) {
        let model = self.defaults.model_of(plan, spec);
        let provider = self.defaults.provider_of(plan, spec);
        let is_asked = matches!(spec.body, NodeBody::FanIn(_));
        match &llm.backend {
            Backend::Acp { command: Some(command), .. } if !is_asked => {
                self.add(Unpriced::Agent(command.to_string()), spec);
            }
            Backend::Cli if !is_asked => self.program(spec, provider, model),
            _ => self.models(spec, llm, Fallback { provider, model }),
        }
    }

    /// Of the command-line agents, `claude` says what it costs.
    fn program(&mut self, spec: &NodeSpec, provider: Option<String>, model: Option<String>) {
        let owner = || self.catalog.find(model.as_deref()?)?.provider.clone();
        let provider = provider.or_else(owner);
        match (CliAgent::of_provider(provider.as_deref().unwrap_or("anthropic")), model) {
            (Some(CliAgent::Claude) | None, _) => {}
            (Some(agent), Some(model)) if agent != CliAgent::Agy => self.named(&model, spec),
            // `agy` does not report what it uses of any model.
            (Some(agent), _) => self.add(Unpriced::Chosen(agent.name()), spec),
        }
    }

    /// The model of the stage, those it falls back to, and the one that summarises.
    fn models(&mut self, spec: &NodeSpec, llm: &LlmSpec, first: Fallback) {
        let Some(providers) = &self.providers else { return };
        let fallbacks: Vec<Fallback> = match &llm.fallbacks {
            Some(own) => own.iter().map(|name| Fallback::new(&**name)).collect(),
            None => self.settings.fallbacks.iter().map(Fallback::new).collect(),
        };
        let summary = self.settings.agent.summary_model.iter().map(Fallback::new);
        let asked = [first].into_iter().chain(fallbacks).chain(summary);
        let named: Vec<String> = asked
            .filter_map(|Fallback { provider, model }| {
                let mut request = Request::new(Vec::new());
                request.provider = provider;
                request.model = model;
                // What cannot be routed is reported as missing.
                providers.route(&request).ok().map(|(_, model)| model)
            })
            .collect();
        for name in named {
            self.named(&name, spec);
        }
    }

    fn named(&mut self, name: &str, spec: &NodeSpec) {
        if !self.catalog.same_model(name).is_some_and(ModelInfo::has_price) {
            self.add(Unpriced::Model(name.to_owned()), spec);
        }
    }

    fn add(&mut self, what: Unpriced, spec: &NodeSpec) {
        let stages = self.found.entry(what).or_default();
        let id = spec.id.to_string();
        if !stages.contains(&id) {
            stages.push(id);
        }
    }
}

fn warning(what: &Unpriced, stages: &[String]) -> String {
    let named: Vec<_> = stages.iter().take(MOST_STAGES).map(|stage| format!("`{stage}`")).collect();
    let more = stages.len().saturating_sub(MOST_STAGES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let of = named.join(", ") + &more;
    match what {
        Unpriced::Model(name) => format!(
            "the price of `{name}` ({of}) is not known, so the spending limit does not count it: set \
             input_cost and output_cost in [models.\"{name}\"], in US dollars for a million tokens"
        ),
        Unpriced::Chosen(program) => format!(
            "`{program}` ({of}) chooses its model itself, so its price may not be known, and then the \
             spending limit does not count it: set `model`"
        ),
        Unpriced::Agent(command) => format!(
            "the agent `{command}` ({of}) may not say what it costs, and then the spending limit does \
             not count it: set max_tokens_total too, or use another backend"
        ),
    }
}

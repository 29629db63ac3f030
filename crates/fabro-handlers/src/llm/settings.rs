//! How the session of a stage behaves: the choice of its model, its limits, its prices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabro_agent::{MayAsk, Overrides, Policy, Price, Settings};
use fabro_config::{CompactionPreset, CompactionSettings};
use fabro_engine::{Clock, NodeBody, NodeSpec, OutputSpec, Plan, Stage};
use fabro_llm::{Catalog, Fallback, RequestPolicy, RetryPolicy};
use fabro_types::Usage;
use serde_json::Value;

use super::LlmHandler;
use super::live::live_file;
use super::prepare::StageRequest;
use crate::common::{cache_key, warn};

/// The input of a request that no price counts as a long one, in tokens.
const SHORT_REQUEST: u64 = 100_000;

/// What to ask for when the node says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelDefaults {
    /// The model from the command line or the run's settings: stronger than the graph's default.
    pub run: Option<String>,
    /// The same for the provider.
    pub run_provider: Option<String>,
    /// The model from the project or the user: weaker than the graph's default.
    pub configured: Option<String>,
    /// The same for the provider.
    pub configured_provider: Option<String>,
}

impl ModelDefaults {
    /// The model that a node asks for. Precedence: node (its own, else the stylesheet's, which is
    /// applied before) > `--model` or run.toml > `default_model` of the graph > configuration.
    pub fn model_of(&self, plan: &Plan, node: &NodeSpec) -> Option<String> {
        let own = node.llm().and_then(|llm| llm.model.as_deref());
        let graph = plan.graph().default_model.as_deref();
        let Self { run, configured, .. } = self;
        own.or(run.as_deref()).or(graph).or(configured.as_deref()).map(str::to_owned)
    }

    /// The provider that is named first, in the same order.
    pub fn provider_of(&self, plan: &Plan, node: &NodeSpec) -> Option<String> {
        let own = node.llm().and_then(|llm| llm.provider.as_deref());
        let graph = plan.graph().default_provider.as_deref();
        let Self { run_provider: run, configured_provider: configured, .. } = self;
        own.or(run.as_deref()).or(graph).or(configured.as_deref()).map(str::to_owned)
    }
}

impl LlmHandler {
    /// The settings of the stage's session. `unpriced` is set when an answer has no known price.
    pub(super) fn settings(
        &self,
        stage: &Stage,
        request: &StageRequest,
        unpriced: &Arc<AtomicBool>,
    ) -> Settings {
        let spec = stage.spec().llm();
        let agents = &self.agents.settings;
        let model = self.model_name(stage);
        let window = agents.context_window.or_else(|| {
            model.as_deref().and_then(|name| self.agents.catalog.find(name)?.estimated_window())
        });
        let own = |value: Option<&Arc<str>>| value.map(ToString::to_string);
        let defaults = Settings::default();
        Settings {
            system: request.system.clone(),
            opening: request.opening.clone(),
            provider: self.provider_name(stage),
            reasoning_effort: own(spec.and_then(|llm| llm.reasoning_effort.as_ref())),
            speed: own(spec.and_then(|llm| llm.speed.as_ref())),
            max_tokens: spec.and_then(|llm| llm.max_tokens),
            output_schema: output_schema(stage),
            takes_empty_answers: spec.is_some_and(|llm| !matches!(llm.output, OutputSpec::Free)),
            max_turns: spec
                .and_then(|llm| llm.max_turns)
                .or(agents.max_turns)
                .unwrap_or(defaults.max_turns),
            permissions: self.permissions(stage),
            window,
            compaction: compaction_policy(&agents.compaction),
            asking: self.asking(stage),
            subagent_depth: self.subagent_depth(stage),
            max_subagents: agents
                .max_subagents
                .map_or(defaults.max_subagents, |max| usize::try_from(max).unwrap_or(usize::MAX)),
            may_ask: Some(may_ask(stage)),
            price: Some(self.price(unpriced)),
            live: Some(live_file(&stage.dir(), self.agents.redactor.clone())),
            redactor: self.agents.redactor.clone(),
            cache_key: Some(cache_key(stage)),
            model,
            ..defaults
        }
    }

    /// How deep the stage's agent may start subagents; 0 when it may not.
    pub(super) fn subagent_depth(&self, stage: &Stage) -> u32 {
        match stage.spec().agent() {
            Some(agent) if agent.may_use("spawn_agent") => {
                self.agents.settings.subagent_depth.unwrap_or(1)
            }
            _ => 0,
        }
    }

    /// How hard models are asked, and whom else: the node's own fallbacks, else the run's.
    pub(super) fn asking(&self, stage: &Stage) -> RequestPolicy {
        let Some(asking) = &self.agents.asking else {
            return RequestPolicy { retry: RetryPolicy::none(), ..RequestPolicy::default() };
        };
        let mut asking = RequestPolicy { seed: stage.run.seed, ..asking.clone() };
        if let Some(own) = stage.spec().llm().and_then(|llm| llm.fallbacks.as_ref()) {
            asking.fallbacks = own.iter().map(|name| Fallback::new(&**name)).collect();
        }
        asking
    }

    /// The model that the stage asks for.
    pub(super) fn model_name(&self, stage: &Stage) -> Option<String> {
        self.defaults.model_of(&stage.plan, stage.spec())
    }

    /// The provider that it asks for.
    pub(super) fn provider_name(&self, stage: &Stage) -> Option<String> {
        self.defaults.provider_of(&stage.plan, stage.spec())
    }

    /// Puts the price of an answer into its usage.
    pub(super) fn price_now(&self, usage: &mut Usage) {
        self.price(&Arc::default())(usage);
    }

    /// Puts the price of what a program used into its usage, where it did not. That may be the sum of
    /// many requests, while prices depend on the size of one: they are taken as equal, and as short
    /// where their number is not known.
    pub(super) fn price_sum(&self, used: &mut Usage, unpriced: &Arc<AtomicBool>) {
        if used.cost_usd > 0.0 {
            return;
        }
        let price = self.price(unpriced);
        let parts = used.input_tokens.div_ceil(SHORT_REQUEST).max(1);
        let requests = if used.turns > 1 { u64::from(used.turns) } else { parts };
        let mut part = with_tokens(used, |tokens| tokens / requests);
        let mut last = with_tokens(used, |tokens| tokens - tokens / requests * (requests - 1));
        price(&mut part);
        price(&mut last);
        #[expect(clippy::cast_precision_loss, reason = "there are not so many requests")]
        let others = part.costs.times((requests - 1) as f64);
        let mut total = Usage { costs: others, ..Usage::default() };
        total.add(&Usage { costs: last.costs, ..Usage::default() });
        used.costs = total.costs;
        used.cost_usd = used.costs.total();
        used.unpriced_requests = last.unpriced_requests;
    }

    pub(super) fn price(&self, unpriced: &Arc<AtomicBool>) -> Price {
        price_by(Arc::clone(&self.agents.catalog), Arc::clone(&self.clock), Arc::clone(unpriced))
    }
}

/// Puts the price of an answer into its usage, where the model did not; `unpriced` is set when it is
/// not known.
pub fn price_by(catalog: Arc<Catalog>, clock: Arc<dyn Clock>, unpriced: Arc<AtomicBool>) -> Price {
    Arc::new(move |usage| {
        // Providers price each request; others leave it to us.
        if usage.cost_usd == 0.0 && usage.unpriced_requests == 0 {
            usage.set_costs(catalog.costs(usage, clock.now_ms()));
        }
        // Where tokens are not known either, the provider's warning says so.
        let has_tokens = usage.input_tokens > 0 || usage.output_tokens > 0;
        if usage.unpriced_requests > 0 && has_tokens {
            unpriced.store(true, Ordering::Relaxed);
        }
    })
}

/// The same usage with other numbers of tokens.
fn with_tokens(usage: &Usage, count: impl Fn(u64) -> u64) -> Usage {
    Usage {
        input_tokens: count(usage.input_tokens),
        output_tokens: count(usage.output_tokens),
        cached_tokens: count(usage.cached_tokens),
        cache_write_tokens: count(usage.cache_write_tokens),
        long_cache_write_tokens: count(usage.long_cache_write_tokens),
        reasoning_tokens: count(usage.reasoning_tokens),
        ..usage.clone()
    }
}

/// The schema of the answer, for providers that take one.
fn output_schema(stage: &Stage) -> Option<Arc<Value>> {
    match (&stage.spec().body, &stage.spec().llm()?.output) {
        (NodeBody::Agent(_) | NodeBody::Prompt(_), OutputSpec::Schema(schema)) => {
            Some(Arc::new(schema.json().clone()))
        }
        _ => None,
    }
}

/// How conversations are compacted by these settings.
pub fn compaction_policy(chosen: &CompactionSettings) -> Policy {
    let preset = match chosen.preset.unwrap_or_default() {
        CompactionPreset::Harness => Policy::harness(),
        CompactionPreset::Strict => Policy::strict(),
        _ => Policy::fabro(),
    };
    preset.with(&Overrides {
        enabled: chosen.enabled,
        compact_at_tokens: chosen.compact_at_tokens,
        reserve_tokens: chosen.reserve_tokens,
        keep_recent_entries: chosen.keep_recent,
        recover_from_overflow: chosen.recover_from_overflow,
        ..Overrides::default()
    })
}

/// Whether the session may request another turn. The usage of earlier turns is recorded by then.
fn may_ask(stage: &Stage) -> MayAsk {
    let budget = stage.budget.clone();
    Arc::new(move |_| budget.may_spend())
}

/// Warns that the spending limit of the run, when there is one, does not count something.
pub(super) async fn warn_of_unknown_price(stage: &Stage, unknown: &str) {
    if stage.budget.has_cost_limit() {
        let message = format!("{unknown} is not known, so max_cost does not count it");
        warn(&stage.reporter, "price", message).await;
    }
}

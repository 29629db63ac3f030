//! What is wrong with models that a run may use, found before it starts: prices that are not known, which a
//! spending limit does not count, and models that their provider shuts down.

use std::collections::BTreeMap;
use std::time::SystemTime;

use fabro_engine::{Backend, LlmSpec, NodeBody, NodeSpec, Plan};
use fabro_external_agents::CliAgent;
use fabro_graph::NodeKind;
use fabro_handlers::ModelDefaults;
use fabro_llm::{Catalog, Providers};
use fabro_types::{Date, MAX_SUB_WORKFLOW_DEPTH};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use crate::RunError;
use crate::asked_models::stage_requests;
use crate::bundle::{Bundle, BundleError, RunSettings};
use crate::models::{catalog, client};
use crate::reach;

/// How many stages a warning names.
const MOST_STAGES: usize = 3;

/// A model is named so many days before its provider shuts it down.
const NOTICE_DAYS: i64 = 60;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Problem {
    /// The model is not in the catalog, or without a price.
    Unpriced(String),
    /// What this speed costs is not known of the model.
    Speed(String, String),
    /// The program chooses the model, so its price is not known.
    Chosen(&'static str),
    /// The agent of this command may not say what it costs.
    Agent(String),
    /// The provider serves the model no more from this day on.
    ShutDown(String, Date),
}

/// Warnings of models that are shut down, or soon will be, and of what a spending limit would not count, when
/// this run, or the graph of one of its workflows, has a limit.
///
/// # Errors
/// A sub-workflow cannot be read, or a provider's settings cannot be used.
pub(crate) fn model_warnings(
    bundle: &Bundle,
    plan: &Plan,
    max_cost: Option<f64>,
) -> Result<Vec<String>, RunError> {
    let settings = &bundle.settings;
    let has_providers = settings.model_script.is_none() && !settings.providers.is_empty();
    let providers =
        if has_providers { Some(client(&settings.providers, &settings.models)?) } else { None };
    // A clock may be set beyond the last year that has a date.
    let now = Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::MAX);
    let today = now.to_zoned(TimeZone::UTC).date();
    let mut search = Search {
        settings,
        providers,
        defaults: settings.model_defaults(),
        catalog: catalog(&settings.models),
        last_day: today.saturating_add(NOTICE_DAYS.days()),
        has_limit: false,
        found: BTreeMap::new(),
    };
    search.plan(bundle, plan, max_cost, 0)?;
    Ok(search.found.into_iter().map(|(problem, stages)| warning(&problem, &stages)).collect())
}

struct Search<'a> {
    settings: &'a RunSettings,
    /// None when a script answers, or nothing is configured.
    providers: Option<Providers>,
    defaults: ModelDefaults,
    catalog: Catalog,
    /// A model that is shut down until then is named.
    last_day: Date,
    /// Whether the workflow that is searched has a spending limit.
    has_limit: bool,
    /// The stages that may use each model.
    found: BTreeMap<Problem, Vec<String>>,
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
            if let Some(llm) = spec.llm() {
                self.has_limit = limit.is_some();
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
        let is_asked = matches!(spec.body, NodeBody::FanIn(..));
        match &llm.backend {
            Backend::Acp { command: Some(command), .. } if !is_asked => {
                self.add(Problem::Agent(command.to_string()), spec);
            }
            Backend::Cli if !is_asked => self.program(spec, provider, model),
            _ => self.models(plan, spec, llm),
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
            (Some(agent), _) => self.add(Problem::Chosen(agent.name()), spec),
        }
    }

    /// The model of the stage, those it falls back to, and the one that summarises.
    fn models(&mut self, plan: &Plan, spec: &NodeSpec, llm: &LlmSpec) {
        let Some(providers) = &self.providers else { return };
        let requests = stage_requests(self.settings, &self.defaults, plan, spec, llm);
        // What cannot be routed is reported as missing.
        let routed = |request| providers.route(&request).ok().map(|(_, model)| model);
        let named: Vec<String> = requests.into_iter().filter_map(routed).collect();
        for name in named {
            self.named(&name, spec);
        }
    }

    fn named(&mut self, name: &str, spec: &NodeSpec) {
        let known = self.catalog.same_model(name);
        let speed = spec.llm().and_then(|llm| llm.speed.as_deref());
        let mut problems = Vec::new();
        let shutdown = known.and_then(|model| model.shutdown_date);
        if let Some(day) = shutdown.filter(|day| *day <= self.last_day) {
            problems.push(Problem::ShutDown(name.to_owned(), day));
        }
        match (known.filter(|model| model.has_price()), speed) {
            (None, _) => problems.push(Problem::Unpriced(name.to_owned())),
            (Some(model), Some(speed)) if model.speed_factor(speed).is_none() => {
                problems.push(Problem::Speed(name.to_owned(), speed.to_owned()));
            }
            _ => {}
        }
        for problem in problems {
            self.add(problem, spec);
        }
    }

    fn add(&mut self, problem: Problem, spec: &NodeSpec) {
        let is_shut_down = matches!(problem, Problem::ShutDown(..));
        if !is_shut_down && !self.has_limit {
            return;
        }
        let stages = self.found.entry(problem).or_default();
        let id = spec.id.to_string();
        if !stages.contains(&id) {
            stages.push(id);
        }
    }
}

fn warning(problem: &Problem, stages: &[String]) -> String {
    let named: Vec<_> = stages.iter().take(MOST_STAGES).map(|stage| format!("`{stage}`")).collect();
    let more = stages.len().saturating_sub(MOST_STAGES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let of = named.join(", ") + &more;
    match problem {
        Problem::Unpriced(name) => format!(
            "the price of `{name}` ({of}) is not known, so the spending limit does not count it: set \
             input_cost and output_cost in [models.\"{name}\"], in US dollars for a million tokens"
        ),
        Problem::Speed(name, speed) => {
            let remedy = match speed.as_str() {
                "fast" | "flex" => format!("set {speed}_factor in [models.\"{name}\"], or leave"),
                _ => "use `fast` or `flex`, or leave".to_owned(),
            };
            format!(
                "the price of `{name}` with speed `{speed}` ({of}) is not known, so the spending limit does not \
                 count it: {remedy} `speed` out"
            )
        }
        Problem::ShutDown(name, day) => format!(
            "`{name}` ({of}): its provider shuts it down on {day}; after that it may be refused, or another \
             model may answer at its own price: choose another one"
        ),
        Problem::Chosen(program) => format!(
            "`{program}` ({of}) chooses its model itself, so its price may not be known, and then the \
             spending limit does not count it: set `model`"
        ),
        Problem::Agent(command) => format!(
            "the agent `{command}` ({of}) may not say what it costs, and then the spending limit does \
             not count it: set max_tokens_total too, or use another backend"
        ),
    }
}

use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_events::{Event, EventBody, ParentStage};
use fabro_types::{BranchPath, Costs, MAX_SUB_WORKFLOW_DEPTH, RunId, Usage};
use serde::Serialize;

use crate::StageKey;

/// What runs spent on models, their sub-workflows included.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CostReport {
    /// All of it.
    pub total: Spent,
    /// By run, in the order asked for, each with its sub-workflows.
    pub runs: Vec<RunCost>,
    /// By stage, in the order of their first use.
    pub stages: Vec<StageCost>,
    /// By model, the dearest first.
    pub models: Vec<ModelCost>,
}

/// What one run spent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunCost {
    /// Its id.
    pub run: String,
    /// What it spent.
    #[serde(flatten)]
    pub spent: Spent,
}

/// What one visit of a stage spent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageCost {
    /// Its run: that of the sub-workflow, where it is in one.
    pub run: String,
    /// `BRANCH/NODE@VISIT`.
    pub stage: String,
    /// The list elements that its sub-workflow runs for, the outermost first, as `[3]`; empty if there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub elements: String,
    /// What it spent.
    #[serde(flatten)]
    pub spent: Spent,
}

/// What was spent on one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelCost {
    /// Its name; null where it is not known.
    pub model: Option<String>,
    /// What was spent on it.
    #[serde(flatten)]
    pub spent: Spent,
}

/// Tokens and US dollars.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spent {
    /// In US dollars; null when no price is known. Without requests whose price is not known.
    pub cost_usd: Option<f64>,
    /// How many requests have no known price.
    pub unpriced_requests: u32,
    /// Answers.
    pub turns: u32,
    /// Requests that failed.
    pub failed_requests: u32,
    /// By kind of token.
    pub kinds: Kinds,
    /// US dollars that are of no kind: totals that a program gave.
    pub other_usd: f64,
}

/// The kinds of tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kinds {
    /// Input that was neither read from a cache nor written into it.
    pub input: Kind,
    /// Input read from the provider's cache.
    pub cached: Kind,
    /// Input written into it.
    pub cache_write: Kind,
    /// Output without reasoning.
    pub output: Kind,
    /// Reasoning.
    pub reasoning: Kind,
}

/// One kind of token.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kind {
    /// How many.
    pub tokens: u64,
    /// In US dollars; null where the price is not known, or not by kind.
    pub cost_usd: Option<f64>,
}

impl Spent {
    fn of(usage: &Usage) -> Self {
        let Costs { input, cached, cache_write, output, reasoning } = usage.costs;
        let split = usage.costs.total();
        let is_unknown = usage.unpriced_requests > 0 && usage.cost_usd == 0.0;
        let other = usage.cost_usd - split;
        let is_split = usage.unpriced_requests == 0 && other.abs() < 1e-9;
        let kind = |tokens: u64, cost: f64| {
            let is_known = cost > 0.0 || is_split || tokens == 0;
            Kind { tokens, cost_usd: is_known.then(|| rounded(cost)) }
        };
        let in_cache = usage.cached_tokens.saturating_add(usage.cache_write_tokens);
        Self {
            cost_usd: (!is_unknown).then(|| rounded(usage.cost_usd)),
            unpriced_requests: usage.unpriced_requests,
            turns: usage.turns,
            failed_requests: usage.failed_requests,
            kinds: Kinds {
                input: kind(usage.input_tokens.saturating_sub(in_cache), input),
                cached: kind(usage.cached_tokens, cached),
                cache_write: kind(usage.cache_write_tokens, cache_write),
                output: kind(usage.output_tokens.saturating_sub(usage.reasoning_tokens), output),
                reasoning: kind(usage.reasoning_tokens, reasoning),
            },
            other_usd: if other.abs() < 1e-9 { 0.0 } else { rounded(other) },
        }
    }
}

/// Without the digits that adding up has made.
fn rounded(dollars: f64) -> f64 {
    (dollars * 1e12).round() / 1e12
}

/// Adds up what runs spent.
#[derive(Debug, Default)]
pub struct CostSum {
    /// Stages that a sub-workflow ran for: its own log has what they spent.
    held: BTreeMap<(RunId, Arc<str>, u32), Vec<ParentStage>>,
    /// The stages that sub-workflows belong to.
    parents: BTreeMap<RunId, ParentStage>,
    runs: Vec<(RunId, Usage)>,
    stages: Vec<(RunId, StageKey, Usage)>,
    models: BTreeMap<Option<String>, Usage>,
}

impl CostSum {
    /// Adds a run that was asked for, by the whole logs of it and of its sub-workflows. `is_free` says
    /// whether a model costs nothing: logs of earlier versions do not tell that from an unknown price.
    pub fn add(&mut self, run: RunId, logs: &[Vec<Event>], is_free: &dyn Fn(&str) -> bool) {
        let fold = |log: &Vec<Event>| {
            let mut fold = CostFold::default();
            for event in log {
                fold.apply(event);
            }
            fold
        };
        self.add_folds(run, logs.iter().map(fold).collect(), is_free);
    }

    /// The same by folds of these logs.
    pub fn add_folds(&mut self, run: RunId, folds: Vec<CostFold>, is_free: &dyn Fn(&str) -> bool) {
        let parents = folds.iter().filter_map(|fold| Some((fold.run?, fold.parent.as_ref()?)));
        self.parents.extend(parents.map(|(run, parent)| (run, parent.clone())));
        for parent in folds.iter().filter_map(|fold| fold.parent.as_ref()) {
            let stage = (parent.run_id, Arc::clone(&parent.node_id), parent.visit);
            self.held.entry(stage).or_default().push(parent.clone());
        }
        self.runs.push((run, Usage::default()));
        for fold in folds {
            let Some(run) = fold.run else { continue };
            for (key, usage) in fold.spending.finish() {
                self.stage(run, key, usage, is_free);
            }
        }
    }

    fn stage(
        &mut self,
        run: RunId,
        key: StageKey,
        pieces: Vec<Usage>,
        is_free: &dyn Fn(&str) -> bool,
    ) {
        let held = self.held.get(&(run, Arc::clone(&key.node), key.visit));
        let is_it = |parent: &ParentStage| parent.is(key.branch.as_deref(), &key.node, key.visit);
        if held.is_some_and(|parents| parents.iter().any(is_it)) {
            return;
        }
        let mut total = Usage::default();
        for mut piece in pieces {
            let has_tokens = piece.input_tokens > 0 || piece.output_tokens > 0;
            let has_price = piece.cost_usd > 0.0 || piece.unpriced_requests > 0;
            let free = piece.model.as_deref().is_some_and(is_free);
            if has_tokens && !has_price && !free {
                piece.unpriced_requests = piece.requests().max(1);
            }
            self.models.entry(piece.model.clone()).or_default().add(&piece);
            total.add(&piece);
        }
        if let Some((_, usage)) = self.runs.last_mut() {
            usage.add(&total);
        }
        self.stages.push((run, key, total));
    }

    /// The report.
    pub fn finish(self) -> CostReport {
        let mut total = Usage::default();
        for (_, usage) in &self.runs {
            total.add(usage);
        }
        let mut models: Vec<_> = self.models.into_iter().collect();
        models.sort_by(|(_, one), (_, other)| other.cost_usd.total_cmp(&one.cost_usd));
        let run = |(run, usage): (RunId, Usage)| RunCost {
            run: run.to_string(),
            spent: Spent::of(&usage),
        };
        let stage = |(run, key, usage): (RunId, StageKey, Usage)| StageCost {
            run: run.to_string(),
            stage: key.full_name(),
            elements: self
                .parents
                .get(&run)
                .map_or_else(String::new, |it| elements(&self.parents, it)),
            spent: Spent::of(&usage),
        };
        let model =
            |(model, usage): (Option<String>, Usage)| ModelCost { model, spent: Spent::of(&usage) };
        CostReport {
            total: Spent::of(&total),
            runs: self.runs.into_iter().map(run).collect(),
            stages: self.stages.into_iter().map(stage).collect(),
            models: models.into_iter().map(model).collect(),
        }
    }
}

/// The list elements that the sub-workflow of a stage runs for.
fn elements(parents: &BTreeMap<RunId, ParentStage>, parent: &ParentStage) -> String {
    let mut all = String::new();
    let mut next = Some(parent);
    for _ in 0..=MAX_SUB_WORKFLOW_DEPTH {
        let Some(parent) = next else { break };
        let branch = BranchPath::new(parent.branch.as_deref().unwrap_or_default());
        all.insert_str(0, &branch.elements());
        next = parents.get(&parent.run_id);
    }
    all
}

/// What one log says about costs, as a fold over all of its events, those included that a rewind took back. It
/// holds some hundred bytes for each request to a model.
#[derive(Clone, Debug, Default)]
pub struct CostFold {
    run: Option<RunId>,
    /// The stage that the run is a sub-workflow of.
    parent: Option<ParentStage>,
    spending: Spending,
}

impl CostFold {
    /// Takes the next event in.
    pub fn apply(&mut self, event: &Event) {
        if self.run.is_none() {
            self.run = Some(event.run_id);
            if let EventBody::RunCreated(created) = &event.entry.body {
                self.parent.clone_from(&created.parent);
            }
        }
        self.spending.apply(event);
    }

    /// About what it takes in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let pieces = self.spending.stages.values().map(|stage| stage.pieces.len());
        pieces.map(|count| PER_STAGE + count * size_of::<Usage>()).sum()
    }
}

/// What a stage takes besides its requests, in bytes.
const PER_STAGE: usize = 256;

/// What the stages of one log spent, by request where that is recorded.
#[derive(Clone, Debug, Default)]
struct Spending {
    order: Vec<StageKey>,
    stages: BTreeMap<StageKey, StageSpending>,
}

#[derive(Clone, Debug, Default)]
struct StageSpending {
    pieces: Vec<Usage>,
    /// The pieces from here on are of the attempt that runs.
    attempt: usize,
}

impl Spending {
    fn apply(&mut self, event: &Event) {
        match &event.entry.body {
            // What was copied was spent by the other run. What a rewind took back was spent all the
            // same.
            EventBody::CheckpointForked(point) if !point.in_place => *self = Self::default(),
            EventBody::StageRetrying { usage, .. } => self.end(event, usage.as_ref()),
            EventBody::RunPaused { unavailable, used, .. } => {
                for stage in unavailable {
                    let line = stage.branch.as_deref().unwrap_or_default();
                    if let Some(usage) = used.get(line) {
                        self.lose(StageKey::of_failure(stage), usage);
                    }
                }
            }
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => {
                self.end(event, end.outcome.usage.as_ref());
            }
            body => {
                if let Some(usage) = body.request_usage() {
                    self.spend(event, usage);
                }
            }
        }
    }

    fn spend(&mut self, event: &Event, usage: &Usage) {
        if let Some(stage) = self.stage(event) {
            stage.pieces.push(usage.clone());
        }
    }

    /// The attempt has ended: what it used beyond its messages is one more piece.
    fn end(&mut self, event: &Event, total: Option<&Usage>) {
        let Some(total) = total else { return };
        let Some(stage) = self.stage(event) else { return };
        let mut counted = Usage::default();
        for piece in stage.pieces.iter().skip(stage.attempt) {
            counted.add(piece);
        }
        let rest = total.without(&counted);
        if !rest.is_nothing() {
            stage.pieces.push(rest);
        }
        stage.attempt = stage.pieces.len();
    }

    /// Requests failed before a pause: the attempt continues without them.
    fn lose(&mut self, key: StageKey, usage: &Usage) {
        let stage = self.stage_at(key);
        stage.pieces.insert(stage.attempt, usage.clone());
        stage.attempt += 1;
    }

    fn stage(&mut self, event: &Event) -> Option<&mut StageSpending> {
        Some(self.stage_at(StageKey::of(event)?))
    }

    fn stage_at(&mut self, key: StageKey) -> &mut StageSpending {
        if !self.stages.contains_key(&key) {
            self.order.push(key.clone());
        }
        self.stages.entry(key).or_default()
    }

    fn finish(mut self) -> Vec<(StageKey, Vec<Usage>)> {
        let order = std::mem::take(&mut self.order);
        let spent = order.into_iter().filter_map(|key| {
            let stage = self.stages.remove(&key)?;
            (!stage.pieces.is_empty()).then_some((key, stage.pieces))
        });
        spent.collect()
    }
}

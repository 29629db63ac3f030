//! Two runs side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use fabro_types::{RunId, RunStatus, Usage};
use serde::Serialize;

use crate::replay::{Aspect, Difference, Report};
use crate::{Inspect, StageRow};

/// Two runs side by side, the older one first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunComparison {
    /// The older run.
    pub old: ComparedRun,
    /// The newer run.
    pub new: ComparedRun,
    /// The stages of both, aligned by branch, node and visit.
    pub stages: Vec<StagePair>,
    /// Where prompts, answers, outcomes, edges and so on differ.
    pub differences: Vec<RunDifference>,
    /// How many events of the older run were compared.
    pub compared: u64,
}

/// A run in a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedRun {
    /// The run.
    pub id: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// Its status.
    pub status: RunStatus,
    /// How long it was driven, in milliseconds.
    pub duration_ms: u64,
    /// How many stages it has entered.
    pub stages: usize,
    /// Its model usage.
    pub usage: Usage,
}

/// A stage that at least one of the runs has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StagePair {
    /// `[BRANCH/]NODE@VISIT`.
    pub stage: String,
    /// In the older run; `None` when it has none.
    pub old: Option<ComparedStage>,
    /// In the newer run; `None` when it has none.
    pub new: Option<ComparedStage>,
}

impl StagePair {
    /// Whether the stage is in one run only, or its status, edge or number of attempts differs.
    pub fn differs(&self) -> bool {
        let end = |stage: &Option<ComparedStage>| {
            stage.as_ref().map(|stage| (stage.status, stage.edge.clone(), stage.attempts))
        };
        end(&self.old) != end(&self.new)
    }
}

/// A stage of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedStage {
    /// How it ended.
    pub status: &'static str,
    /// How many attempts there were.
    pub attempts: u32,
    /// The next node.
    pub edge: Option<Arc<str>>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// What it cost in US dollars; left out without a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// Something that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunDifference {
    /// What differs.
    pub aspect: Aspect,
    /// `[BRANCH/]NODE@VISIT`; `None` for the run itself.
    pub stage: Option<String>,
    /// The text in the older run; `None` without one.
    pub old: Option<String>,
    /// The text in the newer run; `None` without one.
    pub new: Option<String>,
    /// A unified diff, for texts of several lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// Two runs side by side, with the differences that [`compare_runs`](crate::replay::compare_runs) found.
pub fn comparison(old: &Inspect, new: &Inspect, report: Report) -> RunComparison {
    RunComparison {
        stages: aligned(&old.stages, &new.stages),
        old: ComparedRun::of(old),
        new: ComparedRun::of(new),
        differences: report.differences.into_iter().map(RunDifference::of).collect(),
        compared: report.compared,
    }
}

/// The stages of two runs in the order of the older run. Stages of the newer run only keep their position there.
fn aligned(old: &[StageRow], new: &[StageRow]) -> Vec<StagePair> {
    let names: Vec<String> = new.iter().map(StageRow::name).collect();
    let places: BTreeMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
    let old_names: Vec<String> = old.iter().map(StageRow::name).collect();
    let known: BTreeSet<&str> = old_names.iter().map(String::as_str).collect();
    let only_new = |range: Range<usize>| {
        let rows = range.filter(|at| !known.contains(names[*at].as_str()));
        rows.map(|at| StagePair {
            stage: names[at].clone(),
            old: None,
            new: Some(ComparedStage::of(&new[at])),
        })
        .collect::<Vec<_>>()
    };
    let mut pairs = Vec::new();
    let mut next = 0;
    for (row, name) in old.iter().zip(&old_names) {
        let place = places.get(name.as_str()).copied();
        if let Some(place) = place.filter(|place| *place >= next) {
            pairs.extend(only_new(next..place));
            next = place + 1;
        }
        pairs.push(StagePair {
            stage: name.clone(),
            old: Some(ComparedStage::of(row)),
            new: place.map(|place| ComparedStage::of(&new[place])),
        });
    }
    pairs.extend(only_new(next..new.len()));
    pairs
}

impl ComparedRun {
    fn of(run: &Inspect) -> Self {
        Self {
            id: run.id,
            workflow: run.workflow.clone(),
            status: run.status,
            duration_ms: run.duration_ms,
            stages: run.stages.len(),
            usage: run.usage.clone(),
        }
    }
}

impl ComparedStage {
    fn of(row: &StageRow) -> Self {
        Self {
            status: row.status,
            attempts: row.attempts,
            edge: row.edge.clone(),
            duration_ms: row.duration_ms,
            cost_usd: row.usage.as_ref().map(|usage| usage.cost_usd),
        }
    }
}

impl RunDifference {
    fn of(difference: Difference) -> Self {
        let Difference { aspect, branch, stage, recorded, replayed, diff, .. } = difference;
        let stage = match (branch, stage) {
            (Some(branch), Some(stage)) => Some(format!("{branch}/{stage}")),
            (branch, stage) => stage.or_else(|| branch.map(|branch| branch.to_string())),
        };
        Self { aspect, stage, old: recorded, new: replayed, diff }
    }
}

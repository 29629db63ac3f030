//! What a report is made of, read from a store.

use std::collections::BTreeMap;
use std::path::Path;

use fabro_engine::read_all;
use fabro_events::{CreatedRun, Event, EventBody, ParentStage};
use fabro_graph::Workflow;
use fabro_inspect::replay::{ReplayError, Report, compare_runs};
use fabro_inspect::{
    ArtifactRow, CostReport, CostSum, Inspect, PatchError, ReportError, changes, inspect,
    inspect_run, list_artifacts, run_patch,
};
use fabro_run::{Bundle, is_driven, now_ms};
use fabro_sandbox::git::{GitError, Patch, PatchStyle};
use fabro_store::{RunStore, StoreError};
use fabro_types::{RunId, RunStatus};

use crate::Comparison;
use crate::report::{RunReport, report};

/// A report that was made.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// The file.
    pub html: String,
    /// What could not be part of it: changes whose commits are gone.
    pub warnings: Vec<String>,
    /// What is not in it, because the store is damaged.
    pub damage: Vec<String>,
}

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// A log or a value cannot be read.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The runs cannot be compared.
    #[error(transparent)]
    Compare(#[from] ReplayError),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A run of a family with what is known of it.
struct Member {
    events: Vec<Event>,
    run: Inspect,
    workflow: Option<Workflow>,
    patch: Option<Vec<u8>>,
    patches: BTreeMap<String, Vec<u8>>,
}

/// Makes the report of a run and of its sub-workflows, of at most `max` bytes if that can be. With `other` it
/// begins with what is different in that run. `runs_dir` is where the store keeps the files of runs;
/// `is_free` says whether a model costs nothing.
///
/// # Errors
///
/// The log of a run, or a large value in it, cannot be read.
pub async fn make_report(
    store: &dyn RunStore,
    runs_dir: &Path,
    run: RunId,
    other: Option<RunId>,
    is_free: &(dyn Fn(&str) -> bool + Sync),
    max: usize,
) -> Result<Made, MakeError> {
    let mut made = Made::default();
    let mut members = BTreeMap::new();
    let driven = is_driven(store, run).await?;
    let family = store.family(run).await?;
    for id in &family {
        members.insert(*id, member(store, runs_dir, *id, driven, &mut made).await?);
    }
    let artifacts = list_artifacts(store, runs_dir, run, None).await?;
    let mut sum = CostSum::default();
    // The root first, as it was asked for.
    let logs: Vec<Vec<Event>> =
        family.iter().filter_map(|id| members.get(id)).map(|it| it.events.clone()).collect();
    sum.add(run, &logs, is_free);
    drop(logs);
    let cost = sum.finish();
    let compared = match other {
        None => None,
        Some(other) => {
            let own = members.get(&run).map(|it| it.events.as_slice()).unwrap_or_default();
            let events = read_all(store, other).await.map_err(ReportError::from)?;
            let differences = compare_runs(&events, own, store)?;
            Some((inspect_run(store, other).await?, differences))
        }
    };
    let tree = Tree { store, members: &members, artifacts: &artifacts, cost: &cost };
    let Some(mut what) = tree.report(run) else { return Err(ReportError::Empty.into()) };
    what.comparison = compared.as_ref().map(|(other, report): &(Inspect, Report)| Comparison {
        run: what.run,
        other,
        report,
    });
    made.html = report(&what, max)?;
    Ok(made)
}

async fn member(
    store: &dyn RunStore,
    runs_dir: &Path,
    id: RunId,
    driven: bool,
    made: &mut Made,
) -> Result<Member, MakeError> {
    let Made { warnings, damage, .. } = &mut *made;
    let events = read_all(store, id).await.map_err(ReportError::from)?;
    let mut run = inspect(&events, driven)?;
    if run.status == RunStatus::Running {
        run.until(now_ms());
    }
    // Without its workflow a run has no picture; its stages are in the log.
    let workflow = workflow(store, &events).unwrap_or_else(|reason| {
        warnings.push(format!(
            "there is no graph of run {id}, for its workflow cannot be read: {reason}"
        ));
        None
    });
    let patch = match run_patch(store, runs_dir, id, None, PatchStyle::Patch).await {
        Ok(Some(made)) => {
            // A file that changed twice may be damaged in the patch of a stage only.
            damage.extend(made.damage);
            Some(made.patch)
        }
        Ok(None) | Err(PatchError::NotRecorded { .. }) => None,
        Err(error @ PatchError::Damaged { .. }) => {
            damage.push(error.to_string());
            None
        }
        Err(error) => {
            warnings.push(error.to_string());
            None
        }
    };
    let patches = patches(&events, &runs_dir.join(id.to_string()), made).await;
    Ok(Member { events, run, workflow, patch, patches })
}

/// The workflow that a run is of.
fn workflow(store: &dyn RunStore, events: &[Event]) -> Result<Option<Workflow>, String> {
    let Some(created) = created(events) else { return Ok(None) };
    let bundle = Bundle::load(store, created).map_err(|error| error.to_string())?;
    Ok(Some(bundle.plan().map_err(|error| error.to_string())?.workflow().clone()))
}

/// What each stage changed.
async fn patches(events: &[Event], run_dir: &Path, made: &mut Made) -> BTreeMap<String, Vec<u8>> {
    let mut patches = BTreeMap::new();
    let Some(changes) = changes(events) else { return patches };
    let source = changes.source(run_dir);
    let checked = match source.checked() {
        Ok(checked) => checked,
        Err(error) => {
            made.damage.push(format!("the changes of its stages: {error}"));
            return patches;
        }
    };
    for change in changes.stages {
        match checked.patch(&change.from, &change.to, PatchStyle::Patch).await {
            Ok(Patch { text, damage }) => {
                made.damage.extend(
                    damage.map(|damage| format!("the changes of {}: {damage}", change.stage)),
                );
                patches.insert(change.stage, text);
            }
            Err(GitError::Damaged(reason)) => {
                made.damage.push(format!("the changes of {}: {reason}", change.stage));
            }
            Err(error) => made.warnings.push(format!("the changes of {}: {error}", change.stage)),
        }
    }
    patches
}

fn created(events: &[Event]) -> Option<&CreatedRun> {
    events.iter().find_map(|event| match &event.entry.body {
        EventBody::RunCreated(created) => Some(&**created),
        _ => None,
    })
}

/// The runs of a family, one below the other.
struct Tree<'a> {
    store: &'a dyn RunStore,
    members: &'a BTreeMap<RunId, Member>,
    artifacts: &'a [ArtifactRow],
    cost: &'a CostReport,
}

impl<'a> Tree<'a> {
    fn report(&self, id: RunId) -> Option<RunReport<'a>> {
        let member = self.members.get(&id)?;
        let is_below = |parent: &&ParentStage| parent.run_id == id;
        let below = self.members.iter().filter_map(|(child, it)| {
            let parent = created(&it.events)?.parent.as_ref().filter(is_below)?;
            Some((stage_name(&member.run, parent)?, self.report(*child)?))
        });
        Some(RunReport {
            events: &member.events,
            run: &member.run,
            workflow: member.workflow.as_ref(),
            blobs: self.store,
            cost: self.cost,
            artifacts: self.artifacts,
            patch: member.patch.as_deref(),
            patches: &member.patches,
            children: below.collect(),
            comparison: None,
        })
    }
}

/// The full name of the stage that a sub-workflow ran for; `None` when a rewind took it back.
fn stage_name(run: &Inspect, parent: &ParentStage) -> Option<String> {
    let is_it =
        |row: &&fabro_inspect::StageRow| parent.is(row.branch.as_deref(), &row.node, row.visit);
    run.stages.iter().rfind(is_it).map(fabro_inspect::StageRow::name)
}

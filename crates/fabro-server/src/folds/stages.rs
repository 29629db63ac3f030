//! What is read of one stage of a run: its own events, by their places in the log.

use std::path::Path;

use fabro_engine::{Cursor, RunState, read_all};
use fabro_events::stage_name::StageName;
use fabro_events::{Event, EventBody};
use fabro_inspect::{
    Explain, NoEdge, PatchError, ReportError, RunPatch, StageKey, StageReport, StageRow, explain,
    explain_row, find_left_stage, find_stage, other_branches, patch_of, stage_of_row,
    sub_workflows, without_changes,
};
use fabro_sandbox::git::PatchStyle;
use fabro_store::{RunLog as _, StoreError};
use fabro_types::{NodeKind, RunId};

use super::ahead::ReadAhead;
use super::{Folds, PAGE, View};
use crate::problem::Problem;

impl View {
    /// What the run, or one of its stages, changed; `None` when that is nothing. Without all of it there is none. `runs_dir` is where the store keeps
    /// the files of runs.
    pub(crate) async fn patch(
        &self,
        runs_dir: &Path,
        stage: Option<&str>,
        style: PatchStyle,
    ) -> Result<Option<RunPatch>, PatchError> {
        let run = self.run.id;
        let stage = match stage {
            Some(stage) => Some(find_stage(&self.run.stages, stage)?.name()),
            None => None,
        };
        let own_dir = runs_dir.join(run.to_string());
        let worktree = self.created.worktree.as_ref();
        if worktree.is_none() && self.changes.is_empty() {
            return without_changes(run, &own_dir, Some(&self.created));
        }
        let whole = self.whole_change.as_ref().map(|(from, to)| (&**from, &**to));
        let made = patch_of(run, &own_dir, worktree, &self.changes, whole, stage.as_deref(), style)
            .await?;
        match made.as_ref().and_then(|made| made.damage.clone()) {
            Some(detail) => Err(PatchError::Damaged { run, detail }),
            None => Ok(made),
        }
    }
}

impl View {
    /// The event before the first one of a stage, so that its log is read from there; `None` where the log has to be
    /// read as a whole: for no stage of this run, or after a rewind.
    pub(crate) fn before(&self, stage: &str) -> Option<u64> {
        let row = find_stage(&self.run.stages, stage).ok()?;
        self.rewinds.is_empty().then(|| row.first_seq.saturating_sub(1))
    }
}

impl Folds {
    /// What `fabro inspect RUN STAGE` prints, and the last event of the run.
    pub(crate) async fn stage(
        &self,
        run: RunId,
        name: &str,
    ) -> Result<(StageReport, u64), Problem> {
        let view = self.view(run).await?;
        let row = find_stage(&view.run.stages, name)?;
        let events = self.stage_events(&view, row).await?;
        let events: Vec<&Event> = events.iter().collect();
        let gates = view.run.gates.iter().cloned();
        let (mut report, _) = stage_of_row(&events, row.clone(), gates, &*self.store)?;
        let children = sub_workflows(&*self.store, run, row).await?;
        report.sub_workflows = children.into_iter().map(|(child, _)| child).collect();
        Ok((report, view.seq))
    }

    /// What `fabro explain RUN STAGE` prints.
    pub(crate) async fn explain(&self, run: RunId, name: &str) -> Result<Explain, Problem> {
        let view = self.view(run).await?;
        let row = match find_left_stage(&view.run.stages, name) {
            Ok(row) if !view.may_be_exit(row) => row,
            Err(error @ ReportError::SeveralStages { .. }) => return Err(error.into()),
            // An exit that a goal gate kept the run from has no row.
            _ => return Ok(explain(&read_all(&*self.store, run).await?, name)?),
        };
        let others = other_branches(&view.run.stages, name, row);
        let found = self.explain_row(&view, row).await?;
        let is_running = matches!(found, Err(ReportError::NoEdge { why: NoEdge::Running, .. }));
        if is_running && StageName::parse(name.trim()).visit.is_none() {
            // A loop has come back to the node: the visit before is the last that was left.
            let is_before = |it: &&StageRow| {
                it.node == row.node && it.branch == row.branch && it.visit + 1 == row.visit
            };
            if let Some(before) = view.run.stages.iter().rfind(is_before)
                && let Ok(explained) = self.explain_row(&view, before).await?
            {
                return Ok(Explain { others, ..explained });
            }
        }
        Ok(Explain { others, ..found? })
    }

    async fn explain_row(
        &self,
        view: &View,
        row: &StageRow,
    ) -> Result<Result<Explain, ReportError>, StoreError> {
        let events = self.stage_events(view, row).await?;
        Ok(explain_row(&events.iter().collect::<Vec<_>>(), row))
    }

    /// The events of a stage that count, after the first one of the run, and the one of its line that follows
    /// when it ended there.
    pub(crate) async fn stage_events(
        &self,
        view: &View,
        row: &StageRow,
    ) -> Result<Vec<Event>, StoreError> {
        let run = view.run.id;
        let key = row.key();
        let mut events = self.store.read(run, 0, 1).await?;
        // What ends a line is the next event of it.
        let mut seeks_end = row.ended_at.is_some() && row.edge.is_none();
        let mut after = row.first_seq.saturating_sub(1);
        while after < row.last_seq || seeks_end {
            let page = self.store.read(run, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for event in page {
                let is_later = event.seq > row.last_seq;
                if !view.counts(&event) || is_later && !seeks_end {
                    continue;
                }
                let is_own = StageKey::of(&event).as_ref() == Some(&key);
                let ends = is_later && event.entry.branch == key.branch;
                if event.seq > 1 && (is_own && !is_later || ends) {
                    events.push(event);
                }
                seeks_end &= !ends;
            }
        }
        Ok(events)
    }

    /// The line of a stage as it was at the end of the stage, with all values. No event is kept.
    pub(crate) async fn line_after(&self, view: &View, row: &StageRow) -> Result<Cursor, Problem> {
        let run = view.run.id;
        let key = Some(row.key());
        let mut state = RunState::new(run);
        let mut log = ReadAhead::new(&self.store, run);
        let mut after = 0;
        while after < row.last_seq {
            let page = log.page(after).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            let counting = |event: &&Event| event.seq <= row.last_seq && view.counts(event);
            for event in page.iter().filter(counting) {
                state.apply(event);
                let is_end = matches!(
                    event.entry.body,
                    EventBody::StageCompleted(_) | EventBody::StageFailed(_)
                );
                if is_end && event.seq >= row.first_seq && StageKey::of(event) == key {
                    let line = state.cursor(row.branch.as_deref()).ok_or(ReportError::Empty)?;
                    return Ok(line.clone());
                }
            }
            state.forget_histories();
        }
        Err(ReportError::NotEnded { stage: row.name() }.into())
    }
}

impl View {
    /// Whether the stage is one of an exit, as far as that is known.
    pub(crate) fn may_be_exit(&self, row: &StageRow) -> bool {
        let Some(workflow) = self.workflow.as_deref() else { return true };
        let node = workflow.find(&row.node);
        node.is_none_or(|node| workflow.node(node).kind == NodeKind::Exit)
    }
}

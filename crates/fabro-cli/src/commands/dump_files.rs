//! The files of a dump: what a run and its sub-workflows recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::Path;

use fabro_engine::read_all;
use fabro_events::{CreatedRun, Event, EventBody};
use fabro_inspect::dump::{DumpError, DumpRun, DumpWriter, StageDir, dump as write_run};
use fabro_inspect::{StageChange, artifacts, changes};
use fabro_run::{Bundle, is_driven};
use fabro_sandbox::artifacts::{FILES, check_sum, stored_file};
use fabro_sandbox::git::{GitError, Patch, PatchStyle};
use fabro_store::{Runs as _, SqliteStore};
use fabro_terminal::clean;
use fabro_types::RunId;

use super::log_files::open_stored;
use crate::output;

/// The logs of a run and of its sub-workflows.
pub(super) struct Family {
    pub(super) logs: BTreeMap<RunId, Vec<Event>>,
    driven: bool,
    pub(super) keep_references: bool,
    /// What stages changed in git work trees, as patches, by their runs and full names.
    patches: BTreeMap<(RunId, String), Vec<u8>>,
    /// What is not in the patches, because the store is damaged.
    pub(super) damage: Vec<String>,
}

impl Family {
    pub(super) async fn read(store: &SqliteStore, run: RunId) -> anyhow::Result<Self> {
        let mut logs = BTreeMap::new();
        for member in store.family(run).await? {
            logs.insert(member, read_all(store, member).await?);
        }
        let driven = is_driven(store, run).await?;
        let (patches, damage) = (BTreeMap::new(), Vec::new());
        let mut family =
            Self { logs: BTreeMap::new(), driven, keep_references: false, patches, damage };
        for (member, events) in &logs {
            let run_dir = store.runs_dir().join(member.to_string());
            family.add_patches(*member, &run_dir, events).await;
        }
        family.logs = logs;
        Ok(family)
    }

    /// Adds the patches of the stages of a run that changed files. Those whose commits are gone are warnings: the rest of
    /// the dump is right.
    async fn add_patches(&mut self, run: RunId, run_dir: &Path, events: &[Event]) {
        let Some(changes) = changes(events) else { return };
        let source = changes.source(run_dir);
        let checked = match source.checked() {
            Ok(checked) => checked,
            Err(error) => {
                self.damage.push(format!("no diff.patch of run {run}: {error}"));
                return;
            }
        };
        for StageChange { stage, from, to, .. } in changes.stages {
            match checked.patch(&from, &to, PatchStyle::Patch).await {
                Ok(Patch { text, damage }) => {
                    self.damage
                        .extend(damage.map(|damage| format!("diff.patch of {stage}: {damage}")));
                    self.patches.insert((run, stage), text);
                }
                Err(GitError::Damaged(reason)) => {
                    self.damage.push(format!("no diff.patch of {stage}: {reason}"));
                }
                Err(error) => warn(&format!("no diff.patch of {stage}: {error}")),
            }
        }
    }

    /// Writes a run, then its sub-workflows below `children/`, each under the name of its stage.
    pub(super) fn write(
        &self,
        store: &SqliteStore,
        run: RunId,
        prefix: &str,
        writer: &mut dyn DumpWriter,
    ) -> anyhow::Result<()> {
        let Some(events) = self.logs.get(&run) else { return Ok(()) };
        let bundle = created(events).map(|created| Bundle::load(store, created)).transpose()?;
        let graph = bundle.map(|bundle| bundle.source).unwrap_or_default();
        let dumped = DumpRun {
            events,
            is_driven: self.driven,
            graph: &graph,
            blobs: store,
            keep_references: self.keep_references,
        };
        let stages = write_run(&dumped, prefix, writer)?;
        let run_dir = store.runs_dir().join(run.to_string());
        for stage in &stages {
            earlier_attempts(&run_dir, stage, prefix, writer)?;
            let name = stage.key().full_name();
            if let Some(patch) = self.patches.get(&(run, name)) {
                let path = format!("{prefix}stages/{}/diff.patch", stage.name);
                writer.write(&path, patch).map_err(|source| DumpError::Write { path, source })?;
            }
        }
        write_artifacts(events, &run_dir, prefix, writer)?;
        let mut taken = BTreeSet::new();
        for (child, events) in &self.logs {
            let Some(parent) = created(events).and_then(|it| it.parent.as_ref()) else { continue };
            if parent.run_id != run {
                continue;
            }
            let is_above =
                |stage: &&StageDir| parent.is(stage.branch.as_deref(), &stage.node, stage.visit);
            // A rewind may have taken the stage back.
            let Some(stage) = stages.iter().rfind(is_above) else { continue };
            // Each attempt has its own; older versions have not recorded which.
            let first = format!("{prefix}children/{}/", stage.name);
            let later =
                (2_u32..).map(|number| format!("{prefix}children/{}.{number}/", stage.name));
            let mut free =
                std::iter::once(first).chain(later).skip_while(|name| !taken.insert(name.clone()));
            let Some(prefix) = free.next() else { continue };
            self.write(store, *child, &prefix, writer)?;
        }
        Ok(())
    }
}

fn created(events: &[Event]) -> Option<&CreatedRun> {
    events.iter().find_map(|event| match &event.entry.body {
        EventBody::RunCreated(created) => Some(&**created),
        _ => None,
    })
}

/// What commands and models of earlier attempts wrote is in files of the run's directory only. It is
/// part of the dump as long as it is there.
fn earlier_attempts(
    run_dir: &Path,
    stage: &StageDir,
    prefix: &str,
    writer: &mut dyn DumpWriter,
) -> Result<(), DumpError> {
    const FILES: [&str; 4] = ["prompt.md", "response.md", "stdout.log", "stderr.log"];
    for attempt in 1..=stage.earlier_attempts {
        let below = format!("stages/{}/attempt-{attempt}", stage.name);
        for name in FILES {
            let Ok(file) = open_stored(&run_dir.join(&below).join(name)) else { continue };
            if let Err(damaged) = check_sum(&run_dir.join(&below), name) {
                warn(&format!("{damaged}; the dump is without it"));
                continue;
            }
            let path = format!("{prefix}{below}/{name}");
            let copied = copy(file, &path, writer);
            copied.map_err(|source| DumpError::Write { path, source })?;
        }
    }
    Ok(())
}

/// The artifacts, as `artifacts/{stage}/retry_{attempt}/{path}`. One that is missing or damaged is a
/// warning: the rest of the dump is right.
fn write_artifacts(
    events: &[Event],
    run_dir: &Path,
    prefix: &str,
    writer: &mut dyn DumpWriter,
) -> Result<(), DumpError> {
    for kept in artifacts(events) {
        let name = kept.artifact.file.strip_prefix(FILES).unwrap_or(&kept.artifact.file);
        let path = format!("{prefix}artifacts{name}");
        let failed = |source| DumpError::Write { path: path.clone(), source };
        match stored_file(run_dir, &kept.artifact.file, &kept.artifact.sha256) {
            Ok(file) => {
                let file = File::open(file).map_err(failed)?;
                copy(file, &path, writer).map_err(failed)?;
            }
            Err(damaged) => warn(&damaged.to_string()),
        }
    }
    Ok(())
}

fn copy(mut file: File, path: &str, writer: &mut dyn DumpWriter) -> io::Result<()> {
    let size = file.metadata()?.len();
    writer.stream(path, size, &mut |out| io::copy(&mut file, out).map(drop))
}

fn warn(text: &str) {
    output::stderr(&format!("warning: {}\n", clean(text)));
}

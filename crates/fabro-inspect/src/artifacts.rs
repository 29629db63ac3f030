use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fabro_engine::checkpoint;
use fabro_events::stage_name::StageName;
use fabro_events::{CapturedArtifact, Event, EventBody, ParentStage};
use fabro_sandbox::artifacts::{Damaged, stored_file};
use fabro_types::RunId;
use serde::Serialize;

use crate::StageKey;

/// A file that a stage left and that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptArtifact<'a> {
    /// The stage.
    pub stage: StageKey,
    /// When it was kept, in milliseconds since 1970.
    pub ts_ms: i64,
    /// The file.
    pub artifact: &'a CapturedArtifact,
}

/// The artifacts of a run, oldest first. Where a later one has the place of an earlier one, only that.
pub fn artifacts(events: &[Event]) -> Vec<KeptArtifact<'_>> {
    let mut last: BTreeMap<&str, (u64, KeptArtifact<'_>)> = BTreeMap::new();
    for event in checkpoint::effective(events) {
        if let (EventBody::ArtifactCaptured(artifact), Some(stage)) =
            (&event.entry.body, StageKey::of(event))
        {
            let kept = KeptArtifact { stage, ts_ms: event.ts_ms, artifact };
            last.insert(&artifact.file, (event.seq, kept));
        }
    }
    let mut all: Vec<_> = last.into_values().collect();
    all.sort_by_key(|(seq, _)| *seq);
    all.into_iter().map(|(_, kept)| kept).collect()
}

/// An artifact of a run or of one of its sub-workflows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArtifactRow {
    /// The run whose stage left it.
    pub run: RunId,
    /// The stage, `[BRANCH/]NODE@VISIT`, after the stages whose sub-workflows it is in and ` › `.
    pub stage: String,
    /// The attempt of the stage, from 1.
    pub attempt: u32,
    /// Its path, relative to the working directory.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its media type.
    pub media_type: String,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// Where it is kept on this machine.
    pub file: PathBuf,
    /// When it was kept, in milliseconds since 1970.
    #[serde(skip)]
    pub ts_ms: i64,
    /// Where it is kept, below the directory of the run.
    #[serde(skip)]
    pub below: String,
    /// The stage of the sub-workflow; `None` for one of the run itself.
    #[serde(skip)]
    pub above: Option<String>,
}

impl ArtifactRow {
    /// The file with its bytes, checked.
    ///
    /// # Errors
    ///
    /// It is missing, damaged, or cannot be read.
    pub fn stored(&self, runs_dir: &Path) -> Result<PathBuf, Damaged> {
        stored_file(&runs_dir.join(self.run.to_string()), &self.below, &self.sha256)
    }
}

/// The artifacts that one log names, as a fold over its events. It holds some hundred bytes for each.
#[derive(Clone, Debug, Default)]
pub struct ArtifactFold {
    run: Option<RunId>,
    /// The stage that the run is a sub-workflow of.
    parent: Option<ParentStage>,
    kept: Vec<Kept>,
}

#[derive(Clone, Debug)]
struct Kept {
    seq: u64,
    ts_ms: i64,
    stage: StageKey,
    artifact: CapturedArtifact,
}

/// What an artifact takes besides its path, in bytes.
const PER_ARTIFACT: usize = size_of::<Kept>() + 160;

impl ArtifactFold {
    /// Takes the next event in.
    pub fn apply(&mut self, event: &Event) {
        if self.run.is_none() {
            self.run = Some(event.run_id);
        }
        match &event.entry.body {
            EventBody::RunCreated(created) => self.parent.clone_from(&created.parent),
            EventBody::CheckpointForked(point) if point.in_place => {
                if let Some(retry) = &point.retry {
                    self.kept
                        .retain(|kept| !retry.takes_back(kept.seq, kept.stage.branch.as_deref()));
                    return;
                }
                let end = self.kept.partition_point(|kept| kept.seq <= point.from_seq);
                self.kept.truncate(end);
            }
            EventBody::ArtifactCaptured(artifact) => {
                if let Some(stage) = StageKey::of(event) {
                    let artifact = CapturedArtifact::clone(artifact);
                    self.kept.push(Kept { seq: event.seq, ts_ms: event.ts_ms, stage, artifact });
                }
            }
            _ => {}
        }
    }

    /// About what it takes in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.kept.iter().map(|kept| PER_ARTIFACT + kept.artifact.path.len()).sum()
    }

    /// The rows of a run and of its sub-workflows by the folds of their logs, the run first; of one stage, if it is
    /// named. Oldest first.
    pub fn rows(folds: &[Self], runs_dir: &Path, stage: Option<&str>) -> Vec<ArtifactRow> {
        let mut all = Vec::new();
        let mut names: BTreeMap<RunId, String> = BTreeMap::new();
        for (at, fold) in folds.iter().enumerate() {
            let Some(run) = fold.run else { continue };
            let above = fold.parent.as_ref().filter(|_| at > 0).map(|parent| {
                let stage = parent.name();
                match names.get(&parent.run_id) {
                    Some(above) => format!("{above} › {stage}"),
                    None => stage,
                }
            });
            if let Some(above) = &above {
                names.insert(run, above.clone());
            }
            fold.add_rows(&mut all, run, above.as_deref(), &runs_dir.join(run.to_string()), stage);
        }
        all.sort_by_key(|row| row.ts_ms);
        all
    }

    fn add_rows(
        &self,
        rows: &mut Vec<ArtifactRow>,
        run: RunId,
        above: Option<&str>,
        dir: &Path,
        chosen: Option<&str>,
    ) {
        let chosen = chosen.map(|name| StageName::parse(name.trim()));
        // Where a later one has the place of an earlier one, only that.
        let last: BTreeMap<&str, u64> =
            self.kept.iter().map(|kept| (&*kept.artifact.file, kept.seq)).collect();
        for Kept { seq, ts_ms, stage, artifact } in &self.kept {
            if last.get(&*artifact.file) != Some(seq)
                || chosen.is_some_and(|it| !stage.is_called(it))
            {
                continue;
            }
            let name = stage.full_name();
            rows.push(ArtifactRow {
                run,
                stage: above.map_or_else(|| name.clone(), |above| format!("{above} › {name}")),
                attempt: artifact.attempt,
                path: artifact.path.clone(),
                size: artifact.size,
                media_type: artifact.media_type.clone(),
                sha256: artifact.sha256.clone(),
                file: dir.join(&*artifact.file),
                ts_ms: *ts_ms,
                below: artifact.file.to_string(),
                above: above.map(str::to_owned),
            });
        }
    }
}

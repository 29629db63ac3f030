use std::collections::BTreeMap;

use fabro_engine::checkpoint;
use fabro_events::{CapturedArtifact, Event, EventBody};

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

//! Following a run that another process drives.

use std::time::Duration;

use fabro_events::{Event, EventBody};
use fabro_run::is_driven;
use fabro_store::{ChangeMark, Follow as _, SqliteStore};
use fabro_types::RunId;

use crate::global::Global;
use crate::output;

/// The polling interval of the store while a run is followed. A poll takes microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How many polls in a row must find no driver before following ends.
const MAX_POLLS_WITHOUT_DRIVER: u32 = 40;

/// What a poll has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The store may have more events.
    Changed,
    /// The store is as it was.
    Nothing,
    /// No process has driven the run for a while.
    NoDriver,
}

/// Polls the store for more of a run.
pub(super) struct Follow<'s> {
    store: &'s SqliteStore,
    run: RunId,
    mark: ChangeMark,
    polls_without_driver: u32,
}

impl<'s> Follow<'s> {
    /// To be called before reading: what is committed in between is news.
    pub(super) async fn begin(store: &'s SqliteStore, run: RunId) -> anyhow::Result<Self> {
        Ok(Self { store, run, mark: store.mark().await?, polls_without_driver: 0 })
    }

    /// Waits for the next poll.
    pub(super) async fn next(&mut self) -> anyhow::Result<News> {
        tokio::time::sleep(POLL_INTERVAL).await;
        let is_driven = is_driven(self.store, self.run).await?;
        self.polls_without_driver = if is_driven { 0 } else { self.polls_without_driver + 1 };
        let now = self.store.mark().await?;
        if now != self.mark {
            self.mark = now;
            return Ok(News::Changed);
        }
        let is_over = self.polls_without_driver > MAX_POLLS_WITHOUT_DRIVER;
        Ok(if is_over { News::NoDriver } else { News::Nothing })
    }
}

/// Reports that no process drives a run which has not ended.
pub(super) fn no_driver(run: RunId, global: &Global) {
    let resume = global.command(&format!("resume {run}"));
    output::stderr(&format!("no process is driving the run; continue with: {resume}\n"));
}

/// Whether the run has ended or is paused after this event.
pub(super) fn is_end(event: &Event, before: bool) -> bool {
    match event.entry.body {
        EventBody::RunCompleted { .. }
        | EventBody::RunFailed { .. }
        | EventBody::RunCanceled { .. }
        | EventBody::RunPaused { .. } => true,
        EventBody::RunStarted {}
        | EventBody::RunResumed { .. }
        | EventBody::CheckpointForked(_) => false,
        _ => before,
    }
}

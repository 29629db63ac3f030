//! Following a run that another process drives.

use std::time::Duration;

use fabro_engine::{checkpoint, read_all};
use fabro_events::{Event, EventBody, EventSink as _};
use fabro_run::{is_driven, now_ms};
use fabro_store::{ChangeMark, Follow as _, RunLog as _, SqliteStore};
use fabro_terminal::{Mode, Progress};
use fabro_types::RunId;
use tokio::signal::ctrl_c;

use super::wait::{exit_of, note, stopped};
use crate::drive::{ShownArgs, mode};
use crate::exit::Exit;
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

/// How many events one read returns.
const PAGE: usize = 1_000;

/// Follows a run that another process drives, until it ends or pauses. Ctrl-C does not stop the run.
pub(super) async fn follow_driven(
    store: &SqliteStore,
    run: RunId,
    shown: ShownArgs,
    global: &Global,
) -> anyhow::Result<Exit> {
    let mode = mode(shown, global);
    let progress = Progress::new(mode, global.paint_stderr(), now_ms);
    let mut follow = Follow::begin(store, run).await?;
    let past = read_all(store, run).await?;
    let mut last = past.last().map_or(0, |event| event.seq);
    if mode != Mode::Json && mode != Mode::Quiet {
        output::stderr(&format!("run {run} is driven by another process; following it\n"));
    }
    progress.recall(&checkpoint::effective(&past));
    let following = async {
        loop {
            loop {
                let page = store.read(run, last, PAGE).await?;
                for event in &page {
                    last = event.seq;
                    progress.event(event);
                }
                if page.len() < PAGE {
                    break;
                }
            }
            if let Some(report) = stopped(store, run).await? {
                // Events committed since the last read.
                for event in &store.read(run, last, usize::MAX).await? {
                    progress.event(event);
                }
                return anyhow::Ok(report);
            }
            follow.next().await?;
        }
    };
    let report = tokio::select! {
        report = following => report?,
        signal = ctrl_c() => {
            signal?;
            progress.finish();
            output::stderr(&format!("run {run} continues in the background\n"));
            return Ok(Exit::INTERRUPTED);
        }
    };
    progress.finish();
    if let Some(error) = progress.take_write_error() {
        return Err(output::unwritten(&error));
    }
    if mode != Mode::Json {
        output::stderr(&note(&report, global));
    }
    Ok(exit_of(report.status))
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

//! `fabro events`.

use std::time::Duration;

use fabro_events::{Event, EventBody};
use fabro_run::is_driven;
use fabro_store::{Follow as _, RunLog as _, SqliteStore, StoreError};
use fabro_types::RunId;

use crate::cli::EventsArgs;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use fabro_terminal::{Paint, line, note_text};

/// How many events are read at a time.
const PAGE: usize = 1_000;

/// How often the store is looked at while a run is followed. A look takes microseconds.
const POLL: Duration = Duration::from_millis(50);

/// How many looks in a row must find nobody at work before a run counts as left.
const PATIENCE: u32 = 40;

/// Shows the events of a run.
pub async fn events(args: &EventsArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let mut shown = Shown { json: args.json, paint: global.paint_stdout(), last: 0, over: false };
    // Taken before reading: what is committed in between is read next time.
    let mut mark = store.mark().await?;
    shown.catch_up(&store, run).await?;
    let mut alone = 0;
    while args.follow && !shown.over {
        tokio::time::sleep(POLL).await;
        let now = store.mark().await?;
        if now != mark {
            mark = now;
            shown.catch_up(&store, run).await?;
        }
        alone = if is_driven(&store, run).await? { 0 } else { alone + 1 };
        if alone > PATIENCE {
            let resume = global.command(&format!("resume {run}"));
            output::stderr(&format!("nobody is driving the run; go on with: {resume}\n"));
            break;
        }
    }
    Ok(exit::SUCCEEDED)
}

struct Shown {
    json: bool,
    paint: Paint,
    /// The last event that was printed.
    last: u64,
    /// The run has ended or waits.
    over: bool,
}

impl Shown {
    /// Prints every event that was not printed yet.
    async fn catch_up(&mut self, store: &SqliteStore, run: RunId) -> anyhow::Result<()> {
        loop {
            let page = match store.read(run, self.last, PAGE).await {
                Ok(page) => page,
                Err(error) => return Err(self.after(error)),
            };
            let mut text = String::new();
            for event in &page {
                text.push_str(&self.text(event));
                text.push('\n');
                self.last = event.seq;
                self.over = is_end(event, self.over);
            }
            output::stdout(&text)?;
            if page.len() < PAGE {
                return Ok(());
            }
        }
    }

    fn text(&self, event: &Event) -> String {
        if self.json {
            return event.to_json_line();
        }
        let ts = event.ts();
        let time = ts.get(11..19).unwrap_or(&ts);
        format!("{} {}", self.paint.dim(time), note_text(&line(event), self.paint))
    }

    fn after(&self, error: StoreError) -> anyhow::Error {
        tracing::debug!(last = self.last, "reading stopped");
        error.into()
    }
}

fn is_end(event: &Event, before: bool) -> bool {
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

//! `fabro events`.

use std::time::Duration;

use clap_complete::ArgValueCandidates;
use fabro_events::{Event, EventBody};
use fabro_run::is_driven;
use fabro_store::{Follow as _, RunLog as _, SqliteStore};
use fabro_types::RunId;

use crate::complete;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use fabro_terminal::{Paint, line, note_text};

/// Show the events of a run
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro events latest\n  fabro events latest -f\n  fabro events latest --json | jq 'select(.event == \"edge.selected\")'"
)]
pub struct EventsArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// Follow the run until it ends or pauses
    #[arg(short, long)]
    pub follow: bool,

    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// How many events are read at a time.
const PAGE: usize = 1_000;

/// The polling interval of the store while a run is followed. A poll takes microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How many polls in a row must find no driver before following ends.
const MAX_POLLS_WITHOUT_DRIVER: u32 = 40;

/// Shows the events of a run.
pub async fn events(args: &EventsArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let mut printer =
        Printer { json: args.json, paint: global.paint_stdout(), last: 0, has_ended: false };
    // Taken before reading: what is committed in between is read next time.
    let mut mark = store.mark().await?;
    printer.catch_up(&store, run).await?;
    let mut polls_without_driver = 0;
    while args.follow && !printer.has_ended {
        tokio::time::sleep(POLL_INTERVAL).await;
        let now = store.mark().await?;
        if now != mark {
            mark = now;
            printer.catch_up(&store, run).await?;
        }
        polls_without_driver =
            if is_driven(&store, run).await? { 0 } else { polls_without_driver + 1 };
        if polls_without_driver > MAX_POLLS_WITHOUT_DRIVER {
            let resume = global.command(&format!("resume {run}"));
            output::stderr(&format!("no process is driving the run; continue with: {resume}\n"));
            break;
        }
    }
    Ok(Exit::SUCCEEDED)
}

struct Printer {
    json: bool,
    paint: Paint,
    /// The last event that was printed.
    last: u64,
    /// The run has ended or is paused.
    has_ended: bool,
}

impl Printer {
    /// Prints every event that was not printed yet.
    async fn catch_up(&mut self, store: &SqliteStore, run: RunId) -> anyhow::Result<()> {
        loop {
            let page = store.read(run, self.last, PAGE).await?;
            let mut text = String::new();
            for event in &page {
                text.push_str(&self.text(event));
                text.push('\n');
                self.last = event.seq;
                self.has_ended = is_end(event, self.has_ended);
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

//! `fabro events`.

use clap_complete::ArgValueCandidates;
use fabro_events::Event;
use fabro_store::{RunLog as _, SqliteStore};
use fabro_types::RunId;

use super::follow::{Follow, News, is_end, no_driver};
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

/// Shows the events of a run.
pub async fn events(args: &EventsArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let mut printer =
        Printer { json: args.json, paint: global.paint_stdout(), last: 0, has_ended: false };
    let mut follow = Follow::begin(&store, run).await?;
    printer.catch_up(&store, run).await?;
    while args.follow && !printer.has_ended {
        match follow.next().await? {
            News::Changed => printer.catch_up(&store, run).await?,
            News::Nothing => {}
            News::NoDriver => {
                no_driver(run, global);
                break;
            }
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
            if self.json {
                output::json_text(text)?;
            } else {
                output::text(&text)?;
            }
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

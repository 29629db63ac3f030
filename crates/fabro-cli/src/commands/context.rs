//! `fabro context`.

use std::fmt::Write as _;
use std::sync::Arc;

use clap_complete::ArgValueCandidates;
use fabro_blob::BlobStore;
use fabro_context::{Change, Context};
use fabro_engine::{read_all, read_blob};
use fabro_inspect::{context_at, diff, read_back};
use fabro_types::BlobRef;
use serde_json::Value;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;
use fabro_terminal::{Paint, one_line};

/// Show the context of a run
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro context latest\n  fabro context latest --at plan --json\n  fabro context latest --diff plan test@2\n\nThe context has the values that stages set and that conditions and prompts read."
)]
pub struct ContextArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// The context after this stage instead of the current one
    #[arg(long, value_name = "[BRANCH/]NODE[@VISIT]", conflicts_with = "diff", add = ArgValueCandidates::new(complete::stages))]
    pub at: Option<String>,

    /// Changes between the ends of two stages
    #[arg(long, num_args = 2, value_names = ["A", "B"], add = ArgValueCandidates::new(complete::stages))]
    pub diff: Option<Vec<String>>,

    /// Also show the engine's internal keys: `internal.*`
    #[arg(long, visible_alias = "internal")]
    pub all: bool,

    /// Print large values instead of references to them
    #[arg(long)]
    pub resolve: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The prefix of the engine's internal keys. JSON always has them.
const INTERNAL: &str = "internal.";

/// The longest value on a line for people, in characters.
const SHOWN: usize = 120;

/// Shows the context of a run.
pub async fn context(args: &ContextArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let events = read_all(&store, run).await?;
    let paint = global.paint_stdout();
    if let Some([before, after]) = args.diff.as_deref() {
        let mut changes = diff(&events, before, after)?;
        if args.resolve {
            for change in &mut changes {
                for value in [&mut change.before, &mut change.after].into_iter().flatten() {
                    resolve(value, &change.key, &store)?;
                }
            }
        }
        if !args.all && !args.json {
            changes.retain(|change| !change.key.starts_with(INTERNAL));
        }
        output::report(args.json, &changes, || changes_text(&changes, &store, paint))?;
        return Ok(Exit::SUCCEEDED);
    }
    let mut context = context_at(&events, args.at.as_deref())?;
    if args.resolve {
        context = resolved(&context, &store)?;
    }
    let shown = |key: &str| args.all || !key.starts_with(INTERNAL);
    output::report(args.json, &context.to_json(), || text(&context, shown, &store, paint))?;
    Ok(Exit::SUCCEEDED)
}

fn resolved(context: &Context, blobs: &dyn BlobStore) -> anyhow::Result<Context> {
    let entries = context.iter().map(|(key, value)| {
        let mut value = Arc::clone(value);
        resolve(&mut value, key, blobs)?;
        Ok((key.to_owned(), value))
    });
    entries.collect()
}

fn resolve(value: &mut Arc<Value>, key: &str, blobs: &dyn BlobStore) -> anyhow::Result<()> {
    read_back(key, value, blobs).map_err(|failed| {
        error::store(failed.to_string(), "leave out --resolve to see the reference")
    })
}

fn text(
    context: &Context,
    is_shown: impl Fn(&str) -> bool,
    blobs: &dyn BlobStore,
    paint: Paint,
) -> String {
    let shown_keys = context.iter().filter(|(key, _)| is_shown(key));
    let lines = shown_keys.map(|(key, value)| {
        format!("{} = {}\n", paint.bold(&one_line(key, SHOWN)), shown(value, blobs))
    });
    lines.collect()
}

fn changes_text(changes: &[Change], blobs: &dyn BlobStore, paint: Paint) -> String {
    let mut text = String::new();
    for change in changes {
        let _ = writeln!(text, "{}", paint.bold(&one_line(&change.key, SHOWN)));
        if let Some(before) = &change.before {
            let _ = writeln!(text, "  {}", paint.bad(&format!("- {}", shown(before, blobs))));
        }
        if let Some(after) = &change.after {
            let _ = writeln!(text, "  {}", paint.good(&format!("+ {}", shown(after, blobs))));
        }
    }
    text
}

/// A value on one line: small ones of those that stand apart are read back.
pub(crate) fn shown(value: &Value, blobs: &dyn BlobStore) -> String {
    const SMALL: u64 = 64 << 10;
    let read = BlobRef::from_value(value).and_then(|blob| {
        let is_small = blobs.len(&blob).is_ok_and(|bytes| bytes <= SMALL);
        is_small.then(|| read_blob(blobs, &blob).ok()).flatten()
    });
    one_line(&read.as_ref().unwrap_or(value).to_string(), SHOWN)
}

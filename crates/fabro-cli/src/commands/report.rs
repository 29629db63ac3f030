//! `fabro report`.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap_complete::ArgValueCandidates;
use fabro_page::{MAX_REPORT, MakeError, make_report};
use fabro_terminal::clean;
use tempfile::NamedTempFile;

use super::cost::free_models;
use super::dump::above;
use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, find};
use crate::output;

/// Export a run as a self-contained HTML file
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro report latest\n  fabro report 01K3 -o run.html\n  fabro report latest --compare 01K3\n\nThe file needs no server and no network: graph, timeline, stages with their conversations, changes, artifacts and costs, and why each edge was taken. Texts are cut so that it has at most 5 MB."
)]
pub struct ReportArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// Where to, `-` for standard output [default: a file named after the run]
    #[arg(short, long, value_name = "FILE.html")]
    pub output: Option<PathBuf>,

    /// Begin with what is different in this run
    #[arg(long, value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    pub compare: Option<String>,

    /// Cut no text, however large the file gets
    #[arg(long)]
    pub full: bool,
}

/// Writes the report of a run.
pub async fn report(args: &ReportArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let other = match &args.compare {
        Some(text) => Some(find(&store, text).await?),
        None => None,
    };
    let max = if args.full { usize::MAX } else { MAX_REPORT };
    let is_free = free_models()?;
    let made = make_report(&store, &store.runs_dir(), run, other, &is_free, max).await;
    let made = made.map_err(|error| match error {
        MakeError::Report(error) => anyhow::Error::from(error),
        MakeError::Compare(error) => error.into(),
        MakeError::Store(error) => error.into(),
        other => other.into(),
    })?;
    for warning in &made.warnings {
        output::stderr(&format!("warning: {}\n", clean(warning)));
    }
    if args.output.as_deref() == Some(Path::new("-")) {
        output::bytes(made.html.as_bytes())?;
        return error::if_damaged(&made.damage);
    }
    let target = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{run}.html")));
    let shown = clean(&target.to_string_lossy()).into_owned();
    write(&target, &made.html).map_err(|error| {
        error::unwritable(&format!("write {shown}"), &error, "name another file with -o")
    })?;
    output::text(&format!("{shown}\n"))?;
    error::if_damaged(&made.damage)
}

/// The file has its name when all of it is written. A device or a pipe is written to, and stays what it is.
fn write(target: &Path, html: &str) -> io::Result<()> {
    if let Some(mut device) = output::device(target)? {
        return device.write_all(html.as_bytes());
    }
    let mut file = NamedTempFile::with_prefix_in(".fabro-report-", above(target)?)?;
    file.write_all(html.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(target).map_err(|error| error.error)?;
    Ok(())
}

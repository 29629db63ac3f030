//! `cargo xtask bench`: figures of whole runs, each beside its limit.
//!
//! What a synced write costs changes from minute to minute, so every figure that involves the disk
//! takes turns with its limit, and the ratio is that of neighbours. The micro-benchmarks are in the
//! crates: `cargo bench -p CRATE`; `docs/benchmarks.md` lists them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{cargo, say};

mod durable;
mod engine;
mod measure;
mod outputs;
mod process;
mod sessions;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these figures
    #[arg(value_name = "NAME", value_parser = names())]
    names: Vec<String>,
    /// Fewer stages and fewer repetitions: to see that it works, not for figures
    #[arg(long)]
    quick: bool,
    /// The program to measure, instead of a release build made now
    #[arg(long, value_name = "PATH")]
    fabro: Option<PathBuf>,
    /// Where the stores are made: on a disk, and outside of git work trees. Default: the folder for
    /// temporary files
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What is measured, and with which program.
struct Bench<'a> {
    root: &'a Path,
    fabro: PathBuf,
    quick: bool,
    dir: TempDir,
}

struct Figure {
    name: &'static str,
    run: fn(&Bench<'_>) -> Result<Vec<Row>>,
}

const FIGURES: &[Figure] = &[
    Figure { name: "size", run: process::size },
    Figure { name: "validate", run: process::validate },
    Figure { name: "start", run: durable::start },
    Figure { name: "branches", run: process::branches },
    Figure { name: "line", run: durable::line },
    Figure { name: "list", run: durable::list },
    Figure { name: "store", run: process::store },
    Figure { name: "memory", run: process::memory },
    Figure { name: "resume", run: process::resume },
    Figure { name: "growth", run: engine::growth },
    Figure { name: "session", run: sessions::session },
    Figure { name: "worktree", run: outputs::worktree },
    Figure { name: "scan", run: outputs::scan },
    Figure { name: "blobs", run: outputs::blobs },
    Figure { name: "dump", run: outputs::dump },
];

/// One line of the table.
struct Row {
    figure: String,
    limit: String,
    measured: String,
    /// Measured beside its limit; above 1 it misses it.
    ratio: Option<f64>,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let fabro = cargo::fabro(root, args.fabro.as_deref(), true)?;
    // Not below the target directory: in a git work tree each stage looks for the files it touched,
    // which is a figure of its own.
    let above = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = tempfile::Builder::new().prefix("fabro-bench-").tempdir_in(above);
    let dir = dir.context("make a folder for the stores")?;
    let dir_in_git = dir.path().ancestors().any(|above| above.join(".git").exists());
    ensure!(!dir_in_git, "the figures are of runs outside of git work trees: choose another --dir");
    let bench = Bench { root, fabro, quick: args.quick, dir };
    let mut rows = Vec::new();
    let chosen =
        |figure: &&Figure| args.names.is_empty() || args.names.iter().any(|it| it == figure.name);
    for figure in FIGURES.iter().filter(chosen) {
        say(&format!("measuring: {}", figure.name));
        rows.extend((figure.run)(&bench).with_context(|| format!("measure {}", figure.name))?);
    }
    say("\n| figure | limit | measured | ratio | verdict |\n| --- | --- | --- | --- | --- |");
    for row in &rows {
        say(&row.line());
    }
    if args.quick {
        say("\nThese are quick figures: their verdicts mean little.");
    }
    Ok(())
}

impl Row {
    /// A time beside its limit.
    fn time(figure: impl Into<String>, time: Duration, allowed: Duration) -> Self {
        Self {
            figure: figure.into(),
            limit: ms(allowed),
            measured: ms(time),
            ratio: Some(time.as_secs_f64() / allowed.as_secs_f64()),
        }
    }

    fn line(&self) -> String {
        let Self { figure, limit, measured, ratio } = self;
        let (ratio, verdict) = match ratio {
            None => (String::new(), "for information"),
            Some(ratio) if *ratio <= 1.0 => (format!("{ratio:.2}"), "holds"),
            Some(ratio) => (format!("{ratio:.2}"), "MISSED"),
        };
        format!("| {figure} | {limit} | {measured} | {ratio} | {verdict} |")
    }
}

fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1_000.0;
    if ms < 100.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

fn names() -> Vec<&'static str> {
    FIGURES.iter().map(|figure| figure.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_whether_its_limit_holds() {
        let line = |ratio| {
            let [figure, limit, measured] = ["a", "1 ms", "2 ms"].map(str::to_owned);
            Row { figure, limit, measured, ratio }.line()
        };
        assert_eq!(line(Some(2.0)), "| a | 1 ms | 2 ms | 2.00 | MISSED |");
        assert_eq!(line(Some(0.5)), "| a | 1 ms | 2 ms | 0.50 | holds |");
        assert_eq!(line(None), "| a | 1 ms | 2 ms |  | for information |");
    }
}

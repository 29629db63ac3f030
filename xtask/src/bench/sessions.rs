//! What agents cost beside their models and tools.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::durable::{append, medians, ratio};
use super::measure::{median, time};
use super::{Bench, Row, ms};
use crate::cargo;

/// The figures of one run.
#[derive(Clone, Copy)]
struct Figures {
    /// A turn among the first tenth, and one among the last.
    early: Duration,
    late: Duration,
    /// All of it, by the number of turns.
    mean: Duration,
    peak_kib: f64,
}

/// A conversation of many turns in the store in memory: what a turn costs, whether that grows, and
/// how much memory it takes. Then the same on disk beside the synced appends it cannot do without,
/// one for the answer and one for the result of its call.
pub(super) fn session(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let args = ["build", "--quiet", "--release", "-p", "fabro-handlers", "--example", "turns"];
    cargo::run(bench.root, &args, &[])?;
    let program = cargo::target_dir(bench.root).join("release").join("examples").join("turns");
    let turns = if bench.quick { 100 } else { 1_000 };
    let mut figures = Vec::new();
    for _ in 0..bench.repeat(15) {
        figures.push(ask(&program, turns, None)?);
    }
    let early = median(figures.iter().map(|figures| figures.early).collect())?;
    let late = median(figures.iter().map(|figures| figures.late).collect())?;
    let peak = median(figures.iter().map(|figures| figures.peak_kib).collect())?;
    let mut rows = in_memory(turns, early, late, peak);
    let mean = median(figures.iter().map(|figures| figures.mean).collect())?;
    rows.push(on_disk(bench, &program, turns, mean)?);
    Ok(rows)
}

fn in_memory(turns: usize, early: Duration, late: Duration, peak_kib: f64) -> Vec<Row> {
    const ALLOWED: Duration = Duration::from_micros(300);
    /// What a turn among the last may cost beside one among the first.
    const GROWTH: f64 = 1.2;
    const MEMORY: f64 = 100.0;
    let growth = late.as_secs_f64() / early.as_secs_f64();
    let peak = peak_kib * 1_024.0 / 1e6;
    vec![
        Row::time(format!("a turn of an agent, the last of {turns}, in memory"), late, ALLOWED),
        Row {
            figure: format!("the last tenth of {turns} turns beside the first"),
            limit: format!("{GROWTH} × {} µs", early.as_micros()),
            measured: format!("{} µs; {growth:.2} ×", late.as_micros()),
            ratio: Some(growth / GROWTH),
        },
        Row {
            figure: format!("peak memory, an agent of {turns} turns"),
            limit: format!("{MEMORY} MB"),
            measured: format!("{peak:.1} MB"),
            ratio: Some(peak / MEMORY),
        },
    ]
}

fn on_disk(bench: &Bench<'_>, program: &Path, turns: usize, memory: Duration) -> Result<Row> {
    const ALLOWED: f64 = 1.2;
    let mut pairs = Vec::new();
    for _ in 0..bench.repeat(7) {
        let dir = bench.folder()?;
        let mut log = File::create(dir.join("bare.log"))?;
        // Half of them before and half after: a disk that grows slower meets both sides.
        let mut half = || time(|| (0..turns).try_for_each(|_| append(&mut log)));
        let before = half()?;
        let store = dir.join("store");
        let figures = ask(program, turns, Some(&store))?;
        let syncs = before + half()?;
        pairs.push((syncs / u32::try_from(turns)?, figures.mean.saturating_sub(memory)));
    }
    let (ratio, each) = ratio(&pairs)?;
    let (syncs, more) = medians(&pairs)?;
    Ok(Row {
        figure: "the same on disk, more than in memory".to_owned(),
        limit: format!("{ALLOWED} × 2 syncs of {}", ms(syncs / 2)),
        measured: format!("{}; {ratio:.2} × ({each})", ms(more)),
        ratio: Some(ratio / ALLOWED),
    })
}

fn ask(program: &Path, turns: usize, store: Option<&Path>) -> Result<Figures> {
    let output = Command::new(program).arg(turns.to_string()).args(store).output();
    let output = output.context("start the example")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let number = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let word = line.and_then(|line| line.split_whitespace().next());
        word.with_context(|| format!("the example says no `{name}`"))?.parse().context(text.clone())
    };
    Ok(Figures {
        early: Duration::from_nanos(number("early")?),
        late: Duration::from_nanos(number("late")?),
        mean: Duration::from_nanos(number("whole")?) / u32::try_from(turns.max(1))?,
        peak_kib: number("peak")? as f64,
    })
}

//! Figures that the disk bounds: each takes turns with its limit.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::measure::{line as line_of, median, time};
use super::{Bench, Row, ms};

/// What a stage writes to the log at the least, in bytes.
const RECORD: usize = 700;

/// A line of stages beside the same processes and synced appends without an engine.
pub(super) fn line(bench: &Bench<'_>) -> Result<Vec<Row>> {
    /// The engine may cost this share of what it cannot do without.
    const ALLOWED: f64 = 1.3;
    let stages = if bench.quick { 100 } else { 1_000 };
    let mut pairs = Vec::new();
    for _ in 0..bench.repeat(7) {
        let dir = bench.folder()?;
        let workflow = dir.join("line.fabro");
        fs::write(&workflow, line_of(stages))?;
        // Half of it before and half after: a machine that grows slower meets both sides.
        let mut log = File::create(dir.join("bare.log"))?;
        let mut half = || time(|| bare_line(&mut log, stages / 2));
        let before = half()?;
        let run = bench.time(&dir, &["run", "line.fabro", "--quiet"])?;
        pairs.push((before + half()?, run));
    }
    let (ratio, each) = ratio(&pairs)?;
    let (bare, run) = medians(&pairs)?;
    let stage = |time: Duration| ms(time / u32::try_from(stages).unwrap_or(1));
    let outside = Row {
        figure: format!("{stages} commands in a line, a stage"),
        limit: format!("{ALLOWED} × {}", stage(bare)),
        measured: format!("{}; {ratio:.2} × ({each})", stage(run)),
        ratio: Some(ratio / ALLOWED),
    };
    let in_git = Row {
        figure: "the same in a git work tree, with a `git status` for each stage".to_owned(),
        limit: String::new(),
        measured: stage(line_in_git(bench, stages)?),
        ratio: None,
    };
    Ok(vec![outside, in_git])
}

fn line_in_git(bench: &Bench<'_>, stages: usize) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..bench.repeat(3) {
        let dir = bench.folder()?;
        let made = Command::new("git").args(["init", "--quiet"]).current_dir(&dir).status();
        ensure!(made.context("start git")?.success(), "`git init` failed");
        fs::write(dir.join("line.fabro"), line_of(stages))?;
        times.push(bench.time(&dir, &["run", "line.fabro", "--quiet"])?);
    }
    median(times)
}

/// A list of elements with a stage each beside the same stages in a line.
pub(super) fn list(bench: &Bench<'_>) -> Result<Vec<Row>> {
    const ALLOWED: f64 = 1.5;
    let stages = if bench.quick { 100 } else { 1_000 };
    let mut pairs = Vec::new();
    for _ in 0..bench.repeat(7) {
        let dir = bench.folder()?;
        fs::write(dir.join("line.fabro"), line_of(stages))?;
        fs::write(dir.join("list.fabro"), list_of(stages))?;
        let line = bench.time(&dir, &["run", "line.fabro", "--quiet"])?;
        pairs.push((line, bench.time(&dir, &["run", "list.fabro", "--quiet"])?));
    }
    let (ratio, each) = ratio(&pairs)?;
    let (line, list) = medians(&pairs)?;
    Ok(vec![Row {
        figure: format!("a list of {stages} elements, a command each"),
        limit: format!("{ALLOWED} × the line, {}", ms(line)),
        measured: format!("{}; {ratio:.2} × ({each})", ms(list)),
        ratio: Some(ratio / ALLOWED),
    }])
}

/// A list of numbers with a command for each.
fn list_of(elements: usize) -> String {
    format!(
        r#"digraph list {{
  start -> each -> work -> join -> exit
  each [shape=component, for_each="{:?}", max_items={elements}]
  work [shape=parallelogram, script="true"]
  join [shape=tripleoctagon]
}}
"#,
        (0..elements).collect::<Vec<_>>()
    )
}

/// Processes with captured output, and an append with fdatasync after each.
fn bare_line(log: &mut File, stages: usize) -> Result<()> {
    for _ in 0..stages {
        let output = Command::new("bash").args(["-c", "true"]).stdin(Stdio::null()).output();
        ensure!(output.context("start bash")?.status.success(), "`true` failed");
        append(log)?;
    }
    Ok(())
}

pub(super) fn append(log: &mut File) -> Result<()> {
    log.write_all(&[b'x'; RECORD])?;
    log.sync_data().context("sync the log")
}

/// The shortest workflow as a whole process, in a store that is made by it and in one that is
/// there, beyond three synced appends.
pub(super) fn start(bench: &Bench<'_>) -> Result<Vec<Row>> {
    Ok(vec![shortest(bench, "new")?, shortest(bench, "existing")?])
}

fn shortest(bench: &Bench<'_>, store: &str) -> Result<Row> {
    const ALLOWED: Duration = Duration::from_millis(15);
    const SYNCS: usize = 3;
    let args = ["run", "hello.fabro", "--quiet"];
    let prepare = || {
        let dir = bench.folder()?;
        fs::write(dir.join("hello.fabro"), "digraph hello { start -> exit }\n")?;
        anyhow::Ok(dir)
    };
    let mut dir = prepare()?;
    if store == "existing" {
        bench.time(&dir, &args)?;
    }
    let mut log = File::create(dir.join("bare.log"))?;
    let mut pairs = Vec::new();
    for _ in 0..bench.repeat(41) {
        let syncs = time(|| (0..SYNCS).try_for_each(|_| append(&mut log)))?;
        pairs.push((syncs, bench.time(&dir, &args)?));
        if store == "new" {
            dir = prepare()?;
        }
    }
    let beyond = pairs.iter().map(|(syncs, run)| run.saturating_sub(*syncs)).collect();
    let beyond = median(beyond)?;
    let (syncs, run) = medians(&pairs)?;
    Ok(Row {
        figure: format!("start → exit, {store} store, whole process"),
        limit: format!("{} + {SYNCS} syncs of {}", ms(ALLOWED), ms(syncs / 3)),
        measured: format!("{}; {} beyond the syncs", ms(run), ms(beyond)),
        ratio: Some(beyond.as_secs_f64() / ALLOWED.as_secs_f64()),
    })
}

/// The median of the ratios of figures to their limits, and all ratios as text.
pub(super) fn ratio(pairs: &[(Duration, Duration)]) -> Result<(f64, String)> {
    let ratios = pairs.iter().map(|(limit, figure)| figure.as_secs_f64() / limit.as_secs_f64());
    let ratios: Vec<f64> = ratios.collect();
    let each: Vec<_> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    Ok((median(ratios)?, format!("pairs {}", each.join(" "))))
}

pub(super) fn medians(pairs: &[(Duration, Duration)]) -> Result<(Duration, Duration)> {
    let (limits, figures): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    Ok((median(limits)?, median(figures)?))
}

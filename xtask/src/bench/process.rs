//! Figures of whole processes with a limit in absolute terms.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::measure::{bytes, circle, line, median, succeeded};
use super::{Bench, Row, ms};

/// The stripped binary.
pub(super) fn size(bench: &Bench<'_>) -> Result<Vec<Row>> {
    const MB: f64 = 1_000_000.0;
    const ALLOWED: f64 = 25.0;
    let size = fs::metadata(&bench.fabro)?.len() as f64 / MB;
    Ok(vec![Row {
        figure: "the stripped binary".to_owned(),
        limit: format!("{ALLOWED} MB"),
        measured: format!("{size:.1} MB"),
        ratio: Some(size / ALLOWED),
    }])
}

/// `fabro validate` of a chain of 1,000 nodes.
pub(super) fn validate(bench: &Bench<'_>) -> Result<Vec<Row>> {
    const ALLOWED: Duration = Duration::from_millis(8);
    let dir = bench.folder()?;
    fs::write(dir.join("chain.fabro"), line(1_000))?;
    let mut times = Vec::new();
    for _ in 0..bench.repeat(41) {
        times.push(bench.time(&dir, &["validate", "chain.fabro"])?);
    }
    let least = times.iter().min().copied().unwrap_or_default();
    let time = median(times)?;
    let measured = format!("{} (best {})", ms(time), ms(least));
    let row = Row::time("`validate` of a chain of 1,000 nodes", time, ALLOWED);
    Ok(vec![Row { measured, ..row }])
}

/// Many branches that wait at the same time.
pub(super) fn branches(bench: &Bench<'_>) -> Result<Vec<Row>> {
    const ALLOWED: Duration = Duration::from_millis(1_500);
    const BRANCHES: usize = 200;
    let dir = bench.folder()?;
    let mut text = String::from(
        "digraph branches {\n  start -> fork\n  fork [shape=component, max_parallel=200]\n  join [shape=tripleoctagon]\n",
    );
    for at in 0..BRANCHES {
        let _ = writeln!(text, "  b{at} [shape=parallelogram, script=\"sleep 0.2\"]");
        let _ = writeln!(text, "  fork -> b{at} -> join");
    }
    text.push_str("  join -> exit\n}\n");
    fs::write(dir.join("branches.fabro"), text)?;
    let mut times = Vec::new();
    for _ in 0..bench.repeat(7) {
        times.push(bench.time(&dir, &["run", "branches.fabro", "--quiet"])?);
    }
    let figure = format!("{BRANCHES} branches of `sleep 0.2`");
    Ok(vec![Row::time(figure, median(times)?, ALLOWED)])
}

/// How the store grows by a stage: the log with its journal, and the files of stages.
pub(super) fn store(bench: &Bench<'_>) -> Result<Vec<Row>> {
    const ALLOWED: f64 = 1_536.0;
    let (few, many) = if bench.quick { (300, 600) } else { (1_000, 2_000) };
    let mut sizes = Vec::new();
    for stages in [few, many] {
        let dir = bench.folder()?;
        fs::write(dir.join("line.fabro"), line(stages))?;
        bench.time(&dir, &["run", "line.fabro", "--quiet"])?;
        let is_stage_file = |path: &Path| path.iter().any(|part| part == "stages");
        let all = bytes(&dir.join("store"), |_| true)?;
        sizes.push((all, bytes(&dir.join("store"), is_stage_file)?));
    }
    let [before, after] = sizes[..] else { bail!("two sizes were expected") };
    let stage = |before: u64, after: u64| after.saturating_sub(before) as f64 / (many - few) as f64;
    let all = stage(before.0, after.0);
    let files = stage(before.1, after.1);
    Ok(vec![Row {
        figure: "growth of the store, a stage".to_owned(),
        limit: format!("{ALLOWED:.0} bytes"),
        measured: format!("{all:.0} bytes, {files:.0} of them in files of stages"),
        ratio: Some(all / ALLOWED),
    }])
}

/// The most memory that a long run takes, as a line and as a loop.
pub(super) fn memory(bench: &Bench<'_>) -> Result<Vec<Row>> {
    const ALLOWED: f64 = 64.0;
    let stages = if bench.quick { 500 } else { 10_000 };
    let mut rows = Vec::new();
    for (name, text) in [("line", line(stages)), ("loop", circle(stages))] {
        let dir = bench.folder()?;
        fs::write(dir.join("long.fabro"), text)?;
        let args = ["run", "long.fabro", "--quiet"];
        let mut child = bench.command(&dir, &args).stderr(Stdio::null()).spawn()?;
        let mut peak = 0;
        let status = loop {
            peak = peak.max(peak_of(&child));
            if let Some(status) = child.try_wait()? {
                break status;
            }
            thread::sleep(Duration::from_millis(5));
        };
        succeeded(status, &args, "")?;
        let mib = peak as f64 / 1_024.0;
        rows.push(Row {
            figure: format!("peak memory, a {name} of {stages} stages"),
            limit: format!("{ALLOWED} MiB"),
            measured: format!("{mib:.1} MiB"),
            ratio: Some(mib / ALLOWED),
        });
    }
    Ok(rows)
}

/// The most memory that a process has taken so far, in KiB; 0 where that cannot be known.
pub(super) fn peak_of(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// From the start of `fabro resume` to the first stage that ends, after a driver was killed late in
/// a long run.
pub(super) fn resume(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let stages = if bench.quick { 500 } else { 10_000 };
    let dir = bench.folder()?;
    fs::write(dir.join("long.fabro"), circle(stages))?;
    let kill_at = stages - stages / 10;
    kill_after(bench, &dir, &["run", "long.fabro", "--json"], kill_at)?;
    let mut times = Vec::new();
    for _ in 0..bench.repeat(5) {
        times.push(kill_after(bench, &dir, &["resume", "latest", "--json"], 1)?);
    }
    Ok(vec![Row {
        figure: format!("resume of a run killed after {kill_at} stages, to the first new stage"),
        limit: String::new(),
        measured: ms(median(times)?),
        ratio: None,
    }])
}

/// Kills a driver after so many stages have ended; how long that took.
fn kill_after(bench: &Bench<'_>, dir: &Path, args: &[&str], stages: usize) -> Result<Duration> {
    let started = Instant::now();
    let mut command = bench.command(dir, args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = child.stdout.take().context("no stdout")?;
    let mut ended = 0;
    let mut took = None;
    for line in BufReader::new(stdout).lines() {
        ended += usize::from(line?.contains(r#""event":"stage.completed""#));
        if ended == stages {
            took = Some(started.elapsed());
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    took.with_context(|| format!("`fabro {}` ended after {ended} stages", args.join(" ")))
}

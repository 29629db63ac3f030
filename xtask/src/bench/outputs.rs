//! What a run leaves behind: commits of a git worktree, artifacts, blobs, dumps.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::durable::{medians, ratio};
use super::measure::{bytes, circle, median, succeeded};
use super::process::peak_of;
use super::{Bench, Row, ms};
use crate::cargo;

/// The commit of a stage beside the same change committed by plumbing; a stage that changed nothing beside one
/// `git status`.
pub(super) fn worktree(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let printed = example(bench, "fabro-sandbox", "commit_cost")?;
    let changed = pairs(&printed, "changed")?;
    let same = pairs(&printed, "same")?;
    Ok(vec![
        beside(
            "the commit of a stage in a worktree",
            "`git add -A` and a commit by plumbing",
            1.5,
            &changed,
        )?,
        beside("a stage in a worktree that changed nothing", "`git status`", 1.0, &same)?,
    ])
}

/// Keeping and reading a blob of 8 MiB.
pub(super) fn blobs(bench: &Bench<'_>) -> Result<Vec<Row>> {
    const ALLOWED: f64 = 1.3;
    let printed = example(bench, "fabro-blob", "cost")?;
    Ok(vec![
        beside(
            "a blob is kept",
            "write, fdatasync and SHA-256",
            ALLOWED,
            &pairs(&printed, "put")?,
        )?,
        beside("a blob is read", "read and SHA-256", ALLOWED, &pairs(&printed, "get")?)?,
    ])
}

/// The search for artifacts of a stage that leaves none, in a tree of 10,000 files.
pub(super) fn scan(bench: &Bench<'_>) -> Result<Vec<Row>> {
    const ALLOWED: Duration = Duration::from_millis(5);
    let mut first = Vec::new();
    let mut later = Vec::new();
    for _ in 0..bench.repeat(7) {
        let printed = example(bench, "fabro-artifacts", "stage_cost")?;
        let times = printed.lines().map(|line| Ok(Duration::from_nanos(line.trim().parse()?)));
        let mut times = times.collect::<Result<Vec<_>>>()?.into_iter();
        first.push(times.next().context("the example printed no time")?);
        later.extend(times);
    }
    let tree = "the search for artifacts in 10,000 files";
    Ok(vec![
        Row::time(format!("{tree}, first stage"), median(first)?, ALLOWED),
        Row::time(format!("{tree}, later stages"), median(later)?, ALLOWED),
    ])
}

/// A dump of a long run, and of one of half its length.
pub(super) fn dump(bench: &Bench<'_>) -> Result<Vec<Row>> {
    const MEMORY: f64 = 100.0;
    const SPEED: f64 = 20.0;
    const GROWTH: f64 = 1.3;
    let stages = if bench.quick { 500 } else { 10_000 };
    let half = dumped(bench, stages / 2)?;
    let whole = dumped(bench, stages)?;
    let growth = whole.time.as_secs_f64() / half.time.as_secs_f64() / 2.0;
    let row = |what: &str, limit: String, measured: String, ratio: f64| Row {
        figure: format!("a dump of {stages} stages, {what}"),
        limit,
        measured,
        ratio: Some(ratio),
    };
    let mib = whole.peak as f64 / 1_024.0;
    let speed = whole.megabytes / whole.time.as_secs_f64();
    Ok(vec![
        row("peak memory", format!("{MEMORY} MiB"), format!("{mib:.1} MiB"), mib / MEMORY),
        row(
            "speed",
            format!("{SPEED} MB/s"),
            format!("{speed:.1} MB/s ({:.1} MB in {})", whole.megabytes, ms(whole.time)),
            SPEED / speed,
        ),
        row(
            "a stage",
            format!("{GROWTH} × that of {}", stages / 2),
            format!("{growth:.2} ×"),
            growth / GROWTH,
        ),
    ])
}

struct Dumped {
    time: Duration,
    megabytes: f64,
    /// In KiB.
    peak: u64,
}

fn dumped(bench: &Bench<'_>, stages: usize) -> Result<Dumped> {
    let dir = bench.folder()?;
    fs::write(dir.join("long.fabro"), circle(stages))?;
    bench.time(&dir, &["run", "long.fabro", "--quiet"])?;
    let mut times = Vec::new();
    let mut peak = 0;
    for number in 0..bench.repeat(3) {
        let args = ["dump", "latest", "-o", &format!("out-{number}")];
        let mut command = bench.command(&dir, &args);
        let began = Instant::now();
        let mut child = command.stderr(Stdio::piped()).spawn().context("start fabro")?;
        while child.try_wait()?.is_none() {
            peak = peak.max(peak_of(&child));
            std::thread::sleep(Duration::from_millis(2));
        }
        times.push(began.elapsed());
        let output = child.wait_with_output()?;
        succeeded(output.status, &args, &String::from_utf8_lossy(&output.stderr))?;
    }
    let megabytes = bytes(&dir.join("out-0"), |_| true)? as f64 / 1e6;
    Ok(Dumped { time: median(times)?, megabytes, peak })
}

/// What an example of a crate prints, built for release.
fn example(bench: &Bench<'_>, package: &str, example: &str) -> Result<String> {
    let args = ["build", "--quiet", "--release", "--package", package, "--example", example];
    cargo::run(bench.root, &args, &[])?;
    let program = cargo::target_dir(bench.root).join("release").join("examples").join(example);
    let mut command = Command::new(program);
    command.env("TMPDIR", bench.dir.path()).env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.env("HOME", bench.dir.path()).output().context("start the example")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The lines of one kind: what bounds it, and what it took.
fn pairs(printed: &str, kind: &str) -> Result<Vec<(Duration, Duration)>> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    let pair = |line: &str| {
        let (bare, own) = line.split_once(' ').context("the example printed no pair")?;
        Ok((Duration::from_nanos(bare.parse()?), Duration::from_nanos(own.trim().parse()?)))
    };
    lines.map(pair).collect()
}

fn beside(figure: &str, limit: &str, allowed: f64, pairs: &[(Duration, Duration)]) -> Result<Row> {
    let (median, _) = ratio(pairs)?;
    let (bare, own) = medians(pairs)?;
    Ok(Row {
        figure: figure.to_owned(),
        limit: format!("{allowed} × {limit}, {}", ms(bare)),
        measured: format!("{}; {median:.2} ×", ms(own)),
        ratio: Some(median / allowed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_kind_become_pairs() {
        let found = pairs("put 2 3\nget 4 5\nput 6 7\n", "put").unwrap();
        let ns = Duration::from_nanos;
        assert_eq!(found, [(ns(2), ns(3)), (ns(6), ns(7))]);
        assert!(pairs("put 2", "put").is_err());
    }
}

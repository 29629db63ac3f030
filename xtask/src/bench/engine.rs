//! The engine alone, on the store in memory.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, str};

use anyhow::{Context, Result, ensure};

use super::measure::median;
use super::{Bench, Row};
use crate::cargo;

/// What a stage costs late in a long run beside one that comes early: instructions under callgrind,
/// or time where that is not installed.
pub(super) fn growth(bench: &Bench<'_>) -> Result<Vec<Row>> {
    const ALLOWED: f64 = 1.1;
    let args = ["build", "--quiet", "--release", "--package", "fabro-engine", "--example", "line"];
    cargo::run(bench.root, &args, &[])?;
    let program = cargo::target_dir(bench.root).join("release").join("examples").join("line");
    // As many stages more as there were: a list that doubles its room falls into each stretch once.
    let (early, late) = if bench.quick { (100, 2_000) } else { (100, 10_000) };
    let counts = has_valgrind();
    let cost = |stages: u32| {
        if counts {
            instructions(bench, &program, stages)
        } else {
            nanoseconds(bench, &program, stages)
        }
    };
    let stage = |at: u32| -> Result<f64> { Ok((cost(2 * at)? - cost(at)?) / f64::from(at)) };
    let first = stage(early)?;
    let last = stage(late)?;
    let unit = if counts { "instructions" } else { "ns" };
    let ratio = last / first;
    Ok(vec![Row {
        figure: format!("a stage at {late} stages, in memory"),
        limit: format!("{ALLOWED} × {first:.0} {unit} at {early}"),
        measured: format!("{last:.0} {unit}; {ratio:.3} ×"),
        ratio: Some(ratio / ALLOWED),
    }])
}

fn has_valgrind() -> bool {
    let mut command = Command::new("valgrind");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn instructions(bench: &Bench<'_>, program: &Path, stages: u32) -> Result<f64> {
    let out = bench.dir.path().join("callgrind.out");
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(program).arg(stages.to_string());
    let output = command.output().context("start valgrind")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&out)?;
    let summary = text.lines().find_map(|line| line.strip_prefix("summary:"));
    summary.context("callgrind wrote no summary")?.trim().parse().context("read the summary")
}

/// The median of what the program says of itself.
fn nanoseconds(bench: &Bench<'_>, program: &Path, stages: u32) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..bench.repeat(15) {
        let output = Command::new(program).arg(stages.to_string()).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = str::from_utf8(&output.stdout)?;
        let nanoseconds = text.split_whitespace().nth(3).context("the example printed no time")?;
        times.push(nanoseconds.parse()?);
    }
    median(times)
}

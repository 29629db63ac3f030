//! `cargo xtask ci`: everything a change must pass, step by step.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use walkdir::{DirEntry, WalkDir};

use crate::{book, cargo, complain, corpus, crash, publish, say, scripts, tidy};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the steps after a failed one too
    #[arg(long)]
    keep_going: bool,
    /// Run only these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
}

/// A step of the check.
struct Step {
    name: &'static str,
    run: fn(&Path) -> Result<StepResult>,
}

enum StepResult {
    Passed,
    /// Not possible here, and why.
    Skipped(&'static str),
}

/// Quick ones first: what a newcomer most often forgets fails in seconds.
const STEPS: &[Step] = &[
    Step { name: "format", run: format },
    Step { name: "tidy", run: |root| tidy::run(root).map(|()| StepResult::Passed) },
    Step { name: "snapshots", run: snapshots },
    Step { name: "scripts", run: page_scripts },
    Step { name: "lints", run: lints },
    Step { name: "tests", run: tests },
    Step { name: "doctests", run: doctests },
    Step { name: "docs", run: docs },
    Step { name: "book", run: the_book },
    Step { name: "packages", run: packages },
    Step { name: "fuzz-targets", run: fuzz_targets },
    Step { name: "licences", run: licences },
    Step { name: "workflows", run: workflows },
    Step { name: "corpus", run: corpus_step },
    Step { name: "crash", run: crashes },
];

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let chosen = |step: &&Step| args.only.is_empty() || args.only.iter().any(|it| it == step.name);
    let mut summary = Vec::new();
    let mut failed = 0;
    let begun = Instant::now();
    for step in STEPS.iter().filter(chosen) {
        if failed > 0 && !args.keep_going {
            summary.push(format!("skipped  {:>7}  {}", "", step.name));
            continue;
        }
        say(&format!("\n== {}", step.name));
        let started = Instant::now();
        let result = (step.run)(root);
        let took = seconds(started.elapsed());
        let (word, reason) = match result {
            Ok(StepResult::Passed) => ("passed ", String::new()),
            Ok(StepResult::Skipped(why)) => ("skipped", format!(" ({why})")),
            Err(error) => {
                failed += 1;
                complain(&format!("{}: {error:#}", step.name));
                ("FAILED ", format!(" ({error:#})"))
            }
        };
        summary.push(format!("{word}  {took:>7}  {}{reason}", step.name));
    }
    say(&format!("\n== summary, {}", seconds(begun.elapsed())));
    for line in &summary {
        say(line);
    }
    let count = |word: &str| summary.iter().filter(|line| line.starts_with(word)).count();
    let passed = count("passed");
    say(&format!("ci: {passed} passed, {failed} failed, {} skipped", count("skipped")));
    if failed > 0 {
        bail!("{failed} steps failed");
    }
    Ok(())
}

fn format(root: &Path) -> Result<StepResult> {
    cargo(root, &["fmt", "--all", "--check"], &[])?;
    cargo(root, &["fmt", "--manifest-path", "xtask/fuzz/Cargo.toml", "--check"], &[])
}

fn lints(root: &Path) -> Result<StepResult> {
    cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
}

fn tests(root: &Path) -> Result<StepResult> {
    // A snapshot that differs fails; it never writes itself anew here.
    let env = [("INSTA_UPDATE", "no"), ("CI", "true")];
    if has_cargo_command(root, "nextest") {
        return cargo(root, &["nextest", "run", "--workspace", "--no-fail-fast"], &env);
    }
    let args =
        ["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast"];
    cargo(root, &args, &env)
}

fn doctests(root: &Path) -> Result<StepResult> {
    cargo(root, &["test", "--workspace", "--doc"], &[])
}

fn docs(root: &Path) -> Result<StepResult> {
    let env = [("RUSTDOCFLAGS", "-D warnings")];
    cargo(root, &["doc", "--workspace", "--no-deps"], &env)
}

/// Every crate can be packaged; `cargo xtask publish --dry-run` builds each from its package too.
fn packages(root: &Path) -> Result<StepResult> {
    publish::run(root, &publish::Args::without_build()).map(|()| StepResult::Passed)
}

/// After `docs`, which has built the documentation of the API.
fn the_book(root: &Path) -> Result<StepResult> {
    book::run(root, &book::Args::default()).map(|()| StepResult::Passed)
}

fn snapshots(root: &Path) -> Result<StepResult> {
    let folders = ["crates", "xtask", "fixtures"].iter().map(|name| root.join(name));
    let files = folders.flat_map(WalkDir::new).map_while(Result::ok).map(DirEntry::into_path);
    let is_pending = |path: &PathBuf| {
        let extension = path.extension().unwrap_or_default();
        extension == "pending-snap" || path.to_string_lossy().ends_with(".snap.new")
    };
    let pending: Vec<_> = files.filter(is_pending).collect();
    if let Some(first) = pending.first() {
        let first = first.display();
        bail!("{} snapshots are pending, the first is {first}", pending.len());
    }
    Ok(StepResult::Passed)
}

/// The types of the scripts of pages and reports.
fn page_scripts(root: &Path) -> Result<StepResult> {
    if !scripts::has_compiler() {
        return Ok(StepResult::Skipped("tsc is not installed"));
    }
    scripts::check(root).map(|()| StepResult::Passed)
}

/// The fuzz targets are a workspace of their own, with the root's versions, so that they share what
/// is already built.
fn fuzz_targets(root: &Path) -> Result<StepResult> {
    let fuzz = root.join("xtask").join("fuzz");
    fs::copy(root.join("Cargo.lock"), fuzz.join("Cargo.lock")).context("copy Cargo.lock")?;
    let target = cargo::target_dir(root).display().to_string();
    let args = ["check", "--manifest-path", "xtask/fuzz/Cargo.toml", "--no-default-features"];
    cargo(root, &args, &[("CARGO_TARGET_DIR", &target)])
}

fn licences(root: &Path) -> Result<StepResult> {
    if !has_cargo_command(root, "deny") {
        return Ok(StepResult::Skipped("cargo-deny is not installed"));
    }
    cargo(root, &["deny", "check", "licenses", "bans"], &[])
}

/// The workflows of the repository are formatted. There is none that is meant to be broken: such files
/// are texts in tests.
fn workflows(root: &Path) -> Result<StepResult> {
    let fabro = cargo::fabro(root, None, false)?;
    let status = Command::new(&fabro).args(["fmt", "--check", "."]).current_dir(root).status();
    let status = status.with_context(|| format!("start {}", fabro.display()))?;
    if !status.success() {
        bail!("workflows are not formatted: run `fabro fmt --write .`");
    }
    Ok(StepResult::Passed)
}

fn corpus_step(root: &Path) -> Result<StepResult> {
    let Some(corpus) = env::var_os("FABRO_CORPUS") else {
        return Ok(StepResult::Skipped("FABRO_CORPUS names no corpus"));
    };
    corpus::check(Path::new(&corpus), &cargo::fabro(root, None, false)?)?;
    Ok(StepResult::Passed)
}

fn cargo(root: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<StepResult> {
    cargo::run(root, args, env).map(|()| StepResult::Passed)
}

fn has_cargo_command(root: &Path, name: &str) -> bool {
    let mut command = cargo::command(root);
    command.args([name, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A few kills and damaged stores; `cargo xtask crash` has options for their numbers.
fn crashes(root: &Path) -> Result<StepResult> {
    let mut parts = vec![
        &["--kills", "12"][..],
        &["--agents", "--kills", "6"],
        &["--worktrees", "--kills", "4"],
        &["--faults", "1"],
    ];
    let mut strace = Command::new("strace");
    if strace.args(["-o", "/dev/null", "true"]).output().is_ok_and(|it| it.status.success()) {
        parts.push(&["--power", "8"]);
    } else {
        say("crash: power failures are skipped: strace is missing or may not trace");
    }
    for args in parts {
        crash::run(root, &crash::Args::new(args))?;
    }
    Ok(StepResult::Passed)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

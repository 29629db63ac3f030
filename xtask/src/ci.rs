//! `cargo xtask ci`: everything a change must pass, step by step.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::{cargo, complain, corpus, crash, say, tidy};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run the steps after a failed one too
    #[arg(long)]
    keep_going: bool,
    /// Run only these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
}

/// A step and what it does.
struct Step {
    name: &'static str,
    run: fn(&Path) -> Result<Done>,
}

enum Done {
    Passed,
    /// Not possible here, and why.
    Skipped(&'static str),
}

/// Quick ones first: what a newcomer most often forgets fails in seconds.
const STEPS: &[Step] = &[
    Step { name: "format", run: format },
    Step { name: "tidy", run: |root| tidy::run(root).map(|()| Done::Passed) },
    Step { name: "snapshots", run: snapshots },
    Step { name: "lints", run: lints },
    Step { name: "tests", run: tests },
    Step { name: "doctests", run: doctests },
    Step { name: "docs", run: docs },
    Step { name: "fuzz-targets", run: fuzz_targets },
    Step { name: "licences", run: licences },
    Step { name: "corpus", run: corpus_step },
    Step { name: "crash", run: crashes },
];

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let chosen = |step: &&Step| args.only.is_empty() || args.only.iter().any(|it| it == step.name);
    let mut summary = Vec::new();
    let mut passed = 0;
    let mut failed = 0;
    let mut skipped = 0;
    let begun = Instant::now();
    for step in STEPS.iter().filter(chosen) {
        if failed > 0 && !args.keep_going {
            skipped += 1;
            summary.push(format!("skipped  {:>7}  {}", "", step.name));
            continue;
        }
        say(&format!("\n== {}", step.name));
        let started = Instant::now();
        let done = (step.run)(root);
        let took = seconds(started.elapsed());
        summary.push(match done {
            Ok(Done::Passed) => {
                passed += 1;
                format!("passed   {took:>7}  {}", step.name)
            }
            Ok(Done::Skipped(why)) => {
                skipped += 1;
                say(&format!("skipped: {why}"));
                format!("skipped  {took:>7}  {} ({why})", step.name)
            }
            Err(error) => {
                failed += 1;
                complain(&format!("{}: {error:#}", step.name));
                format!("FAILED   {took:>7}  {} ({error:#})", step.name)
            }
        });
    }
    say(&format!("\n== summary, {}", seconds(begun.elapsed())));
    for line in &summary {
        say(line);
    }
    say(&format!("ci: {passed} passed, {failed} failed, {skipped} skipped"));
    if failed > 0 {
        bail!("{failed} steps failed");
    }
    Ok(())
}

fn format(root: &Path) -> Result<Done> {
    cargo(root, &["fmt", "--all", "--check"], &[])?;
    cargo(root, &["fmt", "--manifest-path", "xtask/fuzz/Cargo.toml", "--check"], &[])
}

fn lints(root: &Path) -> Result<Done> {
    cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
}

fn tests(root: &Path) -> Result<Done> {
    // A snapshot that differs fails; it never writes itself anew here.
    let env = [("INSTA_UPDATE", "no"), ("CI", "true")];
    if has_cargo_command(root, "nextest") {
        return cargo(root, &["nextest", "run", "--workspace", "--no-fail-fast"], &env);
    }
    let args =
        ["test", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast"];
    cargo(root, &args, &env)
}

fn doctests(root: &Path) -> Result<Done> {
    cargo(root, &["test", "--workspace", "--doc"], &[])
}

fn docs(root: &Path) -> Result<Done> {
    let env = [("RUSTDOCFLAGS", "-D warnings")];
    cargo(root, &["doc", "--workspace", "--no-deps"], &env)
}

fn snapshots(root: &Path) -> Result<Done> {
    let mut pending = Vec::new();
    for folder in ["crates", "xtask", "fixtures"] {
        pending_snapshots(&root.join(folder), &mut pending)?;
    }
    if let Some(first) = pending.first() {
        let first = first.display();
        bail!("{} snapshots wait to be judged, the first is {first}", pending.len());
    }
    Ok(Done::Passed)
}

/// The fuzz targets are a workspace of their own, with the root's versions, so that they share what
/// is already built.
fn fuzz_targets(root: &Path) -> Result<Done> {
    let fuzz = root.join("xtask").join("fuzz");
    fs::copy(root.join("Cargo.lock"), fuzz.join("Cargo.lock")).context("copy Cargo.lock")?;
    let target = cargo::target_dir(root).display().to_string();
    let args = ["check", "--manifest-path", "xtask/fuzz/Cargo.toml", "--no-default-features"];
    cargo(root, &args, &[("CARGO_TARGET_DIR", &target)])
}

fn licences(root: &Path) -> Result<Done> {
    if !has_cargo_command(root, "deny") {
        return Ok(Done::Skipped("cargo-deny is not installed"));
    }
    cargo(root, &["deny", "check", "licenses", "bans"], &[])
}

fn corpus_step(root: &Path) -> Result<Done> {
    let Some(corpus) = env::var_os("FABRO_CORPUS") else {
        return Ok(Done::Skipped("FABRO_CORPUS names no corpus"));
    };
    corpus::check(Path::new(&corpus), &cargo::fabro(root, None, false)?)?;
    Ok(Done::Passed)
}

fn cargo(root: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<Done> {
    cargo::run(root, args, env).map(|()| Done::Passed)
}

fn has_cargo_command(root: &Path, name: &str) -> bool {
    let mut command = cargo::command(root);
    command.args([name, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A few kills; `cargo xtask crash` makes as many as one wants.
fn crashes(root: &Path) -> Result<Done> {
    for args in [&["--kills", "12"][..], &["--agents", "--kills", "6"]] {
        crash::run(root, &crash::Args::new(args))?;
    }
    Ok(Done::Passed)
}

/// What the snapshot library leaves behind when a snapshot differs.
fn pending_snapshots(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if name != "target" {
                pending_snapshots(&path, found)?;
            }
        } else if name.ends_with(".snap.new") || name.ends_with(".pending-snap") {
            found.push(path);
        }
    }
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

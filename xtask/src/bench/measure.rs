//! Workflows, processes and the clock.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use walkdir::WalkDir;

use super::Bench;

impl Bench<'_> {
    /// A new folder. None is removed before the end: ext4 passes over the inodes of files that were
    /// deleted in the last minutes one by one, so deleting many files makes every file that is
    /// created afterwards slower, and that would be counted as the engine's.
    pub(super) fn folder(&self) -> Result<PathBuf> {
        let dir = tempfile::Builder::new().prefix("").tempdir_in(self.dir.path())?;
        Ok(dir.keep())
    }

    /// The program with these arguments, in a folder that holds its store, too. The settings of the
    /// user do not reach it.
    pub(super) fn command(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(&self.fabro);
        command.args(args).current_dir(dir).env("HOME", dir).env("FABRO_STORE", dir.join("store"));
        command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// How long the program takes, which must succeed.
    pub(super) fn time(&self, dir: &Path, args: &[&str]) -> Result<Duration> {
        let mut command = self.command(dir, args);
        // What it shows is not part of what it does; only errors are wanted.
        command.stderr(Stdio::piped());
        let started = Instant::now();
        let output = command.output().context("start fabro")?;
        let took = started.elapsed();
        let said = String::from_utf8_lossy(&output.stderr);
        succeeded(output.status, args, &said)?;
        Ok(took)
    }

    /// How often something is measured.
    pub(super) fn repeat(&self, times: usize) -> usize {
        if self.quick { times.min(3) } else { times }
    }
}

pub(super) fn succeeded(status: ExitStatus, args: &[&str], said: &str) -> Result<()> {
    let tail: Vec<_> = said.trim_end().lines().rev().take(5).collect();
    let tail: Vec<_> = tail.into_iter().rev().collect();
    ensure!(status.success(), "`fabro {}`: {status}: {}", args.join(" "), tail.join("\n"));
    Ok(())
}

pub(super) fn time(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed())
}

/// The middle of some figures; an even number of them has two, and the upper one is taken.
pub(super) fn median<T: Copy + PartialOrd>(mut all: Vec<T>) -> Result<T> {
    all.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    all.get(all.len() / 2).copied().context("nothing was measured")
}

/// A line of so many commands that do nothing.
pub(super) fn line(stages: usize) -> String {
    let mut text =
        String::from("digraph line {\n  start [shape=Mdiamond]\n  exit [shape=Msquare]\n");
    for at in 0..stages {
        let _ = writeln!(text, "  n{at} [shape=parallelogram, script=\"true\"]");
    }
    let _ = write!(text, "  start");
    for at in 0..stages {
        let _ = write!(text, " -> n{at}");
    }
    text.push_str(" -> exit\n}\n");
    text
}

/// A loop of two commands that do nothing, until so many stages ran.
pub(super) fn circle(stages: usize) -> String {
    let rounds = stages / 2;
    format!(
        r#"digraph circle {{
  start [shape=Mdiamond]; exit [shape=Msquare]
  a [shape=parallelogram, script="true"]
  b [shape=parallelogram, script="true"]
  start -> a -> b
  b -> a [condition="internal.node_visit_count < {rounds}"]
  b -> exit [condition="internal.node_visit_count >= {rounds}"]
}}
"#
    )
}

/// The bytes of all files below a folder whose paths are wanted.
pub(super) fn bytes(dir: &Path, wanted: impl Fn(&Path) -> bool) -> Result<u64> {
    let mut sum = 0;
    for entry in WalkDir::new(dir) {
        let entry = entry?;
        if entry.file_type().is_file() && wanted(entry.path()) {
            sum += entry.metadata()?.len();
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found() {
        assert_eq!(median(vec![3, 1, 2]).unwrap(), 2);
        assert!(median(Vec::<u8>::new()).is_err());
    }
}

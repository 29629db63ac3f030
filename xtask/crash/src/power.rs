//! Power failures: one run is traced, and the disk is made as it may have been at random moments of it.
//!
//! What was synced is there. Of everything else any sectors may be there or not, and the files that say where logs
//! end, which are never synced, may be as they were at any time before. The run continues to the right end, and
//! all that was reported before the failure is recorded.
//!
//! # Limits
//!
//! - The database and the ends of logs alone are made so. Stored values are all there, and so are directory entries;
//!   files of stages are all gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use serde_json::Value;

use crate::case::Case;
use crate::trace::{self, Call};
use crate::{complain, judge, leave_alone, say, workflow};

const TIMEOUT: Duration = Duration::from_mins(2);

/// The database and its log.
const FILES: [&str; 2] = ["fabro.db", "fabro.db-wal"];

/// What happened, as a part of a sentence.
pub(crate) fn run(fabro: &Path, seed: u64, failures: u32, keep: bool) -> Result<String> {
    ensure!(trace::is_there(), "`strace` is missing or may not trace processes; install it");
    let mut random = Rng::with_seed(seed);
    let (baseline, _) = leave_alone(&Case::new(workflow::work(), fabro, "crash-power")?)?;
    let mut case = Case::new(workflow::work(), fabro, "crash-power")?;
    let traced = Traced::new(&case)?;
    let mut resumed = 0;
    for failure in 0..failures {
        let disk = traced.fail(&mut random);
        let done = traced.restore(&case, &disk).and_then(|()| {
            let run = case.run_id()?.context("the run is not recorded")?;
            let snapshot = [case.snapshot()?];
            if !case.has_succeeded(&run)? {
                resumed += 1;
                let status = case.resume(&run)?.end(TIMEOUT)?;
                ensure!(status.success(), "{status}: {}", case.complaints());
            }
            judge(&case, &baseline, &snapshot, &disk.reported)
        });
        if let Err(error) = done {
            let dir = case.keep().display();
            complain(&format!("the run is kept in {dir}, as it was after it was resumed"));
            return Err(error.context(format!("failure {failure}, {}", disk.at)));
        }
    }
    if keep {
        say(&format!("the run is kept in {}", case.keep().display()));
    }
    ensure!(resumed > 0, "no failure came before the end of the run");
    Ok(format!(
        "{failures} power failures, {resumed} of them before the end of the run, all with the same result"
    ))
}

/// A run, and all that it wrote.
struct Traced {
    calls: Vec<Call>,
    /// The call after which the first event is reported.
    first: usize,
    store: std::path::PathBuf,
    /// A copy of the store as it was in the end.
    last: std::path::PathBuf,
}

/// What is left after a power failure.
#[derive(Default)]
struct Disk {
    /// The database and the ends of logs.
    files: BTreeMap<String, Vec<u8>>,
    /// What stages left. It stands for what they did elsewhere.
    effects: Vec<u8>,
    /// The ids of events that were reported before.
    reported: BTreeSet<String>,
    /// When it was, in words.
    at: String,
}

impl Traced {
    fn new(case: &Case) -> Result<Self> {
        let trace = case.dir().join("trace");
        let mut driver = case.start_under(&trace::STRACE, &trace)?;
        let status = driver.end(TIMEOUT)?;
        ensure!(status.success(), "the traced run: {status}: {}", case.complaints());
        let calls = trace::calls(&fs::read_to_string(&trace)?)?;
        let first = calls.iter().position(|call| !reported(call).is_empty());
        let first = first.context("the trace has no report of an event")?;
        let last = case.dir().join("last");
        copy(case.store(), &last)?;
        Ok(Self { calls, first, store: case.store().to_owned(), last })
    }

    /// The disk after a failure at a random moment, often during a sync.
    fn fail(&self, random: &mut Rng) -> Disk {
        let syncs = (self.first..self.calls.len())
            .filter(|at| matches!(self.calls[*at], Call::Synced { .. }))
            .collect::<Vec<_>>();
        let end = match random.choice(&syncs) {
            Some(sync) if random.bool() => *sync,
            _ => random.usize(self.first + 1..=self.calls.len()),
        };
        let calls = &self.calls[..end];
        let mut synced = BTreeMap::new();
        for call in calls {
            if let Call::Synced { file, begun } = call {
                synced.insert(file.as_str(), *begun);
            }
        }
        // Nothing, some, or all of what was not synced.
        let share = [0.0, 0.3, 0.7, 0.95, 1.0][random.usize(..5)];
        let sector = if random.bool() { 512 } else { 4_096 };
        let mut disk =
            Disk { at: format!("after call {end}, {share} of the sectors"), ..Disk::default() };
        let mut heads: BTreeMap<String, Vec<&Vec<u8>>> = BTreeMap::new();
        for (number, call) in calls.iter().enumerate() {
            disk.reported.extend(reported(call));
            match call {
                Call::Write { file, bytes } if file.ends_with("/effects.log") => {
                    disk.effects.extend(bytes);
                }
                Call::WriteAt { file, at, bytes } => {
                    let Some(name) = trace::in_store(file, &self.store) else { continue };
                    if name.starts_with("heads/") {
                        heads.entry(name).or_default().push(bytes);
                    } else if FILES.contains(&name.as_str()) {
                        let is_synced = synced.get(file.as_str()).is_some_and(|to| number < *to);
                        let sectors = if is_synced { bytes.len() } else { sector };
                        let content = disk.files.entry(name).or_default();
                        write(content, *at, bytes, sectors, |_| is_synced || random.f64() < share);
                    }
                }
                Call::Truncate { file, size } => {
                    let name = trace::in_store(file, &self.store);
                    let is_synced = synced.get(file.as_str()).is_some_and(|to| number < *to);
                    if let Some(content) = name.and_then(|name| disk.files.get_mut(&name))
                        && (is_synced || random.f64() < share)
                    {
                        content.resize(*size, 0);
                    }
                }
                Call::Write { .. } | Call::Synced { .. } => {}
            }
        }
        for (name, lines) in heads {
            let newest = lines.len() - 1;
            let kept = if random.bool() { newest } else { random.usize(..=newest) };
            match random.u32(..10) {
                0 => {}
                1 => drop(disk.files.insert(name, Vec::new())),
                _ => drop(disk.files.insert(name, lines[kept].clone())),
            }
        }
        disk
    }

    /// Makes the store and the effects those of this disk.
    fn restore(&self, case: &Case, disk: &Disk) -> Result<()> {
        fs::remove_dir_all(case.store())?;
        copy(&self.last, case.store())?;
        for name in FILES.into_iter().chain(["fabro.db-shm"]) {
            let path = case.store().join(name);
            if path.exists() {
                fs::remove_file(path)?;
            }
        }
        // Nothing there is needed, and it would be newer than the database.
        fs::remove_dir_all(case.store().join("runs"))?;
        let heads = case.store().join("heads");
        fs::remove_dir_all(&heads)?;
        fs::create_dir(&heads)?;
        for (name, bytes) in &disk.files {
            fs::write(case.store().join(name), bytes)?;
        }
        fs::write(case.dir().join("effects.log"), &disk.effects)?;
        Ok(())
    }
}

/// Writes the parts of `bytes` that `is_there` takes, each within one sector of the disk.
fn write(
    content: &mut Vec<u8>,
    at: usize,
    bytes: &[u8],
    sector: usize,
    mut is_there: impl FnMut(usize) -> bool,
) {
    let mut done = 0;
    while done < bytes.len() {
        let place = at + done;
        let size = (sector - place % sector).min(bytes.len() - done);
        if is_there(place / sector) {
            if content.len() < place + size {
                content.resize(place + size, 0);
            }
            content[place..place + size].copy_from_slice(&bytes[done..done + size]);
        }
        done += size;
    }
}

/// The ids of the events that a call reports.
fn reported(call: &Call) -> Vec<String> {
    let Call::Write { file, bytes } = call else { return Vec::new() };
    if !file.starts_with("pipe:") || !bytes.starts_with(b"{\"") {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(bytes);
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_event = |event: &Value| event["event"].is_string();
    let ids = events.filter(is_event).map(|event| event["id"].as_str().map(str::to_owned));
    ids.flatten().collect()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").args([from, to]).status().context("start cp")?;
    ensure!(status.success(), "cp ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_of_a_write_are_those_of_the_disk() {
        let mut content = vec![0; 4];
        let mut sectors = Vec::new();
        write(&mut content, 3, b"abcdefg", 4, |sector| {
            sectors.push(sector);
            sector != 1
        });
        assert_eq!(sectors, [0, 1, 2]);
        assert_eq!(content, b"\0\0\0a\0\0\0\0fg");
    }

    #[test]
    fn events_are_told_from_other_output() {
        let write = |file: &str, text: &str| Call::Write { file: file.into(), bytes: text.into() };
        let line = "{\"id\":\"R-1\",\"event\":\"run.created\"}\n{\"id\":\"R-2\",\"event\":\"x\"}\n";
        assert_eq!(reported(&write("pipe:[1]", line)), ["R-1", "R-2"]);
        assert!(reported(&write("/tmp/file", line)).is_empty());
        assert!(reported(&write("pipe:[1]", "one 1\n")).is_empty());
    }
}

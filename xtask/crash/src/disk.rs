//! The disk fills up, or turns read-only, while a run is running: exit code 4, and once there is
//! space again the run continues to the same result. It needs a file system of its own to fill.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::case::{Case, Driver};
use crate::check::{Baseline, Snapshot};
use crate::{complain, judge, leave_alone, say, workflow};

/// How large the file system is: several times what a run takes.
const SIZE: u64 = 32 << 20;

/// At how many places, evenly over what a run takes, the disk is full.
const STEPS: u64 = 8;

/// The exit code of a run that cannot be recorded.
const CANNOT_RECORD: i32 = 4;

const TIMEOUT: Duration = Duration::from_mins(2);

/// What happened, as a part of a sentence.
pub(crate) fn run(fabro: &Path, keep: bool) -> Result<String> {
    let Some(disk) = Disk::mount()? else {
        say("full disk: skipped, for a file system can only be mounted by root");
        return Ok("full disk skipped".to_owned());
    };
    let (baseline, _) = leave_alone(&disk.case(fabro, "crash-disk")?)?;
    let bytes = size_of(&disk.store())?;
    let mut full = 0;
    for step in 0..STEPS {
        let mut case = disk.case(fabro, "crash-disk")?;
        let refused = with_room_for(&case, &disk, &baseline, bytes * step / STEPS);
        full += u64::from(judged(refused, &mut case, &disk, keep)?);
    }
    ensure!(full > 0, "the disk was never full");
    let mut case = disk.case(fabro, "crash-read-only")?;
    judged(read_only(&case, &disk, &baseline), &mut case, &disk, keep)?;
    Ok(format!("the disk was full {full} times and read-only once"))
}

/// Keeps the folder of a run that went wrong, with a copy of its store.
fn judged<T>(done: Result<T>, case: &mut Case, disk: &Disk, keep: bool) -> Result<T> {
    if keep || done.is_err() {
        let dir = case.keep().to_owned();
        let copied = quietly(Command::new("cp").arg("-a").args([disk.store(), dir.join("store")]));
        let lost = if copied { "" } else { ", but for its store" };
        say(&format!("the run's folder is kept in {}{lost}", dir.display()));
    }
    done.map_err(|error| error.context(format!("full disk: {}", case.complaints())))
}

/// True when the room was too small.
fn with_room_for(case: &Case, disk: &Disk, baseline: &Baseline, bytes: u64) -> Result<bool> {
    let filler = disk.fill_but(bytes)?;
    let mut course = Course::default();
    let status = course.end(case.start()?)?;
    let full = !status.success();
    fs::remove_file(filler)?;
    if full {
        refused(case, status).with_context(|| format!("with room for {bytes} bytes"))?;
    }
    course
        .resume_to_end(case, baseline)
        .with_context(|| format!("after room for {bytes} bytes"))?;
    Ok(full)
}

fn read_only(case: &Case, disk: &Disk, baseline: &Baseline) -> Result<()> {
    let mut course = Course::default();
    let mut driver = case.start()?;
    driver.kill_after_events(100, TIMEOUT)?;
    course.reported.extend(driver.reported()?);
    course.seen.push(case.snapshot()?);
    let run = case.run_id()?.context("there is no run to resume")?;
    disk.remount("ro")?;
    let resumed = case.resume(&run).and_then(|driver| course.end(driver));
    disk.remount("rw")?;
    refused(case, resumed.context("a read-only store")?)?;
    course.resume_to_end(case, baseline)
}

/// What was seen of a run so far.
#[derive(Default)]
struct Course {
    /// The snapshots after each time that it could not continue.
    seen: Vec<Snapshot>,
    /// The events that its drivers reported.
    reported: BTreeSet<String>,
}

impl Course {
    fn end(&mut self, mut driver: Driver) -> Result<ExitStatus> {
        let status = driver.end(TIMEOUT)?;
        self.reported.extend(driver.reported()?);
        Ok(status)
    }

    /// Runs on to the end, which must be the right one.
    fn resume_to_end(mut self, case: &Case, baseline: &Baseline) -> Result<()> {
        let driver = match case.run_id()? {
            None => Some(case.start()?),
            Some(run) => {
                self.seen.push(case.snapshot()?);
                if case.has_succeeded(&run)? { None } else { Some(case.resume(&run)?) }
            }
        };
        if let Some(driver) = driver {
            let status = self.end(driver)?;
            ensure!(status.success(), "with room again: {status}");
        }
        judge(case, baseline, &self.seen, &self.reported)
    }
}

fn refused(case: &Case, status: ExitStatus) -> Result<()> {
    ensure!(status.code() == Some(CANNOT_RECORD), "{status}, and 4 is right");
    ensure!(case.complaints().contains("error:"), "there is no error message");
    Ok(())
}

/// A small file system in memory.
struct Disk {
    dir: TempDir,
}

impl Disk {
    /// `None` when it cannot be mounted.
    fn mount() -> Result<Option<Self>> {
        let dir = tempfile::Builder::new().prefix("crash-mount-").tempdir()?;
        let options = format!("size={SIZE}");
        let path = dir.path().as_os_str();
        let args = ["-t", "tmpfs", "-o", &options, "fabro-crash"];
        Ok(quietly(Command::new("mount").args(args).arg(path)).then_some(Self { dir }))
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// A case of the workflow of commands; what the one before it stored is gone.
    fn case(&self, fabro: &Path, name: &str) -> Result<Case> {
        let store = self.store();
        if store.exists() {
            fs::remove_dir_all(&store)?;
        }
        Ok(Case::new(workflow::work(), fabro, name)?.with_store(&store))
    }

    /// Leaves room for so many bytes; the file that takes the rest.
    fn fill_but(&self, bytes: u64) -> Result<PathBuf> {
        let path = self.dir.path().join("filler");
        let rest = usize::try_from(SIZE - bytes)?;
        // Where the file system needs a little itself, the file is shorter.
        match fs::write(&path, vec![b'x'; rest]) {
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => Err(error.into()),
            _ => Ok(path),
        }
    }

    fn remount(&self, how: &str) -> Result<()> {
        let options = format!("remount,{how}");
        let done = quietly(Command::new("mount").args(["-o", &options]).arg(self.dir.path()));
        ensure!(done, "the file system cannot be remounted {how}");
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let path = self.dir.path();
        if !quietly(Command::new("umount").arg(path)) {
            complain(&format!("{} is still mounted: `umount -l` takes it away", path.display()));
        }
    }
}

fn quietly(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The room that the files below a folder take, in whole pages.
fn size_of(dir: &Path) -> Result<u64> {
    const PAGE: u64 = 4096;
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            size_of(&entry.path())?
        } else {
            entry.metadata()?.len().div_ceil(PAGE) * PAGE
        };
    }
    Ok(bytes)
}

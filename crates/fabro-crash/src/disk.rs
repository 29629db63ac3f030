//! The disk fills up, or turns read-only, while a run is at work: exit code 4, and once there is
//! room again the run goes on to the same end. It needs a file system of its own to fill.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::case::{Case, Driver};
use crate::check::{Peace, contexts};
use crate::{complain, say};

/// How large the file system is: several times what a run takes.
const SIZE: u64 = 32 << 20;

/// At how many places, evenly over what a run takes, the disk is full.
const STEPS: u64 = 8;

/// The exit code of a run that cannot be recorded.
const CANNOT_RECORD: i32 = 4;

const PATIENCE: Duration = Duration::from_mins(2);

/// What happened, as a part of a sentence.
pub(crate) fn run(fabro: &Path, keep: bool) -> Result<String> {
    let Some(disk) = Disk::mount()? else {
        say("full disk: skipped, for a file system can only be mounted by root");
        return Ok("full disk skipped".to_owned());
    };
    let (peace, bytes) = in_peace(fabro, &disk)?;
    let mut full = 0;
    for step in 0..STEPS {
        disk.clear()?;
        let mut case = Case::new(fabro, "crash-disk")?.with_store(&disk.store());
        let refused = with_room_for(&case, &disk, &peace, bytes * step / STEPS);
        full += u64::from(judged(refused, &mut case, &disk, keep)?);
    }
    ensure!(full > 0, "the disk was never full");
    disk.clear()?;
    let mut case = Case::new(fabro, "crash-read-only")?.with_store(&disk.store());
    judged(read_only(&case, &disk, &peace), &mut case, &disk, keep)?;
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

/// What a run comes to, and how much room it takes.
fn in_peace(fabro: &Path, disk: &Disk) -> Result<(Peace, u64)> {
    let case = Case::new(fabro, "crash-disk")?.with_store(&disk.store());
    let status = case.start()?.end(PATIENCE)?;
    ensure!(status.success(), "the undisturbed run: {status}: {}", case.complaints());
    Ok((Peace { context: case.context()?, effects: case.effects()? }, size_of(&disk.store())?))
}

/// True when the room was too small.
fn with_room_for(case: &Case, disk: &Disk, peace: &Peace, bytes: u64) -> Result<bool> {
    let filler = disk.fill_but(bytes)?;
    let status = case.start()?.end(PATIENCE)?;
    let full = !status.success();
    fs::remove_file(filler)?;
    if full {
        refused(case, status).with_context(|| format!("with room for {bytes} bytes"))?;
    }
    go_on(case, peace).with_context(|| format!("after room for {bytes} bytes"))?;
    Ok(full)
}

fn read_only(case: &Case, disk: &Disk, peace: &Peace) -> Result<()> {
    case.start()?.kill_when_told(100, PATIENCE)?;
    disk.remount("ro")?;
    let run = case.run_id();
    let resumed = run.and_then(|run| {
        let run = run.context("there is no run to resume")?;
        case.resume(&run)?.end(PATIENCE)
    });
    disk.remount("rw")?;
    refused(case, resumed.context("a read-only store")?)?;
    go_on(case, peace)
}

fn refused(case: &Case, status: ExitStatus) -> Result<()> {
    ensure!(status.code() == Some(CANNOT_RECORD), "{status}, and 4 is right");
    ensure!(case.complaints().contains("error:"), "nothing was said");
    Ok(())
}

/// Runs on to the end, which must be the right one.
fn go_on(case: &Case, peace: &Peace) -> Result<()> {
    let over = |driver: Result<Driver>| {
        let status = driver?.end(PATIENCE)?;
        ensure!(status.success(), "with room again: {status}");
        Ok(())
    };
    match case.run_id()? {
        None => over(case.start())?,
        Some(run) if !case.is_over(&run)? => over(case.resume(&run))?,
        Some(_) => {}
    }
    let wrong = contexts(&peace.context, &case.context()?);
    ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
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

    fn clear(&self) -> Result<()> {
        let store = self.store();
        if store.exists() {
            fs::remove_dir_all(store)?;
        }
        Ok(())
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

//! Damage to the store between two drivers: a flipped bit, a lost write-ahead log, an older copy of
//! the database, removed directories; a database that is replaced under a driver; a clock that jumps,
//! and few descriptors. The run continues to the right end, or is refused with exit code 4; a committed
//! stage never runs again.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::case::Case;
use crate::check::{self, Baseline};
use crate::{complain, judge, leave_alone, say, workflow};

/// A run that found its store damaged.
const REFUSED: i32 = 4;

const TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// One bit of one file of the store.
    FlippedBit,
    /// The write-ahead log is gone.
    LostLog,
    /// The database is as it was some events ago.
    OlderDatabase,
    /// The database is gone.
    LostDatabase,
    /// What is only a convenience is gone.
    RemovedRunFiles,
    /// It is not known any more where logs end.
    RemovedHeads,
    /// The database becomes an older one while it is in use.
    ReplacedDatabase,
    /// The bytes of an older database are copied over it while it is in use.
    OverwrittenDatabase,
    /// The clock shows a time two days ago.
    ClockBack,
    /// The clock shows a time in two days.
    ClockForward,
    /// The driver may open few files.
    FewDescriptors,
}

const FAULTS: [Fault; 11] = [
    Fault::FlippedBit,
    Fault::LostLog,
    Fault::OlderDatabase,
    Fault::LostDatabase,
    Fault::RemovedRunFiles,
    Fault::RemovedHeads,
    Fault::ReplacedDatabase,
    Fault::OverwrittenDatabase,
    Fault::ClockBack,
    Fault::ClockForward,
    Fault::FewDescriptors,
];

/// Shifts the clock of the process that it is loaded into.
const CLOCK: &str = include_str!("clock.c");

impl Fault {
    /// Whether the run must continue as if nothing had happened.
    fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::RemovedRunFiles
                | Self::RemovedHeads
                | Self::ClockBack
                | Self::ClockForward
                | Self::FewDescriptors
        )
    }

    /// What a shell does before it starts the next driver.
    fn preparation(self, dir: &Path) -> Result<Option<String>> {
        let seconds = match self {
            Self::FewDescriptors => return Ok(Some("ulimit -n 48".to_owned())),
            Self::ClockBack => -2 * 24 * 3_600,
            Self::ClockForward => 2 * 24 * 3_600,
            _ => return Ok(None),
        };
        let library = shifted_clock(dir)?;
        let library = library.display();
        Ok(Some(format!("export LD_PRELOAD={library} CRASH_CLOCK_SECONDS={seconds}")))
    }
}

/// What happened, as a part of a sentence.
pub(crate) fn run(fabro: &Path, seed: u64, rounds: u32, keep: bool) -> Result<String> {
    let mut random = Rng::with_seed(seed);
    let (baseline, _) = leave_alone(&Case::new(workflow::work(), fabro, "crash-faults")?)?;
    let mut refused = 0;
    let mut continued = 0;
    for round in 0..rounds {
        for fault in FAULTS {
            // Bits are many, and each is another case.
            let times = if matches!(fault, Fault::FlippedBit) { 4 } else { 1 };
            for _ in 0..times {
                let mut case = Case::new(workflow::work(), fabro, "crash-faults")?;
                let mut damage = String::new();
                let done = damaged(&case, &baseline, fault, &mut random, &mut damage);
                if keep || done.is_err() {
                    say(&format!("the run is kept in {}", case.keep().display()));
                }
                if done.is_err() {
                    complain(&case.complaints());
                }
                let ended = done.with_context(|| format!("round {round}: {fault:?} {damage}"))?;
                *(if ended { &mut continued } else { &mut refused }) += 1;
            }
        }
    }
    ensure!(
        refused > 0 && continued > 0,
        "{refused} refused, {continued} continued: nothing was tried"
    );
    Ok(format!(
        "of {} damaged stores {refused} were refused, the others harmless",
        refused + continued
    ))
}

/// True when the run continued to its end, false when it was refused.
fn damaged(
    case: &Case,
    baseline: &Baseline,
    fault: Fault,
    random: &mut Rng,
    damage: &mut String,
) -> Result<bool> {
    let mut reported = BTreeSet::new();
    let mut driver = case.start()?;
    driver.kill_after_events(random.u64(20..60), TIMEOUT)?;
    reported.extend(driver.reported()?);
    let run = case.run_id()?.context("there is no run to resume")?;
    let older = case.dir().join("older");
    copy_database(case.store(), &older)?;
    let mut seen = vec![case.snapshot()?];
    let mut driver = case.resume(&run)?;
    driver.kill_after_events(random.u64(20..60), TIMEOUT)?;
    reported.extend(driver.reported()?);
    seen.push(case.snapshot()?);
    if case.has_succeeded(&run)? {
        return Ok(true);
    }
    let mut driver = match fault.preparation(case.dir())? {
        Some(prepare) => case.resume_after(&run, &prepare)?,
        None if matches!(fault, Fault::ReplacedDatabase | Fault::OverwrittenDatabase) => {
            let mut driver = case.resume(&run)?;
            driver.wait_for_events(10, TIMEOUT);
            *damage = do_damage(case.store(), &older, fault, random)?;
            driver
        }
        None => {
            *damage = do_damage(case.store(), &older, fault, random)?;
            case.resume(&run)?
        }
    };
    let status = driver.end(TIMEOUT)?;
    reported.extend(driver.reported()?);
    if status.success() {
        judge(case, baseline, &seen, &reported)?;
        return Ok(true);
    }
    ensure!(!fault.is_harmless(), "{status}, although nothing that counts was damaged");
    ensure!(status.code() == Some(REFUSED), "{status}, and 4 is right");
    let effects = case.effects()?;
    let again = check::ran_again(&seen, &effects);
    ensure!(again.is_empty(), "{}", again.join("\n  "));
    Ok(false)
}

fn do_damage(store: &Path, older: &Path, fault: Fault, random: &mut Rng) -> Result<String> {
    match fault {
        Fault::FlippedBit => return flip(store, random),
        Fault::LostLog => remove_files(store, &["fabro.db-wal", "fabro.db-shm"])?,
        Fault::LostDatabase => {
            remove_files(store, &["fabro.db", "fabro.db-wal", "fabro.db-shm"])?;
        }
        Fault::OlderDatabase => {
            remove_files(store, &["fabro.db-wal", "fabro.db-shm"])?;
            copy_database(older, store)?;
        }
        Fault::RemovedRunFiles => fs::remove_dir_all(store.join("runs"))?,
        Fault::RemovedHeads => fs::remove_dir_all(store.join("heads"))?,
        Fault::ReplacedDatabase => {
            let new = store.join("fabro.db.new");
            fs::copy(older.join("fabro.db"), &new)?;
            fs::rename(new, store.join("fabro.db"))?;
        }
        Fault::OverwrittenDatabase => {
            let bytes = fs::read(older.join("fabro.db"))?;
            // Not emptied first, as `cp` does: the driver would have to be in the middle of it.
            fs::OpenOptions::new().write(true).open(store.join("fabro.db"))?.write_all(&bytes)?;
        }
        Fault::ClockBack | Fault::ClockForward | Fault::FewDescriptors => {}
    }
    Ok(String::new())
}

/// Builds the library that shifts the clock.
fn shifted_clock(dir: &Path) -> Result<PathBuf> {
    let source = dir.join("clock.c");
    let library = dir.join("clock.so");
    fs::write(&source, CLOCK)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl");
    let status = compiler.status().context("start cc, which builds a clock that can be set")?;
    ensure!(status.success(), "cc ended with {status}");
    Ok(library)
}

/// Flips a bit of a file that the store needs.
fn flip(store: &Path, random: &mut Rng) -> Result<String> {
    let mut files = Vec::new();
    files_below(store, &mut files)?;
    let is_needed = |path: &PathBuf| {
        let text = path.to_string_lossy();
        let is_disposable = text.ends_with("-shm") || text.ends_with(".gitignore");
        !is_disposable && !path.starts_with(store.join("runs"))
    };
    files.retain(is_needed);
    files.sort();
    let path = &files[random.usize(..files.len())];
    let mut bytes = fs::read(path)?;
    ensure!(!bytes.is_empty() || path.ends_with("fabro.db-wal"), "{} is empty", path.display());
    if bytes.is_empty() {
        return Ok("of an empty log".to_owned());
    }
    let at = random.usize(..bytes.len());
    bytes[at] ^= 1 << random.u32(..8);
    fs::write(path, bytes)?;
    // It is an index of the log that is not on disk anywhere else, and rebuilt.
    remove_files(store, &["fabro.db-shm"])?;
    Ok(format!("byte {at} of {}", path.display()))
}

fn files_below(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            files_below(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn remove_files(dir: &Path, names: &[&str]) -> Result<()> {
    for name in names {
        let path = dir.join(name);
        if path.exists() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Copies a database that no process uses.
fn copy_database(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for name in ["fabro.db", "fabro.db-wal"] {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name))?;
        }
    }
    Ok(())
}

//! `cargo xtask crash`: drivers are killed at random instants, and every run must come to the same
//! end as one that nobody disturbed.
//!
//! A generated workflow with loops, a nested fan-out, retries, a gate and a sub-workflow runs once
//! in peace. Then it runs again and again, each time in a store of its own; its driver is killed
//! with SIGKILL and the run resumed until it is over. The stages leave lines in a file, so that it
//! can be seen which of them ran, and how often. A second part lets the disk fill up.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use crate::{complain, say};

mod case;
mod check;
mod disk;
mod random;
mod workflow;

use case::{Case, Driver};
use check::{Peace, Snapshot};
use random::Random;

/// A driver that takes so many times as long as the undisturbed one hangs.
const PATIENCE: u32 = 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many drivers are killed
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub(crate) kills: u32,
    /// Decides the instants; a new one every time without it
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The program to test, instead of building one
    #[arg(long, value_name = "PATH")]
    pub(crate) fabro: Option<PathBuf>,
    /// Keep the store of every run, not only of one that failed
    #[arg(long)]
    pub(crate) keep: bool,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let fabro = crate::cargo::fabro(root, args.fabro.as_deref(), false)?;
    let seed = args.seed.unwrap_or_else(new_seed);
    say(&format!("crash: seed {seed}"));
    let begun = Instant::now();
    let (peace, time) = in_peace(&fabro, args.keep)?;
    let stages = peace.stages();
    say(&format!("undisturbed: {stages} stages in {} ms", time.as_millis()));
    let mut random = Random::new(seed);
    let (mut kills, mut runs) = (0, 0);
    while kills < args.kills {
        runs += 1;
        let case = Case::new(&fabro, &format!("crash-{seed}-{runs}"))?;
        let mut disturbed = Disturbed { case, random: &mut random, time, seen: Vec::new() };
        let done = disturbed.run(&peace, args.kills - kills);
        let Disturbed { mut case, seen, .. } = disturbed;
        if let Err(error) = done {
            let dir = case.keep();
            let seed = format!("cargo xtask crash --seed {seed} --kills {}", args.kills);
            complain(&format!("run {runs} is kept in {}; again: {seed}", dir.display()));
            return Err(error.context(format!("run {runs}, after {} kills", seen.len())));
        }
        kills += u32::try_from(seen.len())?;
        if args.keep {
            say(&format!("run {runs} is kept in {}", case.keep().display()));
        }
        say(&format!("run {runs}: {} kills, {kills} of {}", seen.len(), args.kills));
    }
    let disk = disk::run(&fabro, args.keep)?;
    let took = begun.elapsed().as_secs();
    say(&format!(
        "crash: {kills} kills in {runs} runs of {stages} stages, all came to the same end; {disk}; seed {seed}, {took} s"
    ));
    Ok(())
}

/// The run that nobody disturbs, and how long it takes.
fn in_peace(fabro: &Path, keep: bool) -> Result<(Peace, Duration)> {
    let mut case = Case::new(fabro, "crash-undisturbed")?;
    let started = Instant::now();
    let status = case.start()?.end(Duration::from_mins(2))?;
    let time = started.elapsed();
    if keep || !status.success() {
        say(&format!("the undisturbed run is kept in {}", case.keep().display()));
    }
    ensure!(status.success(), "the undisturbed run: {status}: {}", case.complaints());
    let peace = Peace { context: case.context()?, effects: case.effects()? };
    Ok((peace, time))
}

/// One run that is killed and resumed until it is over.
struct Disturbed<'a> {
    case: Case,
    random: &'a mut Random,
    /// How long an undisturbed run takes.
    time: Duration,
    /// What there was after each kill.
    seen: Vec<Snapshot>,
}

impl Disturbed<'_> {
    fn run(&mut self, peace: &Peace, kills: u32) -> Result<()> {
        let mut told = BTreeSet::new();
        let mut run: Option<String> = None;
        loop {
            let mut driver = match &run {
                None => self.case.start()?,
                Some(run) => self.case.resume(run)?,
            };
            let may_kill = u32::try_from(self.seen.len())? < kills;
            let status = if may_kill { self.disturb(&mut driver)? } else { None };
            let status = match status {
                None if may_kill => None,
                None => Some(driver.end(self.time * PATIENCE)?),
                ended => ended,
            };
            told.extend(driver.told()?);
            if let Some(status) = status {
                ensure!(status.success(), "the driver: {status}: {}", self.case.complaints());
                break;
            }
            run = self.case.run_id()?;
            let snapshot = match &run {
                None => Snapshot::default(),
                Some(_) => Snapshot::new(self.case.events()?, self.case.effects()?)?,
            };
            self.seen.push(snapshot);
            // The driver may have died between the last commit and its own end.
            if let Some(run) = &run
                && self.case.is_over(run)?
            {
                break;
            }
        }
        self.judge(peace, &told)
    }

    /// Kills the driver at an instant of chance; the status when it ended before that.
    fn disturb(&mut self, driver: &mut Driver) -> Result<Option<ExitStatus>> {
        let whole = u64::try_from(self.time.as_micros())?;
        match self.random.below(10) {
            0 | 1 => driver.kill_after(Duration::from_micros(self.random.below(30_000))),
            2..=4 => driver.kill_when_told(self.random.below(60), self.time * PATIENCE),
            _ => driver.kill_after(Duration::from_micros(self.random.below(whole))),
        }
    }

    fn judge(&self, peace: &Peace, told: &BTreeSet<String>) -> Result<()> {
        let last = Snapshot::new(self.case.events()?, self.case.effects()?)?;
        let mut wrong = check::contexts(&peace.context, &self.case.context()?);
        wrong.extend(check::effects(&peace.effects, &self.seen, &last));
        wrong.extend(check::logs(&self.seen, &last, told));
        wrong.extend(self.case.leftovers()?);
        if wrong.is_empty() {
            return Ok(());
        }
        bail!("{}", wrong.join("\n  "))
    }
}

fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() ^ u64::from(now.subsec_nanos())
}

/// Reads the JSON that a command printed.
fn json(text: &str, what: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text).with_context(|| format!("read what `{what}` printed"))
}

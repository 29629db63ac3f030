//! Kills the drivers of runs at random instants: every run must come to the same end as one that
//! nobody disturbed. `cargo xtask crash` starts it with a program just built.
//!
//! A generated workflow with loops, a nested fan-out, retries, a gate and a sub-workflow runs once
//! in peace. Then it runs again and again, each time in a store of its own; its driver is killed
//! with SIGKILL and the run resumed until it is over. The stages leave lines in a file, so that it
//! can be seen which of them ran, and how often. A second part lets the disk fill up.
//!
//! With `--agents` the workflow is one of agents, and what answers them is a server of our own. It
//! keeps what it was asked, so that it can be seen whether an answer that was paid for was asked for
//! again, and whether a provider would have taken every conversation.
//!
//! # Limits
//!
//! - Processes that were left behind are found in `/proc`, so only on Linux.
//! - The part with the full disk mounts a file system, which only root may; others skip it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

mod agents;
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

/// Kill drivers at random instants, and let the disk fill up: nothing may be lost.
#[derive(Parser)]
#[command(name = "cargo xtask crash", bin_name = "cargo xtask crash")]
struct Args {
    /// How many drivers are killed; 200 without it, and 100 of those with agents
    #[arg(long, value_name = "N")]
    kills: Option<u32>,
    /// Kill them while agents talk to a model and use tools
    #[arg(long)]
    agents: bool,
    /// Decides the instants; a new one every time without it
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The program to test; `cargo xtask crash` builds one without it
    #[arg(long, value_name = "PATH")]
    fabro: PathBuf,
    /// Keep the store of every run, not only of one that failed
    #[arg(long)]
    keep: bool,
}

/// What is run again and again.
trait Kind {
    /// The arguments that choose it.
    fn flags(&self) -> &'static str;

    /// A case for one run.
    fn case(&mut self, fabro: &Path, name: &str) -> Result<Case>;

    /// What is wrong with the last run, beside what is judged of every kind.
    fn judge(&self, seen: &[Snapshot], last: &Snapshot) -> Vec<String>;
}

/// Commands, and a model that is a script.
struct Commands;

impl Kind for Commands {
    fn flags(&self) -> &'static str {
        ""
    }

    fn case(&mut self, fabro: &Path, name: &str) -> Result<Case> {
        Case::new(fabro, name)
    }

    fn judge(&self, _: &[Snapshot], _: &Snapshot) -> Vec<String> {
        Vec::new()
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let fabro = &args.fabro;
    let fabro = fabro.canonicalize().with_context(|| format!("find {}", fabro.display()))?;
    let seed = args.seed.unwrap_or_else(new_seed);
    say(&format!("crash: seed {seed}"));
    if args.agents {
        return kill_all(&mut agents::Agents::new()?, &fabro, args, seed);
    }
    kill_all(&mut Commands, &fabro, args, seed)?;
    say(&format!("crash: {}", disk::run(&fabro, args.keep)?));
    Ok(())
}

fn kill_all(kind: &mut dyn Kind, fabro: &Path, args: &Args, seed: u64) -> Result<()> {
    let begun = Instant::now();
    let wanted = args.kills.unwrap_or(if args.agents { 100 } else { 200 });
    let (peace, time) = in_peace(kind, fabro, args.keep)?;
    let stages = peace.stages();
    say(&format!("undisturbed: {stages} stages in {} ms", time.as_millis()));
    let mut random = Random::new(seed);
    let (mut kills, mut runs) = (0, 0);
    while kills < wanted {
        runs += 1;
        let case = kind.case(fabro, &format!("crash-{seed}-{runs}"))?;
        let mut disturbed = Disturbed { case, random: &mut random, time, seen: Vec::new() };
        let done = disturbed.run(kind, &peace, wanted - kills);
        let Disturbed { mut case, seen, .. } = disturbed;
        if let Err(error) = done {
            let dir = case.keep();
            let flags = kind.flags();
            let seed = format!("cargo xtask crash{flags} --seed {seed} --kills {wanted}");
            complain(&format!("run {runs} is kept in {}; again: {seed}", dir.display()));
            return Err(error.context(format!("run {runs}, after {} kills", seen.len())));
        }
        kills += u32::try_from(seen.len())?;
        if args.keep {
            say(&format!("run {runs} is kept in {}", case.keep().display()));
        }
        say(&format!("run {runs}: {} kills, {kills} of {wanted}", seen.len()));
    }
    let took = begun.elapsed().as_secs();
    say(&format!(
        "crash: {kills} kills in {runs} runs of {stages} stages, all came to the same end; seed {seed}, {took} s"
    ));
    Ok(())
}

/// The run that nobody disturbs, and how long it takes.
fn in_peace(kind: &mut dyn Kind, fabro: &Path, keep: bool) -> Result<(Peace, Duration)> {
    let mut case = kind.case(fabro, "crash-undisturbed")?;
    let started = Instant::now();
    let status = case.start()?.end(Duration::from_mins(2))?;
    let time = started.elapsed();
    if keep || !status.success() {
        say(&format!("the undisturbed run is kept in {}", case.keep().display()));
    }
    ensure!(status.success(), "the undisturbed run: {status}: {}", case.complaints());
    let peace = Peace { context: case.context()?, effects: case.effects()? };
    let last = Snapshot::new(case.events()?, case.effects()?)?;
    let wrong = kind.judge(&[], &last);
    ensure!(wrong.is_empty(), "the undisturbed run: {}", wrong.join("\n  "));
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
    fn run(&mut self, kind: &dyn Kind, peace: &Peace, kills: u32) -> Result<()> {
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
        self.judge(kind, peace, &told)
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

    fn judge(&self, kind: &dyn Kind, peace: &Peace, told: &BTreeSet<String>) -> Result<()> {
        let last = Snapshot::new(self.case.events()?, self.case.effects()?)?;
        let mut wrong = check::contexts(&peace.context, &self.case.context()?);
        wrong.extend(check::effects(&peace.effects, &self.seen, &last));
        wrong.extend(check::logs(&self.seen, &last, told));
        wrong.extend(kind.judge(&self.seen, &last));
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

#[expect(clippy::print_stdout, reason = "the one place that prints results")]
fn say(line: &str) {
    println!("{line}");
}

#[expect(clippy::print_stderr, reason = "the one place that prints errors")]
fn complain(line: &str) {
    eprintln!("{line}");
}

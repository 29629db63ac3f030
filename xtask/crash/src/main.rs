//! Kills the drivers of runs at random instants: every run must have the same result as one that
//! was not disturbed. `cargo xtask crash` starts it with a program just built.
//!
//! A generated workflow with loops, a nested fan-out, retries, a gate and a sub-workflow runs once
//! undisturbed. Then it runs again and again, each time in a store of its own; its driver is killed
//! with SIGKILL and the run resumed until it has ended. The stages leave lines in a file, so that it
//! can be seen which of them ran, and how often. A second part lets the disk fill up.
//!
//! With `--agents` the workflow is one of agents, and what answers them is a server of our own. It
//! keeps what it was asked, so that it can be seen whether an answer that was paid for was asked for
//! again, and whether a provider would have taken every conversation.
//!
//! With `--worktrees` the stages change files in git worktrees, those of branches and sub-workflows too: see
//! [`worktrees`]. After each kill the repository must be whole, and the user's part of it as it was; in the end
//! each stage must have left the files that it left in the undisturbed run, and a fork must begin with them.
//!
//! With `--faults` the store is damaged between two drivers: see [`faults`]. With `--power` the power fails: see [`power`].
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
use fastrand::Rng;

mod agents;
mod case;
mod check;
mod disk;
mod faults;
mod model;
mod power;
mod trace;
mod work;
mod workflow;
mod worktrees;

use case::{Case, Driver};
use check::{Baseline, Snapshot};
use work::Work;

/// A driver that takes so many times as long as the undisturbed one hangs.
const TIMEOUT_FACTOR: u32 = 20;

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
    /// Kill them while stages change files in git worktrees
    #[arg(long, conflicts_with = "agents")]
    worktrees: bool,
    /// Damage the store between two drivers instead: flipped bits, lost, older and replaced files; set the clock, lower the limit of open files
    #[arg(
        long,
        value_name = "ROUNDS",
        num_args = 0..=1,
        default_missing_value = "6",
        conflicts_with_all = ["agents", "worktrees", "kills"]
    )]
    faults: Option<u32>,
    /// Let the power fail at N moments of one run instead: of what was not synced, any sectors are on the disk
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        default_missing_value = "100",
        conflicts_with_all = ["agents", "worktrees", "kills", "faults"]
    )]
    power: Option<u32>,
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

/// The workflow that is run again and again.
struct Kind {
    /// The arguments that choose it.
    flags: &'static str,
    /// How many drivers are killed by default.
    kills: u32,
    /// What one run needs.
    work: fn() -> Result<Work>,
}

/// Commands, and a model that is a script.
const COMMANDS: Kind = Kind { flags: "", kills: 200, work: || Ok(workflow::work()) };

/// Agents that talk to a model and use tools.
const AGENTS: Kind = Kind { flags: " --agents", kills: 100, work: agents::work };

/// Stages that change files in git worktrees.
const WORKTREES: Kind = Kind { flags: " --worktrees", kills: 100, work: || Ok(worktrees::work()) };

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
        return kill_all(&AGENTS, &fabro, args, seed);
    }
    if args.worktrees {
        return kill_all(&WORKTREES, &fabro, args, seed);
    }
    if let Some(rounds) = args.faults {
        say(&format!("crash: {}", faults::run(&fabro, seed, rounds, args.keep)?));
        return Ok(());
    }
    if let Some(failures) = args.power {
        say(&format!("crash: {}", power::run(&fabro, seed, failures, args.keep)?));
        return Ok(());
    }
    kill_all(&COMMANDS, &fabro, args, seed)?;
    say(&format!("crash: {}", disk::run(&fabro, args.keep)?));
    Ok(())
}

fn kill_all(kind: &Kind, fabro: &Path, args: &Args, seed: u64) -> Result<()> {
    let begun = Instant::now();
    let wanted = args.kills.unwrap_or(kind.kills);
    let case = |name: &str| Case::new((kind.work)()?, fabro, name);
    let mut undisturbed = case("crash-undisturbed")?;
    let left_alone = leave_alone(&undisturbed);
    if args.keep || left_alone.is_err() {
        say(&format!("the undisturbed run is kept in {}", undisturbed.keep().display()));
    }
    let (baseline, time) = left_alone?;
    let stages = baseline.stages();
    say(&format!("undisturbed: {stages} stages in {} ms", time.as_millis()));
    let mut random = Rng::with_seed(seed);
    let mut kills = 0;
    let mut runs = 0;
    while kills < wanted {
        runs += 1;
        let case = case(&format!("crash-{seed}-{runs}"))?;
        let mut disturbed = Disturbed { case, random: &mut random, time, seen: Vec::new() };
        let done = disturbed.run(&baseline, wanted - kills);
        let Disturbed { mut case, seen, .. } = disturbed;
        if let Err(error) = done {
            let dir = case.keep();
            let flags = kind.flags;
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
        "crash: {kills} kills in {runs} runs of {stages} stages, all with the same result; seed {seed}, {took} s"
    ));
    Ok(())
}

/// An undisturbed run: its result, and how long it takes.
fn leave_alone(case: &Case) -> Result<(Baseline, Duration)> {
    let started = Instant::now();
    let mut driver = case.start()?;
    let status = driver.end(Duration::from_mins(2))?;
    let time = started.elapsed();
    ensure!(status.success(), "the undisturbed run: {status}: {}", case.complaints());
    let reported = driver.reported()?.into_iter().collect();
    let trees = case.trees()?;
    let baseline = Baseline { context: case.context()?, effects: case.effects()?, trees };
    let wrong = check::baseline(&baseline, &case.snapshot()?, &reported);
    ensure!(wrong.is_empty(), "the undisturbed run: {}", wrong.join("\n  "));
    judge(case, &baseline, &[], &reported).context("the undisturbed run")?;
    Ok((baseline, time))
}

/// Fails unless a run that has ended has the result of the undisturbed one; `seen` are the snapshots
/// after each disturbance, and `reported` the events that its drivers reported.
fn judge(
    case: &Case,
    baseline: &Baseline,
    seen: &[Snapshot],
    reported: &BTreeSet<String>,
) -> Result<()> {
    let last = case.snapshot()?;
    let mut wrong = check::contexts(&baseline.context, &case.context()?);
    wrong.extend(check::effects(&baseline.effects, seen, &last));
    wrong.extend(check::logs(seen, &last, reported));
    wrong.extend(
        case.model().map(|model| agents::wrong(model, seen.len(), &last)).unwrap_or_default(),
    );
    wrong.extend(case.leftovers()?);
    wrong.extend(case.wrong_repository()?);
    wrong.extend(check::contexts(&baseline.trees, &case.trees()?));
    if wrong.is_empty() {
        wrong = case.wrong_fork(&baseline.trees, seen.is_empty())?;
        wrong.extend(case.wrong_repository()?);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", wrong.join("\n  "))
}

/// One run that is killed and resumed until it has ended.
struct Disturbed<'a> {
    case: Case,
    random: &'a mut Rng,
    /// How long an undisturbed run takes.
    time: Duration,
    /// The state after each kill.
    seen: Vec<Snapshot>,
}

impl Disturbed<'_> {
    fn run(&mut self, baseline: &Baseline, kills: u32) -> Result<()> {
        let mut reported = BTreeSet::new();
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
                None => Some(driver.end(self.time * TIMEOUT_FACTOR)?),
                ended => ended,
            };
            reported.extend(driver.reported()?);
            if let Some(status) = status {
                ensure!(status.success(), "the driver: {status}: {}", self.case.complaints());
                break;
            }
            run = self.case.run_id()?;
            let snapshot = match &run {
                None => Snapshot::default(),
                Some(_) => self.case.snapshot()?,
            };
            self.seen.push(snapshot);
            let wrong = self.case.wrong_repository()?;
            ensure!(wrong.is_empty(), "after a kill: {}", wrong.join("\n  "));
            // The driver may have died between the last commit and its own end.
            if let Some(run) = &run
                && self.case.has_succeeded(run)?
            {
                break;
            }
        }
        judge(&self.case, baseline, &self.seen, &reported)
    }

    /// Kills the driver at an instant of chance; the status when it ended before that.
    fn disturb(&mut self, driver: &mut Driver) -> Result<Option<ExitStatus>> {
        let whole = u64::try_from(self.time.as_micros())?;
        match self.random.u64(..10) {
            0 | 1 => driver.kill_after(Duration::from_micros(self.random.u64(..30_000))),
            2..=4 => driver.kill_after_events(self.random.u64(..60), self.time * TIMEOUT_FACTOR),
            _ => driver.kill_after(Duration::from_micros(self.random.u64(..=whole))),
        }
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

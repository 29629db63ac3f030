//! `fabro verify` and `fabro backup`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap_complete::ArgValueCandidates;
use fabro_engine::read_all;
use fabro_events::Event;
use fabro_inspect::{Changes, artifacts, changes};
use fabro_run::refuse_older_log;
use fabro_sandbox::artifacts::stored_file;
use fabro_sandbox::git::{TreePair, check_file_trees, incomplete_file_trees};
use fabro_store::{Leases as _, RunVerification, Runs as _, SqliteStore, StoreError};
use fabro_terminal::{Paint, clean};
use fabro_types::RunId;
use serde::Serialize;

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, find, quoted};
use crate::output;

/// How long a run is held, by a process that may be removing it, before what is missing of it counts as damage.
const REMOVAL: Duration = Duration::from_secs(15);
/// The pause before such a run is checked again.
const REMOVAL_PAUSE: Duration = Duration::from_millis(100);

/// Check runs for missing or damaged records
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro verify                    the whole store\n  fabro verify latest\n  fabro verify latest --accept-loss\n  fabro verify --accept-loss      when the last commit cannot be read\n\nExit code 4 when something is damaged or missing."
)]
pub struct VerifyArgs {
    /// The runs: ids, the beginnings of ids, or `latest`; all runs without any
    #[arg(value_name = "RUN", add = ArgValueCandidates::new(complete::runs))]
    pub runs: Vec<String>,

    /// Continue without events that were lost at the end of these runs; without a run, without the
    /// commits at the end of the store that cannot be read
    #[arg(long)]
    pub accept_loss: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Copy the store into one file
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  fabro backup /mnt/backup/fabro-2026-11-23.db\n\nTo restore it, copy the file to `fabro.db` of an empty directory and name that with `--store`."
)]
pub struct BackupArgs {
    /// The file to create
    pub file: PathBuf,
}

/// The result of a check.
#[derive(Serialize)]
struct Verified {
    run: RunId,
    whole: bool,
    events: u64,
    /// Events of older versions, which kept no hashes.
    unhashed: u64,
    blobs: u64,
    /// Whether it is known where the log ends: without `heads/RUN`, lost events at the end go unnoticed.
    end_known: bool,
    /// Files that stages left, which the run keeps.
    artifacts: u64,
    /// Why changes of stages were not recorded, in whole or in part. This is not damage.
    #[serde(skip_serializing_if = "Option::is_none")]
    unrecorded: Option<String>,
    problems: Vec<String>,
}

impl From<RunVerification> for Verified {
    fn from(found: RunVerification) -> Self {
        Self {
            run: found.run,
            whole: found.problems.is_empty(),
            events: found.events,
            unhashed: found.unhashed,
            blobs: found.blobs,
            end_known: found.has_head,
            artifacts: 0,
            unrecorded: None,
            problems: found.problems.iter().map(ToString::to_string).collect(),
        }
    }
}

/// What is wrong with a whole store.
#[derive(Default)]
pub struct StoreCheck {
    /// How many runs it has.
    pub runs: usize,
    /// What is wrong; empty for a store that is whole.
    pub problems: Vec<String>,
}

/// Checks runs, or a whole store.
pub async fn verify(args: &VerifyArgs, global: &Global) -> anyhow::Result<Exit> {
    let mut runs = Vec::new();
    let mut problems = Vec::new();
    if args.accept_loss {
        let store = global.existing_store()?;
        if args.runs.is_empty() {
            if !store.give_up_last_commit().await? {
                return Err(error::usage(
                    "the last commit to the store can be read",
                    "name the runs whose lost events you accept: `fabro verify RUN --accept-loss`",
                ));
            }
            output::stderr(
                "the commits that cannot be read are given up; the stages that they recorded run again\n",
            );
        }
        for text in &args.runs {
            let run = find(&store, text).await?;
            store.accept_loss(run).await?;
            output::stderr(&format!("run {run} continues with the events that are left\n"));
            runs.extend(store.last_seq(run).await.is_ok_and(|seq| seq > 0).then_some(run));
        }
    }
    let store = global.store_to_read()?;
    if args.runs.is_empty() {
        runs = all_runs(&store).await?;
        problems = store.check_database().await?;
        problems.extend(unknown_files(&store, &runs).await?);
    } else if !args.accept_loss {
        for text in &args.runs {
            runs.push(find(&store, text).await?);
        }
    }
    let mut verified: Vec<Verified> = Vec::new();
    for run in runs {
        match verify_run(&store, run).await? {
            Some(found) => verified.push(found),
            None if args.runs.is_empty() => {}
            None => return Err(StoreError::NotFound { text: run.to_string() }.into()),
        }
    }
    let is_whole = problems.is_empty() && verified.iter().all(|run| run.whole);
    let report = serde_json::json!({"whole": is_whole, "problems": problems, "runs": verified});
    output::report(args.json, &report, || text(&problems, &verified, global.paint_stdout()))?;
    Ok(if is_whole { Exit::SUCCEEDED } else { Exit::STORE })
}

/// Checks a run; `None` of one that is removed meanwhile.
async fn verify_run(store: &SqliteStore, run: RunId) -> Result<Option<Verified>, StoreError> {
    let begun = Instant::now();
    let mut is_first = true;
    loop {
        let was_held = is_held(store, run).await;
        let verified = match check_run(store, run).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            verified => verified?,
        };
        // A removal takes the files first, and then the records; it holds the run, as a driver does.
        let is_settled = !is_first && !was_held && !is_held(store, run).await;
        if verified.whole || is_settled || begun.elapsed() >= REMOVAL {
            return Ok(Some(verified));
        }
        is_first = false;
        tokio::time::sleep(REMOVAL_PAUSE).await;
    }
}

/// Whether a process drives or removes the run. What of a damaged store cannot be read here is a problem that the
/// check finds.
async fn is_held(store: &SqliteStore, run: RunId) -> bool {
    match store.root(run).await {
        Ok(root) => store.driver(root).await.is_ok_and(|holder| holder.is_some()),
        Err(_) => false,
    }
}

/// Checks the log of a run, the blobs that it names, and the artifacts that it keeps.
async fn check_run(store: &SqliteStore, run: RunId) -> Result<Verified, StoreError> {
    let mut verified = Verified::from(store.verify(run).await?);
    let Ok(events) = read_all(store, run).await else {
        // The problems say why.
        return Ok(verified);
    };
    let run_dir = store.runs_dir().join(run.to_string());
    let files: Vec<_> = artifacts(&events).iter().map(|kept| kept.artifact.clone()).collect();
    verified.artifacts = files.len() as u64;
    let check = move || -> Vec<String> {
        let damaged =
            files.iter().filter_map(|it| stored_file(&run_dir, &it.file, &it.sha256).err());
        damaged.map(|damaged| damaged.to_string()).collect()
    };
    let damaged = tokio::task::spawn_blocking(check).await;
    if !verified.end_known {
        let dir = store.runs_dir();
        let older = refuse_older_log(store, &dir, run, &events).await.err();
        verified.problems.extend(older.map(|error| error.to_string()));
    }
    verified.problems.extend(damaged.unwrap_or_else(|error| vec![error.to_string()]));
    let run_dir = store.runs_dir().join(run.to_string());
    verified.problems.extend(damaged_changes(&run_dir, &events).await);
    verified.unrecorded = incomplete_file_trees(&run_dir);
    verified.whole = verified.problems.is_empty();
    Ok(verified)
}

/// What is damaged of the files that the stages of a run found and left.
async fn damaged_changes(run_dir: &Path, events: &[Event]) -> Vec<String> {
    // Commits of a worktree belong to the repository of the user.
    let stages = match changes(events) {
        Some(Changes { worktree: Some(_), .. }) => return Vec::new(),
        Some(changes) => changes.stages,
        None => Vec::new(),
    };
    let mut pairs = Vec::new();
    for change in &stages {
        pairs.push(TreePair { stage: &change.stage, from: &change.from, to: &change.to });
    }
    check_file_trees(run_dir, &pairs).await
}

/// Checks a whole store.
pub async fn check_store(store: &SqliteStore) -> StoreCheck {
    let mut check = StoreCheck::default();
    match store.check_database().await {
        Ok(problems) => check.problems = problems,
        Err(error) => check.problems.push(error.to_string()),
    }
    match all_runs(store).await {
        Ok(runs) => {
            check.runs = runs.len();
            match unknown_files(store, &runs).await {
                Ok(problems) => check.problems.extend(problems),
                Err(error) => check.problems.push(error.to_string()),
            }
            for run in runs {
                match verify_run(store, run).await {
                    Ok(found) => {
                        check.problems.extend(found.into_iter().flat_map(|run| run.problems));
                    }
                    Err(error) => check.problems.push(error.to_string()),
                }
            }
        }
        Err(error) => check.problems.push(error.to_string()),
    }
    check
}

/// The runs of a store, with those of which nothing is left.
async fn all_runs(store: &SqliteStore) -> anyhow::Result<Vec<RunId>> {
    let mut runs: Vec<_> = store.list().await?.into_iter().map(|run| run.id).collect();
    runs.extend(store.lost_runs().await?);
    Ok(runs)
}

/// The directories of runs that the store knows nothing of: a run is removed after its directory.
async fn unknown_files(store: &SqliteStore, runs: &[RunId]) -> anyhow::Result<Vec<String>> {
    let dir = store.runs_dir();
    let entries = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", dir.display()))?,
    };
    let mut problems = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let run = name.to_str().and_then(|name| name.parse::<RunId>().ok());
        // It may have begun since they were listed.
        if let Some(run) = run.filter(|run| !runs.contains(run))
            && store.last_seq(run).await? == 0
        {
            let path = dir.join(&name);
            problems.push(format!("the database has nothing of run {run}, whose files are in {}: its write-ahead log is lost, or it is an older copy; restore the newer one, or remove that directory", path.display()));
        }
    }
    problems.sort_unstable();
    Ok(problems)
}

fn text(problems: &[String], runs: &[Verified], paint: Paint) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for problem in problems {
        let _ = writeln!(text, "{} database: {problem}", paint.bad("damaged"));
    }
    for run in runs {
        let word = if run.whole { paint.good("whole") } else { paint.bad("damaged") };
        let events = run.events;
        let blobs = run.blobs;
        let _ = write!(text, "{word} {}  {events} events, {blobs} blobs", run.run);
        if run.artifacts > 0 {
            let _ = write!(text, ", {} artifacts", run.artifacts);
        }
        if run.unhashed > 0 {
            let _ = write!(
                text,
                " ({} events have no hash: an older version wrote them)",
                run.unhashed
            );
        }
        if !run.end_known && run.whole {
            text.push_str(" (not known whether events are missing at the end: this is a copy without `heads`)");
        }
        text.push('\n');
        for problem in &run.problems {
            let _ = writeln!(text, "  {problem}");
        }
        if let Some(reason) = &run.unrecorded {
            let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
            let _ =
                writeln!(text, "  not damaged, but changes of stages were not recorded: {reason}");
        }
    }
    if text.is_empty() {
        text.push_str("the store has no runs, and is whole\n");
    }
    text
}

/// Copies the store into a file.
pub async fn backup(args: &BackupArgs, global: &Global) -> anyhow::Result<Exit> {
    let store = global.store_to_read()?;
    let file = std::path::absolute(&args.file)?;
    if file.exists() {
        return Err(error::usage(
            format!("{} exists already", file.display()),
            "name a file that does not exist",
        ));
    }
    store.backup(&file).await?;
    output::stderr(&format!("the store is copied to {}\n", clean(&quoted(&file))));
    Ok(Exit::SUCCEEDED)
}

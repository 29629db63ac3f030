//! `fabro artifact`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap_complete::ArgValueCandidates;
use fabro_inspect::{ArtifactRow, list_artifacts};
use fabro_sandbox::artifacts::{FILES, Patterns};
use fabro_store::SqliteStore;
use fabro_terminal::{Align, Table, clean, one_line};
use fabro_types::RunId;
use tempfile::NamedTempFile;

use super::du::size;
use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::{Global, stdout_width};
use crate::output;

/// The commands for artifacts.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum ArtifactCommand {
    #[command(visible_alias = "ls")]
    List(ListArgs),
    #[command(visible_aliases = ["copy", "get", "download"])]
    Cp(CpArgs),
    Open(OpenArgs),
}

/// List the artifacts of a run
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro artifact list latest\n  fabro artifact list latest '*.png' --stage test\n  fabro artifact list latest --json | jq -r '.[].path'\n\nArtifacts are reports of test tools, and what `[run.artifacts] include` names. Those of sub-workflows are listed too."
)]
pub struct ListArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    run: String,

    /// Only those of this stage: NODE, NODE@VISIT or BRANCH/NODE@VISIT
    #[arg(long, value_name = "[BRANCH/]NODE[@VISIT]", add = ArgValueCandidates::new(complete::stages))]
    stage: Option<String>,

    /// Only these: paths, directories or glob patterns; one without `/` is for names of files too
    #[arg(value_name = "PATTERN", add = ArgValueCandidates::new(complete::artifacts))]
    patterns: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Copy artifacts of a run to where they are wanted
#[derive(clap::Args, Clone, Debug)]
#[command(
    allow_missing_positional = true,
    after_help = "Examples:\n  fabro artifact cp latest all-artifacts\n  fabro artifact cp latest test-results/login/shot.png .\n  fabro artifact cp latest playwright-report report --last\n\nA single file is copied to DEST, or into the directory DEST. Several files keep their paths below DEST, each below STAGE/retry_ATTEMPT; with --last the newest of each path directly."
)]
pub struct CpArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(add = ArgValueCandidates::new(complete::runs))]
    run: String,

    /// Only those of this stage: NODE, NODE@VISIT or BRANCH/NODE@VISIT
    #[arg(long, value_name = "[BRANCH/]NODE[@VISIT]", add = ArgValueCandidates::new(complete::stages))]
    stage: Option<String>,

    /// Only these: paths, directories or glob patterns; one without `/` is for names of files too
    #[arg(value_name = "PATTERN", add = ArgValueCandidates::new(complete::artifacts))]
    patterns: Vec<String>,

    /// Where to: a directory, or for a single artifact a file
    #[arg(value_name = "DEST", required = true)]
    dest: PathBuf,

    /// Of several with the same path only the newest
    #[arg(long)]
    last: bool,

    /// Replace files that are there
    #[arg(short, long)]
    force: bool,
}

/// Open an artifact with the program that the system has for it
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro artifact open latest playwright-report/index.html\n  fabro artifact open latest shot.png\n  fabro artifact open latest\n\nOf several with the same path it is the newest. Without PATTERN the directory of the artifacts is opened."
)]
pub struct OpenArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    run: String,

    /// Only those of this stage: NODE, NODE@VISIT or BRANCH/NODE@VISIT
    #[arg(long, value_name = "[BRANCH/]NODE[@VISIT]", add = ArgValueCandidates::new(complete::stages))]
    stage: Option<String>,

    /// The artifact: a path, or a glob pattern
    #[arg(value_name = "PATTERN", add = ArgValueCandidates::new(complete::artifacts))]
    pattern: Option<String>,
}

/// Lists, copies or opens artifacts.
pub async fn artifact(command: ArtifactCommand, global: &Global) -> anyhow::Result<Exit> {
    match command {
        ArtifactCommand::List(args) => list(&args, global).await,
        ArtifactCommand::Cp(args) => copy(&args, global).await,
        ArtifactCommand::Open(args) => open(&args, global).await,
    }
}

async fn list(args: &ListArgs, global: &Global) -> anyhow::Result<Exit> {
    let found = Found::read(&args.run, args.stage.as_deref(), &args.patterns, global).await?;
    output::report(args.json, &found.rows, || found.text(global))?;
    Ok(Exit::SUCCEEDED)
}

/// The artifacts that were chosen, oldest first.
struct Found {
    rows: Vec<ArtifactRow>,
    /// The run has others.
    has_others: bool,
    store: SqliteStore,
    run: RunId,
}

impl Found {
    async fn read(
        run: &str,
        stage: Option<&str>,
        patterns: &[String],
        global: &Global,
    ) -> anyhow::Result<Self> {
        let patterns = Patterns::new(patterns).map_err(|error| {
            error::usage(error.to_string(), "quote its special characters with `\\`")
        })?;
        let (store, run) = global.run_to_read(run).await?;
        let mut all = list_artifacts(&store, &store.runs_dir(), run, stage).await?;
        let count = all.len();
        all.retain(|row| patterns.is_match(&row.path));
        let has_others = all.len() < count;
        Ok(Self { rows: all, has_others, store, run })
    }

    fn none(&self, global: &Global) -> anyhow::Error {
        if self.has_others {
            let list = global.command(&format!("artifact list {}", self.run));
            return error::usage("no artifact has such a path", format!("see them with `{list}`"));
        }
        let next = "reports of test tools are kept, and what `[run.artifacts] include` names";
        error::failed("there are no artifacts", next)
    }

    fn text(&self, global: &Global) -> String {
        if self.rows.is_empty() {
            let others = if self.has_others { " with such a path" } else { "" };
            return format!("no artifacts{others}\n");
        }
        let mut table = Table::new(&[
            ("stage", Align::Left),
            ("attempt", Align::Right),
            ("size", Align::Right),
            ("type", Align::Left),
            ("path", Align::Left),
        ])
        .within(stdout_width());
        for row in &self.rows {
            table.row([
                row.stage.clone(),
                row.attempt.to_string(),
                size(row.size),
                row.media_type.clone(),
                one_line(&row.path, usize::MAX),
            ]);
        }
        table.render(global.paint_stdout(), |_, text| text.to_owned())
    }
}

/// Its place in a directory for all artifacts: `STAGE/retry_ATTEMPT/PATH`.
fn tree_path(row: &ArtifactRow) -> PathBuf {
    let path = Path::new(&row.below).strip_prefix(FILES).unwrap_or(Path::new(&row.below));
    match &row.above {
        Some(above) => Path::new(&above.replace(" › ", "/")).join(path),
        None => path.to_owned(),
    }
}

/// Its path without stage and attempt.
fn own_path(row: &ArtifactRow) -> PathBuf {
    let below = Path::new(&row.below).strip_prefix(FILES).unwrap_or(Path::new(&row.below));
    below.components().skip(2).collect()
}

/// Of several rows with the same path the newest.
fn newest(rows: Vec<ArtifactRow>) -> Vec<ArtifactRow> {
    let mut seen = BTreeSet::new();
    let mut newest: Vec<ArtifactRow> =
        rows.into_iter().rev().filter(|row| seen.insert(row.path.clone())).collect();
    newest.reverse();
    newest
}

async fn copy(args: &CpArgs, global: &Global) -> anyhow::Result<Exit> {
    let mut found = Found::read(&args.run, args.stage.as_deref(), &args.patterns, global).await?;
    if found.rows.is_empty() {
        return Err(found.none(global));
    }
    if args.last {
        found.rows = newest(found.rows);
    }
    let copies = destinations(&found.rows, &args.dest, args.last);
    let is_there = |to: &&PathBuf| !args.force && to.symlink_metadata().is_ok();
    if let Some(there) = copies.iter().find(is_there) {
        let message = format!("{} is there already", clean(&there.to_string_lossy()));
        return Err(error::usage(message, "name another place, or replace it with --force"));
    }
    let mut damaged = Vec::new();
    for (row, to) in found.rows.iter().zip(&copies) {
        match row.stored(&found.store.runs_dir()) {
            Ok(from) => copy_file(&from, to, args.force).map_err(|error| {
                let to = clean(&to.to_string_lossy()).into_owned();
                error::unwritable(&format!("write {to}"), &error, "name another place")
            })?,
            Err(error) => damaged.push(error.to_string()),
        }
    }
    let count = copies.len() - damaged.len();
    let dest = clean(&args.dest.to_string_lossy()).into_owned();
    match count {
        0 => {}
        1 => output::text(&format!("copied 1 artifact to {dest}\n"))?,
        count => output::text(&format!("copied {count} artifacts to {dest}\n"))?,
    }
    match damaged.split_first() {
        None => Ok(Exit::SUCCEEDED),
        Some((first, rest)) => {
            global.warn(rest);
            let next = "restore the directory of the run, or run the stage again";
            Err(error::store(first.clone(), next))
        }
    }
}

/// Where each artifact goes.
fn destinations(rows: &[ArtifactRow], dest: &Path, is_last: bool) -> Vec<PathBuf> {
    if let [row] = rows {
        let is_dir = dest.is_dir() || dest.to_string_lossy().ends_with('/');
        let name = Path::new(&row.below).file_name().unwrap_or_default();
        return vec![if is_dir { dest.join(name) } else { dest.to_owned() }];
    }
    let place = |row: &ArtifactRow| if is_last { own_path(row) } else { tree_path(row) };
    rows.iter().map(|row| dest.join(place(row))).collect()
}

fn copy_file(from: &Path, to: &Path, is_forced: bool) -> io::Result<()> {
    let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let mut from = fs::File::open(from)?;
    if is_forced && let Some(mut device) = output::device(to)? {
        return io::copy(&mut from, &mut device).map(drop);
    }
    let mut file: NamedTempFile = tempfile::Builder::new()
        .prefix(".fabro-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(dir)?;
    io::copy(&mut from, &mut file)?;
    let named = if is_forced { file.persist(to) } else { file.persist_noclobber(to) };
    named.map(drop).map_err(|error| error.error)
}

/// The program that opens files of any type.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

async fn open(args: &OpenArgs, global: &Global) -> anyhow::Result<Exit> {
    let patterns: Vec<String> = args.pattern.iter().cloned().collect();
    let mut found = Found::read(&args.run, args.stage.as_deref(), &patterns, global).await?;
    if found.rows.is_empty() {
        return Err(found.none(global));
    }
    found.rows = newest(found.rows);
    let path = match (found.rows.as_slice(), &args.pattern) {
        ([row], _) => stored_at_its_name(row, &found.store, global)?,
        (rows, Some(pattern)) => {
            let exact = rows.iter().find(|row| row.path == *pattern);
            let Some(row) = exact else { return Err(several(rows)) };
            stored_at_its_name(row, &found.store, global)?
        }
        (rows, None) => rows.last().map_or_else(PathBuf::new, |row| {
            found.store.runs_dir().join(row.run.to_string()).join(FILES)
        }),
    };
    let shown = clean(&path.to_string_lossy()).into_owned();
    output::text(&format!("{shown}\n"))?;
    let mut opener = Command::new(OPENER);
    opener.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match opener.spawn() {
        Ok(_) => Ok(Exit::SUCCEEDED),
        Err(error) => Err(error::failed(
            format!("{OPENER} cannot be started: {error}"),
            "open the file that is printed above with a program of your choice",
        )),
    }
}

/// The file at the name that its page and its neighbors know it by.
fn stored_at_its_name(
    row: &ArtifactRow,
    store: &SqliteStore,
    global: &Global,
) -> anyhow::Result<PathBuf> {
    let copy = global.command(&format!("artifact cp {}", row.run));
    match row.stored(&store.runs_dir()) {
        Ok(path) if path == row.file => Ok(path),
        Ok(_) => Err(error::store(
            format!("the artifact {} is gone from the directory of the run", clean(&row.path)),
            format!("copy it with `{copy}`"),
        )),
        Err(error) => Err(error::store(error.to_string(), "run the stage again")),
    }
}

fn several(rows: &[ArtifactRow]) -> anyhow::Error {
    const SHOWN: usize = 8;
    let names = rows.iter().take(SHOWN).map(|row| one_line(&row.path, 200));
    let mut names: Vec<String> = names.collect();
    if rows.len() > SHOWN {
        names.push("…".into());
    }
    error::usage(format!("several artifacts are meant: {}", names.join(", ")), "name one of them")
}

//! What a run recorded, as a commit of a branch: `fabro dump --git`, and `metadata` in `[run.git]`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fabro_engine::{MAIN, RunState};
use fabro_inspect::dump::DumpWriter;
use fabro_run::{Bundle, author};
use fabro_sandbox::git::{Metadata, Repository};
use fabro_store::SqliteStore;
use fabro_terminal::clean;
use fabro_types::RunId;

use super::dump_files::Family;
use crate::error;

/// Keeps what a run recorded as a commit of its branch. Returns the branch, and what is not in the commit because the
/// store is damaged. A commit that would say the same as the last one is not made.
pub async fn keep(store: &SqliteStore, run: RunId) -> anyhow::Result<(String, Vec<String>)> {
    let mut family = Family::read(store, run).await?;
    family.keep_references = true;
    let state = RunState::replay(run, family.logs.get(&run).into_iter().flatten());
    let Some(created) = &state.created else {
        return Err(error::usage(format!("run {run} was not created"), "name another run"));
    };
    let bundle = Bundle::load(store, created)?;
    let repository = match &created.worktree {
        Some(worktree) => PathBuf::from(&worktree.repository),
        None => repository(Path::new(&created.work_dir)).await?,
    };
    let dir = tempfile::Builder::new().prefix("fabro-metadata-").tempdir()?;
    let mut files = Files { dir: dir.path().join("files"), names: Vec::new() };
    fs::create_dir(&files.dir)?;
    family.write(store, run, "", &mut files)?;
    let commit = state.worktrees.head(MAIN).map(|head| format!("\nFabro-Commit: {head}"));
    let metadata = Metadata {
        branch: format!("fabro/meta/{run}"),
        author: author(&bundle.settings.git),
        subject: format!("fabro({run}): recorded up to event {}", state.last_seq),
        trailers: format!(
            "Fabro-Run: {run}\nFabro-Event: {}{}",
            state.last_seq,
            commit.unwrap_or_default()
        ),
    };
    let index = dir.path().join("index");
    metadata.keep(&repository, &files.dir, &index, &files.names).await.map_err(|error| {
        let shown = clean(&repository.to_string_lossy()).into_owned();
        let message = format!("what run {run} recorded cannot be kept in {shown}: {error}");
        error::usage(message, "fix what git reports, or write it with `fabro dump -o`")
    })?;
    Ok((metadata.branch, family.damage))
}

/// The repository of a run without a git worktree.
async fn repository(work_dir: &Path) -> anyhow::Result<PathBuf> {
    let found = Repository::find(work_dir).await.ok().flatten();
    found.map(|repository| repository.top).ok_or_else(|| {
        let shown = clean(&work_dir.to_string_lossy()).into_owned();
        error::usage(
            format!("the directory of the run, {shown}, is in no git work tree"),
            "write what it recorded with `fabro dump -o DIR`",
        )
    })
}

/// The files of a dump that are kept: not the log, which the others are made from, and no artifacts.
struct Files {
    dir: PathBuf,
    names: Vec<String>,
}

impl DumpWriter for Files {
    fn write(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        // Below `children/` too.
        let is_artifact = path.split('/').any(|part| part == "artifacts");
        if path.ends_with("events.jsonl") || is_artifact {
            return Ok(());
        }
        let file = self.dir.join(path);
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(file, bytes)?;
        self.names.push(path.to_owned());
        Ok(())
    }
}

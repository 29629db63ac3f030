//! The artifacts that an attempt leaves in the working directory: what there is before it, and what is
//! new or different after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fabro_engine::{Backend, Reporter, Stage, StageEnd};
use fabro_events::{CapturedArtifact, EventBody, Note};
use fabro_redact::Redactor;
use fabro_sandbox::artifacts::{
    Baseline, Changes, Collection, Destination, FILES, LeftOut, Limits, Rules, Watcher, pool_of,
};
use fabro_types::{BlobRef, NodeKind};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

/// So many files that were not kept are named one by one.
const NAMED: usize = 10;

/// A warning names no more files when it has this length.
const LONGEST: usize = 32 << 10;

/// So many working directories are remembered.
const DIRECTORIES: usize = 64;

/// The last call of a conversation that was interrupted may have worked for so long. What changed later
/// belongs to another program.
const LAST_CALL_MS: i64 = 60 * 60 * 1_000;

/// The longest name of a stage's directory.
const MAX_SLUG: usize = 200;

/// Captures the artifacts of the stages of a run.
pub(crate) struct Artifacts {
    rules: Rules,
    redactor: Redactor,
    /// By working directory: each remembers what it has read.
    watchers: Mutex<BTreeMap<PathBuf, Arc<Watcher>>>,
    /// That a search has ended early is reported once.
    has_warned: AtomicBool,
}

/// An attempt before it begins.
pub(crate) struct Before {
    watcher: Arc<Watcher>,
    baseline: Baseline,
    reporter: Reporter,
    run_dir: PathBuf,
    slug: String,
    attempt: u32,
}

impl Artifacts {
    pub(crate) fn new(rules: Rules, redactor: Redactor) -> Self {
        let watchers = Mutex::default();
        Self { rules, redactor, watchers, has_warned: AtomicBool::new(false) }
    }

    /// What there is before an attempt; `None` for stages that start no program.
    pub(crate) async fn before(&self, stage: &Stage) -> Option<Before> {
        if stage.run.dry_run || !starts_programs(stage) {
            return None;
        }
        let watcher = self.watcher(Path::new(&stage.run.work_dir), &stage.run_dir);
        // A conversation that is continued has left some of its files before. When it cannot be read, the
        // agent fails with that.
        let said = stage.recorded().await.unwrap_or_default();
        let times = said.first().zip(said.last());
        let earlier = times.map(|(first, last)| first.ts_ms..=last.ts_ms + LAST_CALL_MS);
        let baseline = scan(&watcher, Watcher::baseline).await.and_earlier(earlier);
        Some(Before {
            watcher,
            baseline,
            reporter: stage.reporter.clone(),
            run_dir: stage.run_dir.clone(),
            slug: slug(stage.branch.as_deref(), &stage.at.node, stage.at.visit),
            attempt: stage.at.attempt,
        })
    }

    /// Keeps what is new after the attempt, and reports it.
    pub(crate) async fn after(&self, before: Before, end: &StageEnd) {
        if matches!(end, StageEnd::CannotRecord { .. }) {
            return;
        }
        let Before { watcher, baseline, reporter, run_dir, slug, attempt } = before;
        let changes = scan(&watcher, move |watcher| watcher.changes(&baseline)).await;
        if changes.is_empty() {
            return;
        }
        let below = format!("{FILES}/{slug}/retry_{attempt}");
        let redactor = self.redactor.clone();
        let files = run_dir.join(&below);
        let kept = spawn_blocking(move || keep(&watcher, &changes, &files, &run_dir, &redactor));
        let Collection { kept, mut left_out } = joined(kept.await);
        // The search itself has no path.
        left_out.retain(|it| !it.path.is_empty() || !self.has_warned.swap(true, Ordering::Relaxed));
        let mut notes: Vec<Note> = Vec::new();
        for artifact in kept {
            let captured = CapturedArtifact {
                file: format!("{below}/{}", artifact.path).into(),
                path: artifact.path,
                size: artifact.size,
                sha256: artifact.sha256,
                media_type: artifact.media_type.to_owned(),
                attempt,
            };
            notes.push(EventBody::ArtifactCaptured(Box::new(captured)).into());
        }
        let mut warn = |message: String| {
            let kind = "artifacts".to_owned();
            notes.push(EventBody::AgentWarning { kind, message, window: None }.into());
        };
        for file in left_out.iter().take(NAMED) {
            warn(if file.path.is_empty() {
                file.to_string()
            } else {
                format!("artifact not kept: {file}")
            });
        }
        if let Some(more) = left_out.get(NAMED..).filter(|more| !more.is_empty()) {
            warn(more_left_out(more));
        }
        if !notes.is_empty() {
            // Nothing is lost when the driver is ending: the stage runs again.
            let _ = reporter.record(notes, Vec::new(), Vec::new()).await;
        }
    }

    fn watcher(&self, work_dir: &Path, run_dir: &Path) -> Arc<Watcher> {
        let mut watchers = self.watchers.lock();
        if let Some(watcher) = watchers.get(work_dir) {
            return Arc::clone(watcher);
        }
        if watchers.len() >= DIRECTORIES {
            watchers.clear();
        }
        let runs = run_dir.parent().unwrap_or(run_dir);
        let store = runs.parent().filter(|_| runs.file_name().is_some_and(|name| name == "runs"));
        let mut rules = self.rules.clone();
        for dir in [Some(runs), store, Some(&pool_of(run_dir))].into_iter().flatten() {
            rules = rules.skipping(place_below(work_dir, dir));
        }
        for dir in ["/dev", "/proc", "/sys"] {
            rules = rules.skipping(dir);
        }
        let watcher = Arc::new(Watcher::new(work_dir, rules, Limits::default()));
        watchers.insert(work_dir.to_owned(), Arc::clone(&watcher));
        watcher
    }
}

/// The path of a directory as a search of the working directory comes upon it, links above aside.
fn place_below(work_dir: &Path, dir: &Path) -> PathBuf {
    let below = || {
        // It may not be there yet.
        let (there, resolved) =
            dir.ancestors().find_map(|it| Some((it, it.canonicalize().ok()?)))?;
        let dir = resolved.join(dir.strip_prefix(there).ok()?);
        let below = dir.strip_prefix(work_dir.canonicalize().ok()?).ok()?;
        Some(work_dir.join(below))
    };
    below().unwrap_or_else(|| dir.to_owned())
}

fn keep(
    watcher: &Watcher,
    changes: &Changes,
    files: &Path,
    run_dir: &Path,
    redactor: &Redactor,
) -> Collection {
    let pool = pool_of(run_dir);
    let name = |path: &str| redactor.redact(path).into_owned();
    watcher.keep(changes, &Destination { files, pool: &pool, name: &name })
}

/// The files that were not kept and that have no warning of their own: as many as one warning may name.
fn more_left_out(files: &[LeftOut]) -> String {
    let mut text = format!("{} more artifacts not kept: ", files.len());
    for (index, file) in files.iter().enumerate() {
        if text.len() > LONGEST {
            let _ = write!(text, "; and {} more", files.len() - index);
            break;
        }
        let _ = write!(text, "{}{file}", if index > 0 { "; " } else { "" });
    }
    text
}

/// Scans on this thread where that is quicker than another thread would be.
async fn scan<T: Send + 'static>(
    watcher: &Arc<Watcher>,
    scan: impl FnOnce(&Watcher) -> T + Send + 'static,
) -> T {
    if watcher.is_quick() {
        return scan(watcher);
    }
    let watcher = Arc::clone(watcher);
    joined(spawn_blocking(move || scan(&watcher)).await)
}

fn joined<T>(result: Result<T, tokio::task::JoinError>) -> T {
    result.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
}

fn starts_programs(stage: &Stage) -> bool {
    match stage.spec().kind {
        NodeKind::Command | NodeKind::Agent => true,
        NodeKind::Prompt => stage.spec().llm().is_some_and(|llm| llm.backend != Backend::Api),
        _ => false,
    }
}

/// The name of a stage's directory: the node, with its branch before it and its visit behind it where
/// that is not the first.
fn slug(branch: Option<&str>, node: &str, visit: u32) -> String {
    let branch = branch.filter(|branch| !branch.is_empty());
    let branch = branch.map(|branch| format!("{}.", branch.replace('/', "."))).unwrap_or_default();
    let visit = if visit > 1 { format!("-visit_{visit}") } else { String::new() };
    let slug = format!("{branch}{node}{visit}");
    if slug.len() <= MAX_SLUG {
        return slug;
    }
    let end = slug.floor_char_boundary(MAX_SLUG);
    let hash = BlobRef::of(slug.as_bytes()).to_string();
    format!("{}-{}", &slug[..end], &hash[hash.len() - 16..])
}

/// The files for a preamble, as paths that can be opened: at most ten, then their directories. The inner ones are of
/// branches or a sub-workflow.
pub(crate) fn shown_files(run_dir: &Path, own: &[String], inner: &[String]) -> Vec<String> {
    let path = |file: &str| {
        let (dir, file) = match file.strip_prefix("../").and_then(|file| file.split_once('/')) {
            Some((run, file)) => (run_dir.with_file_name(run), file),
            None => (run_dir.to_owned(), file),
        };
        dir.join(file).to_string_lossy().into_owned()
    };
    let all: Vec<&String> = own.iter().chain(inner).collect();
    let mut shown: Vec<String> = all.iter().take(NAMED).map(|file| path(file)).collect();
    if let Some(more) = all.get(NAMED..).filter(|more| !more.is_empty()) {
        let dir = |file: &str| {
            let end = file.find(FILES).map_or(0, |at| at + FILES.len() + 1);
            let slug = file.get(end..).and_then(|rest| rest.find('/')).unwrap_or_default();
            file.get(..end + slug).map(path).unwrap_or_default()
        };
        let dirs: BTreeSet<String> = more.iter().map(|file| dir(file)).collect();
        let named: Vec<&str> = dirs.iter().take(NAMED).map(String::as_str).collect();
        let others = dirs.len() - named.len();
        let others =
            if others > 0 { format!(" and {others} more directories") } else { String::new() };
        shown.push(format!("{} more in {}{others}", more.len(), named.join(", ")));
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{shown_files, slug};

    #[test]
    fn artifacts_of_other_runs_are_shown_by_their_paths() {
        let name = |slug: &str, n: usize| format!("cache/artifacts/files/{slug}/retry_1/{n:02}");
        let own: Vec<String> = (0..9).map(|n| name("a", n)).collect();
        let child = |slug: &str| format!("../CHILD/{}", name(slug, 0));
        let inner = [child("b"), name("f@1.x.x", 0), child("c")];
        let shown = shown_files(Path::new("/runs/RUN"), &own, &inner);
        insta::assert_snapshot!(shown[8..].join("\n"), @r"
        /runs/RUN/cache/artifacts/files/a/retry_1/08
        /runs/CHILD/cache/artifacts/files/b/retry_1/00
        2 more in /runs/CHILD/cache/artifacts/files/c, /runs/RUN/cache/artifacts/files/f@1.x.x
        ");
    }

    #[test]
    fn every_stage_has_a_directory_of_its_own() {
        assert_eq!(slug(None, "test", 1), "test");
        assert_eq!(slug(Some(""), "test", 3), "test-visit_3");
        assert_eq!(slug(Some("checks@1/lint"), "lint", 1), "checks@1.lint.lint");
        let long = format!("all@1/{}", "deep[1234567]".repeat(40));
        let names = [slug(Some(&long), "a", 1), slug(Some(&long), "b", 1)];
        assert_ne!(names[0], names[1]);
        assert!(names[0].len() < 255);
    }
}

//! What stages change in a git work tree of the user, without a worktree of the run: the trees of the files before and
//! after each of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use fabro_engine::{Backend, Handler, Stage, StageEnd};
use fabro_graph::NodeKind;
use fabro_redact::Redactor;
use fabro_sandbox::git::{FileTree, FileTrees, Snapshot, UnknownFiles, WorkTree};
use fabro_types::{Outcome, Permissions, RunId, StageTrees, Status};
use tokio::sync::Semaphore;

use crate::stage_commits::Warn;

/// Records the trees of the files before and after each stage that changed some.
pub(crate) struct RecordsTrees {
    handler: Arc<dyn Handler>,
    run: RunId,
    trees: FileTrees,
    /// What is known of the files after stages.
    tree: Arc<WorkTree>,
    permissions: Option<Permissions>,
    redactor: Redactor,
    warn: Warn,
    /// Git failed: nothing is recorded any more.
    has_failed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The tree of the files as they were last recorded.
    last: Option<Arc<str>>,
    /// A person or a pause may have changed files since.
    is_outdated: bool,
    /// How many stages that may change files are running, and how many ever began.
    running: usize,
    begun: u64,
    /// The trees before stages that have not succeeded: what a failed attempt changed, or one that was interrupted,
    /// belongs to its stage.
    before: BTreeMap<String, Arc<str>>,
}

/// A stage that has begun.
struct Begun<'a> {
    records: &'a RecordsTrees,
    stage: String,
    before: Option<Arc<str>>,
    /// An attempt before, or a driver that was interrupted, has changed files since.
    is_continued: bool,
    /// Others were running.
    is_beside: bool,
    /// How many had begun with it.
    order: u64,
    /// 1; 0 for a sub-workflow, whose stages count.
    running: usize,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.records.lock().running -= self.running;
    }
}

/// What a [`RecordsTrees`] is made from.
pub(crate) struct TreeSettings<'a> {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) run: RunId,
    pub(crate) run_dir: &'a Path,
    pub(crate) exclude: &'a [String],
    pub(crate) marker: (&'a str, &'a str),
    pub(crate) tree: Arc<WorkTree>,
    /// Those of agents whose node has none.
    pub(crate) permissions: Option<Permissions>,
    pub(crate) redactor: Redactor,
    pub(crate) warn: Warn,
}

impl RecordsTrees {
    pub(crate) fn new(settings: TreeSettings<'_>) -> Self {
        let trees = FileTrees::new(settings.run_dir, settings.marker, settings.exclude);
        let before = match trees.remembered() {
            Ok(before) => before,
            Err(error) => {
                (settings.warn)(&format!(
                    "what interrupted stages changed before is not part of their changes: {error}"
                ));
                BTreeMap::new()
            }
        };
        let before = before.into_iter().map(|(stage, tree)| (stage, tree.into())).collect();
        let state = State { before, ..State::default() };
        Self {
            handler: settings.handler,
            run: settings.run,
            trees,
            tree: settings.tree,
            permissions: settings.permissions,
            redactor: settings.redactor,
            warn: settings.warn,
            has_failed: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    async fn begin(&self, stage: &Stage) -> Begun<'_> {
        let running = usize::from(!has_stages(stage));
        let (is_needed, is_beside, order) = {
            let mut known = self.lock();
            let is_beside = known.running > 0;
            known.running += running;
            known.begun += running as u64;
            // A command looks at the files before it anyway.
            let is_looked_at = follows_files(stage) || std::mem::take(&mut known.is_outdated);
            (known.last.is_none() || (is_looked_at && !is_beside), is_beside, known.begun)
        };
        // Ranks are given again after a rewind.
        let name = format!("{} {} {}", stage.run_id, stage.at.rank, stage.at.rewound_seq);
        let mut begun = Begun {
            records: self,
            stage: name,
            before: None,
            is_continued: false,
            is_beside,
            order,
            running,
        };
        if is_needed {
            self.record_in(Path::new(&stage.run.work_dir)).await;
        }
        let mut known = self.lock();
        if stage.run_id != self.run
            && known.last.is_some()
            && let Err(error) = self.trees.lend_to(&stage.run_dir)
        {
            self.failed(&error.to_string());
        }
        let before = known.before.get(&begun.stage).cloned();
        begun.is_continued = before.is_some();
        begun.before = before.or_else(|| known.last.clone());
        if let Some(before) = begun.before.as_ref().filter(|_| !begun.is_continued) {
            known.before.insert(begun.stage.clone(), Arc::clone(before));
            if let Err(error) = self.trees.remember(&begun.stage, before) {
                self.failed(&error.to_string());
            }
        }
        drop(known);
        begun
    }

    /// The trees of a stage that has ended; `None` where it changed nothing.
    async fn end(&self, begun: &Begun<'_>, stage: &Place, outcome: &Outcome) -> Option<StageTrees> {
        let before = begun.before.clone()?;
        if outcome.status != Status::Failed {
            self.lock().before.remove(&begun.stage);
        }
        let is_shared = {
            let known = self.lock();
            let is_followed_by_others = known.begun > begun.order && begun.running > 0;
            begun.is_beside || is_followed_by_others || known.running > begun.running
        };
        let changed_nothing = outcome.files_touched.is_empty() && outcome.status != Status::Failed;
        // What a stage alone was found to leave is known, or the repository is gone.
        let is_known = stage.names_files || (stage.is_followed && is_shared);
        if is_known && changed_nothing && !begun.is_continued {
            return None;
        }
        let FileTree { id: after, mut left_out, .. } = self.record_in(&stage.dir).await?;
        if *after == *before && left_out.is_empty() {
            return None;
        }
        self.redactor.redact_all(&mut left_out);
        Some(StageTrees { before: before.to_string(), after, shared: is_shared, left_out })
    }

    /// Records the files as they are; `None` where that is not possible, which is reported.
    async fn record_in(&self, dir: &Path) -> Option<FileTree> {
        if self.has_failed.load(Ordering::Relaxed) {
            return None;
        }
        let snapshot: Arc<Snapshot> = match self.tree.now(dir).await {
            Ok(Some(snapshot)) => snapshot,
            Ok(None) => {
                if self.lock().last.is_some() {
                    self.failed("the directory is in no git work tree any more");
                }
                return None;
            }
            // It may have taken long to fail. The reason may have been reported already.
            Err(UnknownFiles(message)) => {
                self.failed(message.as_deref().unwrap_or("git cannot read the work tree"));
                return None;
            }
        };
        match self.trees.record(&snapshot).await {
            Ok(tree) => {
                if let Some(warning) = &tree.warning {
                    (self.warn)(&self.redactor.redact(warning));
                }
                self.lock().last = Some(tree.id.as_str().into());
                Some(tree)
            }
            Err(error) => {
                self.failed(&error.to_string());
                None
            }
        }
    }

    fn failed(&self, reason: &str) {
        if self.has_failed.swap(true, Ordering::Relaxed) {
            return;
        }
        let reason = self.redactor.redact(reason);
        (self.warn)(&format!("what stages change is not recorded any more: {reason}"));
        if let Err(error) = self.trees.note_incomplete(&reason) {
            (self.warn)(&format!("`fabro diff` will not say so: {error}"));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is whole before the lock is given back.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the agent of a stage can change files only by tools that name them.
    fn names_all_files(&self, stage: &Stage) -> bool {
        let Some(llm) = stage.spec().llm() else { return false };
        let permissions = llm.permissions.or(self.permissions);
        llm.backend == Backend::Api && permissions != Some(Permissions::Full)
    }
}

/// Of a stage, what is needed after it.
struct Place {
    dir: PathBuf,
    /// The files are looked at before and after it: those that it changes are in its outcome.
    is_followed: bool,
    /// It is an agent without a shell: so are all that it changes.
    names_files: bool,
}

/// Whether it is a sub-workflow.
fn has_stages(stage: &Stage) -> bool {
    stage.spec().kind == NodeKind::ManagerLoop
}

/// Whether the files are looked at before and after a stage in any case.
fn follows_files(stage: &Stage) -> bool {
    let spec = stage.spec();
    match spec.kind {
        NodeKind::Command => true,
        NodeKind::Agent | NodeKind::Prompt => {
            spec.llm().is_some_and(|llm| llm.backend != Backend::Api)
        }
        _ => false,
    }
}

fn changes_files(stage: &Stage) -> bool {
    let kind = stage.spec().kind;
    matches!(kind, NodeKind::Agent | NodeKind::ManagerLoop) || follows_files(stage)
}

#[async_trait]
impl Handler for RecordsTrees {
    fn places(&self, kind: NodeKind) -> Option<Arc<Semaphore>> {
        self.handler.places(kind)
    }

    async fn execute(&self, stage: Stage) -> StageEnd {
        if !changes_files(&stage) {
            let is_long = matches!(stage.spec().kind, NodeKind::Human | NodeKind::Wait);
            let end = self.handler.execute(stage).await;
            if is_long {
                self.tree.forget();
                self.lock().is_outdated = true;
            }
            return end;
        }
        let begun = self.begin(&stage).await;
        let stop = stage.stop.clone();
        let place = Place {
            dir: PathBuf::from(&stage.run.work_dir),
            is_followed: follows_files(&stage),
            names_files: self.names_all_files(&stage),
        };
        let mut end = self.handler.execute(stage).await;
        // The result of a stage that runs again is not recorded.
        if !stop.is_cancelled()
            && let StageEnd::Finished(finished) = &mut end
        {
            finished.outcome.trees = self.end(&begun, &place, &finished.outcome).await;
        }
        end
    }
}

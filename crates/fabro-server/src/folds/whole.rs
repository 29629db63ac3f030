//! What the API and the pages of parts report of a run, folded once for all requests: the whole report, the context,
//! the artifacts and the costs. A request reads only the events that are new. Runs are kept as long as all of them
//! together stay below a limit; a run that is above it alone is not kept.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fabro_engine::{Cursor, RunState};
use fabro_events::Event;
use fabro_inspect::{ArtifactFold, CostFold, Inspect, ReportError, RunFold};
use fabro_run::{Gate, is_driven, now_ms};
use fabro_store::{Runs as _, SqliteStore, StoreError};
use fabro_types::{RunId, RunStatus};
use tokio::sync::OwnedMutexGuard;

use super::ahead::ReadAhead;
use super::{Rewind, counts, rewind};
use crate::problem::Problem;

/// What all kept runs may take together, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// What a run takes besides what is measured, in bytes.
const RUN_BYTES: usize = 32 << 10;

/// How often histories of stages are dropped while a log is read, in events.
const FORGET_EVERY: u64 = 256;

/// A run as far as it was read.
pub(crate) struct Whole {
    pub(crate) files: ArtifactFold,
    pub(crate) cost: CostFold,
    fold: RunFold,
    seq: u64,
    rewinds: Vec<Rewind>,
    /// The report of a run that has ended, as JSON.
    json: Option<Bytes>,
    /// About what it takes, as it was last measured.
    bytes: usize,
}

impl Whole {
    fn new(run: RunId, rewinds: Vec<Rewind>) -> Self {
        Self {
            files: ArtifactFold::default(),
            cost: CostFold::default(),
            fold: RunFold::new(run),
            seq: 0,
            rewinds,
            json: None,
            bytes: RUN_BYTES,
        }
    }

    /// Its last event.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Where the run stands.
    pub(super) fn state(&self) -> &RunState {
        self.fold.state()
    }

    /// The gates of the run alone.
    pub(super) fn gates(&self) -> Vec<Gate> {
        self.fold.gates()
    }

    /// The main line as it is now.
    pub(crate) fn main(&self) -> Result<Cursor, ReportError> {
        self.fold.state().cursor(None).cloned().ok_or(ReportError::Empty)
    }

    /// What a rewind took back was spent all the same; nothing else of it counts.
    fn apply(&mut self, event: &Event) {
        self.seq = event.seq;
        self.cost.apply(event);
        self.files.apply(event);
        if counts(&self.rewinds, event) {
            self.fold.apply(event);
        }
        if event.seq.is_multiple_of(FORGET_EVERY) {
            self.fold.forget_histories();
        }
    }

    fn measure(&mut self) {
        let json = self.json.as_ref().map_or(0, Bytes::len);
        let folds = self.fold.bytes() + self.files.bytes() + self.cost.bytes();
        self.bytes = RUN_BYTES + folds + json;
    }
}

/// A run, for the one request that uses it.
pub(crate) type WholeRun = OwnedMutexGuard<Whole>;

type Shared = Arc<tokio::sync::Mutex<Whole>>;

/// The runs that were asked for last.
pub(super) struct Wholes {
    store: Arc<SqliteStore>,
    /// With what each takes. The one that was used last is the last one.
    kept: Mutex<Vec<(RunId, Shared, usize)>>,
    max_bytes: usize,
}

impl Wholes {
    pub(super) fn new(store: Arc<SqliteStore>) -> Self {
        Self { store, kept: Mutex::default(), max_bytes: MAX_BYTES }
    }

    /// The run as it is now. Requests for the same run wait for each other.
    pub(super) async fn get(&self, run: RunId) -> Result<WholeRun, Problem> {
        let shared = self.shared(run);
        let mut whole = Arc::clone(&shared).lock_owned().await;
        if self.update(run, &mut whole).await? {
            whole.measure();
        }
        self.keep(run, shared, whole.bytes);
        Ok(whole)
    }

    /// The report of a run as JSON, with the gates of its sub-workflows and its last event.
    pub(super) async fn json(
        &self,
        run: RunId,
        mut whole: WholeRun,
        gates: Vec<Gate>,
    ) -> Result<(Bytes, u64), Problem> {
        if let Some(json) = &whole.json {
            return Ok((json.clone(), whole.seq));
        }
        let report = self.report(run, &whole, gates).await?;
        let json = serde_json::to_vec(&report).map(Bytes::from);
        let json = json.map_err(|error| {
            Problem::internal("store_error", error.to_string(), "report this as a bug")
        })?;
        if report.status.is_final() {
            drop(report);
            whole.json = Some(json.clone());
            whole.measure();
            self.keep(run, Arc::clone(WholeRun::mutex(&whole)), whole.bytes);
        }
        Ok((json, whole.seq))
    }

    /// The report of a run, with the gates of its sub-workflows.
    pub(super) async fn report(
        &self,
        run: RunId,
        whole: &Whole,
        gates: Vec<Gate>,
    ) -> Result<Inspect, Problem> {
        let mut report = whole.fold.report(is_driven(&*self.store, run).await?)?;
        if report.status == RunStatus::Running {
            report.until(now_ms());
        }
        report.gates = gates;
        Ok(report)
    }

    fn shared(&self, run: RunId) -> Shared {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|(id, ..)| *id == run).map(|(_, shared, _)| shared);
        let new = || Arc::new(tokio::sync::Mutex::new(Whole::new(run, Vec::new())));
        found.cloned().unwrap_or_else(new)
    }

    /// Keeps a run as the one used last, and forgets those used longest ago when all together take too much.
    fn keep(&self, run: RunId, shared: Shared, bytes: usize) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(id, ..)| *id != run);
        if bytes > self.max_bytes {
            return;
        }
        kept.push((run, shared, bytes));
        let mut sum = 0;
        let fits = kept.iter().rev().take_while(|(_, _, bytes)| {
            sum += bytes;
            sum <= self.max_bytes
        });
        let forgotten = kept.len() - fits.count();
        kept.drain(..forgotten);
    }

    /// Reads what was committed since; false when that is nothing.
    async fn update(&self, run: RunId, whole: &mut Whole) -> Result<bool, StoreError> {
        let last = self.store.last_seq(run).await?;
        if last == whole.seq && last > 0 {
            return Ok(false);
        }
        if last < whole.seq {
            // It was removed, and another one has its id.
            *whole = Whole::new(run, Vec::new());
        }
        whole.json = None;
        let mut log = ReadAhead::new(&self.store, run);
        while whole.seq < last || last == 0 {
            let page = log.page(whole.seq).await?;
            if page.is_empty() {
                break;
            }
            for event in page {
                let rewind = rewind(&event);
                if let Some(rewind) = rewind.filter(|it| !whole.rewinds.contains(it)) {
                    let mut rewinds = std::mem::take(&mut whole.rewinds);
                    rewinds.push(rewind);
                    *whole = Whole::new(run, rewinds);
                    break;
                }
                whole.apply(&event);
            }
        }
        whole.fold.forget_histories();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use fabro_events::{CreatedRun, Entry, EventBody};
    use fabro_store::{Batch, RunLog as _};
    use fabro_types::{BlobRef, ContextPatch};

    use super::*;

    async fn append(store: &SqliteStore, run: RunId, seq: u64, body: EventBody) {
        let events = [Event { run_id: run, seq, ts_ms: 1_000, entry: Entry::new(body) }];
        store.append(run, seq - 1, &Batch::of(&events)).await.unwrap();
    }

    fn created() -> EventBody {
        let created = CreatedRun {
            workflow: "w".into(),
            goal: "g".into(),
            inputs: serde_json::Map::new(),
            seed: 1,
            work_dir: "/w".into(),
            bundle: BlobRef::of(b"bundle"),
            context: ContextPatch::new(),
            max_cost: None,
            parent: None,
            dry_run: false,
            worktree: None,
            rules: 0,
        };
        EventBody::RunCreated(created.into())
    }

    #[tokio::test]
    async fn a_run_is_read_on_and_forgotten_by_what_it_takes() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(&dir.path().join("store")).unwrap());
        let [one, two, three] = [1, 2, 3].map(|at| RunId::from_parts(at, 7));
        for run in [one, two, three] {
            append(&store, run, 1, created()).await;
        }
        let mut wholes = Wholes::new(Arc::clone(&store));
        let check = async |wholes: &Wholes, run| {
            let whole = wholes.get(run).await.unwrap();
            let (json, seq) = wholes.json(run, whole, Vec::new()).await.unwrap();
            let expect = fabro_inspect::inspect_run(&*store, run).await.unwrap();
            assert_eq!(json, serde_json::to_vec(&expect).unwrap());
            seq
        };
        assert_eq!(check(&wholes, one).await, 1);
        append(&store, one, 2, EventBody::RunStarted {}).await;
        assert_eq!(check(&wholes, one).await, 2);
        // Of a run that has ended the report is made once.
        let ended = EventBody::RunCanceled { reason: "enough".into(), by_parent: None };
        append(&store, one, 3, ended).await;
        assert_eq!(check(&wholes, one).await, 3);
        let again = async || {
            let whole = wholes.get(one).await.unwrap();
            wholes.json(one, whole, Vec::new()).await.unwrap().0
        };
        assert_eq!(again().await.as_ptr(), again().await.as_ptr());

        let kept = |wholes: &Wholes| -> Vec<RunId> {
            wholes.kept.lock().unwrap().iter().map(|(run, ..)| *run).collect()
        };
        wholes.max_bytes = 2 * (RUN_BYTES + 4_096);
        drop(wholes.get(two).await.unwrap());
        drop(wholes.get(one).await.unwrap());
        drop(wholes.get(three).await.unwrap());
        assert_eq!(kept(&wholes), [one, three]);
        wholes.max_bytes = RUN_BYTES / 2;
        drop(wholes.get(three).await.unwrap());
        assert_eq!(kept(&wholes), [one], "a run that is too large alone displaces no other");
    }
}

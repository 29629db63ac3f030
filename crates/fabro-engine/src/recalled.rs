//! What was read of earlier stages, kept for the next stage that needs it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabro_types::RunId;

use crate::StageRecord;

/// How many times something is recalled without a stage before what was read of it is given up: so
/// many conversations may go on by turns.
const PATIENCE: u64 = 64;

/// What was read of the stages of conversations: the next stage of one needs all of that again. `T`
/// is what is read of a stage. Holds no more than what was recalled lately.
pub struct Recalled<T>(Mutex<Kept<T>>);

struct Kept<T> {
    // With the time it was recalled last.
    stages: BTreeMap<Key, (u64, Arc<T>)>,
    // Counts what was recalled.
    now: u64,
}

/// A stage, by the place in its run's log where it ended.
type Key = (RunId, u64);

impl<T> Default for Recalled<T> {
    fn default() -> Self {
        Self(Mutex::new(Kept { stages: BTreeMap::new(), now: 0 }))
    }
}

impl<T> Recalled<T> {
    /// What was read of these stages of a run, in their order. Only those that were not recalled
    /// lately are read now.
    pub fn recall<'a, E>(
        &self,
        run: RunId,
        records: impl Iterator<Item = &'a Arc<StageRecord>>,
        read: impl Fn(&StageRecord) -> Result<T, E>,
    ) -> Result<Vec<Arc<T>>, E> {
        let known: Vec<_> = {
            let kept = self.kept();
            let known = |key| kept.stages.get(&key).map(|(_, said)| Arc::clone(said));
            records.map(|record| (record, known((run, record.until_seq)))).collect()
        };
        // Others are not kept waiting for what is read.
        let all = known.into_iter().map(|(record, said)| {
            let said = said.map_or_else(|| read(record).map(Arc::new), Ok)?;
            Ok(((run, record.until_seq), said))
        });
        let all = all.collect::<Result<Vec<_>, E>>()?;
        let said = all.iter().map(|(_, said)| Arc::clone(said)).collect();
        self.kept().keep(all);
        Ok(said)
    }

    fn kept(&self) -> MutexGuard<'_, Kept<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Kept<T> {
    fn keep(&mut self, recalled: Vec<(Key, Arc<T>)>) {
        self.now += 1;
        let now = self.now;
        self.stages.extend(recalled.into_iter().map(|(key, said)| (key, (now, said))));
        if now.is_multiple_of(PATIENCE) {
            self.stages.retain(|_, (last, _)| now - *last < PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use fabro_events::CompletedStage;
    use fabro_types::Outcome;

    use super::*;

    fn record(until_seq: u64) -> Arc<StageRecord> {
        let end = CompletedStage {
            rank: 1,
            attempts: 1,
            outcome: Outcome::succeeded(),
            prompt: None,
            script: None,
        };
        Arc::new(StageRecord {
            node: "a".into(),
            handler: "prompt".into(),
            visit: 1,
            thread_id: None,
            branch: "".into(),
            since_seq: until_seq - 3,
            until_seq,
            end: Arc::new(end),
        })
    }

    #[test]
    fn each_stage_of_a_conversation_is_read_once() {
        let recalled = Recalled::default();
        let reads = Cell::new(0);
        let recall = |run: u128, seqs: &[u64]| {
            let records: Vec<_> = seqs.iter().map(|seq| record(*seq)).collect();
            let read = |record: &StageRecord| {
                reads.set(reads.get() + 1);
                Ok::<_, ()>(format!("{run}.{}", record.until_seq))
            };
            let said = recalled.recall(RunId::from_parts(0, run), records.iter(), read).unwrap();
            said.iter().map(|said| said.as_str()).collect::<Vec<_>>().join(" ")
        };
        let seqs: Vec<u64> = (1..=100).map(|stage| stage * 5).collect();
        let (one, other): (Vec<u64>, Vec<u64>) = seqs.iter().partition(|seq| **seq % 2 == 0);
        // Two conversations of a run, by turns.
        for stages in 1..=50 {
            recall(1, &one[..stages]);
            recall(1, &other[..stages]);
        }
        assert_eq!(reads.get(), 100);
        assert_eq!(recall(2, &[5, 10]), "2.5 2.10");
        assert_eq!(recall(1, &[5, 11]), "1.5 1.11");
        assert_eq!(reads.get(), 103);
    }

    #[test]
    fn what_is_not_recalled_again_is_given_up() {
        let recalled = Recalled::default();
        let recall = |seq| {
            recalled.recall(RunId::from_parts(0, 1), [record(seq)].iter(), |_| Ok::<_, ()>(()))
        };
        for seq in 1..=10 * PATIENCE {
            recall(seq + 2).unwrap();
        }
        assert!(recalled.kept().stages.len() < 2 * PATIENCE as usize);
    }
}

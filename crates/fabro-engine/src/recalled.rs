//! What was read of earlier stages, kept for the next stage that needs it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use fabro_types::RunId;

use crate::StageRecord;

/// What was read of the stages of one conversation: the next stage of it needs all of that again.
/// `T` is what is read of a stage. Holds no more than what was recalled last.
#[derive(Default)]
pub struct Recalled<T>(Mutex<BTreeMap<Key, T>>);

/// A stage, by the place in its run's log where it ended.
type Key = (RunId, u64);

impl<T: Clone> Recalled<T> {
    /// What was read of these stages of a run, which are in order. Only those that were not recalled
    /// last time are read now.
    pub fn recall<'a, E>(
        &self,
        run: RunId,
        records: impl Iterator<Item = &'a Arc<StageRecord>>,
        read: impl Fn(&StageRecord) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all = records.map(|record| {
            let key = (run, record.until_seq);
            let said = known.get(&key).cloned().map_or_else(|| read(record), Ok)?;
            Ok((key, said))
        });
        let all = all.collect::<Result<Vec<_>, E>>()?;
        let said = all.iter().map(|(_, said)| said.clone()).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all.into_iter().collect();
        Ok(said)
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
            recalled.recall(RunId::from_parts(0, run), records.iter(), read).unwrap().join(" ")
        };
        let seqs: Vec<u64> = (1..=50).map(|stage| stage * 5).collect();
        for stages in 1..=seqs.len() {
            recall(1, &seqs[..stages]);
        }
        assert_eq!(reads.get(), 50);
        // Another run, and another conversation of the same.
        assert_eq!(recall(2, &[5, 10]), "2.5 2.10");
        assert_eq!(recall(1, &[5, 11]), "1.5 1.11");
        assert_eq!(reads.get(), 54);
        // No more is kept than the conversation that was recalled last.
        assert_eq!(recalled.0.lock().unwrap().len(), 2);
    }
}

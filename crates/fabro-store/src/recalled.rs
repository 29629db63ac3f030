//! What was read of parts of a log, kept for the next one who needs it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabro_types::RunId;

/// How many times something is recalled without a part of a log before what was read of it is given
/// up: so many conversations may go on by turns.
const PATIENCE: u64 = 64;

/// What was read of the stages of conversations: the next stage of one needs all of that again. `T`
/// is what is made of the records of a stage. Holds no more than what was recalled lately.
pub struct Recalled<T>(Mutex<Kept<T>>);

struct Kept<T> {
    // With the time it was recalled last.
    parts: BTreeMap<Key, (u64, Arc<T>)>,
    // Counts what was recalled.
    now: u64,
}

/// A part of a run's log, by the place where it ends.
type Key = (RunId, u64);

impl<T> Default for Recalled<T> {
    fn default() -> Self {
        Self(Mutex::new(Kept { parts: BTreeMap::new(), now: 0 }))
    }
}

impl<T> Recalled<T> {
    /// What was read of these parts of a run's log, in their order; each comes with the place where
    /// it ends. Only those that were not recalled lately are read now.
    ///
    /// # Errors
    ///
    /// What `read` gave first.
    pub fn recall<P, E>(
        &self,
        run: RunId,
        parts: impl Iterator<Item = (u64, P)>,
        read: impl Fn(P) -> Result<T, E>,
    ) -> Result<Vec<Arc<T>>, E> {
        let known: Vec<_> = {
            let kept = self.kept();
            let known = |key| kept.parts.get(&key).map(|(_, said)| Arc::clone(said));
            parts.map(|(end, part)| ((run, end), part, known((run, end)))).collect()
        };
        // Others are not kept waiting for what is read.
        let all = known
            .into_iter()
            .map(|(key, part, said)| Ok((key, said.map_or_else(|| read(part).map(Arc::new), Ok)?)));
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
        self.parts.extend(recalled.into_iter().map(|(key, said)| (key, (now, said))));
        if now.is_multiple_of(PATIENCE) {
            self.parts.retain(|_, (last, _)| now - *last < PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn each_stage_of_a_conversation_is_read_once() {
        let recalled = Recalled::default();
        let reads = Cell::new(0);
        let recall = |run: u128, ends: &[u64]| {
            let read = |end: u64| {
                reads.set(reads.get() + 1);
                Ok::<_, ()>(format!("{run}.{end}"))
            };
            let parts = ends.iter().map(|end| (*end, *end));
            let said = recalled.recall(RunId::from_parts(0, run), parts, read).unwrap();
            said.iter().map(|said| said.as_str()).collect::<Vec<_>>().join(" ")
        };
        let ends: Vec<u64> = (1..=100).map(|stage| stage * 5).collect();
        let (one, other): (Vec<u64>, Vec<u64>) = ends.iter().partition(|end| **end % 2 == 0);
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
        for end in 1..=10 * PATIENCE {
            let part = std::iter::once((end, ()));
            recalled.recall(RunId::from_parts(0, 1), part, Ok::<_, ()>).unwrap();
        }
        assert!(recalled.kept().parts.len() < 2 * PATIENCE as usize);
    }
}

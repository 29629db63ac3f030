//! What was made of parts of a log, cached for the next reader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabro_types::RunId;

/// A part that was not used in so many rounds is dropped: so many conversations may take turns.
const ROUNDS: u64 = 64;

/// A cache of what was made of the stages of conversations: the next stage of one needs all of
/// that again. `T` is what is made of the records of a stage. Holds only what was used lately.
pub(crate) struct ThreadCache<T>(Mutex<Cache<T>>);

struct Cache<T> {
    /// With the round it was used last.
    parts: BTreeMap<Key, (u64, Arc<T>)>,
    round: u64,
}

/// A part of a run's log, by the sequence number where it ends.
type Key = (RunId, u64);

impl<T> Default for ThreadCache<T> {
    fn default() -> Self {
        Self(Mutex::new(Cache { parts: BTreeMap::new(), round: 0 }))
    }
}

impl<T> ThreadCache<T> {
    /// The part of a run's log that ends at `end`, if it is cached.
    pub(crate) fn get(&self, run: RunId, end: u64) -> Option<Arc<T>> {
        self.cache().parts.get(&(run, end)).map(|(_, part)| Arc::clone(part))
    }

    /// Caches the parts of one conversation, each with where it ends, and ends the round.
    pub(crate) fn keep(&self, run: RunId, parts: &[(u64, Arc<T>)]) {
        let mut cache = self.cache();
        cache.round += 1;
        let round = cache.round;
        for (end, part) in parts {
            cache.parts.insert((run, *end), (round, Arc::clone(part)));
        }
        if round.is_multiple_of(ROUNDS) {
            cache.parts.retain(|_, (last, _)| round - *last < ROUNDS);
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cached_until_it_is_not_used_for_some_rounds() {
        let cache = ThreadCache::default();
        let run = RunId::from_parts(0, 1);
        let other = RunId::from_parts(0, 2);
        cache.keep(run, &[(5, Arc::new("a")), (10, Arc::new("b"))]);
        assert_eq!(cache.get(run, 10).as_deref(), Some(&"b"));
        assert_eq!((cache.get(run, 11), cache.get(other, 10)), (None, None));
        for end in 0..3 * ROUNDS {
            cache.keep(other, &[(end, Arc::new("c"))]);
        }
        assert_eq!(cache.get(run, 10), None);
        assert!(cache.cache().parts.len() < 2 * ROUNDS as usize);
    }
}

//! A log that is read page by page: the next page is read while one is taken in.

use std::sync::Arc;

use fabro_events::Event;
use fabro_store::{RunLog as _, SqliteStore, StoreError};
use fabro_types::RunId;
use tokio::task::JoinHandle;

use super::PAGE;

type Page = Result<Vec<Event>, StoreError>;

/// Reads a run.
pub(super) struct ReadAhead {
    store: Arc<SqliteStore>,
    run: RunId,
    /// The page that is being read, and the event that it follows.
    next: Option<(u64, JoinHandle<Page>)>,
}

impl ReadAhead {
    pub(super) fn new(store: &Arc<SqliteStore>, run: RunId) -> Self {
        Self { store: Arc::clone(store), run, next: None }
    }

    /// The events after this one, at most a page of them.
    pub(super) async fn page(&mut self, after: u64) -> Page {
        let page = match self.next.take() {
            Some((at, reading)) if at == after => match reading.await {
                Ok(page) => page?,
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            },
            _ => self.store.read(self.run, after, PAGE).await?,
        };
        if let Some(last) = page.last()
            && page.len() == PAGE
        {
            let store = Arc::clone(&self.store);
            let run = self.run;
            let after = last.seq;
            let reading = tokio::spawn(async move { store.read(run, after, PAGE).await });
            self.next = Some((after, reading));
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use fabro_events::{Entry, EventBody};
    use fabro_store::Batch;

    use super::*;

    #[tokio::test]
    async fn pages_follow_each_other_and_any_event() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(SqliteStore::open(&dir.path().join("store")).unwrap());
        let run = RunId::from_parts(1, 7);
        let count = 2 * PAGE as u64 + 3;
        let event =
            |seq| Event { run_id: run, seq, ts_ms: 0, entry: Entry::new(EventBody::RunStarted {}) };
        let events: Vec<Event> = (1..=count).map(event).collect();
        store.append(run, 0, &Batch::of(&events)).await.unwrap();
        let mut log = ReadAhead::new(&store, run);
        let mut places = async |after| {
            let page = log.page(after).await.unwrap();
            page.first().map(|first| (first.seq, page.len()))
        };
        let page = PAGE as u64;
        assert_eq!(places(0).await, Some((1, PAGE)));
        assert_eq!(places(page).await, Some((page + 1, PAGE)));
        // What was read ahead does not follow this one.
        assert_eq!(places(0).await, Some((1, PAGE)));
        assert_eq!(places(2 * page).await, Some((2 * page + 1, 3)));
        assert_eq!(places(count).await, None);
    }
}

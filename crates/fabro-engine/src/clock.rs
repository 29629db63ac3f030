/// Tells the time.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> i64;

    /// Milliseconds since any instant, by a clock that is never set: differences are durations.
    fn steady_ms(&self) -> i64 {
        self.now_ms()
    }
}

impl<F: Fn() -> i64 + Send + Sync> Clock for F {
    fn now_ms(&self) -> i64 {
        self()
    }
}

/// Milliseconds between two times; 0 when the clock was set back.
pub(crate) fn duration_ms(from_ms: i64, to_ms: i64) -> u64 {
    u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or_default()
}

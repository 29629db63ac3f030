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

/// A smaller difference is no change of the clock: clocks are adjusted by such steps all the time.
const TOLERANCE_MS: i64 = 1_000;

/// Notices when the clock is set, by comparing it with the one that is never set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockWatch {
    /// How far the clock was ahead of the steady one when it was last known to be set.
    ahead_ms: i64,
}

impl ClockWatch {
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self { ahead_ms: clock.now_ms().saturating_sub(clock.steady_ms()) }
    }

    /// By how much the clock was set since it was last told, in milliseconds; `None` when it was not. `now_ms`
    /// is what it shows.
    pub(crate) fn set_ms(&mut self, now_ms: i64, clock: &dyn Clock) -> Option<i64> {
        let ahead_ms = now_ms.saturating_sub(clock.steady_ms());
        let set_ms = ahead_ms.saturating_sub(self.ahead_ms);
        if set_ms.saturating_abs() < TOLERANCE_MS {
            return None;
        }
        self.ahead_ms = ahead_ms;
        Some(set_ms)
    }
}

/// Milliseconds between two times; 0 when the clock was set back.
pub(crate) fn duration_ms(from_ms: i64, to_ms: i64) -> u64 {
    u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Two {
        wall_ms: AtomicI64,
        steady_ms: AtomicI64,
    }

    impl Clock for Two {
        fn now_ms(&self) -> i64 {
            self.wall_ms.load(Ordering::Relaxed)
        }

        fn steady_ms(&self) -> i64 {
            self.steady_ms.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_clock_that_is_set_is_noticed_once() {
        let clock = Two::default();
        let mut watch = ClockWatch::new(&clock);
        let mut pass = |wall_ms: i64, steady_ms: i64| {
            clock.wall_ms.fetch_add(wall_ms, Ordering::Relaxed);
            clock.steady_ms.fetch_add(steady_ms, Ordering::Relaxed);
            watch.set_ms(clock.now_ms(), &clock)
        };
        assert_eq!(pass(5_000, 5_000), None);
        assert_eq!(pass(7_205_000, 5_000), Some(7_200_000));
        assert_eq!(pass(5_000, 5_000), None);
        assert_eq!(pass(-3_600_000, 1_000), Some(-3_601_000));
        // Small steps add up.
        assert_eq!(
            [pass(400, 0), pass(400, 0), pass(400, 0), pass(0, 0)],
            [None, None, Some(1_200), None]
        );
    }
}

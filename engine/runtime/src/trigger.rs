//! Triggers: when the next batch starts. Spark's rules, counted on the monotonic clock so that a stepped wall clock
//! neither stalls nor floods.

use std::time::Duration;

use tidemill_core::Clock;

/// When batches start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// What fits the sinks: as soon as the batch before has ended, or, with a file sink, every ten seconds.
    #[default]
    Default,
    /// At multiples of an interval since 1970. Zero: as soon as the batch before has ended.
    ProcessingTime(Duration),
    /// What is there at the start, in as many batches as the limits make of it; then the query ends.
    AvailableNow,
}

impl Trigger {
    /// Every `interval`, at its multiples since 1970 (UTC), in whole milliseconds, at least one. A batch that takes
    /// longer is followed by the next one at once, and nothing is caught up. Zero means as soon as possible, and is obeyed as such also with a file sink.
    pub fn processing_time(interval: impl Into<Duration>) -> Trigger {
        Trigger::ProcessingTime(interval.into())
    }

    /// What is there at the start, in as many batches as the limits make of it; then the query ends.
    pub fn available_now() -> Trigger {
        Trigger::AvailableNow
    }
}

/// The beat of one query: tells how long to wait before the next look at the sources.
#[derive(Debug)]
pub struct Beat {
    interval: Duration,
    /// Monotonic time of the last start and of the next; none before the first one, which is at once.
    began: Option<Duration>,
    next: Option<Duration>,
}

/// Between two looks at idle sources, if the interval is shorter.
const POLL: Duration = Duration::from_millis(10);

impl Beat {
    /// The beat of an interval. The first batch starts at once.
    pub fn new(interval: Duration) -> Beat {
        let interval = if interval.is_zero() { interval } else { interval.max(Duration::from_millis(1)) };
        Beat { interval, began: None, next: None }
    }

    /// How long to wait before the next look. `idle`: the last look found nothing.
    pub fn wait(&self, clock: &dyn Clock, idle: bool) -> Duration {
        match self.next {
            None => Duration::ZERO,
            Some(_) if self.interval.is_zero() => {
                if idle {
                    POLL
                } else {
                    Duration::ZERO
                }
            }
            Some(next) => next.saturating_sub(clock.elapsed()),
        }
    }

    /// A look begins: the next one is due at the next multiple of the interval after this moment.
    pub fn start(&mut self, clock: &dyn Clock) {
        let interval_ms = i64::try_from(self.interval.as_millis()).unwrap_or(i64::MAX);
        let until_ms = if interval_ms == 0 { 0 } else { interval_ms - clock.now_ms().rem_euclid(interval_ms) };
        self.began = Some(clock.elapsed());
        self.next = Some(clock.elapsed() + Duration::from_millis(until_ms.unsigned_abs()));
    }

    /// By how much the batch that began with the last [`Beat::start`] has taken longer than its interval.
    pub fn overrun(&self, clock: &dyn Clock) -> Option<Duration> {
        let late = clock.elapsed().saturating_sub(self.began?).saturating_sub(self.interval);
        (!self.interval.is_zero() && !late.is_zero()).then_some(late)
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::testing::ManualClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn starts_are_aligned_to_multiples_of_the_interval() {
        let clock = ManualClock::at(1_003_000);
        let mut beat = Beat::new(10 * SECOND);
        assert_eq!(beat.wait(&clock, false), Duration::ZERO, "the first batch starts at once");
        beat.start(&clock);
        clock.advance(2 * SECOND);
        assert_eq!(beat.wait(&clock, false), 5 * SECOND, "1,003 s is followed by 1,010 s");
    }

    #[test]
    fn overrun_is_followed_at_once_and_nothing_is_caught_up() {
        let clock = ManualClock::at(1_000_000);
        let mut beat = Beat::new(10 * SECOND);
        beat.start(&clock);
        clock.advance(25 * SECOND);
        assert_eq!(beat.overrun(&clock), Some(15 * SECOND));
        assert_eq!(beat.wait(&clock, false), Duration::ZERO);
        beat.start(&clock);
        clock.advance(SECOND);
        assert_eq!(beat.wait(&clock, false), 4 * SECOND, "one batch, then back to the beat at 1,030 s");
        assert_eq!(beat.overrun(&clock), None);
    }

    #[test]
    fn short_batch_that_passes_a_multiple_has_not_overrun() {
        let clock = ManualClock::at(1_009_900);
        let mut beat = Beat::new(10 * SECOND);
        beat.start(&clock);
        clock.advance(SECOND / 5);
        assert_eq!(beat.overrun(&clock), None);
        assert_eq!(beat.wait(&clock, false), Duration::ZERO);
    }

    #[test]
    fn interval_below_a_millisecond_still_waits() {
        let clock = ManualClock::at(1_000);
        let mut beat = Beat::new(Duration::from_micros(500));
        beat.start(&clock);
        assert_eq!(beat.wait(&clock, true), Duration::from_millis(1));
    }

    #[test]
    fn stepped_wall_clock_neither_stalls_nor_floods() {
        for step_ms in [-3_600_000, 3_600_000] {
            let clock = ManualClock::at(10_000_000);
            let mut beat = Beat::new(10 * SECOND);
            beat.start(&clock);
            clock.step_wall(step_ms);
            assert_eq!(beat.wait(&clock, true), 10 * SECOND);
            clock.advance(10 * SECOND);
            beat.start(&clock);
            assert_eq!(beat.wait(&clock, true), 10 * SECOND);
        }
    }

    #[test]
    fn zero_interval_polls_only_when_idle() {
        let clock = ManualClock::at(0);
        let mut beat = Beat::new(Duration::ZERO);
        beat.start(&clock);
        assert_eq!((beat.wait(&clock, false), beat.wait(&clock, true)), (Duration::ZERO, POLL));
    }
}

//! Whether a read gets on: how long to wait for the next message, when to ask the broker what is wrong, and when to give
//! up. A broker that is away is waited for within the bound; what the broker *says* (refused, made again) fails at once.

use std::time::Duration;

use tidemill_core::{Error, Result, code};

use super::client::{SLICE, refused_login};
use super::ffi::OffsetSpec;
use super::lane::Lane;
use super::read::{Output, Range};

/// Waits are short at first: a marker is taken without a message, and only the position tells.
const SHORT_WAIT: Duration = Duration::from_millis(5);

/// How many waits are short.
const SHORT_WAITS: u32 = 20;

/// After how long without progress the broker is asked whether there still is what is waited for, again and again.
const INQUIRY: Duration = Duration::from_secs(3);

/// How long a refused login may last in the middle of a read before the read fails.
const DENIED_BOUND: Duration = Duration::from_secs(10);

/// Watches that a read gets on.
pub(super) struct Watch<'a> {
    output: &'a Output,
    bound: Duration,
    /// When there was progress last.
    since: Duration,
    position: i64,
    /// Waits without a message since then.
    waits: u32,
    /// How long there has to be no progress until the broker is asked.
    inquiry: Duration,
    /// How often in a row it said that there is no such topic, which brokers that start say in passing.
    missing: u32,
}

impl<'a> Watch<'a> {
    /// Watches from now on.
    pub(super) fn new(range: &Range<'a>) -> Self {
        let bound = range.stuck_bound();
        let since = range.output.context.clock.elapsed();
        let position = range.start.next;
        Watch { output: range.output, bound, since, position, waits: 0, inquiry: INQUIRY, missing: 0 }
    }

    /// How long the next wait may be.
    pub(super) fn wait(&self) -> Duration {
        if self.waits < SHORT_WAITS { SHORT_WAIT } else { SLICE }
    }

    /// Called when something came.
    pub(super) fn progress(&mut self) {
        self.since = self.output.context.clock.elapsed();
        self.waits = 0;
        (self.inquiry, self.missing) = (INQUIRY, 0);
    }

    /// Called after each wait that brought nothing.
    pub(super) fn check(&mut self, range: &Range<'_>, lane: &Lane) -> Result<()> {
        let position = lane.position();
        if position > self.position {
            self.position = position;
            self.progress();
            lane.client.works();
        }
        self.waits += 1;
        let idle = self.output.context.clock.elapsed().saturating_sub(self.since);
        if let Some(reason) = lane.client.denied().filter(|_| idle >= DENIED_BOUND.min(self.bound)) {
            return Err(refused_login(&reason).at("partition", range.at()));
        }
        if idle >= self.bound {
            return Err(self.stuck(range, lane, idle));
        }
        if idle >= self.inquiry {
            let reason = lane.client.reason().unwrap_or_default();
            if self.inquiry == INQUIRY {
                tracing::warn!(at = range.at(), position, end = range.end, reason, "waiting for kafka");
            }
            self.inquiry = idle + INQUIRY;
            match range.inquire() {
                Ok(()) => self.missing = 0,
                Err(error) if error.code() == code::SOURCE_NOT_FOUND && self.missing == 0 => self.missing = 1,
                Err(error) => return Err(error.at("partition", range.at())),
            }
        }
        Ok(())
    }

    fn stuck(&self, range: &Range<'_>, lane: &Lane, idle: Duration) -> Error {
        let number = |offset: Option<i64>| offset.map_or("unknown".to_owned(), |offset| offset.to_string());
        let [stable, high] = range.offsets([OffsetSpec::LastStable, OffsetSpec::HighWatermark]);
        let what = format!(
            "no progress for {} s at position {} of a range that ends at {} (last stable offset {}, high watermark {}){}",
            idle.as_secs(),
            self.position,
            range.end,
            number(stable),
            number(high),
            lane.client.reason().map(|reason| format!(": {reason}")).unwrap_or_default(),
        );
        // Without an answer to the question either, it is the broker that is away, not the range that is stuck.
        let code = if high.is_none() { code::SOURCE_UNAVAILABLE } else { code::RANGE_STUCK };
        let fix = "see whether the broker is up and the partition has a leader; a transaction that stays open ends what is \
                   readable; \"kafkaConsumer.pollTimeoutMs\" is the bound";
        Error::new(code, what).at("partition", range.at()).fix(fix)
    }
}

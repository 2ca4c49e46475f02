//! The loop of a running query: look at the sources when the trigger says so, take the batch in hand to its end, retry
//! what may pass, end on everything else.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use tidemill_core::{Error, ErrorKind, Result, code};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::handle::Shared;
use super::progress::{SinkProgress, SourceProgress, StreamingQueryProgress, utc};
use crate::micro_batch::recover::Resume;
use crate::micro_batch::{Ahead, Committed, MicroBatch, Pending, Position, UpTo};
use crate::trigger::{Beat, Trigger};

/// How a query runs.
#[derive(Clone, Debug)]
pub(super) struct RunSettings {
    pub trigger: Trigger,
    /// How long errors that may pass are retried before the first batch is committed…
    pub retry_start: Duration,
    /// …and afterwards.
    pub retry_running: Duration,
    /// One line a batch on stderr.
    pub log_to_stderr: bool,
}

/// How long the batch in hand may go on after `stop`.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// The longest pause between two looks of an idle query that runs as often as it can.
const IDLE_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often a driver looks for a newer one, busy or idle.
const FENCE_EVERY: Duration = Duration::from_secs(3);

pub(super) struct Run {
    pub steps: MicroBatch,
    pub shared: Arc<Shared>,
    pub settings: RunSettings,
    /// When the trigger before began, on the monotonic clock.
    pub last_start: Option<Duration>,
    /// Whether this run has committed a batch.
    pub committed: bool,
    /// The question for the next batch, if it was asked while the batch before was shown.
    pub ahead: Option<Ahead>,
}

/// What a look at the sources found.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is moved once a step")]
enum Look {
    Batch(Pending, i64, Duration),
    Nothing,
    Stopped,
}

impl Run {
    /// Runs until the query is stopped, has read all that was available, or fails.
    pub async fn run(mut self) {
        let clock = Arc::clone(&self.steps.clock);
        let cancel = CancellationToken::new();
        let fence = self.steps.checkpoint.fence();
        let ended = {
            let stop = self.shared.stop.clone();
            let watch = async {
                loop {
                    clock.sleep(FENCE_EVERY).await;
                    if let Err(error) = fence.check_place().await
                        && error.kind() != ErrorKind::Retry
                    {
                        return error;
                    }
                }
            };
            let grace = async {
                stop.cancelled().await;
                clock.sleep(STOP_GRACE).await;
            };
            // A panic anywhere in a step ends the query like an error: whoever waits for it is told.
            let batches = AssertUnwindSafe(self.batches(&cancel)).catch_unwind();
            tokio::select! {
                biased;
                ended = batches => ended.unwrap_or_else(|panic| Err(panicked(&*panic))),
                error = watch => Err(error),
                () = grace => Ok(()),
            }
        };
        cancel.cancel();
        for (name, source) in &self.steps.query.sources {
            source.ended(self.steps.owner(name)).await;
        }
        self.tell_warnings();
        self.release_clients();
        let ended = match ended {
            // Who asks a query to stop that waits for its broker does not ask why it waits.
            Err(error) if error.kind() == ErrorKind::Retry && self.shared.stop.is_cancelled() => {
                info!(query = self.shared.name, error = %error.report(), "query stopped while a step failed");
                Ok(())
            }
            Err(error) if error.kind() != ErrorKind::Fenced => match fence.check().await {
                // What went wrong may be a newer driver's doing, and that is the better word.
                Err(fenced) if fenced.kind() == ErrorKind::Fenced => Err(fenced.because(error)),
                _ => Err(error),
            },
            ended => ended,
        };
        match &ended {
            Ok(()) => {
                self.shared.set_status("Stopped", false, false);
                info!(query = self.shared.name, "query ended");
            }
            Err(failure) => {
                self.shared.set_status(&format!("Terminated with exception: {failure}"), false, false);
                error!(query = self.shared.name, error = %failure.report(), "query failed");
                if self.settings.log_to_stderr {
                    // All of it is for whoever waits for the query.
                    super::say(&format!("query \"{}\" failed with {}", self.shared.name, failure.code().id));
                }
            }
        }
        self.shared.ended.send_replace(Some(ended));
    }

    async fn batches(&mut self, cancel: &CancellationToken) -> Result<()> {
        let mut position = match self.retry("Reading the checkpoint", |steps| steps.recover()).await? {
            Resume::Next(position) => position,
            Resume::Finish(pending) => {
                let now_ms = self.steps.clock.now_ms();
                self.finish(pending, now_ms, self.steps.clock.elapsed(), None, cancel).await?
            }
        };
        position =
            self.retry("Getting offsets from the sources", |steps| steps.start_sources(position.clone())).await?;
        self.steps.tell_sources(&position).await;
        let mut beat = Beat::new(self.interval());
        let mut up_to = None;
        if self.settings.trigger == Trigger::AvailableNow {
            up_to = Some(self.retry("Getting offsets from the sources", |steps| steps.ends_now(&position)).await?);
        }
        let mut idle = false;
        loop {
            match self.look(&position, up_to.as_ref(), &mut beat, idle).await? {
                Look::Stopped => return Ok(()),
                // Whoever says that all is read says so as the driver of this checkpoint.
                Look::Nothing if up_to.is_some() => return self.last_look().await,
                Look::Nothing => idle = true,
                Look::Batch(pending, timestamp_ms, began) => {
                    idle = false;
                    position = self.finish(pending, timestamp_ms, began, Some((&beat, up_to.as_ref())), cancel).await?;
                    if let Some(late) = beat.overrun(&*self.steps.clock) {
                        warn!(late_ms = late.as_millis() as u64, "batch took longer than the trigger's interval");
                    }
                }
            }
        }
    }

    /// Waits for the trigger, then asks the sources.
    async fn look(&mut self, position: &Position, up_to: Option<&UpTo>, beat: &mut Beat, idle: bool) -> Result<Look> {
        let clock = Arc::clone(&self.steps.clock);
        let stop = self.shared.stop.clone();
        let mut wait = beat.wait(&*clock, idle);
        if idle && self.interval().is_zero() {
            let pauses = self.steps.query.sources.values().map(|source| source.idle_pause());
            wait = pauses.fold(wait, Duration::max).min(IDLE_PAUSE_MAX);
        }
        if !wait.is_zero() {
            self.shared.set_status(
                if idle { "Waiting for data to arrive" } else { "Waiting for next trigger" },
                !idle,
                false,
            );
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = clock.sleep(wait) => {}
            }
        }
        if stop.is_cancelled() {
            return Ok(Look::Stopped);
        }
        beat.start(&*clock);
        let look = self.shared.looks.fetch_add(1, Ordering::SeqCst) + 1;
        let (timestamp_ms, began) = (clock.now_ms(), clock.elapsed());
        let ahead = self.ahead.take();
        let planned = async {
            let (steps, mut offers) = (&self.steps, None);
            if let Some(ahead) = ahead {
                offers = steps.timings.phase(&*clock, "latestOffset", ahead.offers(position, clock.elapsed())).await;
            }
            if let Some(offers) = offers {
                return steps.plan_offsets(position, offers, up_to);
            }
            self.retry("Getting offsets from the sources", |steps| async move {
                let offers = steps.offers(&position.offsets, up_to);
                let offers = steps.timings.phase(&*steps.clock, "latestOffset", offers).await?;
                steps.plan_offsets(position, offers, up_to)
            })
            .await
        };
        let planned = tokio::select! {
            biased;
            planned = planned => planned?,
            () = stop.cancelled() => return Ok(Look::Stopped),
        };
        match planned {
            Some(planned) => Ok(Look::Batch(Pending::Planned(planned), timestamp_ms, began)),
            None => {
                self.steps.timings.take();
                self.tell_warnings();
                self.shared.set_status("Waiting for data to arrive", false, false);
                self.shared.idle.send_replace(look);
                Ok(Look::Nothing)
            }
        }
    }

    /// Ends with `FENCED` if a newer driver has started here. A store that does not answer now is no reason to fail.
    async fn last_look(&self) -> Result<()> {
        match self.steps.checkpoint.fence().check_place().await {
            Err(error) if error.kind() != ErrorKind::Retry => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes the batch in hand to its end, and reports it. If the next one is due by then, its question is asked while this
    /// one is shown.
    async fn finish(
        &mut self,
        mut pending: Pending,
        timestamp_ms: i64,
        began: Duration,
        next: Option<(&Beat, Option<&UpTo>)>,
        cancel: &CancellationToken,
    ) -> Result<Position> {
        let mut first_failure = None;
        loop {
            self.shared.set_status(&format!("Processing batch {}", pending.batch_id()), true, true);
            match self.steps.advance(&mut pending, cancel).await {
                Ok(Some(committed)) => {
                    self.committed = true;
                    self.report(&committed, timestamp_ms, began);
                    return Ok(committed.position);
                }
                // A step was done: the next one has all of its time.
                Ok(None) => first_failure = None,
                Err(error) => {
                    self.pause(error.at("batch", pending.batch_id()), &mut first_failure).await?;
                    continue;
                }
            }
            if let (Pending::Acked(acked), Some((beat, up_to))) = (&pending, next)
                && beat.wait(&*self.steps.clock, false).is_zero()
                && !self.shared.stop.is_cancelled()
            {
                self.ahead = self.steps.ask_ahead(acked, up_to);
            }
        }
    }

    /// Repeats a step that has nothing durable to hold on to.
    async fn retry<'a, T, F: Future<Output = Result<T>>>(
        &'a self,
        what: &str,
        step: impl Fn(&'a MicroBatch) -> F,
    ) -> Result<T> {
        let mut first_failure = None;
        loop {
            self.shared.set_status(what, false, true);
            match step(&self.steps).await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.pause(error, &mut first_failure).await?,
            }
        }
    }

    /// After an error that may pass: waits a little, or gives up when its time is over. Other errors end the run.
    async fn pause(&self, error: Error, first_failure: &mut Option<(Duration, Duration)>) -> Result<()> {
        if error.kind() != ErrorKind::Retry {
            return Err(error);
        }
        if self.shared.stop.is_cancelled() {
            return Err(error);
        }
        let clock = &self.steps.clock;
        let now = clock.elapsed();
        let (since, pause) = first_failure.get_or_insert((now, Duration::from_millis(100)));
        let patience = if self.committed { self.settings.retry_running } else { self.settings.retry_start };
        if now.saturating_sub(*since) + *pause > patience {
            return Err(error.at("gave up after", format!("{} s", now.saturating_sub(*since).as_secs())));
        }
        warn!(query = self.shared.name, error = %error.report(), "step failed and is tried again");
        self.shared.set_status(&format!("Trying again after: {error}"), false, true);
        if self.settings.log_to_stderr {
            super::say(&format!("trying again after: {}", error.report()));
        }
        let wait = *pause;
        *pause = (*pause * 2).min(Duration::from_secs(5));
        tokio::select! {
            () = clock.sleep(wait) => Ok(()),
            () = self.shared.stop.cancelled() => Err(error),
        }
    }

    /// Lets go of what was kept from batch to batch: with the query, its connections end.
    fn release_clients(&self) {
        let clients = self.steps.engine.clients();
        for source in self.steps.query.sources.values() {
            clients.release_reader(source.spec());
        }
        for sink in &self.steps.query.sinks {
            clients.release_sink(sink.sink.spec());
        }
    }

    fn interval(&self) -> Duration {
        match self.settings.trigger {
            Trigger::ProcessingTime(interval) => interval,
            Trigger::AvailableNow => Duration::ZERO,
            Trigger::Default => {
                let sinks = self.steps.query.sinks.iter();
                Duration::from_millis(sinks.map(|sink| sink.sink.default_interval_ms()).max().unwrap_or(0))
            }
        }
    }

    /// Tells people what the sources noticed since the last time.
    fn tell_warnings(&self) {
        for (name, source) in &self.steps.query.sources {
            for warning in source.warnings(self.steps.owner(name)) {
                self.steps.notices.warn(&format!("source \"{name}\": {warning}"));
            }
        }
    }

    fn report(&mut self, committed: &Committed, timestamp_ms: i64, began: Duration) {
        self.tell_warnings();
        let now = self.steps.clock.elapsed();
        let took_ms = u64::try_from(now.saturating_sub(began).as_millis()).unwrap_or(u64::MAX);
        let since = self.last_start.replace(began).map(|last| began.saturating_sub(last));
        let rate =
            |rows: u64| since.filter(|since| !since.is_zero()).map_or(0.0, |s| tenth(rows as f64 / s.as_secs_f64()));
        let speed = |rows: u64| tenth(rows as f64 * 1000.0 / took_ms.max(1) as f64);
        let mut duration_ms: BTreeMap<String, u64> =
            self.steps.timings.take().into_iter().map(|(name, ms)| (name.to_owned(), ms)).collect();
        duration_ms.insert("triggerExecution".to_owned(), took_ms);
        let sources = self.steps.query.sources.iter().map(|(name, source)| {
            let rows =
                committed.receipts.iter().filter(|receipt| receipt.source == *name).map(|receipt| receipt.rows).sum();
            let end = committed.position.offsets.get(name);
            let latest = committed.latest.get(name);
            let mut metrics = BTreeMap::new();
            if let (Some(end), Some(latest)) = (end, latest) {
                metrics = source.metrics(end, latest, self.steps.owner(name));
                if let Some(behind) = source.rows_between(end, latest) {
                    metrics.insert("rowsBehindLatest".to_owned(), behind.to_string());
                    metrics.insert("secondsBehindLatest".to_owned(), seconds(behind, speed(rows)));
                }
            }
            if let Some(loss) = committed.losses.get(name).filter(|loss| !loss.is_none()) {
                metrics.insert("dataLoss".to_owned(), loss.rows.to_string());
                let (batch_id, why) = (committed.batch_id, loss.why.join("; "));
                let rows = match loss.rows {
                    0 => "an unknown number of rows".to_owned(),
                    rows => format!("{rows} rows"),
                };
                self.steps.notices.warn(&format!("batch {batch_id}: {rows} of source \"{name}\" are lost: {why}"));
            }
            SourceProgress {
                name: name.clone(),
                description: source.description(),
                start_offset: committed.ranges[name]["start"].clone(),
                end_offset: committed.ranges[name]["end"].clone(),
                latest_offset: latest.map(|latest| latest.as_json().clone()).unwrap_or_default(),
                num_input_rows: rows,
                input_rows_per_second: rate(rows),
                processed_rows_per_second: speed(rows),
                metrics,
            }
        });
        let sources: Vec<SourceProgress> = sources.collect();
        let sinks = self.steps.query.sinks.iter().filter_map(|sink| {
            let shown = committed.sinks.get(&sink.name)?;
            let progress = SinkProgress {
                description: sink.sink.description(),
                num_output_rows: shown.rows,
                num_output_bytes: shown.bytes,
                num_output_files: shown.files,
            };
            Some((sink.name.clone(), progress))
        });
        let sinks: BTreeMap<String, SinkProgress> = sinks.collect();
        let rows = sources.iter().map(|source| source.num_input_rows).sum();
        let progress = StreamingQueryProgress {
            id: self.shared.id.clone(),
            run_id: self.shared.run_id.clone(),
            name: self.shared.name.clone(),
            timestamp: utc(timestamp_ms),
            batch_id: committed.batch_id,
            batch_duration: took_ms,
            num_input_rows: rows,
            input_rows_per_second: rate(rows),
            processed_rows_per_second: speed(rows),
            duration_ms,
            sources,
            sink: if sinks.len() == 1 { sinks.values().next().cloned() } else { None },
            sinks,
            state_operators: Vec::new(),
            generation: self.steps.checkpoint.generation().0,
        };
        info!(batch_id = %progress.batch_id, rows, duration_ms = took_ms, "batch committed");
        if self.settings.log_to_stderr {
            super::say(&progress.line());
        }
        self.shared.push(progress);
    }
}

/// What a panic says.
fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Error::new(code::BUG, format!("the query's driver panicked: {text}"))
}

/// How long rows take at this many a second, in seconds with one decimal; without a speed only none take no time.
fn seconds(rows: u64, rows_per_second: f64) -> String {
    match rows {
        0 => "0.0".to_owned(),
        _ if rows_per_second <= 0.0 => "unknown".to_owned(),
        rows => format!("{:.1}", rows as f64 / rows_per_second),
    }
}

/// Rounded to one decimal, as Spark prints rates.
fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

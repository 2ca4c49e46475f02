//! `session.query(name)`: named sinks, one checkpoint, one commit.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_core::sink::Mode;
use tidemill_core::store::{Location, Stores};
use tidemill_core::{Clock, Error, ErrorKind, Guarantee, Options, Result, Sink, SinkBuilder, SinkKey, code};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::handle::{Shared, StreamingQuery};
use super::progress::StreamingQueryStatus;
use super::run::{Run, RunSettings};
use crate::checkpoint::{Checkpoint, CheckpointSettings, Retention};
use crate::dataflow::{SinkPlan, Spooled, sources_of, volatile_functions};
use crate::frame::{DataFrame, name_sources};
use crate::micro_batch::{MicroBatch, Notices, Paces, QueryPlan, Timings};
use crate::session::Session;
use crate::trigger::Trigger;

/// Sets up a query: one or more named sinks that are committed together.
#[derive(Debug)]
pub struct QueryBuilder {
    session: Session,
    name: String,
    sinks: Vec<(String, DataFrame, SinkSetup)>,
    checkpoint: Option<CheckpointAt>,
    trigger: Trigger,
    settings: CheckpointSettings,
}

/// How a sink was given.
#[derive(Debug)]
pub(super) enum SinkSetup {
    /// By its typed builder.
    Built(Result<Arc<dyn Sink>>),
    /// By format and options.
    Named { format: String, options: Options, partition_by: Vec<String> },
}

#[derive(Debug)]
enum CheckpointAt {
    Url(String),
    Opened(Location),
}

impl Session {
    /// Begins a query with named sinks. Its rows are committed together, batch by batch; each sink has each row once.
    pub fn query(&self, name: impl Into<String>) -> QueryBuilder {
        QueryBuilder {
            session: self.clone(),
            name: name.into(),
            sinks: Vec::new(),
            checkpoint: None,
            trigger: Trigger::Default,
            settings: CheckpointSettings::default(),
        }
    }
}

impl QueryBuilder {
    /// Adds a sink. Its name is half of the key under which it remembers batches, so it stays the same for ever.
    #[must_use]
    pub fn sink(self, name: impl Into<String>, frame: DataFrame, sink: impl SinkBuilder + 'static) -> Self {
        let built = sink.build(self.session.context());
        self.with_sink(name, frame, SinkSetup::Built(built))
    }

    pub(super) fn with_sink(mut self, name: impl Into<String>, frame: DataFrame, sink: SinkSetup) -> Self {
        self.sinks.push((name.into(), frame, sink));
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn named(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    /// Where the checkpoint is: the only memory of the query. One location a query, for ever.
    #[must_use]
    pub fn checkpoint(mut self, location: impl Into<String>) -> Self {
        self.checkpoint = Some(CheckpointAt::Url(location.into()));
        self
    }

    /// The checkpoint by an opened location: a store that the caller has wrapped.
    #[must_use]
    pub fn checkpoint_at(mut self, location: Location) -> Self {
        self.checkpoint = Some(CheckpointAt::Opened(location));
        self
    }

    /// When batches start.
    #[must_use]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.trigger = trigger;
        self
    }

    /// How many batches the checkpoint keeps.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// How long a write to the checkpoint may stay undecided before the run ends: 5 minutes unless set. It is asked again
    /// every 10 seconds.
    #[must_use]
    pub fn write_patience(mut self, patience: Duration) -> Self {
        self.settings.write_patience = patience;
        self
    }

    /// Starts the query. It runs on its own; the handle watches it and stops it.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the frames, the sinks and the checkpoint location; a newer driver.
    pub async fn start(self) -> Result<StreamingQuery> {
        let session = self.session.clone();
        let context = session.context().clone();
        let mut query = plan_query(&session, self.name, self.sinks).await?;
        let (location, temporary) = open_checkpoint(&context.stores, self.checkpoint, &query)?;
        spool_direct_sinks(&mut query, &location)?;
        let clock = Arc::clone(&context.clock);
        let notices = notices_of(&session);
        let patience = session.retry_start();
        let checkpoint = patiently("the checkpoint cannot be opened", &*clock, patience, notices, || {
            Checkpoint::open(location.clone(), Arc::clone(&clock), Arc::clone(&context.rng), self.settings.clone())
        })
        .await?;
        if let Some(folder) = &temporary {
            warn!(folder = %folder.display(), "no checkpointLocation: the query starts anew at its next start");
        }
        for sink in &query.sinks {
            let key = SinkKey { query_id: checkpoint.query_id().clone(), sink: sink.name.clone() };
            let what = format!("sink \"{}\" is not ready", sink.name);
            let warnings = patiently(&what, &*clock, patience, notices, || sink.sink.prepare(&key)).await;
            for warning in warnings.map_err(|error| error.at("sink", &sink.name))? {
                notices.warn(&format!("sink \"{}\": {warning}", sink.name));
            }
        }
        let tables = query.sinks.iter().filter_map(|sink| Some((sink.name.as_str(), sink.sink.table()?)));
        for warning in shared_tables(&tables.collect::<Vec<_>>()) {
            notices.warn(&warning);
        }
        let start_line = start_line(&query, &checkpoint, self.trigger, temporary.is_some());
        info!(query = query.name, "{start_line}");
        if session.logs_to_stderr() {
            super::say(&start_line);
        }
        let shared = Arc::new(Shared {
            id: checkpoint.query_id().clone(),
            run_id: checkpoint.run_id().clone(),
            name: query.name.clone(),
            explanation: explain(&query),
            stop: CancellationToken::new(),
            status: Mutex::new(StreamingQueryStatus {
                message: "Initializing".to_owned(),
                is_data_available: false,
                is_trigger_active: false,
            }),
            recent: Mutex::new(VecDeque::new()),
            ended: watch::Sender::new(None),
            newest: watch::Sender::new(None),
            looks: 0.into(),
            idle: watch::Sender::new(0),
        });
        let engine = Arc::clone(session.engine());
        let run = Run {
            steps: MicroBatch {
                query,
                checkpoint,
                executor: Arc::new(engine.executor()),
                engine,
                clock,
                rng: context.rng,
                kept: Mutex::default(),
                contested: Mutex::default(),
                paces: Paces::default(),
                timings: Timings::default(),
                notices,
            },
            shared: Arc::clone(&shared),
            settings: RunSettings {
                trigger: self.trigger,
                retry_start: session.retry_start(),
                retry_running: session.retry_running(),
                log_to_stderr: session.logs_to_stderr(),
            },
            last_start: None,
            committed: false,
            ahead: None,
        };
        tokio::spawn(async move {
            run.run().await;
            if let Some(folder) = temporary {
                let _ = tokio::fs::remove_dir_all(folder).await;
            }
        });
        Ok(StreamingQuery(shared))
    }
}

/// Checks frames and sinks, names the sources, and puts it all together.
async fn plan_query(session: &Session, name: String, given: Vec<(String, DataFrame, SinkSetup)>) -> Result<QueryPlan> {
    let usage = |what: &str, fix: &str| Err(Error::new(code::USAGE, what).fix(fix));
    if given.is_empty() {
        return usage("the query has no sink", "add one with .sink(name, frame, sink)");
    }
    let (mut names, mut plans, mut sinks) = (Vec::new(), Vec::new(), Vec::new());
    for (sink_name, frame, setup) in given {
        if !is_name(&sink_name) || names.contains(&sink_name) {
            let what = format!("\"{sink_name}\" cannot be the name of a sink");
            return usage(&what, "use letters, digits, \"_\" and \"-\", each name once");
        }
        let place = |error: Error| error.at("sink", &sink_name);
        let plan = frame.into_plan().map_err(place)?;
        if sources_of(&plan)?.is_empty() {
            let what = format!("the frame of sink \"{sink_name}\" reads no stream");
            return usage(&what, "use read_stream() or session.stream(…)");
        }
        let sink = match setup {
            SinkSetup::Built(sink) => sink,
            SinkSetup::Named { format, options, partition_by } => match session.registry().sink(&format) {
                Ok(known) => known.open(options, partition_by, session.context()).await,
                Err(error) => Err(error),
            },
        };
        let sink = sink.map_err(place)?;
        sink.check_schema(plan.schema().inner()).map_err(place)?;
        for function in volatile_functions(&plan)? {
            let what = "gives other values when a batch is run again";
            notices_of(session).warn(&format!("query \"{name}\", sink \"{sink_name}\": {function} {what}"));
        }
        names.push(sink_name);
        plans.push(plan);
        sinks.push(sink);
    }
    name_sources(&mut plans)?;
    let mut sources = BTreeMap::new();
    for plan in &plans {
        sources.extend(sources_of(plan)?);
    }
    let text: Vec<String> = plans.iter().map(|plan| plan.display_indent_schema().to_string()).collect();
    let fingerprint = format!("{:08x}", crc32c::crc32c(text.join("\n").as_bytes()));
    let sinks = names.into_iter().zip(sinks).zip(plans).map(|((name, sink), plan)| SinkPlan::new(name, sink, plan));
    Ok(QueryPlan { name, sources, sinks: sinks.collect(), fingerprint })
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The checkpoint's location; a temporary one, with its folder, for sinks that need none of their own.
fn open_checkpoint(
    stores: &Stores,
    given: Option<CheckpointAt>,
    query: &QueryPlan,
) -> Result<(Location, Option<PathBuf>)> {
    match given {
        Some(CheckpointAt::Opened(location)) => Ok((location, None)),
        Some(CheckpointAt::Url(url)) => Ok((stores.open(&url)?, None)),
        None => {
            if let Some(sink) = query.sinks.iter().find(|sink| sink.sink.needs_checkpoint()) {
                return Err(Error::new(code::MISSING_OPTION, "the query has no checkpoint location")
                    .at("sink", &sink.name)
                    .fix("set .option(\"checkpointLocation\", …), or .checkpoint(…): the query's only memory"));
            }
            let folder = std::env::temp_dir().join(format!("tidemill-{}", uuid::Uuid::new_v4()));
            Ok((stores.open(&folder.to_string_lossy())?, Some(folder)))
        }
    }
}

/// Beside another sink, a sink that shows rows at once waits until the attempt has won.
fn spool_direct_sinks(query: &mut QueryPlan, location: &Location) -> Result<()> {
    if query.sinks.len() > 1 {
        for sink in query.sinks.iter_mut().filter(|sink| sink.sink.mode() == Mode::Direct) {
            sink.sink = Arc::new(Spooled::new(Arc::clone(&sink.sink), location.clone())?);
        }
    }
    Ok(())
}

/// Tables, by their sinks' names, that lie within one another: a sentence for each pair.
fn shared_tables(tables: &[(&str, &str)]) -> Vec<String> {
    let within = |inner: &str, outer: &str| {
        inner
            .trim_end_matches('/')
            .strip_prefix(outer.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut warnings = Vec::new();
    for (at, (first, one)) in tables.iter().enumerate() {
        for (second, other) in &tables[at + 1..] {
            if within(one, other) || within(other, one) {
                let outer = if within(one, other) { other } else { one };
                warnings.push(format!(
                    "sinks \"{first}\" and \"{second}\" both write to {outer}; a row that both take is there twice"
                ));
            }
        }
    }
    warnings
}

fn notices_of(session: &Session) -> Notices {
    Notices { to_stderr: session.logs_to_stderr() }
}

/// Repeats what may pass, within a bound.
async fn patiently<T, F: Future<Output = Result<T>>>(
    what: &str,
    clock: &dyn Clock,
    patience: Duration,
    notices: Notices,
    step: impl Fn() -> F,
) -> Result<T> {
    let begun = clock.elapsed();
    let mut pause = Duration::from_millis(100);
    loop {
        match step().await {
            Err(error) if error.kind() == ErrorKind::Retry && clock.elapsed() - begun + pause < patience => {
                notices.warn(&format!("{what} and is tried again: {error}"));
                clock.sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            answer => return answer,
        }
    }
}

/// Where the query starts and what it promises, on one line.
fn start_line(query: &QueryPlan, checkpoint: &Checkpoint, trigger: Trigger, temporary: bool) -> String {
    let sources: Vec<String> =
        query.sources.iter().map(|(name, source)| format!("{name}: {}", source.description())).collect();
    let sinks: Vec<String> = query
        .sinks
        .iter()
        .map(|sink| {
            let promise = match sink.sink.guarantee() {
                Guarantee::ExactlyOnce { reader } => format!("exactly once for {reader}"),
                Guarantee::AtLeastOnce => "at least once".to_owned(),
            };
            format!("{}: {} ({promise})", sink.name, sink.sink.description())
        })
        .collect();
    let hold_ms = query.sinks.iter().map(|sink| sink.sink.default_interval_ms()).max().unwrap_or(0);
    let beat = match trigger {
        Trigger::Default if hold_ms > 0 => {
            format!("every {} s (file sink; set a trigger to change it)", hold_ms / 1000)
        }
        Trigger::Default => "as soon as possible".to_owned(),
        Trigger::ProcessingTime(interval) if interval.is_zero() => "as soon as possible".to_owned(),
        Trigger::ProcessingTime(interval) => format!("every {} ms", interval.as_millis()),
        Trigger::AvailableNow => "until all that is there now is read".to_owned(),
    };
    format!(
        "query \"{}\" {} generation {} starts: checkpoint {}{}; from {}; to {}; {beat}",
        query.name,
        checkpoint.query_id(),
        checkpoint.generation(),
        checkpoint.location().url,
        if temporary { " (temporary: nothing is remembered)" } else { "" },
        sources.join(", "),
        sinks.join(", "),
    )
}

fn explain(query: &QueryPlan) -> String {
    let mut text = String::new();
    for (name, source) in &query.sources {
        text.push_str(&format!("source {name}: {}\n", source.description()));
    }
    for sink in &query.sinks {
        text.push_str(&format!("sink {}: {}\n{}\n", sink.name, sink.sink.description(), sink.plan.display_indent()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::shared_tables;

    #[test]
    fn tables_within_one_another_are_told() {
        let both = |one, other| shared_tables(&[("a", one), ("b", other)]);
        assert_eq!(
            both("s3://x/t", "s3://x/t/"),
            ["sinks \"a\" and \"b\" both write to s3://x/t/; a row that both take is there twice"]
        );
        for (one, other) in [("/x/t", "/x/t/odd"), ("/x/t/odd", "/x/t")] {
            assert!(both(one, other)[0].contains("both write to /x/t;"));
        }
        for (one, other) in [("/x/t", "/x/t2"), ("/x/t/a", "/x/t/b"), ("s3://x/t", "hdfs://x/t")] {
            assert!(both(one, other).is_empty(), "{one} {other}");
        }
    }
}

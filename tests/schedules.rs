//! Schedules of two drivers on the real engine: one sleeps before an operation of its choice while the other goes on.
//! SCHEDULES.md says which rule each of them would break.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, PutPayload};
use tidemill::arrow::datatypes::SchemaRef;
use tidemill::prelude::*;
use tidemill::store::faulty::{Fault, FaultyStore, Op, OpKind};
use tidemill::store::{Location, Path, Store};
use tidemill::{Error, MemorySource, Retention, StreamingQuery, code};
use tidemill_core::sink::{Acked, Published, SinkKey, SinkWriter, WriteTask};
use tidemill_core::{AttemptId, BatchId, Context, Generation, Guarantee, Sink, SinkBuilder, SinkSpec};
use tidemill_runtime::checkpoint::Log;
use tidemill_runtime::checkpoint::entry::{AcksBody, Body, CommitBody, Entry, OffsetsBody, Parsed, decode};

use crate::support::gate::Gate;
use crate::support::pipeline::{BOUND, ended, numbers, rows, schema, session, source};

/// How long a driver tries again: what fails here has died.
const PATIENCE: Duration = Duration::from_millis(150);

/// A program and where it runs. Clones run on the same checkpoint and write to the same table.
#[derive(Clone)]
struct Program {
    source: MemorySource,
    filter: &'static str,
    table: MemorySink,
    store: Arc<InMemory>,
    retention: Retention,
    trigger: Trigger,
}

impl Program {
    fn new(source: MemorySource) -> Program {
        Program {
            source,
            filter: "n >= 0",
            table: MemorySink::new(),
            store: Arc::new(InMemory::new()),
            retention: Retention::default(),
            trigger: Trigger::available_now(),
        }
    }

    fn with_filter(&self, filter: &'static str) -> Program {
        Program { filter, ..self.clone() }
    }

    fn with_source(&self, source: MemorySource) -> Program {
        Program { source, ..self.clone() }
    }

    /// The program as one that goes on until it is stopped.
    fn endless(&self) -> Program {
        Program { trigger: Trigger::processing_time(Duration::ZERO), ..self.clone() }
    }

    /// Starts a driver over a store in front of the checkpoint.
    async fn start(&self, store: Arc<dyn Store>) -> tidemill::Result<StreamingQuery> {
        let session = Session::builder().retry_start(PATIENCE).retry_running(PATIENCE).build()?;
        let frame = session.stream(self.source.clone()).await?.filter(self.filter);
        let query = session.query("scheduled").sink("table", frame, self.table.clone());
        let query = query.checkpoint_at(Location::new(store, "memory")).retention(self.retention.clone());
        query.write_patience(PATIENCE).trigger(self.trigger).start().await
    }

    /// A driver that nothing happens to reads all that is there.
    async fn finish(&self) {
        ended(&self.start(self.store.clone()).await.unwrap()).await.expect("nothing happens to it");
    }

    fn shown(&self) -> Vec<i64> {
        numbers(&self.table.rows())
    }

    /// A store whose driver sleeps at the gate before it creates this entry; if it is to die, right after it created
    /// the other.
    fn sleeps_before(&self, entry: &Path, dies_after: Option<&Path>) -> (Arc<FaultyStore>, Gate) {
        let gate = Gate::new();
        let (door, entry, last) = (gate.door(), entry.clone(), dies_after.cloned());
        let store = FaultyStore::new(self.store.clone(), move |op| {
            if creates(op, &entry) {
                door.pass();
            }
            if last.as_ref().is_some_and(|last| creates(op, last)) { Fault::DiesAfter } else { Fault::None }
        });
        (store, gate)
    }

    /// A store whose driver sleeps twice: before it creates this entry, and when it has.
    fn sleeps_around(&self, entry: &Path) -> (Arc<FaultyStore>, Gate, Gate) {
        let (before, after) = (Gate::new(), Gate::new());
        let (first, second, entry, created) = (before.door(), after.door(), entry.clone(), AtomicBool::new(false));
        let store = FaultyStore::new(self.store.clone(), move |op| {
            if creates(op, &entry) {
                first.pass();
                created.store(true, Ordering::SeqCst);
            } else if created.load(Ordering::SeqCst) {
                second.pass();
            }
            Fault::None
        });
        (store, before, after)
    }

    async fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let location = Location::new(self.store.clone(), "memory");
        location.read(path).await.unwrap().map(|bytes| bytes.to_vec())
    }

    async fn entry<B: Body>(&self, path: &Path) -> Entry<B> {
        let bytes = self.bytes(path).await.unwrap_or_else(|| panic!("{path} is not there"));
        match decode::<B>(&bytes, None).unwrap() {
            Parsed::Good(entry) => *entry,
            Parsed::Torn(damage) => panic!("{path}: {damage}"),
        }
    }

    async fn write(&self, path: &Path, bytes: Vec<u8>) {
        self.store.put(path, PutPayload::from(bytes)).await.unwrap();
    }

    /// Tears an entry, and says what is left of it.
    async fn tear(&self, path: &Path) -> Vec<u8> {
        let mut bytes = self.bytes(path).await.expect("it is there");
        bytes.truncate(bytes.len() / 2);
        self.write(path, bytes.clone()).await;
        bytes
    }

    /// Skips a number, so that no driver which started before finds a newer one when it looks for the next number:
    /// safety may not rest on the fence.
    async fn blind_the_fence(&self) {
        self.write(&Log::Generations.path(1_000, 0), b"torn".to_vec()).await;
    }
}

/// Keeps as little as it may.
fn tight() -> Retention {
    Retention { batches_min: 2, age: Duration::ZERO, batches_max: 2 }
}

fn creates(op: &Op, entry: &Path) -> bool {
    op.kind == OpKind::Put && op.path == *entry
}

async fn is_fenced(query: &StreamingQuery) -> Error {
    let error = ended(query).await.expect_err("fenced");
    assert_eq!((error.code(), error.exit_code()), (code::FENCED, 75), "{error:?}");
    error
}

/// Both drivers have staged batch 0, each with its own program; the older one's create wins, and it sleeps on.
#[tokio::test(flavor = "multi_thread")]
async fn the_attempt_that_wins_is_adopted_and_published_by_the_driver_that_lost() {
    let (older, acks) = (Program::new(source(0..60)).with_filter("n % 2 = 0"), Log::Acks.path(0, 0));
    let newer = older.with_filter("n % 3 = 0");
    let (store, before, after) = older.sleeps_around(&acks);
    let older_query = older.endless().start(store).await.unwrap();
    before.reached().await;
    let (store, gate) = newer.sleeps_before(&acks, None);
    let newer_query = newer.start(store).await.unwrap();
    gate.reached().await;
    assert_eq!(older.table.staged(), 2, "nobody sweeps before the commit");
    before.open();
    after.reached().await;
    gate.open();
    ended(&newer_query).await.expect("its attempt is void, and it goes on");

    let evens: Vec<i64> = (0..60).step_by(2).collect();
    assert_eq!(older.shown(), evens, "the older driver's rows, though it still sleeps");
    let acks = older.entry::<AcksBody>(&acks).await;
    let commit = older.entry::<CommitBody>(&Log::Commits.path(0, 0)).await;
    assert_eq!((acks.head.generation, commit.head.generation), (Generation(0), Generation(1)));
    assert_eq!(commit.body.acks_nonce, acks.head.nonce);
    assert_eq!(older.table.staged(), 0, "the attempt that lost is swept");
    older.source.add(rows(60..70));
    after.open();
    is_fenced(&older_query).await;
    newer.finish().await;
    assert_eq!(older.shown(), evens.into_iter().chain([60, 63, 66, 69]).collect::<Vec<_>>());
}

/// A sink whose driver dies when it comes to publish in it.
#[derive(Debug)]
struct Unreached<S>(S);

impl<S: SinkBuilder> SinkBuilder for Unreached<S> {
    fn build(self, context: &Context) -> tidemill::Result<Arc<dyn Sink>> {
        Ok(Arc::new(Unreached(self.0.build(context)?)))
    }
}

#[async_trait]
impl Sink for Unreached<Arc<dyn Sink>> {
    fn spec(&self) -> &SinkSpec {
        self.0.spec()
    }

    fn description(&self) -> String {
        self.0.description()
    }

    fn guarantee(&self) -> Guarantee {
        self.0.guarantee()
    }

    fn check_schema(&self, schema: &SchemaRef) -> tidemill::Result<()> {
        self.0.check_schema(schema)
    }

    async fn last_published(&self, key: &SinkKey) -> tidemill::Result<Option<BatchId>> {
        self.0.last_published(key).await
    }

    async fn writer(&self, task: WriteTask) -> tidemill::Result<Box<dyn SinkWriter>> {
        self.0.writer(task).await
    }

    async fn publish(&self, _batch: &Acked) -> tidemill::Result<Published> {
        Err(Error::new(code::STORE_REFUSED, "the driver dies"))
    }

    async fn discard(&self, key: &SinkKey, batch_id: BatchId, winner: &AttemptId) -> tidemill::Result<()> {
        self.0.discard(key, batch_id, winner).await
    }

    async fn sweep(&self, key: &SinkKey, last: BatchId) -> tidemill::Result<()> {
        self.0.sweep(key, last).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_dies_between_two_sinks_is_finished_with_its_own_rows_by_a_changed_program() {
    async fn run(program: &Program, second: impl SinkBuilder + 'static) -> tidemill::Result<()> {
        let session = session();
        let frame = session.stream(program.source.clone()).await?.filter(program.filter);
        let query = session.query("two").sink("first", frame.clone(), program.table.clone());
        let query = query.sink("second", frame, second).checkpoint_at(Location::new(program.store.clone(), "memory"));
        ended(&query.trigger(Trigger::available_now()).start().await?).await
    }
    let (program, second) = (Program::new(source(0..60)).with_filter("n % 2 = 0"), MemorySink::new());
    let error = run(&program, Unreached(second.clone())).await.expect_err("it dies");
    assert_eq!(error.code(), code::STORE_REFUSED, "{error:?}");
    let evens: Vec<i64> = (0..60).step_by(2).collect();
    assert_eq!((program.shown(), numbers(&second.rows())), (evens.clone(), vec![]), "dead between the two");
    program.source.add(rows(60..70));
    run(&program.with_filter("n % 3 = 0"), second.clone()).await.unwrap();
    assert_eq!(program.source.reads(), [(0, 60), (60, 70)], "what is acknowledged is not run again");
    let expected: Vec<i64> = evens.into_iter().chain([60, 63, 66, 69]).collect();
    for table in [program.table, second] {
        assert_eq!(numbers(&table.rows()), expected);
    }
}

/// Two drivers have seen a torn plan. The older one supersedes it and dies; the newer one, which planned more, is late.
#[tokio::test(flavor = "multi_thread")]
async fn a_torn_plan_is_superseded_once_though_two_drivers_have_seen_it() {
    let program = Program::new(source(0..20));
    let (torn, revision) = (Log::Offsets.path(0, 0), Log::Offsets.path(0, 1));
    let (store, gate) = program.sleeps_before(&torn, Some(&torn));
    gate.open();
    ended(&program.start(store).await.unwrap()).await.expect_err("it dies");
    let rest = program.tear(&torn).await;

    let (store, older_gate) = program.sleeps_before(&revision, Some(&revision));
    let older = program.start(store).await.unwrap();
    older_gate.reached().await;
    program.source.add(rows(20..30));
    let (store, newer_gate) = program.sleeps_before(&revision, None);
    let newer = program.start(store).await.unwrap();
    newer_gate.reached().await;
    older_gate.open();
    ended(&older).await.expect_err("it dies");
    let superseding = program.bytes(&revision).await;
    newer_gate.open();
    ended(&newer).await.unwrap();

    assert_eq!(program.source.reads(), [(0, 20), (20, 30)], "the range of the driver that was first");
    assert_eq!(program.shown(), (0..30).collect::<Vec<_>>());
    assert_eq!(program.bytes(&torn).await, Some(rest), "nothing is deleted or repaired");
    assert_eq!(program.bytes(&revision).await, superseding, "nor overwritten");
    let acks = program.entry::<AcksBody>(&Log::Acks.path(0, 0)).await;
    let plan = program.entry::<OffsetsBody>(&revision).await;
    assert_eq!(acks.body.offsets_nonce, plan.head.nonce, "the attempt says by which plan it ran");
}

/// The older driver runs by a plan that tears and is superseded by a wider or a narrower one; its attempt wins. The
/// other goes on from it, or dies, and then a third one does.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_batch_begins_where_the_attempt_ended_that_won_and_not_where_the_log_says() {
    for (superseding, dies) in [(30, true), (10, true), (30, false)] {
        let older = Program::new(source(0..20));
        let newer = older.with_source(source(0..superseding));
        let (plan, acks) = (Log::Offsets.path(0, 0), Log::Acks.path(0, 0));
        let (store, before, after) = older.sleeps_around(&acks);
        let older_query = older.start(store).await.unwrap();
        before.reached().await;
        let planned = older.entry::<OffsetsBody>(&plan).await;
        older.tear(&plan).await;

        let commit = Log::Commits.path(0, 0);
        let (store, gate) = newer.sleeps_before(&acks, dies.then_some(&commit));
        let newer_query = newer.start(store).await.unwrap();
        gate.reached().await;
        let superseded = older.entry::<OffsetsBody>(&Log::Offsets.path(0, 1)).await;
        assert_ne!(superseded.body.sources, planned.body.sources, "another range");
        before.open();
        after.reached().await;
        gate.open();
        let went_on_to = if dies { 20 } else { superseding };
        assert_eq!(ended(&newer_query).await.is_err(), dies, "right after its commit");
        assert_eq!(older.shown(), (0..went_on_to).collect::<Vec<_>>(), "superseded by a plan up to {superseding}");
        after.open();
        // Nothing is left for it to do, and it is not the driver any more.
        is_fenced(&older_query).await;

        let next = older.with_source(source(0..40));
        next.finish().await;
        assert_eq!(next.source.reads(), [(went_on_to as u64, 40)], "superseded by a plan up to {superseding}");
        assert_eq!(older.shown(), (0..40).collect::<Vec<_>>());
        let acks = older.entry::<AcksBody>(&acks).await;
        let next = older.entry::<OffsetsBody>(&Log::Offsets.path(1, 0)).await;
        assert_eq!(acks.body.offsets_nonce, planned.head.nonce);
        assert_eq!(next.body.previous_acks, Some(acks.head.nonce));
    }
}

/// A driver sleeps past its look at the fence, another goes on and purges the name that it is about to create.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_creates_a_purged_name_again_stops_right_there() {
    for log in [Log::Offsets, Log::Acks, Log::Commits] {
        let program = Program { retention: tight(), ..Program::new(source(0..4)) };
        program.finish().await;
        program.source.add(rows(4..8));
        let entry = log.path(1, 0);
        let (store, gate) = program.sleeps_before(&entry, None);
        let sleeper = program.start(store.clone()).await.unwrap();
        gate.reached().await;
        for n in 8..14 {
            program.finish().await;
            program.source.add(rows(n..n + 1));
        }
        assert_eq!(program.bytes(&entry).await, None, "{entry} is purged");
        let (reads, batches) = (program.source.reads().len(), program.table.batches().len());
        let slept = store.log().len();
        gate.open();
        let error = is_fenced(&sleeper).await;
        assert!(program.bytes(&entry).await.is_some(), "{entry} was there once more");
        let did = store.log().split_off(slept);
        assert!(did[0].path == entry && did[1..].iter().all(|op| op.kind == OpKind::Get), "{entry}: {did:?}");
        assert_eq!(program.source.reads().len(), reads, "{entry}: nothing was read");
        assert_eq!(program.table.batches().len(), batches, "{entry}: nothing was published");
        assert!(!error.report().contains(code::SINK_FOREIGN.id), "{entry}: nor tried to: {}", error.report());
        program.finish().await;
        assert_eq!(program.shown(), (0..14).collect::<Vec<_>>(), "{entry}");
    }
}

/// A driver sleeps before its commit, another finishes the batch and one more, and purges what the first one has not
/// seen go. The first one wakes, adopts the commit, and purges too: what is dead must not come to life.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_purges_late_takes_no_boundary_back() {
    let program = Program { retention: tight(), ..Program::new(source(0..4)) };
    for n in 1..4 {
        program.finish().await;
        program.source.add(rows(n * 4..n * 4 + 4));
    }
    let (store, gate) = program.sleeps_before(&Log::Commits.path(3, 0), None);
    let sleeper = program.start(store).await.unwrap();
    gate.reached().await;
    program.finish().await;
    program.source.add(rows(16..20));
    program.finish().await;
    assert_eq!(program.bytes(&Log::Offsets.path(2, 0)).await, None, "batch 2 is purged");
    gate.open();
    let _ = ended(&sleeper).await;
    program.source.add(rows(20..24));
    program.finish().await;
    assert_eq!(program.shown(), (0..24).collect::<Vec<_>>());
}

/// One driver sleeps, another makes so many boundaries that they have been purged themselves, and the sleeper asks for one
/// of those.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_slept_through_a_hundred_boundaries_stops_right_there() {
    for held in [Log::Offsets.path(3, 0), Log::Acks.path(3, 0), Log::Commits.path(3, 0), Log::Boundary.path(1, 0)] {
        let program = Program { retention: tight(), ..Program::new(source(0..4)) };
        for n in 1..4 {
            program.finish().await;
            program.source.add(rows(n * 4..n * 4 + 4));
        }
        let (store, gate) = program.sleeps_before(&held, None);
        let sleeper = program.start(store).await.unwrap();
        gate.reached().await;
        program.blind_the_fence().await;
        let newer = program.endless().start(program.store.clone()).await.unwrap();
        for n in 4..110 {
            catches_up(&newer).await;
            program.source.add(rows(n * 4..n * 4 + 4));
        }
        catches_up(&newer).await;
        newer.stop().await.unwrap();
        assert_eq!(program.bytes(&Log::Boundary.path(99, 0)).await, None, "the first hundred is purged");
        gate.open();
        is_fenced(&sleeper).await;
        program.source.add(rows(440..444));
        program.finish().await;
        assert_eq!(program.shown(), (0..444).collect::<Vec<_>>(), "{held}");
    }
}

/// Starts beyond the newest hundred are off the record. Whoever was outrun by so many is told so all the same.
#[tokio::test(flavor = "multi_thread")]
async fn starts_stay_on_record_up_to_a_hundred_and_the_oldest_driver_knows_that_it_was_outrun() {
    let program = Program::new(source(0..4));
    let (store, gate) = program.sleeps_before(&Log::Acks.path(0, 0), None);
    let sleeper = program.endless().start(store).await.unwrap();
    gate.reached().await;
    for _ in 0..104 {
        program.finish().await;
    }
    let location = Location::new(program.store.clone(), "memory");
    assert_eq!(location.names(&Path::from("generations")).await.unwrap().len(), 100);
    assert_eq!(program.bytes(&Log::Generations.path(1, 0)).await, None);
    gate.open();
    let error = is_fenced(&sleeper).await;
    assert!(error.to_string().contains("(generation 104)"), "{error}");
    assert_eq!(program.shown(), (0..4).collect::<Vec<_>>());
}

/// Rows of each batch in what follows.
const ROWS: i64 = 4;

/// What a start went through.
#[derive(Debug, PartialEq)]
struct Went {
    /// How often it read the checkpoint.
    readings: usize,
    /// Whether it ended because what it was about to do was done and purged.
    is_fenced: bool,
}

async fn catches_up(query: &StreamingQuery) {
    tokio::time::timeout(BOUND, query.process_all_available()).await.expect("it comes to the end").unwrap();
}

/// Before each operation of a newer driver in turn, an older one goes on: it has slept before it created this entry of
/// batch 3, and no fence holds it. It finishes so many batches, and keeps so many, while the newer one waits.
async fn while_a_newer_driver_reads(held: Log, retention: &Retention, batches: i64) -> Vec<Went> {
    let mut went = Vec::new();
    for at in 0.. {
        let older = Program { retention: retention.clone(), ..Program::new(MemorySource::new(schema())) };
        let newer = Program { retention: Retention::default(), ..older.clone() };
        let add = |batch: i64| older.source.add(rows(batch * ROWS..(batch + 1) * ROWS));
        for batch in 0..3 {
            add(batch);
            older.finish().await;
        }
        add(3);
        let (store, sleeps) = older.sleeps_before(&held.path(3, 0), None);
        let goes_on = older.endless().start(store).await.unwrap();
        sleeps.reached().await;
        older.blind_the_fence().await;

        let gate = Gate::new();
        let door = gate.door();
        let store = FaultyStore::new(older.store.clone(), move |op| {
            if op.number == at {
                door.pass();
            }
            Fault::None
        });
        let mut reads = tokio::spawn({
            let (newer, store) = (newer.clone(), store.clone());
            async move { ended(&newer.start(store).await?).await }
        });
        let early = tokio::select! {
            () = gate.reached() => None,
            ended = &mut reads => Some(ended.unwrap()),
        };
        sleeps.open();
        let is_over = early.is_some();
        let outcome = match early {
            Some(outcome) => outcome,
            None => {
                catches_up(&goes_on).await;
                for batch in 4..3 + batches {
                    add(batch);
                    catches_up(&goes_on).await;
                }
                gate.open();
                reads.await.unwrap()
            }
        };
        let is_fenced = match outcome {
            Ok(()) => false,
            Err(error) if error.code() == code::FENCED => true,
            Err(error) => {
                let op = &store.log()[at as usize];
                panic!("refused, with {batches} batches before operation {at} ({op:?}): {}", error.report());
            }
        };
        let _ = goes_on.stop().await;
        newer.finish().await;
        let expected: Vec<i64> = (0..older.source.row_count() as i64).collect();
        assert_eq!(older.shown(), expected, "{batches} batches before operation {at}");
        if is_over {
            assert!(at > 20, "a start has more operations: {at}");
            return went;
        }
        let lists = store.log().into_iter().filter(|op| op.kind == OpKind::List);
        let readings = lists.filter(|op| op.path.as_ref() == Log::Offsets.folder()).count();
        went.push(Went { readings, is_fenced });
    }
    went
}

/// In the order in which a start reads, a batch that is finished meanwhile makes the view look behind, never broken.
#[tokio::test(flavor = "multi_thread")]
async fn one_reading_is_enough_whenever_an_older_driver_finishes_its_batch() {
    for held in [Log::Offsets, Log::Acks] {
        for retention in [Retention::default(), tight()] {
            let went = while_a_newer_driver_reads(held, &retention, 1).await;
            let at_once = Went { readings: 1, is_fenced: false };
            assert!(went.iter().all(|went| *went == at_once), "{held:?}, {retention:?}: {went:?}");
        }
    }
}

/// Several batches can make a sound checkpoint look broken for a moment: then it is read again, and not refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_others_have_outrun_is_read_again_and_not_refused() {
    let went = while_a_newer_driver_reads(Log::Offsets, &Retention::default(), 3).await;
    assert!(went.iter().all(|went| went.readings <= 2 && !went.is_fenced), "{went:?}");
    assert!(went.iter().any(|went| went.readings == 2), "three batches outrun some reading: {went:?}");
}

/// And what it was about to read may be purged by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_a_purge_has_outrun_goes_on_or_is_fenced_and_is_not_told_of_damage() {
    for batches in [2, 3, 5] {
        while_a_newer_driver_reads(Log::Offsets, &tight(), batches).await;
    }
}

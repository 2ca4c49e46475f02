//! Creating entries, and keeping old drivers out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill_core::rules::{Rule, is_broken};
use tidemill_core::store::{self, Created, Location, Path, create};
use tidemill_core::{BatchId, Clock, Error, Generation, Nonce, QueryId, Result, Rng, RunId, code};

use super::entry::{
    AcksBody, Body, BoundaryBody, CommitBody, Entry, FORMAT, GenerationBody, Head, MetadataBody, OffsetsBody, Parsed,
    decode, encode,
};
use super::recovery::{Decision, Reason, View, decide};
use super::view::{METADATA, Reader, SinkOfQuery, read_metadata};
use super::{Log, Retention};

/// How a checkpoint is used.
#[derive(Clone, Debug)]
pub struct CheckpointSettings {
    /// How long a write may stay undecided before the run ends.
    pub write_patience: Duration,
    /// How many batches are kept.
    pub retention: Retention,
}

impl Default for CheckpointSettings {
    fn default() -> Self {
        CheckpointSettings { write_patience: Duration::from_secs(300), retention: Retention::default() }
    }
}

/// An entry that binds, and whether it is ours.
#[derive(Clone, Debug)]
pub struct Logged<B> {
    /// The entry: ours, or the one that another driver created first.
    pub entry: Entry<B>,
    /// Whether another driver was first.
    pub adopted: bool,
}

/// One driver's hold on a checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) location: Location,
    pub(super) clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    pub(super) settings: CheckpointSettings,
    query_id: QueryId,
    generation: Generation,
    run_id: RunId,
    /// The number of the first boundary that this driver has not seen.
    pub(super) next_boundary: AtomicU64,
    /// The number of the oldest boundary that may still be there.
    pub(super) oldest_boundary: AtomicU64,
    /// The number of batches whose names are dead, as far as it has seen: one more than the highest of them.
    pub(super) dead: AtomicU64,
}

/// Looks for a newer driver. It gives clean errors and ends old drivers soon; safety never rests on it.
#[derive(Clone, Debug)]
pub struct Fence {
    reader: Reader,
    generation: Generation,
    run_id: RunId,
    url: String,
}

impl Fence {
    /// [`Fence::check`], and whether this driver's own entry is still there: a checkpoint that was removed or moved away
    /// under a running query would be made again without its beginning, and refused at the next start.
    pub async fn check_place(&self) -> Result<()> {
        self.check().await?;
        let is_ours = |own: Parsed<GenerationBody>| match own {
            Parsed::Good(own) => own.body.run_id == self.run_id,
            Parsed::Torn(_) => true,
        };
        if self.entry(self.generation.0).await?.is_some_and(is_ours) {
            return Ok(());
        }
        // So many drivers have started since that ours, and the next, are off the record?
        match self.reader.names(Log::Generations).await?.into_keys().next_back() {
            Some(newest) if newest > self.generation.0 => Err(self.fenced(newest, self.entry(newest).await?)),
            _ => Err(Error::new(code::CHECKPOINT_HOLE, "the checkpoint was removed while the query runs")
                .at("checkpoint", &self.url)
                .fix("put it back where it was, then start again")),
        }
    }

    /// Ends with `FENCED`, naming the newer driver, if there is one.
    pub async fn check(&self) -> Result<()> {
        let next = self.generation.0 + 1;
        match self.entry(next).await? {
            Some(newer) => Err(self.fenced(next, Some(newer))),
            None => Ok(()),
        }
    }

    async fn entry(&self, generation: u64) -> Result<Option<Parsed<GenerationBody>>> {
        self.reader.entry(Log::Generations, generation, 0).await
    }

    fn fenced(&self, generation: u64, newer: Option<Parsed<GenerationBody>>) -> Error {
        let what = format!("a newer driver (generation {generation}) runs on this checkpoint");
        let error = Error::new(code::FENCED, what)
            .at("checkpoint", &self.url)
            .fix("keep one driver a checkpoint; this one wrote nothing that the newer one does not know of");
        match newer {
            Some(Parsed::Good(newer)) => {
                let GenerationBody { run_id, host, pid, started_at_ms, .. } = newer.body;
                error.at("newer", format!("run {run_id} on {host}, process {pid}, started at {}", utc(started_at_ms)))
            }
            Some(Parsed::Torn(_)) | None => error,
        }
    }
}

impl Checkpoint {
    /// Opens a checkpoint and starts a generation on it: creates or adopts `metadata`, then creates the next free
    /// `generations/<e>`. Both happen before anything else is read, so every driver that was here before sees us.
    pub async fn open(
        location: Location,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        settings: CheckpointSettings,
    ) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint {
            location,
            clock,
            settings,
            query_id: QueryId::random(&*rng),
            generation: Generation(0),
            run_id: RunId::random(&*rng),
            next_boundary: AtomicU64::new(0),
            oldest_boundary: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            rng,
        };
        checkpoint.query_id = checkpoint.adopt_metadata().await?;
        checkpoint.generation = checkpoint.start_generation().await?;
        Ok(checkpoint)
    }

    /// The query, for ever.
    pub fn query_id(&self) -> &QueryId {
        &self.query_id
    }

    /// This start.
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// The number of this start.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Where it is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// A reader of its entries.
    pub fn reader(&self) -> Reader {
        Reader::new(self.location.clone(), self.query_id.clone())
    }

    /// Reads the checkpoint and decides how this start goes on. A view that does not hold together is read a second
    /// time, after a look for a newer generation: only an unchanged one is refused.
    pub async fn recover(&self, sinks: &[SinkOfQuery<'_>]) -> Result<(View, Decision)> {
        let reader = self.reader();
        let mut before: Option<View> = None;
        loop {
            let view = reader.view(sinks).await?;
            self.next_boundary.store(view.boundary.next, Ordering::SeqCst);
            self.oldest_boundary.store(view.boundary.oldest, Ordering::SeqCst);
            self.dead.fetch_max(view.first_alive(), Ordering::SeqCst);
            match decide(&view) {
                Decision::Unsound(reason) => {
                    self.check_fence().await?;
                    if before.as_ref() == Some(&view) {
                        let sink = sinks.iter().find(|sink| Some(&sink.key.sink) == reason.sink());
                        let error = self.refuse(&reason);
                        return Err(match sink {
                            Some(SinkOfQuery { sink, .. }) => error.at("writes to", sink.description()),
                            None => error,
                        });
                    }
                    before = Some(view);
                }
                decision => return Ok((view, decision)),
            }
        }
    }

    /// Creates `offsets/<N>`. If another driver was first, its entry is adopted: it is as good as ours, and it binds.
    pub async fn create_offsets(&self, body: OffsetsBody, revision: u32) -> Result<Logged<OffsetsBody>> {
        let batch_id = body.batch_id;
        self.create_entry(Log::Offsets, batch_id, revision, body).await
    }

    /// Creates `acks/<N>`. If another driver was first, its attempt is the one that N is, and ours is void.
    pub async fn create_acks(&self, body: AcksBody) -> Result<Logged<AcksBody>> {
        let batch_id = body.batch_id;
        self.create_entry(Log::Acks, batch_id, 0, body).await
    }

    /// Creates `commits/<N>`. Another driver's commit of the same attempt is as good as ours.
    pub async fn create_commit(&self, body: CommitBody, revision: u32) -> Result<Logged<CommitBody>> {
        let (batch_id, acks_nonce) = (body.batch_id, body.acks_nonce.clone());
        let logged = self.create_entry(Log::Commits, batch_id, revision, body).await?;
        if logged.entry.body.acks_nonce != acks_nonce {
            let path = Log::Commits.path(batch_id.0, revision);
            let earlier = Log::Acks.path(batch_id.0, 0).to_string();
            return Err(self.refuse(&Reason::Unrelated { path: path.to_string(), earlier }));
        }
        Ok(logged)
    }

    async fn create_entry<B: Body>(&self, log: Log, batch_id: BatchId, revision: u32, body: B) -> Result<Logged<B>> {
        let entry = Entry { head: self.head(B::KIND), body };
        let path = log.path(batch_id.0, revision);
        let logged = match self.create(&path, encode(&entry)).await? {
            Created::Written => Logged { entry, adopted: false },
            Created::Lost(bytes) => match self.parse(&path, &bytes)? {
                Parsed::Good(theirs) => Logged { entry: *theirs, adopted: true },
                // Torn under our eyes. What that means needs a whole view: the next start decides.
                Parsed::Torn(_) => return Err(self.reader().damaged(log, batch_id.0)),
            },
        };
        self.check_boundary(batch_id).await?;
        Ok(logged)
    }

    /// Ends with `FENCED` if a newer driver has started here.
    pub async fn check_fence(&self) -> Result<()> {
        self.fence().check().await
    }

    /// What looks for a newer driver, also from another task.
    pub fn fence(&self) -> Fence {
        Fence {
            reader: self.reader(),
            generation: self.generation,
            run_id: self.run_id.clone(),
            url: self.location.url.clone(),
        }
    }

    /// Ends with `FENCED` if the names of this batch have been purged: what we created under one means nothing.
    async fn check_boundary(&self, batch_id: BatchId) -> Result<()> {
        let reader = self.reader();
        if is_broken(Rule::LookAtBoundary) {
            return Ok(());
        }
        loop {
            let number = self.next_boundary.load(Ordering::SeqCst);
            let dead = match reader.entry::<BoundaryBody>(Log::Boundary, number, 0).await? {
                None if self.is_boundary_purged(number).await? => true,
                None => return Ok(()),
                Some(Parsed::Good(boundary)) => {
                    self.dead.fetch_max(boundary.body.batch_id.0 + 1, Ordering::SeqCst);
                    boundary.body.batch_id >= batch_id
                }
                // Somebody else purges here, and nobody can say up to where.
                Some(Parsed::Torn(_)) => true,
            };
            if dead {
                return Err(self.outrun(batch_id).await);
            }
            self.next_boundary.store(number + 1, Ordering::SeqCst);
        }
    }

    /// That another driver has finished and purged what this one works on.
    pub(super) async fn outrun(&self, batch_id: BatchId) -> Error {
        match self.check_fence().await {
            Err(error) => error,
            Ok(()) => {
                let what = format!("batch {batch_id} was finished and purged by another driver");
                Error::new(code::FENCED, what).at("checkpoint", &self.location.url).fix("keep one driver a checkpoint")
            }
        }
    }

    /// A view that was read twice and does not hold together, as an error for people.
    fn refuse(&self, reason: &Reason) -> Error {
        let at = |error: Error, path: &str| error.at("path", self.location.describe(&Path::from(path)));
        let untouched = "nothing was changed; restore the checkpoint from a copy, or start a new query";
        match reason {
            Reason::Missing { path, needed_by } => {
                let what = format!("a file of the checkpoint is missing, though \"{needed_by}\" is there");
                at(Error::new(code::CHECKPOINT_HOLE, what), path).fix(untouched)
            }
            Reason::Damaged { path } => {
                at(Error::new(code::CHECKPOINT_DAMAGED, "a file of the checkpoint is damaged"), path).fix(untouched)
            }
            Reason::Unrelated { path, earlier } => {
                let what = format!("a file of the checkpoint does not refer to \"{earlier}\"");
                at(Error::new(code::CHECKPOINT_DAMAGED, what), path).fix(untouched)
            }
            Reason::SinkAhead { sink, shows, known } => {
                let known = known.map_or("none".to_owned(), |known| format!("only up to {known}"));
                Error::new(code::SINK_AHEAD, format!("the sink shows batch {shows}, the checkpoint knows {known}"))
                    .at("sink", sink)
                    .at("checkpoint", &self.location.url)
                    .fix("this checkpoint is older than the table: use the newer one, or a new table")
            }
            Reason::SinkBehind { sink, shows, committed } => {
                let shows = shows.map_or("no batch".to_owned(), |shows| format!("batches up to {shows}"));
                Error::new(code::SINK_BEHIND, format!("the sink shows {shows}, though batch {committed} is committed"))
                    .at("sink", sink)
                    .at("checkpoint", &self.location.url)
                    .fix("the table was deleted or restored: restore it whole, or start with a new checkpoint and a new table")
            }
        }
    }

    async fn adopt_metadata(&self) -> Result<QueryId> {
        let path = Path::from(METADATA);
        if let Some(query_id) = read_metadata(&self.location).await? {
            return Ok(query_id);
        }
        // Without an identity, sinks would take batches again that they already have.
        for log in [Log::Offsets, Log::Acks, Log::Commits, Log::Boundary, Log::Purged, Log::Generations] {
            if let Some(name) = self.location.names(&Path::from(log.folder())).await?.first() {
                // Another driver may have made both since we looked.
                return match read_metadata(&self.location).await? {
                    Some(query_id) => Ok(query_id),
                    None => Err(self.refuse(&Reason::Missing {
                        path: path.to_string(),
                        needed_by: format!("{}/{name}", log.folder()),
                    })),
                };
            }
        }
        // The first start here: does the store keep one writer from overwriting another's name?
        store::doctor::glance(&self.location, &Path::default(), &*self.clock, &*self.rng, self.settings.write_patience)
            .await?;
        let body = MetadataBody { created_by: version(), created_at_ms: self.clock.now_ms() };
        let entry = Entry { head: self.head(MetadataBody::KIND), body };
        match self.create(&path, encode(&entry)).await? {
            Created::Written => Ok(self.query_id.clone()),
            Created::Lost(_) => match read_metadata(&self.location).await? {
                Some(query_id) => Ok(query_id),
                None => Err(self.refuse(&Reason::Damaged { path: path.to_string() })),
            },
        }
    }

    async fn start_generation(&self) -> Result<Generation> {
        let taken = async || self.reader().names(Log::Generations).await;
        let mut number = taken().await?.keys().next_back().map_or(0, |newest| newest + 1);
        loop {
            let body = GenerationBody {
                run_id: self.run_id.clone(),
                host: hostname::get().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned()),
                pid: std::process::id(),
                started_at_ms: self.clock.now_ms(),
                version: version(),
            };
            let head = Head { generation: Generation(number), ..self.head(GenerationBody::KIND) };
            match self.create(&Log::Generations.path(number, 0), encode(&Entry { head, body })).await? {
                Created::Lost(_) => number += 1,
                Created::Written => {
                    // Had this start slept since it listed, its number may have been taken and be off the record.
                    let taken = taken().await?;
                    match taken.keys().next_back() {
                        Some(newest) if *newest > number && !taken.contains_key(&(number + 1)) => number = newest + 1,
                        _ => {
                            self.purge_generations(taken.into_keys()).await;
                            return Ok(Generation(number));
                        }
                    }
                }
            }
        }
    }

    fn parse<B: Body>(&self, path: &Path, bytes: &[u8]) -> Result<Parsed<B>> {
        decode(bytes, Some(&self.query_id)).map_err(|error| error.at("path", self.location.describe(path)))
    }

    pub(super) async fn create(&self, path: &Path, body: bytes::Bytes) -> Result<Created> {
        create(&self.location, &*self.clock, path, body, self.settings.write_patience).await
    }

    pub(super) fn head(&self, kind: &str) -> Head {
        Head {
            format: FORMAT,
            kind: kind.to_owned(),
            query_id: self.query_id.clone(),
            generation: self.generation,
            nonce: Nonce::random(&*self.rng),
        }
    }
}

fn version() -> String {
    format!("tidemill {}", env!("CARGO_PKG_VERSION"))
}

/// A moment for people.
fn utc(ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(ms)
        .map_or_else(|| ms.to_string(), |time| time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}

//! Reading a checkpoint, in the order that recovery needs.
//!
//! Everything is read by one [`Reader`]: it lists the logs once (only a start lists), reads the newest entries whole and
//! counts older ones by their names. A checksum that fails is read a second time before it counts as torn.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use tidemill_core::store::{Location, Path};
use tidemill_core::{Error, QueryId, Result, Sink, SinkKey, code};

use super::Log;
use super::entry::{AcksBody, Body, BoundaryBody, CommitBody, Entry, MetadataBody, OffsetsBody, Parsed, decode};
use super::recovery::{AcksSeen, BoundarySeen, CommitSeen, OffsetsSeen, Revisions, Seen, View};

/// So many of the newest batches are read whole at a start; of older ones the names are enough.
const READ_WHOLE: u64 = 100;
/// So often the boundaries are listed again when they are purged meanwhile.
const BOUNDARY_LISTINGS: usize = 10;
/// Reads under way at once.
const PARALLEL: usize = 16;

/// The file that makes a folder a checkpoint.
pub(super) const METADATA: &str = "metadata";

/// The query of a checkpoint; none if there is no checkpoint.
pub(super) async fn read_metadata(location: &Location) -> Result<Option<QueryId>> {
    let path = Path::from(METADATA);
    for _ in 0..2 {
        let Some(bytes) = location.read(&path).await? else { return Ok(None) };
        let parsed = decode::<MetadataBody>(&bytes, None);
        if let Parsed::Good(entry) = parsed.map_err(|error| error.at("path", location.describe(&path)))? {
            return Ok(Some(entry.head.query_id));
        }
    }
    Err(Error::new(code::CHECKPOINT_DAMAGED, "a file of the checkpoint is damaged")
        .at("path", location.describe(&path))
        .fix("restore the file from a copy; nothing was changed"))
}

/// Reads the entries of one query's checkpoint.
#[derive(Clone, Debug)]
pub struct Reader {
    location: Location,
    query_id: QueryId,
}

/// A sink whose record a start compares with the checkpoint.
pub struct SinkOfQuery<'a> {
    /// Its key.
    pub key: SinkKey,
    /// The sink.
    pub sink: &'a dyn Sink,
}

impl Reader {
    /// A reader of this query's entries.
    pub fn new(location: Location, query_id: QueryId) -> Self {
        Reader { location, query_id }
    }

    /// A reader of a checkpoint that is there already. Nothing is written.
    pub async fn open(location: Location) -> Result<Self> {
        match read_metadata(&location).await? {
            Some(query_id) => Ok(Reader { location, query_id }),
            None => Err(Error::new(code::CHECKPOINT_HOLE, "there is no checkpoint here: it has no metadata")
                .at("path", location.describe(&Path::from(METADATA)))
                .fix("name the checkpoint location of a query that has run")),
        }
    }

    /// Reads the view that recovery decides on: commits, sinks, acks, offsets, boundary. The order matters: whoever goes
    /// on meanwhile then makes the view look behind, never ahead of itself.
    pub async fn view(&self, sinks: &[SinkOfQuery<'_>]) -> Result<View> {
        let commits =
            self.log(Log::Commits, |entry: Entry<CommitBody>| CommitSeen { acks_nonce: entry.body.acks_nonce }).await?;
        let mut shown = BTreeMap::new();
        for SinkOfQuery { key, sink } in sinks {
            let last = sink.last_published(key).await?;
            shown.insert(key.sink.clone(), last.map(|batch_id| batch_id.0));
        }
        let acks = self
            .log(Log::Acks, |entry: Entry<AcksBody>| AcksSeen {
                nonce: entry.head.nonce,
                offsets_nonce: entry.body.offsets_nonce,
                sinks: entry.body.sinks.into_keys().collect(),
            })
            .await?;
        let offsets = self
            .log(Log::Offsets, |entry: Entry<OffsetsBody>| OffsetsSeen {
                nonce: entry.head.nonce,
                previous_acks: entry.body.previous_acks,
                sources: entry.body.sources.into_keys().collect(),
            })
            .await?;
        let boundary = self.boundary().await?;
        Ok(View { boundary, commits, sinks: shown, acks, offsets })
    }

    /// Which names are dead.
    pub async fn boundary(&self) -> Result<BoundarySeen> {
        'listing: for _ in 0..BOUNDARY_LISTINGS {
            let numbers: Vec<u64> = self.names(Log::Boundary).await?.into_keys().collect();
            let mut seen = BoundarySeen {
                oldest: numbers.first().copied().unwrap_or_default(),
                next: numbers.last().map_or(0, |newest| newest + 1),
                ..BoundarySeen::default()
            };
            for number in numbers.into_iter().rev() {
                match self.entry::<BoundaryBody>(Log::Boundary, number, 0).await? {
                    Some(Parsed::Good(entry)) => {
                        seen.dead = Some(entry.body.batch_id.0);
                        return Ok(seen);
                    }
                    Some(Parsed::Torn(_)) => seen.is_torn = true,
                    // Purged since it was listed: then there are newer ones.
                    None => continue 'listing,
                }
            }
            return Ok(seen);
        }
        Err(Error::new(code::STORE_UNAVAILABLE, "boundaries vanish as soon as they are listed")
            .at("path", self.location.describe(&Path::from(Log::Boundary.folder())))
            .fix("stop whatever deletes files of the checkpoint, then start again"))
    }

    /// The binding revision of an entry: the lowest that is whole. None if there is no file; an error if all are torn.
    pub async fn binding<B: Body>(&self, log: Log, number: u64) -> Result<Option<Entry<B>>> {
        for revision in 0.. {
            match self.entry(log, number, revision).await? {
                Some(Parsed::Good(entry)) => return Ok(Some(*entry)),
                Some(Parsed::Torn(_)) => {}
                None if revision == 0 => return Ok(None),
                None => break,
            }
        }
        Err(self.damaged(log, number))
    }

    /// Reads one file; none if it is not there.
    pub async fn entry<B: Body>(&self, log: Log, number: u64, revision: u32) -> Result<Option<Parsed<B>>> {
        let path = log.path(number, revision);
        let mut torn = None;
        for _ in 0..2 {
            let Some(bytes) = self.location.read(&path).await? else { return Ok(None) };
            match decode(&bytes, Some(&self.query_id))
                .map_err(|error| error.at("path", self.location.describe(&path)))?
            {
                Parsed::Good(entry) => return Ok(Some(Parsed::Good(entry))),
                Parsed::Torn(damage) => torn = Some(Parsed::Torn(damage)),
            }
        }
        Ok(torn)
    }

    /// The numbers in a log, each with its revisions.
    pub async fn names(&self, log: Log) -> Result<BTreeMap<u64, Vec<u32>>> {
        let mut names: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for name in self.location.names(&Path::from(log.folder())).await? {
            if let Some((number, revision)) = Log::parse(&name) {
                // Nobody gets so far; what would come after it has no number.
                if number == u64::MAX {
                    return Err(self.damaged(log, number));
                }
                names.entry(number).or_default().push(revision);
            }
        }
        Ok(names)
    }

    /// When the newest file of each number in a log was written, by the store's clock, in milliseconds since 1970.
    pub async fn times(&self, log: Log) -> Result<BTreeMap<u64, i64>> {
        let mut times: BTreeMap<u64, i64> = BTreeMap::new();
        for meta in self.location.files(&Path::from(log.folder())).await? {
            if let Some((number, _)) = meta.location.filename().and_then(Log::parse) {
                let time_ms = times.entry(number).or_insert(i64::MIN);
                *time_ms = (*time_ms).max(meta.last_modified.timestamp_millis());
            }
        }
        Ok(times)
    }

    /// The error of an entry that is torn and must not be.
    pub fn damaged(&self, log: Log, number: u64) -> Error {
        Error::new(code::CHECKPOINT_DAMAGED, "a file of the checkpoint is damaged")
            .at("path", self.location.describe(&log.path(number, 0)))
            .fix("restore the file from a copy; nothing was changed")
    }

    async fn log<B: Body, T>(&self, log: Log, keep: impl Fn(Entry<B>) -> T) -> Result<BTreeMap<u64, Revisions<T>>> {
        let names = self.names(log).await?;
        let newest = names.keys().next_back().copied().unwrap_or_default();
        let files = names.into_iter().flat_map(|(number, revisions)| revisions.into_iter().map(move |r| (number, r)));
        let read = futures::stream::iter(files).map(|(number, revision)| async move {
            if number + READ_WHOLE < newest {
                return Ok((number, revision, None));
            }
            let parsed = self.entry::<B>(log, number, revision).await?;
            Ok::<_, Error>((number, revision, Some(parsed)))
        });
        let mut entries: BTreeMap<u64, Revisions<T>> = BTreeMap::new();
        let mut read = read.buffered(PARALLEL);
        while let Some((number, revision, parsed)) = read.try_next().await? {
            let seen = match parsed {
                None => Seen::Unread,
                Some(Some(Parsed::Good(entry))) => Seen::Whole(keep(*entry)),
                Some(Some(Parsed::Torn(_))) => Seen::Torn,
                // Listed, then purged by another driver: a second reading sees it gone.
                Some(None) => continue,
            };
            entries.entry(number).or_default().found.insert(revision, seen);
        }
        Ok(entries)
    }
}

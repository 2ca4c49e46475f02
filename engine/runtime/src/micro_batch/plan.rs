//! Plan offsets: what the next batch reads. Nothing is durable yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::crash::crash_point;
use tidemill_core::{Error, Hold, Loss, Offer, Offsets, Range, ReadLimit, Result, Source, code};
use tokio::task::JoinSet;

use super::{Acked, MicroBatch, Planned, Position};
use crate::checkpoint::entry::{OffsetsBody, SourceEntry};

/// Where each source stops, for the trigger `available_now`; empty for the others.
pub type UpTo = BTreeMap<String, Offsets>;

/// How old an offer may be when a batch is planned from it: a batch that was shown for longer is followed by a new look.
const OFFER_AGE_MAX: Duration = Duration::from_secs(1);

/// What each source has to give; one that has nothing is not in it.
pub type Offers = BTreeMap<String, Offer>;

/// The question for the next batch's offers, asked before that batch is due. Dropped, it is asked no more.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Where the sources stood.
    from: BTreeMap<String, Offsets>,
    /// When that was, on the monotonic clock.
    since: Duration,
    /// One task.
    asked: JoinSet<Result<Offers>>,
}

impl Ahead {
    /// What was offered to a query that stands there. None where it has to be asked again: it stands elsewhere, the question
    /// failed or is old, or there was nothing, which may be otherwise by now.
    pub async fn offers(mut self, position: &Position, now: Duration) -> Option<Offers> {
        if self.from != position.offsets || now.saturating_sub(self.since) > OFFER_AGE_MAX {
            return None;
        }
        self.asked.join_next().await?.ok()?.ok().filter(|offers| !offers.is_empty())
    }
}

fn position(offsets: &BTreeMap<String, Offsets>, source: &str) -> Result<Offsets> {
    let offsets = offsets.get(source).cloned();
    offsets.ok_or_else(|| Error::new(code::BUG, "a source has no position").at("source", source))
}

impl MicroBatch {
    /// Gives every source that has no position yet its start. Done once in a run: a start such as "latest" would
    /// otherwise move on with every look, past rows that arrive between two of them. After such a start the next plan is
    /// logged even if it is empty, so that the next run starts there too.
    pub async fn start_sources(&self, mut position: Position) -> Result<Position> {
        for (name, source) in &self.query.sources {
            if !position.offsets.contains_key(name) {
                let start = source.initial().await.map_err(|error| error.at("source", name))?;
                position.offsets.insert(name.clone(), start);
                position.has_unlogged_start |= source.start_moves();
            }
        }
        Ok(position)
    }

    /// Asks every source what it has from where the query stands.
    ///
    /// With `up_to`, nothing at or beyond those offsets is read, and a source that is not in it has nothing to give.
    pub async fn offers(&self, offsets: &BTreeMap<String, Offsets>, up_to: Option<&UpTo>) -> Result<Offers> {
        self.asking(offsets, up_to)?.await
    }

    /// Asks for the batch after one that is acknowledged, while that is published and committed: where it begins is known.
    pub(crate) fn ask_ahead(&self, acked: &Acked, up_to: Option<&UpTo>) -> Option<Ahead> {
        self.paces.read(&acked.entry.body.receipts);
        let from = acked.entry.body.positions.clone();
        // What cannot be asked now is asked when it is due, and fails then.
        let asking = self.asking(&from, up_to).ok()?;
        let mut asked = JoinSet::new();
        asked.spawn(asking);
        Some(Ahead { from, since: self.clock.elapsed(), asked })
    }

    fn asking(
        &self,
        offsets: &BTreeMap<String, Offsets>,
        up_to: Option<&UpTo>,
    ) -> Result<impl Future<Output = Result<Offers>> + Send + use<>> {
        let mut questions = Vec::new();
        for (name, source) in &self.query.sources {
            let from = position(offsets, name)?;
            let bound = up_to.map(|up_to| up_to.get(name).unwrap_or(&from).clone());
            let limit = self.paces.limit(name, &source.pace(), bound);
            questions.push((name.clone(), Arc::clone(source), from, limit));
        }
        Ok(async move {
            let mut offers = Offers::new();
            for (name, source, from, limit) in questions {
                let offer = source.next(&from, &limit).await.map_err(|error| error.at("source", &name))?;
                offers.extend(offer.map(|offer| (name, offer)));
            }
            Ok(offers)
        })
    }

    /// The next batch, out of what the sources offer. None if nothing is waiting anywhere, unless there is a start that only
    /// this run knows.
    pub fn plan_offsets(
        &self,
        position: &Position,
        mut offers: Offers,
        up_to: Option<&UpTo>,
    ) -> Result<Option<Planned>> {
        // A position that was known once is carried on for ever, also of a source that the program no longer reads.
        let carried = |offsets: &Offsets| SourceEntry {
            range: Range { start: offsets.clone(), end: offsets.clone() },
            interpretation: serde_json::Value::Null,
            loss: Loss::default(),
        };
        let known = position.offsets.iter().map(|(name, offsets)| (name.clone(), carried(offsets)));
        let mut sources: BTreeMap<String, SourceEntry> = known.collect();
        let (mut latest, mut found) = (BTreeMap::new(), position.has_unlogged_start);
        for (name, source) in &self.query.sources {
            // Whoever wants to read all that is there does not wait for more.
            let hold = source.pace().hold.filter(|_| up_to.is_none());
            let offer = offers.remove(name);
            let at = self::position(&position.offsets, name)?;
            // What has nothing to give ends where the query stands.
            latest.insert(name.clone(), offer.as_ref().map_or_else(|| at.clone(), |offer| offer.latest.clone()));
            let offer = offer.filter(|offer| !hold.is_some_and(|hold| self.holds_back(name, source, hold, offer)));
            found |= offer.is_some();
            let (range, loss) = match offer {
                Some(offer) => {
                    self.paces.planned(name, self.clock.elapsed());
                    (offer.range, offer.loss)
                }
                None => (Range { start: at.clone(), end: at }, Loss::default()),
            };
            sources.insert(name.clone(), SourceEntry { range, interpretation: source.interpretation(), loss });
        }
        if !found {
            return Ok(None);
        }
        crash_point("plan", position.batch_id);
        let body = OffsetsBody {
            batch_id: position.batch_id,
            previous_acks: position.previous_acks.clone(),
            timestamp_ms: self.clock.now_ms(),
            time_zone: "UTC".to_owned(),
            watermarks: position.watermarks.clone(),
            fingerprint: self.query.fingerprint.clone(),
            sinks: self.query.sink_names(),
            sources,
        };
        Ok(Some(Planned { body, revision: position.revision, latest }))
    }

    /// Whether what a source offers waits for more. What is lost is logged at once.
    fn holds_back(&self, name: &str, source: &Arc<dyn Source>, hold: Hold, offer: &Offer) -> bool {
        let waiting = source.rows_between(&offer.range.start, &offer.latest);
        let now = self.clock.elapsed();
        offer.loss.is_none() && waiting.is_some_and(|waiting| self.paces.holds_back(name, hold, waiting, now))
    }

    /// Where every source ends at this moment: what `available_now` reads up to.
    pub async fn ends_now(&self, position: &Position) -> Result<UpTo> {
        let mut ends = UpTo::new();
        for (name, source) in &self.query.sources {
            let from = self::position(&position.offsets, name)?;
            let offer = source.next(&from, &ReadLimit::default()).await.map_err(|error| error.at("source", name))?;
            ends.insert(name.clone(), offer.map_or(from, |offer| offer.range.end));
        }
        Ok(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(offset: i64) -> BTreeMap<String, Offsets> {
        BTreeMap::from([("k".to_owned(), Offsets::encode(&offset))])
    }

    /// A question that was asked at 5 s, of a query that stood at 7.
    fn ahead(answer: Result<Offers>) -> Ahead {
        let mut asked = JoinSet::new();
        asked.spawn(std::future::ready(answer));
        Ahead { from: at(7), since: 5 * SECOND, asked }
    }

    fn rows() -> Offers {
        let [start, end] = [7, 9].map(|offset| Offsets::encode(&offset));
        let range = Range { start, end: end.clone() };
        Offers::from([("k".to_owned(), Offer { range, latest: end, loss: Loss::default() })])
    }

    #[tokio::test]
    async fn an_offer_counts_where_the_query_stands_while_it_is_fresh_and_if_it_holds_rows() {
        let stands = |offset| Position { offsets: at(offset), ..Position::default() };
        let offered = ahead(Ok(rows())).offers(&stands(7), 6 * SECOND).await.expect("it counts");
        assert_eq!(offered["k"].range.end, Offsets::encode(&9));
        assert!(ahead(Ok(rows())).offers(&stands(8), 6 * SECOND).await.is_none(), "it stands elsewhere");
        assert!(ahead(Ok(rows())).offers(&stands(7), 7 * SECOND).await.is_none(), "it is old");
        assert!(ahead(Ok(Offers::new())).offers(&stands(7), 6 * SECOND).await.is_none(), "rows may have come");
        let failed = Err(Error::new(code::SOURCE_UNAVAILABLE, "not now"));
        assert!(ahead(failed).offers(&stands(7), 6 * SECOND).await.is_none(), "it failed");
    }
}

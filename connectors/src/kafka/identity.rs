//! The id of a topic, asked for by many ranges at once.
//!
//! Each range needs an answer to a question that was asked *after* it had ended. Ranges of one batch end close together,
//! so those that wait while a question is under way share the next one: a batch costs two questions at most, however
//! many partitions it has.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tidemill_core::{Code, Error, Result, code};

use super::client::{SLICE, stopped};

/// The questions of one reader.
#[derive(Debug, Default)]
pub(super) struct Identities {
    topics: Mutex<BTreeMap<String, Rounds>>,
    answered: Condvar,
}

/// The questions about one topic, counted.
#[derive(Debug, Default)]
struct Rounds {
    asked: u64,
    answered: u64,
    /// Whether somebody is asking at this moment.
    asking: bool,
    /// The answer to question number `answered`.
    answer: Option<Answer>,
}

/// An answer that can be given to many.
type Answer = Result<Option<String>, (Code, String)>;

impl Identities {
    /// The topic's id, by a question that is asked after this call. `ask` asks it, if nobody else does.
    pub(super) fn get(
        &self,
        topic: &str,
        ask: impl Fn() -> Result<Option<String>>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<String>> {
        let mut topics = self.lock();
        let wanted = topics.entry(topic.to_owned()).or_default().asked + 1;
        loop {
            let rounds = topics.entry(topic.to_owned()).or_default();
            if rounds.answered >= wanted
                && let Some(answer) = &rounds.answer
            {
                return answer.clone().map_err(|(code, what)| Error::new(code, what).at("topic", topic));
            }
            if !rounds.asking {
                rounds.asking = true;
                rounds.asked += 1;
                let asking = Asking { identities: self, topic, round: rounds.asked };
                drop(topics);
                let answer = ask();
                // One that was told to stop has learned nothing: another of those who wait asks.
                if !matches!(&answer, Err(error) if error.code() == code::STOPPED) {
                    asking.answer(match &answer {
                        Ok(id) => Ok(id.clone()),
                        Err(error) => Err((error.code(), error.what().to_owned())),
                    });
                }
                return answer;
            }
            // The wait is as bounded as `ask` is: whoever asks lets go of the question, also by a panic.
            if stop() {
                return Err(stopped());
            }
            topics = self.answered.wait_timeout(topics, SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Rounds>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question under way. When it is dropped, answered or not, the next one may be asked.
struct Asking<'a> {
    identities: &'a Identities,
    topic: &'a str,
    round: u64,
}

impl Asking<'_> {
    fn answer(&self, answer: Answer) {
        let mut topics = self.identities.lock();
        let rounds = topics.entry(self.topic.to_owned()).or_default();
        rounds.answered = self.round;
        rounds.answer = Some(answer);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.identities.lock().entry(self.topic.to_owned()).or_default().asking = false;
        self.identities.answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Barrier, mpsc};

    use super::*;

    #[test]
    fn those_who_wait_share_a_question_that_was_asked_after_they_came() {
        let (identities, asked, waiting) = (Identities::default(), AtomicU32::new(0), AtomicU32::new(0));
        let (release, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let ask = || {
                    begun.wait();
                    gate.lock().unwrap().recv().unwrap();
                    Ok(Some("old".to_owned()))
                };
                identities.get("t", ask, &|| false)
            });
            begun.wait();
            let others: Vec<_> = (0..8)
                .map(|_| {
                    let asked = &asked;
                    let ask = move || {
                        asked.fetch_add(1, Ordering::SeqCst);
                        Ok(Some("new".to_owned()))
                    };
                    let (identities, waiting) = (&identities, &waiting);
                    scope.spawn(move || {
                        let seen = std::cell::Cell::new(false);
                        let stop = || {
                            waiting.fetch_add(u32::from(!seen.replace(true)), Ordering::SeqCst);
                            false
                        };
                        identities.get("t", ask, &stop)
                    })
                })
                .collect();
            // All of the others wait before the first question is answered.
            while waiting.load(Ordering::SeqCst) < 8 {
                std::thread::yield_now();
            }
            release.send(()).unwrap();
            assert_eq!(first.join().unwrap().unwrap().as_deref(), Some("old"));
            for other in others {
                assert_eq!(other.join().unwrap().unwrap().as_deref(), Some("new"));
            }
        });
        assert_eq!(asked.load(Ordering::SeqCst), 1, "one question for all who waited");
    }

    #[test]
    fn one_that_is_told_to_stop_does_not_stop_the_others() {
        let identities = Identities::default();
        assert_eq!(identities.get("t", || Err(stopped()), &|| true).unwrap_err().code(), code::STOPPED);
        assert_eq!(identities.get("t", || Ok(None), &|| false).unwrap(), None);
    }

    #[test]
    fn one_that_panics_does_not_keep_the_others_waiting() {
        let identities = Identities::default();
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            identities.get("t", || panic!("in the client"), &|| false)
        }));
        assert!(asked.is_err());
        assert_eq!(identities.get("t", || Ok(None), &|| false).unwrap(), None);
    }

    #[test]
    fn failed_question_is_an_error_for_all() {
        let identities = Identities::default();
        let failed = || Err(Error::new(code::SOURCE_NOT_FOUND, "no such topic"));
        assert_eq!(identities.get("t", failed, &|| false).unwrap_err().code(), code::SOURCE_NOT_FOUND);
    }
}

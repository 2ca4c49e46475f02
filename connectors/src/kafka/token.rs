//! Logging in by OAUTHBEARER: where tokens come from, and what a client needs to use them.
//!
//! A token is asked for when the library wants one, and again when most of its life is over; clients of one source share
//! it. It comes from the user's own function, or by OAuth's client credentials (RFC 6749, section 4.4): librdkafka could
//! do that by itself, but only where libcurl is installed on every machine that builds it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use reqwest::StatusCode;
use serde::Deserialize;
use tidemill_core::clock::SystemClock;
use tidemill_core::secret::{BearerToken, TokenSource};
use tidemill_core::{Clock, Error, Result, Secret, code};

use super::properties::Redactor;

/// How long the authority may take to answer.
const ANSWER_BOUND: Duration = Duration::from_secs(10);

/// How long a token is taken to live if the authority does not say so.
const LIFE_UNSAID: Duration = Duration::from_secs(300);

/// What a client needs beside its properties: whose words are secret, and its tokens if it logs in with such.
#[derive(Clone, Debug, Default)]
pub(super) struct Login {
    pub(super) redactor: Redactor,
    pub(super) tokens: Option<Arc<Tokens>>,
}

impl Login {
    /// The text, with `***` in the place of every known secret.
    pub(super) fn clean(&self, text: &str) -> String {
        self.redactor.clean(text)
    }
}

/// What a client is made with. It may hold secrets, so it is not printed.
#[derive(Clone)]
pub(super) struct ClientSettings {
    pub(super) config: ClientConfig,
    pub(super) login: Login,
}

impl std::fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientSettings")
    }
}

/// The tokens of one source.
#[derive(Debug)]
pub(super) struct Tokens {
    source: TokenSource,
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    token: BearerToken,
    renew_at_ms: i64,
}

impl Tokens {
    pub(super) fn new(source: TokenSource) -> Self {
        Tokens { source, held: Mutex::default() }
    }

    /// A token that has some time left: the one at hand, or a new one. Blocks; who comes meanwhile waits for the same one.
    pub(super) fn token(&self) -> Result<BearerToken> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = SystemClock::default().now_ms();
        if let Some(held) = &*held
            && now_ms < held.renew_at_ms
        {
            return Ok(held.token.clone());
        }
        let token = self.source.token()?;
        // The library asks again after four fifths of a token's life, and must get another one then.
        let renew_at_ms = now_ms + token.expires_at_ms.saturating_sub(now_ms) / 4 * 3;
        *held = Some(Held { token: token.clone(), renew_at_ms });
        Ok(token)
    }
}

/// An account at an authority that gives tokens.
#[derive(Debug)]
pub(super) struct ClientCredentials {
    pub(super) endpoint: String,
    pub(super) client_id: String,
    pub(super) client_secret: Secret,
    pub(super) scope: Option<String>,
    /// A PEM file of authorities to trust beside the system's own.
    pub(super) ca_file: Option<String>,
    pub(super) redactor: Redactor,
}

/// What the authority answers, by RFC 6749, sections 5.1 and 5.2.
#[derive(Deserialize)]
struct Answer {
    access_token: Option<String>,
    /// Seconds.
    expires_in: Option<u64>,
    error: Option<String>,
    error_description: Option<String>,
}

impl ClientCredentials {
    /// Asks for a token. Blocks, within a bound.
    pub(super) fn ask(&self) -> Result<BearerToken> {
        let failed = |error: &dyn std::error::Error| {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            let what = format!("no token from {}: {}", self.authority(), self.redactor.clean(&text));
            Error::new(code::SOURCE_UNAVAILABLE, what)
                .fix("check \"kafka.sasl.oauthbearer.token.endpoint.url\", and that it can be reached from here")
        };
        // A runtime of its own: the library asks on threads of all kinds.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (status, body) = runtime.map_err(|error| failed(&error))?.block_on(async {
            let mut form = vec![("grant_type", "client_credentials")];
            form.extend(self.scope.as_deref().map(|scope| ("scope", scope)));
            let request = self.client()?.post(&self.endpoint);
            let request = request.basic_auth(&self.client_id, Some(self.client_secret.expose())).form(&form);
            let answer = request.send().await.map_err(|error| failed(&error.without_url()))?;
            let status = answer.status();
            let body = answer.bytes().await.map_err(|error| failed(&error.without_url()))?;
            Ok::<_, Error>((status, body))
        })?;
        let answer: Option<Answer> = serde_json::from_slice(&body).ok();
        match answer {
            Some(Answer { access_token: Some(token), expires_in, .. }) if status.is_success() => {
                let life = expires_in.map_or(LIFE_UNSAID, Duration::from_secs);
                let life_ms = i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
                let expires_at_ms = SystemClock::default().now_ms().saturating_add(life_ms);
                Ok(BearerToken::new(token, &self.client_id, expires_at_ms))
            }
            answer => {
                let said = answer.and_then(|answer| answer.error.map(|error| (error, answer.error_description)));
                let said = said.map_or_else(String::new, |(error, why)| match why {
                    Some(why) => format!(": {error}: {why}"),
                    None => format!(": {error}"),
                });
                Err(self.refused(status, &said))
            }
        }
    }

    /// The authority's host, for people: the rest of the address may hold what is nobody's business.
    fn authority(&self) -> String {
        let url = reqwest::Url::parse(&self.endpoint).ok();
        url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| "the authority".to_owned())
    }

    fn client(&self) -> Result<reqwest::Client> {
        let bad = |what: String| {
            Error::new(code::INVALID_OPTION, what).fix("name a PEM file with certificates of authorities")
        };
        let mut client = reqwest::Client::builder().timeout(ANSWER_BOUND);
        if let Some(path) = &self.ca_file {
            let text = std::fs::read(path)
                .map_err(|error| bad(format!("\"kafka.https.ca.location\", {path}, cannot be read")).because(error))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&text);
            let certificates = certificates
                .map_err(|error| bad(format!("\"kafka.https.ca.location\", {path}, is no PEM file")).because(error))?;
            client = certificates.into_iter().fold(client, reqwest::ClientBuilder::add_root_certificate);
        }
        client
            .build()
            .map_err(|error| Error::new(code::SOURCE_UNAVAILABLE, "no HTTP client can be made").because(error))
    }

    /// The error for an answer that holds no token.
    fn refused(&self, status: StatusCode, said: &str) -> Error {
        let what = format!("{} gave no token: {status}{}", self.authority(), self.redactor.clean(said));
        match status.is_client_error() {
            true => Error::new(code::SOURCE_DENIED, what)
                .fix("check \"kafka.sasl.oauthbearer.client.id\", its secret and \"kafka.sasl.oauthbearer.scope\""),
            false => Error::new(code::SOURCE_UNAVAILABLE, what).fix("see what the authority's own log says"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_token_is_shared_until_most_of_its_life_is_over() {
        let asked = Arc::new(AtomicU32::new(0));
        let life_ms = Arc::new(std::sync::atomic::AtomicI64::new(60_000));
        let source = {
            let (asked, life_ms) = (Arc::clone(&asked), Arc::clone(&life_ms));
            TokenSource::new(move || {
                let number = asked.fetch_add(1, Ordering::SeqCst);
                let expires_at_ms = SystemClock::default().now_ms() + life_ms.load(Ordering::SeqCst);
                Ok(BearerToken::new(format!("token {number}"), "somebody", expires_at_ms))
            })
        };
        let tokens = Tokens::new(source.clone());
        let values = [(); 3].map(|()| tokens.token().unwrap().value.expose().to_owned());
        assert_eq!(values, ["token 0", "token 0", "token 0"]);
        // One that is as good as over is of no use to the next client.
        life_ms.store(0, Ordering::SeqCst);
        let tokens = Tokens::new(source);
        let values = [(); 2].map(|()| tokens.token().unwrap().value.expose().to_owned());
        assert_eq!(values, ["token 1", "token 2"]);
    }

    #[test]
    fn a_source_that_fails_is_asked_again() {
        let asked = AtomicU32::new(0);
        let tokens = Tokens::new(TokenSource::new(move || match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Error::new(code::SOURCE_UNAVAILABLE, "not now")),
            _ => Ok(BearerToken::new("late", "somebody", i64::MAX)),
        }));
        assert_eq!(tokens.token().expect_err("not now").code(), code::SOURCE_UNAVAILABLE);
        assert_eq!(tokens.token().unwrap().value.expose(), "late");
    }
}

//! The `kafka.*` properties: which are passed on to librdkafka, which are refused and why, and which may be printed.
//!
//! What is printed is decided by a list of harmless names; every other value goes to the vault, and a spec holds only
//! its name there. Nothing here ever prints a value.

use std::collections::BTreeMap;

use tidemill_core::options::nearest;
use tidemill_core::{Error, Result, Secret, code};

use super::ffi;

/// Properties whose values are harmless in a spec, a log or an error.
const PRINTABLE: &[&str] = &[
    "allow.auto.create.topics",
    "api.version.request",
    "api.version.request.timeout.ms",
    "bootstrap.servers",
    "broker.address.family",
    "broker.address.ttl",
    "check.crcs",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "connections.max.idle.ms",
    "debug",
    "enable.ssl.certificate.verification",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "group.id",
    "isolation.level",
    "log_level",
    "metadata.max.age.ms",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "receive.message.max.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.mechanisms",
    "security.protocol",
    "session.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.max.fails",
    "socket.nagle.disable",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "socket.timeout.ms",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm",
    "test.mock.num.brokers",
    "topic.metadata.propagation.max.ms",
    "topic.metadata.refresh.interval.ms",
];

/// Properties that librdkafka has and does not list, since nothing is their default.
pub(super) const UNSET: &[&str] = &[
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "sasl.username",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
];

/// Parts of names whose values are secrets, however short they are.
const SECRET_PARTS: &[&str] = &["password", "secret", "token", "key", "pem", "jaas", "credential", "assertion"];

/// Properties that the engine decides, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("auto.offset.reset", "use the option \"startingOffsets\"; a position that is gone is an error, never a jump"),
    (
        "enable.auto.commit",
        "the checkpoint holds the offsets; \"commitToGroup\" is whether tools outside are told of them",
    ),
    ("enable.auto.offset.store", "the checkpoint holds the offsets, and no client stores any"),
    ("enable.partition.eof", "the end of a range rests on it"),
    ("interceptor.classes", "an interceptor could change what a range holds"),
    ("plugin.library.paths", "a plug-in could change what a range holds"),
    ("key.deserializer", "keys are binary; use expressions to decode them"),
    ("value.deserializer", "values are binary; use expressions to decode them"),
    ("key.serializer", "a source writes nothing"),
    ("value.serializer", "a source writes nothing"),
    ("group.instance.id", "no group is joined"),
    ("partition.assignment.strategy", "no group is joined"),
    ("max.poll.records", "the engine sizes its record batches by itself"),
    ("max.poll.interval.ms", "no group is joined"),
];

/// Properties of the Java client, with what takes their place in librdkafka.
const JAVA_ONLY: &[(&str, &str)] = &[
    ("sasl.jaas.config", "set \"kafka.sasl.username\" and \"kafka.sasl.password\""),
    ("sasl.login.callback.handler.class", "librdkafka takes no classes"),
    ("sasl.client.callback.handler.class", "librdkafka takes no classes"),
    ("sasl.login.class", "librdkafka takes no classes"),
    ("ssl.truststore.location", "set \"kafka.ssl.ca.location\" to a PEM file with the CA certificates"),
    ("ssl.truststore.password", "a PEM file with CA certificates (\"kafka.ssl.ca.location\") needs no password"),
    ("ssl.truststore.type", "CA certificates are PEM: \"kafka.ssl.ca.location\" or \"kafka.ssl.ca.pem\""),
    ("ssl.truststore.certificates", "set \"kafka.ssl.ca.pem\""),
    ("ssl.keystore.type", "PKCS#12: \"kafka.ssl.keystore.location\"; PEM: \"kafka.ssl.certificate.location\""),
    ("ssl.keystore.key", "set \"kafka.ssl.key.pem\""),
    ("ssl.keystore.certificate.chain", "set \"kafka.ssl.certificate.pem\""),
    ("ssl.protocol", "librdkafka negotiates the TLS version"),
    ("ssl.enabled.protocols", "librdkafka negotiates the TLS version"),
    ("ssl.provider", "set \"kafka.ssl.providers\""),
    ("ssl.trustmanager.algorithm", "librdkafka has no such choice"),
    ("ssl.keymanager.algorithm", "librdkafka has no such choice"),
    ("ssl.secure.random.implementation", "librdkafka has no such choice"),
    ("ssl.engine.factory.class", "librdkafka takes no classes"),
    ("receive.buffer.bytes", "set \"kafka.socket.receive.buffer.bytes\""),
    ("send.buffer.bytes", "set \"kafka.socket.send.buffer.bytes\""),
    ("request.timeout.ms", "set \"kafka.socket.timeout.ms\""),
    ("default.api.timeout.ms", "set \"kafka.socket.timeout.ms\""),
    ("fetch.max.wait.ms", "set \"kafka.fetch.wait.max.ms\""),
    ("metric.reporters", "librdkafka takes no classes"),
    ("exclude.internal.topics", "topics are named, so nothing is excluded"),
];

/// Second names that librdkafka has for properties.
const SECOND_NAMES: &[(&str, &str)] = &[
    ("metadata.broker.list", "bootstrap.servers"),
    ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
    ("sasl.mechanism", "sasl.mechanisms"),
];

/// The name under which a property is known here, whichever of its names was used.
pub(super) fn main_name(name: &str) -> &str {
    SECOND_NAMES.iter().find(|(second, _)| *second == name).map_or(name, |(_, main)| main)
}

/// Whether a property's value may stand in a spec and be printed.
pub(super) fn printable(name: &str) -> bool {
    PRINTABLE.contains(&name)
}

/// Whether a property's name says that its value is a secret.
fn secret(name: &str) -> bool {
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// Refuses what must not be passed on, and what librdkafka does not know, naming what to use instead.
pub(super) fn check_name(name: &str) -> Result<()> {
    let entry = |table: &[(&str, &'static str)]| table.iter().find(|(known, _)| *known == name).map(|(_, fix)| *fix);
    if let Some(why) = entry(REFUSED) {
        return Err(Error::new(code::INVALID_OPTION, format!("\"kafka.{name}\" cannot be set")).fix(why));
    }
    if let Some(instead) = entry(JAVA_ONLY) {
        let what = format!("\"kafka.{name}\" belongs to the Java client, and librdkafka does not have it");
        return Err(Error::new(code::INVALID_OPTION, what).fix(instead));
    }
    if ffi::knows_property(name) {
        return Ok(());
    }
    let known = ffi::property_names();
    let error = Error::new(code::UNKNOWN_OPTION, format!("librdkafka has no property \"{name}\" (\"kafka.{name}\")"));
    let known = known.iter().map(String::as_str);
    Err(match nearest(name, known.chain(PRINTABLE.iter().copied()).chain(UNSET.iter().copied())) {
        Some(near) => error.fix(format!("did you mean \"kafka.{near}\"?")),
        None => error.fix("see librdkafka's CONFIGURATION.md for the properties that there are"),
    })
}

/// What client credentials are made of: the authority, the account and its secret, each by the names that it has.
pub(super) const CREDENTIALS: [&[&str]; 3] = [
    &["sasl.oauthbearer.token.endpoint.url"],
    &["sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"],
    &["sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"],
];

/// Refuses a login by OAUTHBEARER that would be accepted and then not work. `has_tokens`: the program gives its own.
pub(super) fn check_login(properties: &BTreeMap<String, (Secret, bool)>, has_tokens: bool) -> Result<()> {
    let get = |name: &str| properties.get(name).map(|(value, _)| value.expose());
    let is = |name: &str, value: &str| get(name).is_some_and(|found| found.eq_ignore_ascii_case(value));
    let by_token = is("sasl.mechanisms", "OAUTHBEARER");
    let refuse = |what: String, fix: &'static str| Err(Error::new(code::INVALID_OPTION, what).fix(fix));
    if !by_token {
        return Ok(());
    }
    for name in ["enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions"] {
        if properties.contains_key(name) {
            return refuse(
                format!("\"kafka.{name}\" cannot be set"),
                "log in with client credentials (\"kafka.sasl.oauthbearer.method\" oidc), or with Kafka::bearer_tokens",
            );
        }
    }
    if has_tokens {
        return Ok(());
    }
    if !is("sasl.oauthbearer.method", "oidc") {
        return refuse(
            "OAUTHBEARER is without tokens".to_owned(),
            "set \"kafka.sasl.oauthbearer.method\" to oidc with a client's id and secret, or call Kafka::bearer_tokens",
        );
    }
    let other = get("sasl.oauthbearer.grant.type").filter(|grant| *grant != "client_credentials");
    if other.is_some() || properties.keys().any(|name| name.starts_with("sasl.oauthbearer.assertion.")) {
        return refuse(
            "\"kafka.sasl.oauthbearer.grant.type\" can only be client_credentials".to_owned(),
            "for another grant, call Kafka::bearer_tokens with a function that knows it",
        );
    }
    for names in CREDENTIALS {
        if !names.iter().any(|name| properties.contains_key(*name)) {
            let what = format!("client credentials lack \"kafka.{}\"", names[0]);
            return Err(Error::new(code::MISSING_OPTION, what).fix("set it"));
        }
    }
    Ok(())
}

/// Takes known secrets out of texts that come from the library.
#[derive(Clone, Default)]
pub(super) struct Redactor(Vec<String>);

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} values)", self.0.len())
    }
}

impl Redactor {
    /// Learns the value of a property. A harmless word such as `true` is not taken out of every text, unless the
    /// property is a secret by its name.
    pub(super) fn learn(&mut self, property: &str, value: &str) {
        let harmless = value.len() < 4 || value.parse::<f64>().is_ok() || ["true", "false", "none"].contains(&value);
        if value.is_empty() || (harmless && !secret(property)) {
            return;
        }
        self.0.push(value.to_owned());
        // A key in PEM is cited line by line, if at all.
        self.0.extend(value.lines().map(str::trim).filter(|line| line.len() >= 16).map(str::to_owned));
        self.0.sort_by_key(|known| std::cmp::Reverse(known.len()));
    }

    /// The text, with `***` in the place of every known value.
    pub(super) fn clean(&self, text: &str) -> String {
        self.0.iter().fold(text.trim().to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }
}

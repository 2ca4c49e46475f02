//! What is accepted, what is refused and with which words, and that no secret is ever printed.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::mocking::MockCluster;
use tidemill_core::registry::Vault;
use tidemill_core::{Context, Error, Options, Owner, QueryId, Result, Secret, SourceBuilder, SourceFormat, code};

use crate::kafka::client::Client;
use crate::kafka::config::options::OPTIONS;
use crate::kafka::config::{Isolation, KafkaConfig, Portions, Subscription};
use crate::kafka::properties::{self, UNSET};
use crate::kafka::{Kafka, KafkaFormat, Start, WithoutMatch};

const CANARY: &str = "hunter2-canary";

fn options(given: &[(&str, &str)]) -> Options {
    let mut options = Options::new();
    options.set("kafka.bootstrap.servers", "127.0.0.1:1");
    options.set("subscribe", "t");
    for (name, value) in given {
        options.set(name, *value);
    }
    options
}

fn resolve(given: &[(&str, &str)], vault: &Vault) -> Result<KafkaConfig> {
    Kafka::from_options(options(given), false)?.resolve(vault, false)
}

fn refused(given: &[(&str, &str)]) -> Error {
    resolve(given, &Vault::default()).expect_err("refused")
}

#[test]
fn both_forms_make_the_same_spec() {
    let (text, typed) = (Vault::default(), Vault::default());
    let given = [
        ("Subscribe", " b , a,"),
        ("STARTINGOFFSETS", r#"{"a":{"0":23,"1":-2},"b":{"0":-1}}"#),
        ("maxOffsetsPerTrigger", "1000"),
        ("minOffsetsPerTrigger", "10"),
        ("maxTriggerDelay", "2m"),
        ("maxBytesPerTrigger", "4096"),
        ("minPartitions", "4"),
        ("maxRecordsPerPartition", "99"),
        ("startingOffsetsByTimestampStrategy", "latest"),
        ("includeHeaders", "True"),
        ("failOnDataLoss", "false"),
        ("kafka.isolation.level", "read_uncommitted"),
        ("kafka.client.id", "me"),
        ("kafka.sasl.password", CANARY),
    ];
    let offsets = BTreeMap::from([
        ("a".to_owned(), BTreeMap::from([(0, 23), (1, Start::FIRST)])),
        ("b".to_owned(), BTreeMap::from([(0, Start::END)])),
    ]);
    let builder = Kafka::brokers("127.0.0.1:1")
        .topics(["a", "b"])
        .start(Start::Offsets(offsets))
        .max_offsets_per_trigger(1000)
        .min_offsets_per_trigger(10, Duration::from_secs(120))
        .max_bytes_per_trigger(4096)
        .min_partitions(4)
        .max_records_per_partition(99)
        .without_match(WithoutMatch::Latest)
        .include_headers(true)
        .fail_on_data_loss(false)
        .property("isolation.level", "read_uncommitted")
        .property("client.id", "me")
        .secret_property("sasl.password", Secret::new(CANARY));
    let text = resolve(&given, &text).unwrap();
    assert_eq!(text.spec(), builder.resolve(&typed, false).unwrap().spec());
    assert_eq!(KafkaConfig::from_spec(&text.spec()).unwrap(), text);
    assert_eq!(text.isolation, Isolation::ReadUncommitted);
}

#[test]
fn defaults_are_those_that_are_documented() {
    let config = resolve(&[], &Vault::default()).unwrap();
    assert_eq!(config.start, Start::Latest);
    assert_eq!(config.isolation, Isolation::ReadCommitted);
    assert_eq!(config.portions, Portions { max_delay_ms: 900_000, ..Portions::default() });
    assert_eq!(config.without_match, WithoutMatch::Error);
    assert!(config.fail_on_data_loss);
    assert!(!config.include_headers);
}

#[test]
fn addresses_that_the_library_would_misread_are_refused_at_once() {
    for servers in ["b:9092", "b", "b:9092, c:9093", "PLAINTEXT://b:9092", "[::1]:9092", "[::1]", "10.0.0.1:1"] {
        resolve(&[("kafka.bootstrap.servers", servers)], &Vault::default()).expect(servers);
    }
    for servers in ["b:99999", "b:0", "b:", ":9092", "b:x", "http://b:9092", "b:9092,,c:9092", "b:9092,c:-1"] {
        let error = refused(&[("kafka.bootstrap.servers", servers)]);
        assert_eq!(error.code(), code::INVALID_OPTION, "{servers}: {error}");
    }
    assert_eq!(
        Kafka::brokers("b").topic(" ").resolve(&Vault::default(), false).expect_err("no name").code(),
        code::INVALID_OPTION
    );
}

#[test]
fn start_is_read_in_all_its_forms() {
    for (text, expected) in [("earliest", Start::Earliest), ("LATEST", Start::Latest)] {
        assert_eq!(resolve(&[("startingOffsets", text)], &Vault::default()).unwrap().start, expected);
    }
    let twice = [r#"{"t":{"0":1,"0":4}}"#, r#"{"t":{"0":1},"t":{"1":4}}"#];
    for text in ["soon", "", r#"{"t":5}"#, r#"{"t":{"x":5}}"#, r#"{"t":{"0":-3}}"#].into_iter().chain(twice) {
        assert_eq!(refused(&[("startingOffsets", text)]).code(), code::INVALID_OPTION, "{text}");
    }
}

#[test]
fn assigned_partitions_are_read_from_json() {
    let mut given = Options::new();
    given.set("kafka.bootstrap.servers", "127.0.0.1:1");
    given.set("assign", r#"{"t":[2,0]}"#);
    let config = Kafka::from_options(given, false).unwrap().resolve(&Vault::default(), false).unwrap();
    let expected = BTreeMap::from([("t".to_owned(), [0, 2].into())]);
    assert_eq!(config.subscription, Subscription::Assign(expected));
}

#[test]
fn wrong_options_are_refused_with_what_to_do() {
    let cases: &[(&str, &str, tidemill_core::Code, &str)] = &[
        ("startingOffset", "earliest", code::UNKNOWN_OPTION, "startingOffsets"),
        ("subscribePattern", "t.*", code::INVALID_OPTION, "one of them"),
        ("minPartitions", "0", code::INVALID_OPTION, "positive"),
        ("minPartitions", "a", code::INVALID_OPTION, "positive"),
        ("maxRecordsPerPartition", "0", code::INVALID_OPTION, "positive"),
        ("maxBytesPerTrigger", "0", code::INVALID_OPTION, "positive"),
        ("minOffsetsPerTrigger", "0", code::INVALID_OPTION, "positive"),
        ("maxTriggerDelay", "soon", code::INVALID_OPTION, "15m"),
        ("startingTimestamp", "-1", code::INVALID_OPTION, "milliseconds"),
        ("startingTimestamp", "noon", code::INVALID_OPTION, "milliseconds"),
        ("startingOffsetsByTimestamp", r#"{"t":{"0":-1}}"#, code::INVALID_OPTION, "time"),
        ("startingOffsetsByTimestampStrategy", "earliest", code::INVALID_OPTION, "error or latest"),
        ("endingOffsets", "latest", code::INVALID_OPTION, "available_now"),
        ("failOnDataLoss", "no", code::INVALID_OPTION, "true or false"),
        ("maxOffsetsPerTrigger", "0", code::INVALID_OPTION, "positive"),
        ("maxOffsetsPerTrigger", "-1", code::INVALID_OPTION, "positive"),
        ("includeHeaders", "yes", code::INVALID_OPTION, "true or false"),
        ("assign", r#"{"t":[0]}"#, code::INVALID_OPTION, "one of them"),
        ("assign", r#"{"t":[]}"#, code::INVALID_OPTION, "no partition of \"t\""),
        ("assign", "{}", code::INVALID_OPTION, "names nothing"),
        ("assign", r#"{"t":[0],"t":[1]}"#, code::INVALID_OPTION, "each topic once"),
        ("groupIdPrefix", "", code::INVALID_OPTION, "empty"),
        ("kafka.group.id", " ", code::INVALID_OPTION, "kafka.group.id"),
        ("subscribe", " ,", code::INVALID_OPTION, "names nothing"),
        ("subscribePattern", " ", code::INVALID_OPTION, "empty"),
        ("kafkaConsumer.pollTimeoutMs", "0", code::INVALID_OPTION, "positive"),
        ("callTimeoutMs", "0", code::INVALID_OPTION, "positive"),
        ("kafka.auto.offset.reset", "latest", code::INVALID_OPTION, "startingOffsets"),
        ("kafka.enable.auto.commit", "true", code::INVALID_OPTION, "checkpoint"),
        ("kafka.key.deserializer", "x", code::INVALID_OPTION, "binary"),
        ("kafka.value.deserializer", "x", code::INVALID_OPTION, "binary"),
        ("kafka.interceptor.classes", "x", code::INVALID_OPTION, "interceptor"),
        ("kafka.plugin.library.paths", "x", code::INVALID_OPTION, "plug-in"),
        ("kafka.metadata.broker.list", "other:1", code::INVALID_OPTION, "set twice"),
        ("kafka.sasl.jaas.config", "x", code::INVALID_OPTION, "kafka.sasl.username"),
        ("kafka.ssl.truststore.location", "x", code::INVALID_OPTION, "kafka.ssl.ca.location"),
        ("kafka.request.timeout.ms", "5", code::INVALID_OPTION, "kafka.socket.timeout.ms"),
        ("kafka.sasl.mechanism", "OAUTHBEARER", code::INVALID_OPTION, "bearer_tokens"),
        ("kafka.isolation.level", "both", code::INVALID_OPTION, "read_committed"),
        ("kafka.security.protocl", "ssl", code::UNKNOWN_OPTION, "kafka.security.protocol"),
        ("kafka.sasl.pasword", "x", code::UNKNOWN_OPTION, "kafka.sasl.password"),
        ("kafka.bootstrap.servers", " ", code::MISSING_OPTION, "host:port"),
    ];
    for (name, value, expected, words) in cases {
        let error = refused(&[(name, value)]);
        assert_eq!(error.code(), *expected, "{name}: {error}");
        assert!(error.to_string().contains(words), "{name}: {error}");
    }
    let mut nothing = Options::new();
    nothing.set("kafka.bootstrap.servers", "127.0.0.1:1");
    let error =
        Kafka::from_options(nothing, false).and_then(|kafka| kafka.resolve(&Vault::default(), false)).unwrap_err();
    assert_eq!(error.code(), code::MISSING_OPTION);
    let error = Kafka::from_options(Options::new(), false).unwrap_err();
    assert!(error.to_string().contains("kafka.bootstrap.servers"), "{error}");
}

#[test]
fn the_first_of_the_ways_to_start_counts() {
    let (time, times) = (("startingTimestamp", "5"), ("startingOffsetsByTimestamp", r#"{"t":{"0":7}}"#));
    let earliest = ("startingOffsets", "earliest");
    let start = |given: &[(&str, &str)]| resolve(given, &Vault::default()).unwrap().start;
    let by_partition = Start::Timestamps([("t".to_owned(), [(0, 7)].into())].into());
    assert_eq!(start(&[earliest, times, time]), Start::Timestamp(5));
    assert_eq!(start(&[earliest, times]), by_partition);
    // One that does not count is read all the same.
    assert_eq!(refused(&[time, ("startingOffsets", "soon")]).code(), code::INVALID_OPTION);
    let error = refused(&[("minOffsetsPerTrigger", "11"), ("maxOffsetsPerTrigger", "10")]);
    assert!(error.to_string().contains("above"), "{error}");
}

#[test]
fn a_static_read_has_an_end_and_a_stream_may_have_one() {
    let read = |given: &[(&str, &str)]| {
        Kafka::from_options(options(given), true).and_then(|kafka| kafka.resolve(&Vault::default(), true))
    };
    let plain = read(&[("maxOffsetsPerTrigger", "5")]).expect("what fits a stream is no error");
    assert_eq!((plain.start, plain.end, plain.portions.max_offsets), (Start::Earliest, None, None));
    let by_time = read(&[("endingTimestamp", "7"), ("endingOffsets", "latest")]).expect("read");
    assert_eq!(by_time.end, Some(Start::Timestamp(7)));
    for (name, value) in [
        ("maxOffsetsPerTrigger", "many"),
        ("startingOffsets", "latest"),
        ("startingOffsets", r#"{"t":{"0":-1}}"#),
        ("endingOffsets", "earliest"),
        ("endingOffsets", r#"{"t":{"0":-2}}"#),
        ("endingTimestamp", "-1"),
    ] {
        assert_eq!(read(&[(name, value)]).expect_err(value).code(), code::INVALID_OPTION, "{name} {value}");
    }
    let stream = |end| Kafka::brokers("b").topic("t").between(Start::Earliest..end).resolve(&Vault::default(), false);
    assert!(stream(Start::Offsets([("t".to_owned(), [(0, 5)].into())].into())).is_ok());
    for end in [
        Start::Latest,
        Start::Earliest,
        Start::Group("g".to_owned()),
        Start::Offsets([("t".to_owned(), [(0, Start::END)].into())].into()),
    ] {
        assert_eq!(stream(end.clone()).expect_err("refused").code(), code::INVALID_OPTION, "{end:?}");
    }
}

#[test]
fn a_pattern_is_read_and_survives_its_spec() {
    let mut given = Options::new();
    given.set("kafka.bootstrap.servers", "127.0.0.1:1");
    given.set("subscribepattern", "sensor-[0-9]+");
    let config = Kafka::from_options(given, false).unwrap().resolve(&Vault::default(), false).unwrap();
    assert!(config.subscription.takes("sensor-12", 3) && !config.subscription.takes("sensor-x", 0));
    assert_eq!(KafkaConfig::from_spec(&config.spec()).unwrap(), config);
    let broken = Kafka::brokers("b").topic_pattern("a(").resolve(&Vault::default(), false).expect_err("refused");
    assert!(broken.to_string().contains("regular expression"), "{broken}");
}

#[test]
fn a_value_from_the_environment_is_a_secret() {
    let path = std::env::var("PATH").expect("every process has one");
    let vault = Vault::default();
    let config = resolve(&[("kafka.client.id", "${env:PATH}")], &vault).unwrap();
    assert!(!config.spec().config.to_string().contains(&path));
    assert_eq!(config.client(&vault).unwrap().0.get("client.id"), Some(path.as_str()));
    let error = refused(&[("kafka.sasl.password", "${env:TIDEMILL_NOT_SET}")]);
    assert!(
        error.to_string().contains("TIDEMILL_NOT_SET") && error.to_string().contains("kafka.sasl.password"),
        "{error}"
    );
}

/// The documentation names what is taken, and nothing else.
#[test]
fn every_option_is_documented() {
    let mut listed = std::collections::BTreeSet::new();
    for is_static in [false, true] {
        let mut options = options(&[]);
        options.set("noSuchOption", "x");
        let text = Kafka::from_options(options, is_static).expect_err("an unknown option").to_string();
        let names = text.split("it has: ").nth(1).expect("nothing is near, so all are listed");
        listed.extend(names.split(", ").map(str::to_owned));
    }
    let documented: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
    for name in &listed {
        assert!(documented.contains(&name.as_str()), "\"{name}\" is not documented");
    }
    for name in documented.iter().filter(|name| !name.starts_with("kafka.")) {
        assert!(listed.contains(*name), "\"{name}\" is documented and not taken");
    }
}

#[test]
fn a_group_is_named_by_its_option_or_made_of_the_prefix() {
    let query_id = QueryId::random(&*Context::default().rng);
    let owner = Owner { query_id: &query_id, source: "k" };
    let group = |given: &[(&str, &str)]| {
        let vault = Vault::default();
        let config = resolve(given, &vault).unwrap();
        config.lag_group(config.client(&vault).unwrap().0.get("group.id"), owner)
    };
    let path = std::env::var("PATH").expect("every process has one");
    assert_eq!(group(&[]), Some(format!("tidemill-{query_id}-k")));
    assert_eq!(group(&[("groupIdPrefix", "p")]), Some(format!("p-{query_id}-k")));
    assert_eq!(group(&[("groupIdPrefix", "p"), ("kafka.group.id", "mine")]), Some("mine".to_owned()));
    assert_eq!(group(&[("kafka.group.id", "${env:PATH}")]), Some(path));
    assert_eq!(group(&[("commitToGroup", "false")]), None);
}

#[test]
fn names_that_are_suggested_are_names_of_the_library() {
    for name in UNSET {
        assert!(properties::check_name(name).is_ok(), "{name}");
    }
}

#[test]
fn a_property_may_be_given_by_either_of_its_names() {
    let vault = Vault::default();
    let given = [("kafka.max.partition.fetch.bytes", "7000"), ("kafka.sasl.mechanism", "PLAIN")];
    let (config, _) = resolve(&given, &vault).unwrap().client(&vault).unwrap();
    assert_eq!((config.get("fetch.message.max.bytes"), config.get("sasl.mechanisms")), (Some("7000"), Some("PLAIN")));
    // Twice the same is no contradiction.
    let tokens = Kafka::brokers("b").topic("t").property("sasl.mechanism", "OAUTHBEARER");
    let tokens = tokens.bearer_tokens(|| Err("none".into()));
    assert!(tokens.resolve(&Vault::default(), false).is_ok());
}

#[tokio::test]
async fn a_source_and_its_reader_print_no_secret() {
    let cluster = MockCluster::new(1).expect("the library's own cluster");
    cluster.create_topic("t", 1, 1).expect("a topic");
    let (context, pem) = (Context::default(), "canary-in-a-key");
    let kafka = Kafka::brokers(cluster.bootstrap_servers()).topic("t").secret_property("client.id", Secret::new(pem));
    let source = kafka.build(&context).await.expect("it opens");
    let reader = KafkaFormat.reader(source.spec(), &context).expect("a reader");
    let printed = format!("{source:?} {reader:?}");
    assert!(printed.contains("KafkaSource") && !printed.contains(pem), "{printed}");
}

#[test]
fn values_that_are_not_known_to_be_harmless_are_only_in_the_vault() {
    let names = [
        "sasl.password",
        "sasl.username",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.key.location",
        "ssl.keystore.password",
        "ssl.ca.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
    ];
    for name in names {
        let (option, vault) = (format!("kafka.{name}"), Vault::default());
        let given = [(option.as_str(), CANARY)];
        let config = resolve(&given, &vault).unwrap();
        let kept = &config.vault[name];
        assert_eq!(vault.get(kept).unwrap().expose(), CANARY);
        let spec = config.spec();
        let printed = format!("{:?} {spec:?} {} {vault:?} {:?}", options(&given), spec.config, config);
        assert!(!printed.contains(CANARY), "{name}: {printed}");
        let builder = Kafka::brokers("b").property(name, CANARY);
        assert!(!format!("{builder:?}").contains(CANARY), "{name}");
    }
    // Said to be secret by the user, although the name is harmless.
    let vault = Vault::default();
    let builder = Kafka::brokers("b").topic("t").secret_property("client.id", Secret::new(CANARY));
    let config = builder.resolve(&vault, false).unwrap();
    assert!(!config.spec().config.to_string().contains(CANARY));
    assert_eq!(config.client(&vault).unwrap().0.get("client.id"), Some(CANARY));
}

#[test]
fn texts_of_the_library_lose_known_secrets() {
    let vault = Vault::default();
    let pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END PRIVATE KEY-----";
    let given = [
        ("kafka.sasl.password", CANARY),
        ("kafka.ssl.key.pem", pem),
        ("kafka.ssl.key.password", "ab"),
        ("kafka.sasl.oauthbearer.config", "false"),
    ];
    let (_, login) = resolve(&given, &vault).unwrap().client(&vault).unwrap();
    let text = format!("login {CANARY} failed, line MIIEvQIBADANBgkqhkiG9w0 is bad, ab, it is false");
    assert_eq!(login.clean(&text), "login *** failed, line *** is bad, ***, it is false");
    assert!(!format!("{login:?}").contains(CANARY));
}

#[test]
fn value_that_the_library_refuses_is_not_printed() {
    for (name, value) in [("kafka.ssl.key.pem", CANARY), ("kafka.sasl.oauthbearer.method", CANARY)] {
        let vault = Vault::default();
        let given = [(name, value), ("kafka.security.protocol", "ssl")];
        let (config, login) = resolve(&given, &vault).unwrap().client(&vault).unwrap();
        let error = Client::new(&config, &login).expect_err("the library refuses it");
        assert_eq!(error.code(), code::INVALID_OPTION, "{error:?}");
        assert!(!error.report().contains(CANARY), "{}", error.report());
    }
    let vault = Vault::default();
    let (config, login) = resolve(&[("kafka.fetch.min.bytes", "many")], &vault).unwrap().client(&vault).unwrap();
    let error = Client::new(&config, &login).expect_err("the library refuses it");
    assert!(error.to_string().contains("kafka.fetch.min.bytes"), "{error}");
}

#[tokio::test]
async fn address_where_nobody_listens_is_an_error_with_the_librarys_reason() {
    let given = options(&[("callTimeoutMs", "1500"), ("kafka.sasl.password", CANARY)]);
    let error = KafkaFormat.open(given, &Context::default()).await.expect_err("nobody listens");
    assert_eq!((error.code(), error.exit_code()), (code::SOURCE_UNAVAILABLE, 69));
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(!error.report().contains(CANARY));
}

#[test]
fn a_login_by_token_is_judged_by_what_its_values_stand_for() {
    let file = std::env::temp_dir().join(format!("tidemill-method-{}", std::process::id()));
    std::fs::write(&file, "oidc\n").unwrap();
    let method = format!("${{file:{}}}", file.display());
    let account = [
        ("kafka.sasl.mechanism", "OAUTHBEARER"),
        ("kafka.sasl.oauthbearer.method", &method),
        ("kafka.sasl.oauthbearer.token.endpoint.url", "https://authority/token"),
        ("kafka.sasl.oauthbearer.client.id", "lander"),
        ("kafka.sasl.oauthbearer.client.secret", CANARY),
    ];
    let vault = Vault::default();
    let (config, login) = resolve(&account, &vault).unwrap().client(&vault).unwrap();
    assert!(login.tokens.is_some());
    // The library would want libcurl for these.
    assert!(account[1..].iter().all(|(name, _)| config.get(&name["kafka.".len()..]).is_none()));
    for (left_out, words) in [(2, "token.endpoint.url"), (3, "client.id"), (4, "client.secret")] {
        let given: Vec<_> =
            account.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, given)| *given).collect();
        let error = resolve(&given, &Vault::default()).expect_err(words);
        assert_eq!(error.code(), code::MISSING_OPTION);
        assert!(error.to_string().contains(words), "{error}");
    }
    for (name, value) in [
        ("kafka.sasl.oauthbearer.extensions", "a=b"),
        ("kafka.sasl.oauthbearer.grant.type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
    ] {
        let error = resolve(&[&account[..], &[(name, value)]].concat(), &Vault::default()).expect_err(name);
        assert!(error.code() == code::INVALID_OPTION && error.to_string().contains(name), "{error}");
    }
    std::fs::remove_file(file).unwrap();
}

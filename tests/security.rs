//! A real broker that wants to know who asks: TLS, passwords, rights, and what is said when one of them is wrong. No secret
//! is ever seen.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tidemill::prelude::*;
use tidemill::{BearerToken, Error, Result, Secret};
use tidemill_core::{Owner, QueryId, SourceBuilder};

use crate::support::authority::{self, TokenAuthority};
use crate::support::broker::{Broker, unique_topic};
use crate::support::certificates::Authority;
use crate::support::{loader, pipeline, table, tools};

/// How long a connection that cannot be made may take to say so.
const BOUND: Duration = Duration::from_secs(30);

/// A password that must never be seen.
const PASSWORD: &str = "canary-6d1f0c9be2";

/// A broker with a listener of every kind. The plain one is the superuser's.
struct Fortress {
    broker: Broker,
    authority: Authority,
    sasl: String,
    /// Logs in with tokens, and wants another one every two seconds.
    oauth: String,
    tls: String,
    mutual: String,
    /// Its certificate is for another host.
    elsewhere: String,
    /// Has 20 rows, which the user `reader` may read.
    topic: String,
    files: PathBuf,
}

impl Fortress {
    fn shared() -> &'static Fortress {
        static SHARED: OnceLock<Fortress> = OnceLock::new();
        SHARED.get_or_init(Fortress::build)
    }

    fn build() -> Fortress {
        let files = std::env::temp_dir().join(unique_topic("tidemill-fortress"));
        let authority = Authority::new(&files);
        let store = authority.keystore("broker", "IP:127.0.0.1,DNS:localhost");
        let other = authority.keystore("other", "DNS:broker.example.org");
        // All are held at once, so that they differ.
        let held = [(); 7].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let ports = held.map(|listener| listener.local_addr().expect("it is bound").port());
        let [plain, controller, sasl, oauth, tls, mutual, elsewhere] = ports.map(|port| format!("127.0.0.1:{port}"));
        let outside = format!(
            "PLAINTEXT://{plain},LOGIN://{sasl},OAUTH://{oauth},TLS://{tls},MUTUAL://{mutual},ELSEWHERE://{elsewhere}"
        );
        let listeners = format!("{outside},CONTROLLER://{controller}");
        let login = format!(
            "org.apache.kafka.common.security.plain.PlainLoginModule required user_reader=\"{PASSWORD}\" user_other=\"x\";"
        );
        let trusted = authority.certificate();
        let mut settings: Vec<(String, String)> = Vec::new();
        let mut set = |name: &str, value: &str| settings.push((name.to_owned(), value.to_owned()));
        set("listeners", &listeners);
        set("advertised.listeners", &outside);
        set("controller.quorum.bootstrap.servers", &controller);
        set("inter.broker.listener.name", "PLAINTEXT");
        set(
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT,OAUTH:SASL_PLAINTEXT,TLS:SSL,MUTUAL:SSL,ELSEWHERE:SSL",
        );
        set("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512");
        set("listener.name.login.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512");
        set("listener.name.login.plain.sasl.jaas.config", &login);
        for mechanism in ["scram-sha-256", "scram-sha-512"] {
            let login = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
            set(&format!("listener.name.login.{mechanism}.sasl.jaas.config"), login);
        }
        set("listener.name.oauth.sasl.enabled.mechanisms", "OAUTHBEARER");
        // Without an authority of its own a broker takes unsigned tokens.
        let login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;";
        set("listener.name.oauth.oauthbearer.sasl.jaas.config", login);
        set("listener.name.oauth.oauthbearer.connections.max.reauth.ms", "2000");
        for (listener, store) in [("tls", &store), ("mutual", &store), ("elsewhere", &other)] {
            let mut set = |name: &str, value: &str| set(&format!("listener.name.{listener}.ssl.{name}"), value);
            set("keystore.type", "PEM");
            set("keystore.location", &store.to_string_lossy());
            set("truststore.type", "PEM");
            set("truststore.location", &trusted.to_string_lossy());
        }
        set("listener.name.mutual.ssl.client.auth", "required");
        set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
        // Who does not say who he is may do everything: the test itself, and whoever comes by TLS alone.
        set("super.users", "User:ANONYMOUS;User:CN=client");
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let broker = Broker::start_at(&plain, &settings);
        let topic = unique_topic("guarded");
        broker.create_topic(&topic, 1, &[]);
        loader::load(broker.bootstrap(), &topic, 1, 0..20);
        tools::set_scram_password(broker.bootstrap(), "reader", PASSWORD);
        tools::allow_to_read(broker.bootstrap(), "reader", &topic);
        Fortress { broker, authority, sasl, oauth, tls, mutual, elsewhere, topic, files }
    }

    fn kafka(&self, servers: &str) -> Kafka {
        Kafka::brokers(servers).topic(&self.topic).start(Start::Earliest).call_timeout_ms(8_000)
    }

    fn login(&self, mechanism: &str, user: &str, password: &str) -> Kafka {
        let kafka = self.kafka(&self.sasl).property("security.protocol", "sasl_plaintext");
        let kafka = kafka.property("sasl.mechanism", mechanism).property("sasl.username", user);
        kafka.secret_property("sasl.password", Secret::new(password))
    }

    fn oauth(&self) -> Kafka {
        self.kafka(&self.oauth).property("security.protocol", "sasl_plaintext")
    }

    /// With an account at an authority.
    fn account(&self, endpoint: &str, secret: &str) -> Kafka {
        let kafka = self.oauth().property("sasl.mechanism", "OAUTHBEARER").property("sasl.oauthbearer.method", "oidc");
        let kafka = kafka.property("sasl.oauthbearer.token.endpoint.url", endpoint);
        let kafka = kafka.property("sasl.oauthbearer.client.id", "lander").property("sasl.oauthbearer.scope", "kafka");
        kafka.secret_property("sasl.oauthbearer.client.secret", Secret::new(secret))
    }

    fn tls(&self, servers: &str, authority: &Authority) -> Kafka {
        let ca = authority.certificate();
        self.kafka(servers).property("security.protocol", "ssl").property("ssl.ca.location", ca.to_string_lossy())
    }
}

/// Lands the whole topic; how many rows that were, and the warnings of the source.
async fn land(kafka: Kafka) -> Result<usize> {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let session = Session::builder().retry_start(Duration::from_secs(2)).build()?;
    let rows = session.stream(kafka).await?.select(["partition", "offset"]);
    let query = session.query("guarded").sink("table", rows, Parquet::table(at("table")));
    let query = query.checkpoint(at("checkpoint")).trigger(Trigger::available_now()).start().await?;
    query.await_termination().await?;
    Ok(table::offsets(root.path().join("table")).len())
}

async fn refused(kafka: Kafka) -> Error {
    let begun = Instant::now();
    let error = land(kafka).await.expect_err("refused");
    assert!(begun.elapsed() < BOUND, "{:?}: {error:?}", begun.elapsed());
    assert!(!error.report().contains(PASSWORD) && !format!("{error:?}").contains(PASSWORD), "{}", error.report());
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn users_with_the_right_password_read_what_they_may_read_and_need_no_group() {
    let fortress = Fortress::shared();
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        assert_eq!(land(fortress.login(mechanism, "reader", PASSWORD)).await.unwrap(), 20, "{mechanism}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_and_missing_rights_are_errors_with_the_brokers_reason() {
    let fortress = Fortress::shared();
    for mechanism in ["PLAIN", "SCRAM-SHA-256"] {
        let error = refused(fortress.login(mechanism, "reader", &format!("{PASSWORD}x"))).await;
        assert_eq!((error.code(), error.exit_code()), (tidemill::code::SOURCE_DENIED, 78), "{error:?}");
        assert!(error.to_string().to_lowercase().contains("authentication"), "{error}");
    }
    let error = refused(fortress.login("GSSAPI", "reader", PASSWORD)).await;
    assert_eq!(error.exit_code(), 78, "{error:?}");
    // Known, and without the right to read.
    let error = refused(fortress.login("PLAIN", "other", "x")).await;
    assert!([78, 69].contains(&error.exit_code()), "{error:?}");
    assert!(error.to_string().contains(&fortress.topic), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_at_an_authority_gets_tokens_for_all_clients_of_a_source() {
    let fortress = Fortress::shared();
    let authority = TokenAuthority::start("reader", "lander", PASSWORD);
    assert_eq!(land(fortress.account(&authority.url, PASSWORD)).await.unwrap(), 20);
    // The driver and the reader have one each, whatever number of clients they have.
    assert_eq!(authority.asked.load(Ordering::SeqCst), 2);
    let error = refused(fortress.account(&authority.url, &format!("{PASSWORD}x"))).await;
    assert_eq!((error.code(), error.exit_code()), (tidemill::code::SOURCE_DENIED, 78), "{error:?}");
    assert!(error.to_string().contains("401") && error.to_string().contains("nobody of that name"), "{error}");
    let nobody = format!("http://{}/token", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let error = refused(fortress.account(&nobody, PASSWORD)).await;
    assert_eq!(error.code(), tidemill::code::SOURCE_UNAVAILABLE, "{error:?}");
    assert!(error.to_string().contains("no token from 127.0.0.1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_ones_own_are_renewed_while_a_query_runs() {
    let fortress = Fortress::shared();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let kafka = fortress.oauth().bearer_tokens(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let expires_at_ms = authority::now_ms() + authority::SHORT_LIFE.as_millis() as i64;
        // Its end is in whole seconds: it lives no less than is said.
        Ok(BearerToken::new(authority::token("reader", 3), "reader", expires_at_ms))
    });
    let topic = unique_topic("renewed");
    fortress.broker.create_topic(&topic, 1, &[]);
    tools::allow_to_read(fortress.broker.bootstrap(), "reader", &topic);
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name).to_string_lossy().into_owned();
    let session = Session::builder().build().unwrap();
    let rows = session.stream(kafka.topic(&topic)).await.unwrap().select(["partition", "offset"]);
    let query = session.query("renewed").sink("table", rows, Parquet::table(at("table"))).checkpoint(at("checkpoint"));
    let query = query.trigger(Trigger::processing_time(Duration::from_millis(100))).start().await.unwrap();
    for round in 0..3 {
        loader::load(fortress.broker.bootstrap(), &topic, 1, round * 10..(round + 1) * 10);
        query.process_all_available().await.unwrap();
        tokio::time::sleep(authority::SHORT_LIFE).await;
    }
    query.stop().await.unwrap();
    assert_eq!(table::offsets(root.path().join("table")).len(), 50, "20 rows of the one topic and 30 of the other");
    assert!(asked.load(Ordering::SeqCst) > 3, "{asked:?}: the driver's, the reader's, and new ones");

    let error = refused(fortress.oauth().bearer_tokens(|| Err("the vault is locked".into()))).await;
    assert_eq!(error.code(), tidemill::code::SOURCE_UNAVAILABLE, "{error:?}");
    assert!(error.to_string().contains("the vault is locked"), "{error}");
    let late = || Ok(BearerToken::new(authority::token("reader", -60), "reader", authority::now_ms() + 60_000));
    let error = refused(fortress.oauth().bearer_tokens(late)).await;
    assert_eq!(error.code(), tidemill::code::SOURCE_DENIED, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_with_an_authority_of_ones_own_and_with_client_certificates_is_read() {
    let fortress = Fortress::shared();
    let (certificate, key) = fortress.authority.issue("client", "DNS:client.example.org");
    let with_certificate = |servers: &str| {
        let kafka = fortress.tls(servers, &fortress.authority);
        let kafka = kafka.property("ssl.certificate.location", certificate.to_string_lossy());
        kafka.property("ssl.key.location", key.to_string_lossy())
    };
    assert_eq!(land(fortress.tls(&fortress.tls, &fortress.authority)).await.unwrap(), 20);
    assert_eq!(land(with_certificate(&fortress.mutual)).await.unwrap(), 20);
    let error = refused(fortress.tls(&fortress.mutual, &fortress.authority)).await;
    assert!(!error.to_string().contains("timed out") && error.exit_code() != 0, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_tls_is_said() {
    let fortress = Fortress::shared();
    let stranger = Authority::new(fortress.files.join("stranger"));
    let missing = fortress.kafka(&fortress.tls).property("security.protocol", "ssl");
    let plain_on_tls = fortress.kafka(&fortress.tls);
    let tls_on_plain = fortress.tls(fortress.broker.bootstrap(), &fortress.authority);
    for (case, kafka, words) in [
        ("a wrong authority", fortress.tls(&fortress.tls, &stranger), "certificate verify failed"),
        ("another host", fortress.tls(&fortress.elsewhere, &fortress.authority), "certificate verify failed"),
        ("no such file", missing.property("ssl.ca.location", "/no/such/ca.pem"), "ssl.ca.location"),
        ("plain to TLS", plain_on_tls, ""),
        ("TLS to plain", tls_on_plain, "SSL"),
    ] {
        let error = refused(kafka).await;
        assert!([69, 78].contains(&error.exit_code()), "{case}: {error:?}");
        assert!(error.to_string().to_lowercase().contains(&words.to_lowercase()), "{case}: {error}");
        assert!(!error.to_string().contains("did not come"), "{case}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_may_not_be_written_is_one_warning() {
    let fortress = Fortress::shared();
    let context = tidemill_core::Context::default();
    let source = fortress.login("PLAIN", "reader", PASSWORD).build(&context).await.unwrap();
    let query_id = QueryId::random(&*context.rng);
    let owner = Owner { query_id: &query_id, source: "k" };
    let start = source.initial().await.unwrap();
    let mut warnings = Vec::new();
    // Beyond the next refusal, for which the library takes ten seconds.
    let mut rounds_left = 40;
    while rounds_left > 0 {
        source.committed(&start, owner).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        warnings.extend(source.warnings(owner));
        rounds_left = if warnings.is_empty() { rounds_left - 1 } else { rounds_left.min(27) - 1 };
    }
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(&format!("tidemill-{query_id}-k")), "{warnings:?}");
    assert!(warnings[0].to_lowercase().contains("authoriz"), "the reason: {warnings:?}");
}

/// What the child of the test below does, with its secrets in the environment.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of secrets_are_seen_nowhere"]
async fn child_with_secrets() {
    let told = |name: &str| std::env::var(name).expect("the parent says so");
    let at = |name: &str| format!("{}/{name}", told("CANARY_ROOT"));
    let session = Session::builder().log_to_stderr().retry_start(Duration::from_secs(1)).build().unwrap();
    let read = session.read_stream().format("kafka").option("kafka.bootstrap.servers", told("CANARY_SERVERS"));
    let read = read.option("subscribe", told("CANARY_TOPIC")).option("startingOffsets", "earliest");
    let read = read.option("kafka.security.protocol", "SASL_PLAINTEXT").option("kafka.sasl.mechanism", "PLAIN");
    let read = read.option("kafka.sasl.username", "${env:CANARY_USER}").option("callTimeoutMs", 5000);
    let read = read.option("kafka.sasl.password", format!("${{file:{}}}", at("password")));
    let read = read.option("kafka.ssl.key.password", told("CANARY_KEY_PASSWORD"));
    let ended = async {
        let frame = read.load().await?;
        println!("{}", frame.explain()?);
        let query = frame.write_stream().format("parquet").option("path", at("table"));
        let query =
            query.option("checkpointLocation", at("checkpoint")).trigger(Trigger::available_now()).start().await?;
        query.await_termination().await?;
        for progress in query.recent_progress() {
            println!("{}\n{query:?}", progress.json());
        }
        Ok::<_, Error>(())
    };
    match ended.await {
        Ok(()) => println!("landed"),
        Err(error) => println!("failed: {error}\n{error:?}\n{}", error.report()),
    }
}

#[test]
fn secrets_are_seen_nowhere() {
    let fortress = Fortress::shared();
    let key_password = "canary-key-77aa01";
    for (user, password, expected) in [
        ("reader", PASSWORD, "landed"),
        ("canary-user-90b1", PASSWORD, "failed"),
        ("reader", "canary-wrong-1188", "failed"),
    ] {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("password"), format!("{password}\n")).unwrap();
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["security::child_with_secrets", "--exact", "--ignored", "--nocapture"])
            .env("CANARY_ROOT", root.path())
            .env("CANARY_SERVERS", &fortress.sasl)
            .env("CANARY_TOPIC", &fortress.topic)
            .env("CANARY_USER", user)
            .env("CANARY_KEY_PASSWORD", key_password)
            .output()
            .unwrap();
        std::fs::remove_file(root.path().join("password")).unwrap();
        let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
        assert!(out.contains(expected), "{out}\n{err}");
        // The names of user are secret as well, but the word "reader" is too common to look for.
        let secrets = [password, key_password, if user == "reader" { password } else { user }];
        let mut seen = vec![("stdout".into(), child.stdout.clone()), ("stderr".into(), child.stderr.clone())];
        seen.extend(pipeline::files(root.path()).into_iter().map(|path| {
            let bytes = std::fs::read(&path).unwrap();
            (path.to_string_lossy().into_owned(), bytes)
        }));
        assert!(expected == "failed" || seen.len() > 5, "a checkpoint and a table were written");
        for (place, bytes) in &seen {
            for secret in secrets {
                let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
                assert!(!found, "\"{secret}\" is in {place}: {}", String::from_utf8_lossy(bytes));
            }
        }
    }
}

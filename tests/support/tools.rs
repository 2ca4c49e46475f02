//! The command-line tools of the real Kafka distribution: what people see of a query from outside.

use std::process::Command;

use super::service::fetched;

/// What `kafka-consumer-groups --describe` says of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    pub topic: String,
    pub partition: i32,
    pub committed: i64,
    pub end: i64,
    pub lag: u64,
}

/// Describes a consumer group; nothing if it has no positions.
pub fn describe_group(bootstrap: &str, group: &str) -> Vec<Lag> {
    let text =
        run("consumer.group.ConsumerGroupCommand", &["--bootstrap-server", bootstrap, "--describe", "--group", group]);
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|words| words.first() == Some(&group) && words.len() >= 6);
    let number = |text: &str| text.parse::<i64>().unwrap_or_else(|_| panic!("\"{text}\" is no number: {text}"));
    rows.map(|words| Lag {
        topic: words[1].to_owned(),
        partition: number(words[2]) as i32,
        committed: number(words[3]),
        end: number(words[4]),
        lag: number(words[5]) as u64,
    })
    .collect()
}

/// Sets the password of a user for SCRAM.
pub fn set_scram_password(bootstrap: &str, user: &str, password: &str) {
    // One request cannot change a user twice.
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let credential = format!("{mechanism}=[password={password}]");
        let user = ["--entity-type", "users", "--entity-name", user];
        let arguments =
            [&["--bootstrap-server", bootstrap, "--alter", "--add-config", &credential][..], &user].concat();
        run("ConfigCommand", &arguments);
    }
}

/// Lets a user read a topic, and do nothing else.
pub fn allow_to_read(bootstrap: &str, user: &str, topic: &str) {
    let principal = format!("User:{user}");
    let right = ["--allow-principal", &principal, "--operation", "Read", "--topic", topic];
    run("AclCommand", &[&["--bootstrap-server", bootstrap, "--add", "--force"][..], &right].concat());
}

/// Runs a tool, by the end of its class name; its standard output.
fn run(tool: &str, arguments: &[&str]) -> String {
    let java = std::env::var("JAVA_HOME").map_or_else(|_| "java".to_owned(), |home| format!("{home}/bin/java"));
    let output = Command::new(java)
        .args([
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-cp",
            &format!("{}/*", fetched("kafka-tools")),
        ])
        .arg(format!("org.apache.kafka.tools.{tool}"))
        .args(arguments)
        .output()
        .expect("java runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?} failed: {said}{complaint}");
    said
}

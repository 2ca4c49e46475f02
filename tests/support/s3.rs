//! A store that speaks S3 and fails on request.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::service::Service;

/// A running store with the bucket `tidemill`.
pub struct S3(Service);

impl S3 {
    /// Starts one.
    pub fn start() -> S3 {
        S3(Service::start("s3", &[], &[]))
    }

    /// What a program needs in its environment to write there.
    pub fn env(&self) -> Vec<(String, String)> {
        let endpoint = self.0.address();
        [("AWS_ENDPOINT_URL", endpoint), ("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec()
    }

    /// Replaces the rules of what fails: see `tests/services/s3.py`.
    pub fn fail(&self, rules: Value) {
        self.http("POST", "/-/faults", &rules.to_string());
    }

    /// How many requests there were of each kind since the last question.
    pub fn requests(&self) -> Value {
        serde_json::from_str(&self.http("GET", "/-/requests", "")).expect("it answers with JSON")
    }

    /// Makes an empty object of a folder's own name, as consoles do: `s3://tidemill/a/b` becomes the key `a/b/`.
    pub fn mark_folder(&self, url: &str) {
        let path = url.trim_start_matches("s3:/");
        self.http("PUT", &format!("{path}/"), "");
    }

    fn http(&self, method: &str, what: &str, body: &str) -> String {
        let address = self.0.address().trim_start_matches("http://");
        let mut connection = TcpStream::connect(address).expect("the store listens");
        let length = body.len();
        write!(connection, "{method} {what} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}")
            .expect("the store takes the request");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("the store answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        assert!(head.contains(" 200 "), "{head}");
        body.to_owned()
    }
}

//! An authority that gives tokens by OAuth's client credentials, and tokens that a broker without a real authority takes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Answers on loopback, as long as the process lives.
pub struct TokenAuthority {
    /// The endpoint.
    pub url: String,
    /// How often it was asked.
    pub asked: Arc<AtomicUsize>,
}

impl TokenAuthority {
    /// Gives tokens of `user` to whoever has this account.
    pub fn start(user: &str, client_id: &str, client_secret: &str) -> TokenAuthority {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/token", listener.local_addr().expect("it is bound"));
        let asked = Arc::new(AtomicUsize::new(0));
        let account = format!("Basic {}", base64(format!("{client_id}:{client_secret}").as_bytes(), PLAIN, true));
        let (user, counted) = (user.to_owned(), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
                answer(stream.expect("a connection"), &account, &user);
            }
        });
        TokenAuthority { url, asked }
    }
}

fn answer(mut stream: TcpStream, account: &str, user: &str) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    // The whole of it: head and form.
    while !request.ends_with(b"grant_type=client_credentials&scope=kafka") {
        match stream.read(&mut buffer).expect("a request") {
            0 => return,
            read => request.extend_from_slice(&buffer[..read]),
        }
    }
    let head = String::from_utf8_lossy(&request).into_owned();
    let is_known = head.lines().any(|line| {
        line.split_once(": ")
            .is_some_and(|(name, value)| name.eq_ignore_ascii_case("authorization") && value == account)
    });
    let (status, body) = match is_known {
        true => ("200 OK", format!("{{\"access_token\":\"{}\",\"expires_in\":600}}", token(user, 600))),
        false => (
            "401 Unauthorized",
            "{\"error\":\"invalid_client\",\"error_description\":\"nobody of that name\"}".to_owned(),
        ),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).expect("answered");
}

/// Now, in milliseconds since 1970.
pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

/// An unsigned token of a user, that ends in so many seconds.
pub fn token(user: &str, seconds: i64) -> String {
    let now_s = now_ms() / 1000;
    let claims = format!("{{\"sub\":\"{user}\",\"iat\":{},\"exp\":{}}}", now_s - 1, now_s + seconds);
    format!("{}.{}.", base64(br#"{"alg":"none"}"#, URL, false), base64(claims.as_bytes(), URL, false))
}

const PLAIN: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64(bytes: &[u8], alphabet: &[u8; 64], is_padded: bool) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let digits = (0..=chunk.len()).map(|at| alphabet[(bits >> (18 - 6 * at) & 63) as usize] as char);
        text.extend(digits);
        text.extend(std::iter::repeat_n('=', if is_padded { 3 - chunk.len() } else { 0 }));
    }
    text
}

/// How long a token lives that must be renewed within a test.
pub const SHORT_LIFE: Duration = Duration::from_secs(2);

//! The envelope of every durable file of ours: one line of checksum, one line of JSON.
//!
//! ```text
//! crc32c=9a0b4c1d
//! {"format":1,"kind":"batch",…}
//! ```
//!
//! The checksum covers every byte after its own line. A file is whole or it is not: there is exactly one text for a
//! body, so any other length and any flipped bit is [`Damage`].

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

/// Length of `crc32c=` + 8 hexadecimal digits + line feed.
const HEAD: usize = 16;

/// Why a file is not what somebody wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The file is too short, or its first line is not a checksum line.
    Malformed,
    /// The bytes are not those that the checksum was made of.
    Checksum,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Damage::Malformed => "the first line is not a checksum",
            Damage::Checksum => "the checksum does not fit the bytes",
        })
    }
}

/// Puts a body into its envelope.
pub fn seal(body: &impl Serialize) -> Bytes {
    let mut json = serde_json::to_vec(body).expect("durable bodies are plain data");
    json.push(b'\n');
    let mut file = format!("crc32c={:08x}\n", crc32c::crc32c(&json)).into_bytes();
    file.append(&mut json);
    file.into()
}

/// Takes a body out of its envelope.
pub fn unseal(file: &[u8]) -> Result<Value, Damage> {
    let (head, json) = file.split_at_checked(HEAD).ok_or(Damage::Malformed)?;
    if !head.starts_with(b"crc32c=") || head[HEAD - 1] != b'\n' || json.last() != Some(&b'\n') {
        return Err(Damage::Malformed);
    }
    // Compared as text: an upper-case digit is a flipped bit too.
    if head[7..HEAD - 1] != *format!("{:08x}", crc32c::crc32c(json)).as_bytes() {
        return Err(Damage::Checksum);
    }
    serde_json::from_slice(json).map_err(|_| Damage::Malformed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sealed_body_comes_back() {
        let body = json!({"format": 1, "kind": "batch", "n": 42});
        let file = seal(&body);
        assert_eq!(unseal(&file), Ok(body));
    }

    #[test]
    fn every_length_and_every_flipped_bit_is_damage() {
        let file = seal(&json!({"format": 1, "kind": "batch", "text": "tide"}));
        for length in 0..file.len() {
            assert!(unseal(&file[..length]).is_err(), "length {length}");
        }
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut flipped = file.to_vec();
                flipped[at] ^= 1 << bit;
                assert!(unseal(&flipped).is_err(), "byte {at}, bit {bit}");
            }
        }
        let mut longer = file.to_vec();
        longer.push(b'\n');
        assert!(unseal(&longer).is_err());
        assert!(unseal(&vec![0; file.len()]).is_err());
    }
}

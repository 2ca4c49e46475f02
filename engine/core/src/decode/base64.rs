//! Base64 with the standard alphabet and padding (RFC 4648 §4), which is how JSON carries binary values.

/// Appends the bytes that `text` stands for. False, with `bytes` in any state: it is not base64, or not the only way
/// to write its bytes (stray bits before the padding).
pub(super) fn decode_into(text: &[u8], bytes: &mut Vec<u8>) -> bool {
    let (quads, rest) = text.as_chunks::<4>();
    if !rest.is_empty() {
        return false;
    }
    let Some((last, quads)) = quads.split_last() else { return true };
    for quad in quads {
        let Some(bits) = bits_of(quad) else { return false };
        bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
    let [first, second, third, fourth] = *last;
    let (padded, spare_bits, count) = match (third, fourth) {
        (b'=', b'=') => ([first, second, b'A', b'A'], 0xFFFF, 1),
        (_, b'=') => ([first, second, third, b'A'], 0xFF, 2),
        _ => (*last, 0, 3),
    };
    let bits = bits_of(&padded).filter(|bits| bits & spare_bits == 0);
    if let Some(bits) = bits {
        bytes.extend_from_slice(&bits.to_be_bytes()[1..=count]);
    }
    bits.is_some()
}

fn bits_of(quad: &[u8; 4]) -> Option<u32> {
    quad.iter().try_fold(0, |bits, letter| Some(bits << 6 | sextet(*letter)?))
}

fn sextet(letter: u8) -> Option<u32> {
    Some(u32::from(match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

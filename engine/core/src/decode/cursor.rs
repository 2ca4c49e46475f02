//! A strict RFC 8259 reader over the bytes of one message.
//!
//! Promises: no recursion (nesting is counted, at most [`DEPTH_MAX`]), no allocation for a good message beyond one
//! scratch buffer that lives as long as the cursor, and nothing accepted that the grammar does not allow: no leading
//! zeros, trailing commas, bare words, control characters in strings, or lone surrogates. It leaves to the caller to
//! check that the message is UTF-8.
//!
//! The steps that every value takes are inlined always: as calls they cost a twentieth of landing JSON.

use super::fault::{Fault, Step, excerpt};

/// How deep arrays and objects may nest, the message's own object included.
pub(super) const DEPTH_MAX: usize = 128;

const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// A position in one message.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    /// Arrays and objects that are open at `pos`.
    depth: usize,
    /// Holds a string whose escapes had to be resolved.
    scratch: Vec<u8>,
}

/// A number as it is written: the whole token, and what it is made of.
pub(super) struct NumberToken<'a> {
    /// The token, sign included.
    pub(super) text: &'a [u8],
    /// All its digits in a row, those of an exponent apart, without the sign. Wrapped where they pass 64 bits, which
    /// eighteen digits never do.
    pub(super) digits: u64,
    /// How many of them are behind the point.
    pub(super) decimals: usize,
    pub(super) has_exponent: bool,
}

impl NumberToken<'_> {
    /// Whether it has no fraction and no exponent.
    pub(super) fn is_whole(&self) -> bool {
        self.decimals == 0 && !self.has_exponent
    }
}

impl<'a> Cursor<'a> {
    pub(super) fn new() -> Self {
        Self { bytes: &[], pos: 0, depth: 0, scratch: Vec::new() }
    }

    /// Starts over with another message.
    pub(super) fn reset(&mut self, bytes: &'a [u8]) {
        self.bytes = bytes;
        self.pos = 0;
        self.depth = 0;
    }

    #[inline]
    pub(super) fn pos(&self) -> usize {
        self.pos
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    /// What the message holds from `start` up to the cursor.
    #[inline]
    pub(super) fn since(&self, start: usize) -> &'a [u8] {
        &self.bytes[start..self.pos]
    }

    #[inline]
    pub(super) fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.pos += 1;
        }
    }

    /// Steps over `token` if the message goes on with it.
    #[inline(always)]
    pub(super) fn take_token(&mut self, token: &[u8]) -> bool {
        let found = begins_with(&self.bytes[self.pos..], token);
        if found {
            self.pos += token.len();
        }
        found
    }

    /// Steps over one byte if it is `byte`.
    #[inline]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.pos += 1;
        }
        found
    }

    /// Steps over `byte`, which the grammar asks for here.
    #[inline]
    pub(super) fn expect(&mut self, byte: u8) -> Step<()> {
        if self.take(byte) { Ok(()) } else { Err(self.unexpected(&format!("\"{}\"", byte as char))) }
    }

    /// Steps over `{` or `[`.
    #[inline(always)]
    pub(super) fn open(&mut self, byte: u8) -> Step<()> {
        self.expect(byte)?;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Fault::new(format!("nested more than {DEPTH_MAX} levels deep"), self.pos - 1));
        }
        Ok(())
    }

    /// After `{` or `[`: whether it closes at once.
    #[inline]
    pub(super) fn closes_empty(&mut self, close: u8) -> bool {
        self.skip_blanks();
        let closed = self.take(close);
        if closed {
            self.depth -= 1;
        }
        closed
    }

    /// After an item: true when another follows, false when `close` ended the array or object.
    #[inline(always)]
    pub(super) fn next_item(&mut self, close: u8) -> Step<bool> {
        self.skip_blanks();
        match self.peek() {
            Some(b',') => {
                self.pos += 1;
                self.skip_blanks();
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.pos += 1;
                self.depth -= 1;
                Ok(false)
            }
            _ => Err(self.unexpected(&format!("\",\" or \"{}\"", close as char))),
        }
    }

    /// Between a key and its value.
    #[inline]
    pub(super) fn colon(&mut self) -> Step<()> {
        self.skip_blanks();
        self.expect(b':')?;
        self.skip_blanks();
        Ok(())
    }

    /// Steps over `true`, `false` or `null`.
    #[inline]
    pub(super) fn word(&mut self, word: &'static str) -> Step<()> {
        if self.take_token(word.as_bytes()) { Ok(()) } else { Err(self.unexpected("a value")) }
    }

    /// Reads a string; the bytes are the text with its escapes resolved.
    #[inline(always)]
    pub(super) fn string(&mut self) -> Step<&[u8]> {
        if !self.take(b'"') {
            return Err(self.unexpected("a string"));
        }
        let start = self.pos;
        self.run_of_plain_bytes();
        if self.take(b'"') {
            return Ok(&self.bytes[start..self.pos - 1]);
        }
        self.string_with_escapes(start)?;
        Ok(&self.scratch)
    }

    /// Steps over bytes that need no care in a string: eight at a time while there are eight.
    #[inline(always)]
    fn run_of_plain_bytes(&mut self) {
        while let Some(chunk) = self.bytes[self.pos..].first_chunk::<8>() {
            let word = u64::from_le_bytes(*chunk);
            let quote = word ^ (EVERY_BYTE * b'"' as u64);
            let escape = word ^ (EVERY_BYTE * b'\\' as u64);
            // A byte that is zero (or below blank) sets its high bit; a borrow can only add wrong hits above a true
            // one, and the lowest hit is the one that counts.
            let hits = (quote.wrapping_sub(EVERY_BYTE) & !quote)
                | (escape.wrapping_sub(EVERY_BYTE) & !escape)
                | (word.wrapping_sub(EVERY_BYTE * b' ' as u64) & !word);
            let hits = hits & HIGH_BITS;
            if hits != 0 {
                self.pos += (hits.trailing_zeros() / 8) as usize;
                return;
            }
            self.pos += 8;
        }
        while self.peek().is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            self.pos += 1;
        }
    }

    fn string_with_escapes(&mut self, start: usize) -> Step<()> {
        self.scratch.clear();
        let mut start = start;
        loop {
            self.scratch.extend_from_slice(&self.bytes[start..self.pos]);
            match self.peek() {
                Some(b'"') => {
                    self.pos += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    let character = self.escape()?;
                    self.scratch.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(byte) => {
                    return Err(Fault::new(format!("control character 0x{byte:02x} in a string"), self.pos));
                }
                None => return Err(Fault::new("the message ends within a string", self.pos)),
            }
            start = self.pos;
            self.run_of_plain_bytes();
        }
    }

    fn escape(&mut self) -> Step<char> {
        let start = self.pos;
        self.pos += 1;
        let letter = self.peek();
        self.pos += 1;
        Ok(match letter {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(start),
            _ => return Err(Fault::new("unknown escape in a string", start)),
        })
    }

    /// After `\u`: one code unit, or two that make one character.
    fn unicode_escape(&mut self, start: usize) -> Step<char> {
        let first = self.four_hex_digits(start)?;
        let code = if (0xD800..0xDC00).contains(&first) && self.take_token(b"\\u") {
            let second = self.four_hex_digits(start)?;
            if !(0xDC00..0xE000).contains(&second) {
                return Err(Fault::new("lone surrogate in a string", start));
            }
            0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| Fault::new("lone surrogate in a string", start))
    }

    fn four_hex_digits(&mut self, start: usize) -> Step<u32> {
        let digits = self.bytes.get(self.pos..self.pos + 4);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.ok_or_else(|| Fault::new("\"\\u\" without four hex digits", start))?;
        self.pos += 4;
        Ok(digits.iter().fold(0, |code, digit| code * 16 + (*digit as char).to_digit(16).unwrap_or(0)))
    }

    /// Reads a number token as the grammar has it.
    #[inline(always)]
    pub(super) fn number(&mut self) -> Step<NumberToken<'a>> {
        let start = self.pos;
        self.take(b'-');
        let (mut digits, mut decimals, mut has_exponent) = (0, 0, false);
        match self.peek() {
            Some(b'0') => self.pos += 1,
            Some(b'1'..=b'9') => self.digits(&mut digits),
            _ => return Err(self.unexpected("a digit")),
        }
        if self.take(b'.') {
            let point = self.pos;
            self.at_least_one_digit(&mut digits)?;
            decimals = self.pos - point;
        }
        if let Some(b'e' | b'E') = self.peek() {
            has_exponent = true;
            self.pos += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.pos += 1;
            }
            self.at_least_one_digit(&mut 0)?;
        }
        if let Some(b'0'..=b'9') = self.peek() {
            return Err(Fault::new("number with a leading zero", start));
        }
        Ok(NumberToken { text: self.since(start), digits, decimals, has_exponent })
    }

    #[inline]
    fn digits(&mut self, value: &mut u64) {
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            *value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            self.pos += 1;
        }
    }

    #[inline]
    fn at_least_one_digit(&mut self, value: &mut u64) -> Step<()> {
        let Some(b'0'..=b'9') = self.peek() else { return Err(self.unexpected("a digit")) };
        self.digits(value);
        Ok(())
    }

    /// Steps over any one value, checking all of it.
    ///
    /// The open arrays and objects are kept as bits of one word (1 = object), so that depth costs no stack.
    pub(super) fn skip_value(&mut self) -> Step<()> {
        let outer = self.depth;
        let mut kinds: u128 = 0;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.string()?;
                }
                Some(b'-' | b'0'..=b'9') => {
                    self.number()?;
                }
                Some(b't') => self.word("true")?,
                Some(b'f') => self.word("false")?,
                Some(b'n') => self.word("null")?,
                Some(b'{') => {
                    self.open(b'{')?;
                    if !self.closes_empty(b'}') {
                        kinds = kinds << 1 | 1;
                        self.key_to_skip()?;
                        continue;
                    }
                }
                Some(b'[') => {
                    self.open(b'[')?;
                    if !self.closes_empty(b']') {
                        kinds <<= 1;
                        continue;
                    }
                }
                _ => return Err(self.unexpected("a value")),
            }
            // A value has ended: go on with the next item, closing what ends here.
            loop {
                if self.depth == outer {
                    return Ok(());
                }
                let in_object = kinds & 1 == 1;
                if self.next_item(if in_object { b'}' } else { b']' })? {
                    if in_object {
                        self.key_to_skip()?;
                    }
                    break;
                }
                kinds >>= 1;
            }
        }
    }

    fn key_to_skip(&mut self) -> Step<()> {
        self.string()?;
        self.colon()
    }

    /// A fault: the grammar asks for `wanted`, and the message has something else here.
    #[cold]
    pub(super) fn unexpected(&self, wanted: &str) -> Box<Fault> {
        Fault::new(format!("expected {wanted}, found {}", self.found()), self.pos)
    }

    /// What stands at the cursor, in words.
    fn found(&self) -> String {
        match self.peek() {
            None => "the end of the message".to_owned(),
            Some(b'"') => "a string".to_owned(),
            Some(b'{') => "an object".to_owned(),
            Some(b'[') => "an array".to_owned(),
            Some(b'-' | b'0'..=b'9') => "a number".to_owned(),
            Some(_) => {
                let rest = &self.bytes[self.pos..];
                let word = rest.iter().take(16).take_while(|byte| byte.is_ascii_alphanumeric()).count();
                match &rest[..word.max(1)] {
                    b"null" => "null".to_owned(),
                    word @ (b"true" | b"false") => format!("the boolean {}", String::from_utf8_lossy(word)),
                    [byte] if !byte.is_ascii_graphic() => format!("byte 0x{byte:02x}"),
                    word => excerpt(word),
                }
            }
        }
    }
}

/// Whether a text begins with a token. Keys are short: two words that overlap hold all of one, and comparing them costs
/// less than a call.
#[inline]
fn begins_with(text: &[u8], token: &[u8]) -> bool {
    let Some(text) = text.get(..token.len()) else { return false };
    match token.len() {
        4..8 => {
            text.first_chunk::<4>() == token.first_chunk::<4>() && text.last_chunk::<4>() == token.last_chunk::<4>()
        }
        8..=16 => {
            text.first_chunk::<8>() == token.first_chunk::<8>() && text.last_chunk::<8>() == token.last_chunk::<8>()
        }
        _ => text == token,
    }
}

#[cfg(test)]
mod tests {
    use super::begins_with;

    #[test]
    fn a_token_of_any_length_is_told_from_one_that_differs_in_one_byte() {
        let text: Vec<u8> = (b'A'..=b'z').collect();
        for length in 0..40 {
            let token = &text[..length];
            assert!(begins_with(&text, token) && begins_with(token, token), "{length}");
            assert_eq!(begins_with(&text[..length / 2], token), length == 0, "{length}: the text is too short");
            for at in 0..length {
                let mut other = token.to_vec();
                other[at] ^= 1;
                assert!(!begins_with(&text, &other), "{length}, {at}");
            }
        }
    }
}

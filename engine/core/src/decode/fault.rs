//! Why one message is bad: built only on the error path, so that good rows never allocate for it.

/// The longest reason that is reported, in characters.
pub(super) const REASON_CHARS_MAX: usize = 200;

/// The longest piece of the message that a reason quotes, in characters.
const EXCERPT_CHARS_MAX: usize = 40;

/// What a step of the decoder returns. The fault is boxed to keep the good path's return values small.
pub(super) type Step<T> = Result<T, Box<Fault>>;

/// Why a step stopped, and where.
#[derive(Debug)]
pub(super) struct Fault {
    what: String,
    /// The field's path, innermost name last; grows while the fault travels outwards.
    path: String,
    /// Byte position in the message.
    at: usize,
    /// The message is not at fault: a column of this batch outgrew its offsets.
    pub(super) column_is_full: bool,
}

impl Fault {
    /// A bad message: what is wrong, and the byte position at which it shows.
    #[cold]
    pub(super) fn new(what: impl Into<String>, at: usize) -> Box<Self> {
        Box::new(Self { what: what.into(), path: String::new(), at, column_is_full: false })
    }

    /// A column that cannot take this row: not the row's fault.
    #[cold]
    pub(super) fn column_is_full() -> Box<Self> {
        let what = "a column of one batch would pass 2 GiB or 2^31 items".to_owned();
        Box::new(Self { what, path: String::new(), at: 0, column_is_full: true })
    }

    /// The same fault, seen from the field (or `[]`, a list's item) around it.
    #[cold]
    pub(super) fn within(mut self: Box<Self>, name: &str) -> Box<Self> {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{name}{dot}{}", self.path);
        self
    }

    /// One line, at most [`REASON_CHARS_MAX`] characters.
    pub(super) fn reason(&self) -> String {
        let text = if self.path.is_empty() {
            format!("{} (byte {})", self.what, self.at)
        } else {
            format!("field \"{}\": {} (byte {})", self.path, self.what, self.at)
        };
        capped(&text, REASON_CHARS_MAX)
    }
}

/// A piece of the message for a reason: quoted, one line, short.
#[cold]
pub(super) fn excerpt(bytes: &[u8]) -> String {
    // Four bytes a character at most: never look at more of a huge token than can be shown.
    let head = bytes.get(..EXCERPT_CHARS_MAX * 4 + 4).unwrap_or(bytes);
    let text = String::from_utf8_lossy(head).escape_debug().to_string();
    format!("\"{}\"", capped(&text, EXCERPT_CHARS_MAX))
}

fn capped(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars_max - 1).chain(std::iter::once('…')).collect(),
    }
}

//! The words and signs of a DDL schema, one ahead.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

use super::DdlError;

/// A piece of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// Letters, digits and `_`.
    Word(String),
    /// A name in backticks.
    Quoted(String),
    /// A text in single or double quotes.
    Text(String),
    Symbol(char),
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) | Self::Quoted(text) | Self::Text(text) => write!(f, "\"{text}\""),
            Self::Symbol(symbol) => write!(f, "\"{symbol}\""),
            Self::End => f.write_str("the end of the schema"),
        }
    }
}

pub(super) struct Lexer<'a> {
    chars: Peekable<Chars<'a>>,
    /// The number of the next character, from 1.
    position: usize,
    ahead: Option<(usize, Token)>,
    /// Where the token that `next` gave last begins.
    last: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { chars: text.chars().peekable(), position: 1, ahead: None, last: 1 }
    }

    pub(super) fn next(&mut self) -> Result<Token, DdlError> {
        let (at, token) = match self.ahead.take() {
            Some(ahead) => ahead,
            None => self.read()?,
        };
        self.last = at;
        Ok(token)
    }

    pub(super) fn peek(&mut self) -> Result<Token, DdlError> {
        Ok(self.look_ahead()?.1.clone())
    }

    /// Where the next token begins.
    pub(super) fn position(&mut self) -> Result<usize, DdlError> {
        Ok(self.look_ahead()?.0)
    }

    /// Steps over a keyword, in any case.
    pub(super) fn take_word(&mut self, word: &str) -> Result<bool, DdlError> {
        let found = matches!(&self.look_ahead()?.1, Token::Word(text) if text.eq_ignore_ascii_case(word));
        if found {
            self.next()?;
        }
        Ok(found)
    }

    pub(super) fn take_symbol(&mut self, symbol: char) -> Result<bool, DdlError> {
        let found = self.look_ahead()?.1 == Token::Symbol(symbol);
        if found {
            self.next()?;
        }
        Ok(found)
    }

    pub(super) fn expect_symbol(&mut self, symbol: char) -> Result<(), DdlError> {
        match self.next()? {
            Token::Symbol(found) if found == symbol => Ok(()),
            other => Err(self.error_at_last(format!("expected \"{symbol}\", found {other}"))),
        }
    }

    /// An error about the next token.
    pub(super) fn error_here(&self, message: impl Into<String>) -> DdlError {
        DdlError::at(self.ahead.as_ref().map_or(self.position, |ahead| ahead.0), message)
    }

    /// An error about the token that `next` gave last.
    pub(super) fn error_at_last(&self, message: impl Into<String>) -> DdlError {
        DdlError::at(self.last, message)
    }

    fn look_ahead(&mut self) -> Result<&(usize, Token), DdlError> {
        let ahead = match self.ahead.take() {
            Some(ahead) => ahead,
            None => self.read()?,
        };
        Ok(self.ahead.insert(ahead))
    }

    fn read(&mut self) -> Result<(usize, Token), DdlError> {
        while self.chars.peek().is_some_and(|character| character.is_whitespace()) {
            self.step();
        }
        let at = self.position;
        let token = match self.chars.peek() {
            None => Token::End,
            Some(character) if is_of_word(*character) => Token::Word(self.word()),
            Some('`') => match self.quoted('`', at)? {
                name if name.is_empty() => return Err(DdlError::at(at, "a field name is empty")),
                name => Token::Quoted(name),
            },
            Some(quote @ ('\'' | '"')) => {
                let quote = *quote;
                Token::Text(self.quoted(quote, at)?)
            }
            Some(symbol @ ('<' | '>' | '(' | ')' | ',' | ':')) => {
                let symbol = *symbol;
                self.step();
                Token::Symbol(symbol)
            }
            Some(other) => {
                let message = format!("unexpected {other:?}; a name with signs in it stands in backticks");
                return Err(DdlError::at(at, message));
            }
        };
        Ok((at, token))
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(character) = self.chars.next_if(|character| is_of_word(*character)) {
            self.position += 1;
            word.push(character);
        }
        word
    }

    /// A text between quotes, in which the quote itself is doubled.
    fn quoted(&mut self, quote: char, at: usize) -> Result<String, DdlError> {
        self.step();
        let mut text = String::new();
        loop {
            match self.step() {
                None => return Err(DdlError::at(at, format!("the {quote} is not closed"))),
                Some(character) if character != quote => text.push(character),
                Some(_) if self.chars.peek() == Some(&quote) => text.extend(self.step()),
                Some(_) => return Ok(text),
            }
        }
    }

    fn step(&mut self) -> Option<char> {
        self.position += 1;
        self.chars.next()
    }
}

/// Whether a name of such characters needs no backticks.
pub(super) fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

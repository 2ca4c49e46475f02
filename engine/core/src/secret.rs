//! Values that are never printed.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result, code};

/// A password, a token, a key: shown as `***` by everything that prints. It has no serialised form on purpose: what is
/// written down refers to a secret, it does not hold it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a secret value.
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into())
    }

    /// The value itself: only where a client is built with it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The value with every `${env:NAME}` in it replaced by that environment variable, and every `${file:PATH}` by the text
    /// of that file, without its last line break; none if there is neither in it.
    ///
    /// # Errors
    ///
    /// [`code::INVALID_OPTION`] if there is no such variable or file, or the closing brace is missing.
    pub fn resolve(&self) -> Result<Option<Secret>> {
        let (mut resolved, mut rest, mut any) = (String::new(), self.0.as_str(), false);
        while let Some(at) = rest.find("${") {
            let (before, found) = rest.split_at(at);
            resolved.push_str(before);
            let kind = ["${env:", "${file:"].into_iter().find(|kind| found.starts_with(kind));
            let Some(kind) = kind else {
                resolved.push_str("${");
                rest = &found[2..];
                continue;
            };
            let Some((name, behind)) = found[kind.len()..].split_once('}') else {
                return Err(Error::new(
                    code::INVALID_OPTION,
                    format!("a value begins with \"{kind}\" and does not end"),
                )
                .fix("close it with a brace: ${env:NAME} or ${file:PATH}"));
            };
            resolved.push_str(&look_up(kind, name)?);
            (rest, any) = (behind, true);
        }
        resolved.push_str(rest);
        Ok(any.then(|| Secret::new(resolved)))
    }
}

fn look_up(kind: &str, name: &str) -> Result<String> {
    if kind == "${env:" {
        return std::env::var(name).map_err(|error| {
            Error::new(code::INVALID_OPTION, format!("the environment variable \"{name}\" cannot be read"))
                .fix("set it for this process")
                .because(error)
        });
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        Error::new(code::INVALID_OPTION, format!("the file \"{name}\" cannot be read"))
            .fix("name a text file that this process may read")
            .because(error)
    })?;
    let text = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    Ok(text.to_owned())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A token that proves who somebody is, for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BearerToken {
    /// The token.
    pub value: Secret,
    /// Whose it is.
    pub principal: String,
    /// When it ends, in milliseconds since 1970.
    pub expires_at_ms: i64,
}

impl BearerToken {
    /// A token that ends at `expires_at_ms`, in milliseconds since 1970.
    pub fn new(value: impl Into<String>, principal: impl Into<String>, expires_at_ms: i64) -> Self {
        BearerToken { value: Secret::new(value), principal: principal.into(), expires_at_ms }
    }
}

/// Gives a new token whenever it is called. It may block.
#[derive(Clone)]
pub struct TokenSource(Arc<dyn Fn() -> Result<BearerToken> + Send + Sync>);

impl TokenSource {
    /// Tokens that come from a function.
    pub fn new(token: impl Fn() -> Result<BearerToken> + Send + Sync + 'static) -> Self {
        TokenSource(Arc::new(token))
    }

    /// A new token.
    pub fn token(&self) -> Result<BearerToken> {
        (self.0)()
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSource")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_never_prints() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn variables_and_files_are_looked_up_where_a_value_names_them() {
        let resolve = |text: &str| Secret::new(text).resolve();
        let path = std::env::var("PATH").expect("every process has one");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "hunter2\r\n").expect("written");
        let name = file.path().display();
        for (text, expected) in [
            ("plain".to_owned(), None),
            ("${other:x} $".to_owned(), None),
            ("${env:PATH}".to_owned(), Some(path.clone())),
            (format!("a ${{b}} ${{file:{name}}} c ${{env:PATH}}"), Some(format!("a ${{b}} hunter2 c {path}"))),
        ] {
            assert_eq!(resolve(&text).expect("resolved"), expected.map(Secret::new), "{text}");
        }
        for text in ["${env:TIDEMILL_NOT_SET}", "${file:/no/such/file}", "${env:PATH"] {
            assert_eq!(resolve(text).expect_err("refused").code(), code::INVALID_OPTION, "{text}");
        }
    }
}

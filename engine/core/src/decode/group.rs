//! The fields of one JSON object, at the top or nested: which column a key belongs to, and what happens to the
//! columns that got no value.

use std::collections::HashMap;

use arrow::datatypes::{DataType, Fields};

use super::column::Column;
use super::cursor::Cursor;
use super::fault::{Fault, Step};
use super::json::JsonError;

/// Up to this many fields a walk over the names beats a hash.
const FIELDS_TO_WALK: usize = 8;

/// Columns that fill in step: after each object all have the same length.
pub(super) struct Group {
    pub(super) fields: Fields,
    pub(super) columns: Vec<Column>,
    keys: Keys,
}

impl Group {
    /// `path` is where the object stands, for errors; empty at the top.
    pub(super) fn try_new(fields: Fields, rows: usize, path: &str) -> Result<Self, JsonError> {
        let mut columns = Vec::with_capacity(fields.len());
        for field in &fields {
            let path = if path.is_empty() { field.name().clone() } else { format!("{path}.{}", field.name()) };
            columns.push(Column::try_new(field, rows, &path)?);
        }
        let keys = Keys::try_new(&fields, path)?;
        Ok(Self { fields, columns, keys })
    }

    /// Reads an object as row number `row`, the one after the last. On a fault the columns have got out of step: the
    /// caller must [`Group::truncate`].
    pub(super) fn read(&mut self, cursor: &mut Cursor<'_>, row: usize) -> Step<()> {
        cursor.open(b'{')?;
        let mut missing = self.columns.len();
        let mut more = !cursor.closes_empty(b'}');
        let mut guess = 0;
        while more {
            let index = self.keys.read(cursor, guess)?;
            if let Some(index) = index {
                let column = &mut self.columns[index];
                if column.len() == row {
                    missing -= 1;
                } else {
                    // The key came before: its last value wins.
                    column.truncate(row);
                }
                column.read(cursor).map_err(|fault| fault.within(self.fields[index].name()))?;
                guess = index + 1;
            } else {
                cursor.skip_value()?;
            }
            more = cursor.next_item(b'}')?;
        }
        if missing > 0 {
            self.fill_missing(cursor.pos(), row)?;
        }
        Ok(())
    }

    fn fill_missing(&mut self, pos: usize, row: usize) -> Step<()> {
        for (field, column) in self.fields.iter().zip(&mut self.columns) {
            if column.len() == row {
                if !field.is_nullable() {
                    return Err(Fault::new("is missing, and must not be null", pos).within(field.name()));
                }
                column.append_null();
            }
        }
        Ok(())
    }

    /// A row without an object. Fields that must not be null get a null too: the null object around them hides it.
    pub(super) fn append_null(&mut self) {
        self.columns.iter_mut().for_each(Column::append_null);
    }

    /// Forgets all rows from `rows` on, and whatever a fault left half-written.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
    }
}

/// Finds the column of a key.
struct Keys {
    names: Vec<String>,
    /// Each name as a message most likely writes it, with quotes and colon; `None` for names that must be escaped.
    quoted: Vec<Option<Box<[u8]>>>,
    by_name: HashMap<Box<[u8]>, usize>,
}

impl Keys {
    fn try_new(fields: &Fields, path: &str) -> Result<Self, JsonError> {
        let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        let mut by_name = HashMap::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            if by_name.insert(name.as_bytes().into(), index).is_some() {
                return Err(JsonError::DuplicateField { name: name.clone(), path: path.to_owned() });
            }
        }
        let is_plain = |name: &str| name.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
        let quoted =
            names.iter().map(|name| is_plain(name).then(|| format!("\"{name}\":").into_bytes().into())).collect();
        Ok(Self { names, quoted, by_name })
    }

    /// Reads a key and its colon. Messages mostly keep the schema's order, so the field after the last one is tried first.
    #[inline]
    fn read(&self, cursor: &mut Cursor<'_>, guess: usize) -> Step<Option<usize>> {
        if let Some(Some(quoted)) = self.quoted.get(guess)
            && cursor.take_token(quoted)
        {
            cursor.skip_blanks();
            return Ok(Some(guess));
        }
        let key = cursor.string()?;
        let index = if self.names.len() <= FIELDS_TO_WALK {
            self.names.iter().position(|name| name.as_bytes() == key)
        } else {
            self.by_name.get(key).copied()
        };
        cursor.colon()?;
        Ok(index)
    }
}

/// Whether a type nests deeper than a message may, which would make every row bad (and building its columns deep).
pub(super) fn nests_deeper_than(data_type: &DataType, levels: usize) -> bool {
    match data_type {
        DataType::Struct(fields) => {
            levels == 0 || fields.iter().any(|field| nests_deeper_than(field.data_type(), levels - 1))
        }
        DataType::List(field) | DataType::LargeList(field) | DataType::Map(field, _) => {
            levels == 0 || nests_deeper_than(field.data_type(), levels - 1)
        }
        _ => false,
    }
}

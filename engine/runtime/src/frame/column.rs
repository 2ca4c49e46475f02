//! What the steps of a frame take: names, expressions and SQL texts.
//!
//! A string means what Spark's users expect of it: in `select`, `group_by` and `sort` it is a *name*, in `filter` and
//! `with_column` it is *SQL*. A name is taken as it is: exact case, and a dot in it is just a dot.

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, SortExpr};

/// The column of exactly this name: the case counts, and a dot does not split it.
///
/// (DataFusion's function of the same name lower-cases and splits, so that `col("sensorId")` finds nothing.)
///
/// ```
/// use tidemill_runtime::frame::functions::{col, lit};
///
/// let warm = col("celsius").gt(lit(30.0)).and(col("sensorId").is_not_null());
/// assert_eq!(warm.to_string(), "celsius > Float64(30) AND sensorId IS NOT NULL");
/// ```
pub fn col(name: impl Into<String>) -> Expr {
    Expr::Column(Column::from_name(name))
}

/// What `select` and `group_by` take: a column's name, `*`, `data.*` (the fields of a struct), or an expression.
#[derive(Clone, Debug)]
pub enum SelectExpr {
    /// A column's exact name, `*`, or `data.*` for the fields of the struct column `data`.
    Name(String),
    /// An expression.
    Expr(Expr),
}

/// What `filter` and `with_column` take: an expression, or SQL text.
#[derive(Clone, Debug)]
pub enum ExprOrSql {
    /// An expression.
    Expr(Expr),
    /// SQL, such as `celsius > 30 AND status = 'ok'`. Identifiers keep their case.
    Sql(String),
}

/// What `sort` takes: a column's name, an expression (ascending, nulls first, as in Spark), or
/// `col("a").sort(ascending, nulls_first)`.
#[derive(Clone, Debug)]
pub struct SortKey(pub(crate) SortExpr);

/// What `cast` takes: an Arrow type, or a type's name as in `CREATE TABLE`, such as `double` or `decimal(10, 2)`.
#[derive(Clone, Debug)]
pub enum TypeOrDdl {
    /// An Arrow type.
    Type(DataType),
    /// A type's name.
    Ddl(String),
}

macro_rules! from_texts {
    ($target:ident, $variant:ident) => {
        impl From<&str> for $target {
            fn from(text: &str) -> Self {
                $target::$variant(text.to_owned())
            }
        }

        impl From<String> for $target {
            fn from(text: String) -> Self {
                $target::$variant(text)
            }
        }

        impl From<&String> for $target {
            fn from(text: &String) -> Self {
                $target::$variant(text.clone())
            }
        }
    };
}

from_texts!(SelectExpr, Name);
from_texts!(ExprOrSql, Sql);
from_texts!(TypeOrDdl, Ddl);

impl From<Expr> for SelectExpr {
    fn from(expr: Expr) -> Self {
        SelectExpr::Expr(expr)
    }
}

impl From<Expr> for ExprOrSql {
    fn from(expr: Expr) -> Self {
        ExprOrSql::Expr(expr)
    }
}

impl From<DataType> for TypeOrDdl {
    fn from(data_type: DataType) -> Self {
        TypeOrDdl::Type(data_type)
    }
}

impl From<SortExpr> for SortKey {
    fn from(sort: SortExpr) -> Self {
        SortKey(sort)
    }
}

impl From<Expr> for SortKey {
    fn from(expr: Expr) -> Self {
        SortKey(expr.sort(true, true))
    }
}

impl From<&str> for SortKey {
    fn from(name: &str) -> Self {
        col(name).into()
    }
}

impl From<String> for SortKey {
    fn from(name: String) -> Self {
        col(name).into()
    }
}

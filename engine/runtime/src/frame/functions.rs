//! Expressions and functions, ready to be imported: DataFusion's, but with our [`col`].
//!
//! ```
//! use tidemill_runtime::frame::functions::*;
//!
//! let name = upper(col("sensorId")).alias("name");
//! assert_eq!(name.to_string(), "upper(sensorId) AS name");
//! let hottest = max(col("celsius"));
//! assert_eq!(hottest.to_string(), "max(celsius)");
//! ```
//!
//! `now()` is the time of the batch, the same in every row and in every run of the batch. `random()` and `uuid()` are
//! not: a batch that runs again gets other values.

pub use super::column::col;

pub use datafusion::functions::expr_fn::*;
pub use datafusion::functions_aggregate::expr_fn::{
    approx_distinct, array_agg, avg, bool_and, bool_or, corr, count, count_distinct, max, median, min, stddev,
    stddev_pop, sum, var_pop, var_sample,
};
pub use datafusion::functions_nested::expr_fn::{
    array_distinct, array_element, array_has, array_length, array_sort, array_to_string, make_array,
};
pub use datafusion::logical_expr::{
    Expr, ExprFunctionExt, JoinType, SortExpr, case, cast, in_list, lit, not, try_cast, when,
};

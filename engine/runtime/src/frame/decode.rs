//! From messages to typed columns.

use datafusion::common::Column;
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::Expr;

use super::resolve::{names, position};
use super::select::project;
use super::{DataFrame, col};
use crate::dataflow::Json;

/// The column that holds the messages: what Kafka's source calls it.
const MESSAGES: &str = "value";

/// The columns of Kafka's source that tell where a message came from, for the error about a bad one.
const LOCATOR: [&str; 3] = ["topic", "partition", "offset"];

/// The decoded message on its way from the projection that decodes to the one that takes it apart. They are two, so that
/// a message is decoded once and not once for every field.
const DECODED: &str = "__decoded";

impl DataFrame {
    /// Decodes the messages in the column `value`: the decoded fields come first, then the other columns, without
    /// `value`. Where a decoded field and another column have the same name, the field is kept.
    ///
    /// ```
    /// # use tidemill_runtime::frame::DataFrame;
    /// use tidemill_runtime::dataflow::Json;
    ///
    /// # fn example(messages: DataFrame) {
    /// let readings = messages.decode(Json::ddl("sensor_id string, celsius double, at timestamp"));
    /// # }
    /// ```
    #[track_caller]
    pub fn decode(self, json: Json) -> Self {
        self.step("decode", |_, plan| {
            let at = position(plan.schema(), MESSAGES)?;
            let known = |name: &&str| names(plan.schema()).any(|known| known == *name);
            let locator = if LOCATOR.iter().all(known) { LOCATOR.as_slice() } else { &[] };
            let fields = json.fields()?;
            let messages = Expr::Column(Column::from(plan.schema().qualified_field(at)));
            let decoded = json.decode(messages, locator.iter().map(|name| col(*name)))?.alias(DECODED);

            let is_field = |name: &str| fields.iter().any(|field| field.name() == name);
            let others = plan.schema().columns().into_iter();
            let others = others.filter(|column| column.name != MESSAGES && !is_field(&column.name)).map(Expr::Column);
            let others: Vec<Expr> = others.collect();
            let take = |name: &str| get_field(col(DECODED), name).alias(name);
            let taken = fields.iter().map(|field| take(field.name())).chain(others.iter().cloned()).collect();

            let decoded = project(plan, std::iter::once(decoded).chain(others).collect())?;
            project(decoded, taken)
        })
    }
}

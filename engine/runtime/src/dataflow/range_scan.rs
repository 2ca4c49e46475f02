//! A fixed range of a source as a static table: read when it is scanned, and as often as it is.
//!
//! Each split is a partition. A reader's receipt is held against the plan when the split has been read, as in a batch: a
//! read that gave too little, too much or something else is an error.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as PlanResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::StreamExt;
use futures::future::ready;
use tidemill_core::offsets::{Range, Split};
use tidemill_core::source::{ReadContext, ReadItem, Receipt, Source, SourceReader};
use tidemill_core::{Clock, Error, Result, code};
use tokio_util::sync::CancellationToken;

use super::engine::Engine;
use super::errors::into_datafusion;
use super::executor::read_bytes;

/// A range of a source, as a table.
#[derive(Debug)]
pub struct RangeTable {
    table: StreamingTable,
}

impl Engine {
    /// A table of what a source has in a range. Nothing is read before it is scanned.
    pub fn range_table(&self, source: &Arc<dyn Source>, range: &Range) -> Result<RangeTable> {
        let context = self.clients().context();
        // Kept by the table: no query's end is its end.
        let reader = self.clients().new_reader(source.spec())?;
        let splits = source.plan(&source.spec().format, range, &source.interpretation())?;
        // All splits may be read at once.
        let read_bytes = read_bytes(self.options().fetch_bytes, splits.len());
        let partition = |split| {
            let (source, reader, clock) = (Arc::clone(source), Arc::clone(&reader), Arc::clone(&context.clock));
            let batch_rows = self.state().config().batch_size();
            Arc::new(SplitStream { schema: source.schema(), source, reader, split, clock, batch_rows, read_bytes })
                as Arc<dyn PartitionStream>
        };
        let partitions = splits.into_iter().map(partition).collect();
        let table = StreamingTable::try_new(source.schema(), partitions);
        let table = table.map_err(|error| Error::new(code::BUG, "a range is no table").because(error))?;
        Ok(RangeTable { table })
    }
}

#[async_trait]
impl TableProvider for RangeTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        self.table.scan(state, projection, filters, limit).await
    }
}

/// One split, as a partition.
#[derive(Debug)]
struct SplitStream {
    schema: SchemaRef,
    source: Arc<dyn Source>,
    reader: Arc<dyn SourceReader>,
    split: Split,
    clock: Arc<dyn Clock>,
    batch_rows: usize,
    read_bytes: usize,
}

impl PartitionStream for SplitStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let cancel = CancellationToken::new();
        let context = ReadContext {
            projection: None,
            batch_rows: self.batch_rows,
            buffer_bytes: self.read_bytes,
            cancel: cancel.clone(),
            clock: Arc::clone(&self.clock),
        };
        // Whoever drops the stream wants no more.
        let ends = cancel.drop_guard();
        let (source, split) = (Arc::clone(&self.source), self.split.clone());
        let check = move |receipt: Receipt| {
            Receipt::check(std::slice::from_ref(&split), std::slice::from_ref(&receipt))?;
            source.check_receipt(&split, &receipt)
        };
        let items = self.reader.read(self.split.clone(), context);
        let rows = items.filter_map(move |item| {
            let _ = &ends;
            ready(match item {
                Ok(ReadItem::Rows(rows)) => Some(Ok(rows)),
                Ok(ReadItem::End) => None,
                Ok(ReadItem::Receipt(receipt)) => check(receipt).err().map(Err),
                Err(error) => Some(Err(error)),
            })
        });
        let rows = rows.map(|rows| rows.map_err(into_datafusion));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}

//! One staged file: rows are encoded into row groups in memory, which leave for the store as they are ended.
//!
//! A row group in progress is dear: every column has an encoder and a compressor of its own. So a file begins one only
//! when enough rows have come, and a file between two row groups (*parked*) costs next to nothing: hundreds of partition
//! folders can be open at once.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload, WriteMultipart};
use parquet::arrow::ArrowWriter;
use tidemill_core::store::Location;
use tidemill_core::{Error, Result, WriteTask, code};

use super::config::Compression;
use super::manifest::ManifestFile;
use super::memory::{COMPRESSOR_BYTES, FOOTER_BYTES, Held, ROW_GROUP_BYTES_MAX, ROW_GROUP_BYTES_MIN};
use super::properties::properties;

/// What is sent at once. Stores like S3 take at least 5 MiB.
const PART_BYTES: usize = 8 << 20;
/// Parts on their way while the next row group is encoded.
const PARTS_AT_ONCE: usize = 1;
/// Encoded bytes are kept in pieces as large as a part, so that none is held longer than its own part. (Pieces of 1 MiB
/// cost a fifth of the time with glibc: it gives such buffers back to the system each time, and page faults follow.)
const PIECE_BYTES: usize = PART_BYTES;

/// A file that takes rows.
pub(super) struct OpenFile {
    target: Path,
    stage: Path,
    compression: Compression,
    /// Rows that wait for enough company to be encoded.
    pending: Vec<RecordBatch>,
    pending_bytes: usize,
    /// Made with the first rows that are encoded: they decide how columns are written.
    writer: Option<ArrowWriter<Pieces>>,
    /// Columns, those within columns counted one by one.
    columns: usize,
    /// Begun with the first full part: a small file is one write.
    upload: Option<WriteMultipart>,
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    sent_bytes: u64,
    rows: u64,
    held: Held,
}

impl OpenFile {
    pub(super) fn new(target: Path, stage: Path, compression: Compression) -> Self {
        OpenFile {
            target,
            stage,
            compression,
            pending: Vec::new(),
            pending_bytes: 0,
            writer: None,
            columns: 0,
            upload: None,
            waiting: Vec::new(),
            waiting_bytes: 0,
            sent_bytes: 0,
            rows: 0,
            held: Held::default(),
        }
    }

    /// The size that the file would have if it were closed now, about.
    pub(super) fn bytes(&self) -> u64 {
        let encoded = self.writer.as_ref().map_or(0, |writer| writer.bytes_written() + writer.in_progress_size());
        (encoded + self.pending_bytes) as u64
    }

    /// What the file holds in memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Whether no rows wait to be encoded or to end their row group.
    pub(super) fn is_parked(&self) -> bool {
        self.pending.is_empty() && self.in_progress_rows() == 0
    }

    fn in_progress_rows(&self) -> usize {
        self.writer.as_ref().map_or(0, ArrowWriter::in_progress_rows)
    }

    /// Takes rows of about `bytes`; ends the row group when it is full.
    pub(super) async fn write(
        &mut self,
        location: &Location,
        task: &WriteTask,
        rows: RecordBatch,
        bytes: usize,
    ) -> Result<()> {
        self.rows += rows.num_rows() as u64;
        self.pending_bytes += bytes;
        if self.columns == 0 {
            self.columns = rows.schema().flattened_fields().len();
        }
        self.pending.push(rows);
        let worth_beginning = ROW_GROUP_BYTES_MIN.max(self.columns * COMPRESSOR_BYTES / 4);
        if self.in_progress_rows() > 0 || self.pending_bytes >= worth_beginning {
            self.encode(task)?;
        }
        if self.writer.as_ref().is_some_and(|writer| writer.memory_size() >= ROW_GROUP_BYTES_MAX) {
            return self.end_row_group(location, task).await;
        }
        self.send(location).await
    }

    /// Ends the row group in progress and sends what is ready.
    pub(super) async fn end_row_group(&mut self, location: &Location, task: &WriteTask) -> Result<()> {
        self.encode(task)?;
        if let Some(writer) = &mut self.writer {
            writer.flush().map_err(encode_failed)?;
        }
        self.send(location).await
    }

    /// Encodes what waited.
    fn encode(&mut self, task: &WriteTask) -> Result<()> {
        self.pending_bytes = 0;
        let pending = std::mem::take(&mut self.pending);
        let Some(first) = pending.first() else { return Ok(()) };
        let schema = first.schema();
        let rows = match pending.len() {
            1 => first.clone(),
            _ => concat_batches(&schema, &pending).map_err(|error| encode_failed(error.into()))?,
        };
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                let properties = properties(task, self.compression, &rows);
                let writer = ArrowWriter::try_new(Pieces::default(), Arc::clone(&schema), Some(properties));
                self.writer.insert(writer.map_err(encode_failed)?)
            }
        };
        writer.write(&rows).map_err(encode_failed)
    }

    /// Moves what is encoded to the store, in whole parts.
    async fn send(&mut self, location: &Location) -> Result<()> {
        self.collect();
        if self.waiting_bytes >= PART_BYTES {
            if self.upload.is_none() {
                let upload = location.store.put_multipart(&self.stage).await;
                let upload = upload.map_err(|error| location.error(&self.stage, error))?;
                self.upload = Some(WriteMultipart::new_with_chunk_size(upload, PART_BYTES));
            }
            self.send_waiting(location).await?;
        }
        self.held.set(self.pending_bytes + self.writer_bytes() + self.waiting_bytes);
        Ok(())
    }

    fn writer_bytes(&self) -> usize {
        let Some(writer) = &self.writer else { return 0 };
        let footer = writer.flushed_row_groups().len() * self.columns * FOOTER_BYTES;
        match writer.in_progress_rows() {
            0 => footer,
            _ => footer + writer.memory_size() + self.columns * COMPRESSOR_BYTES,
        }
    }

    /// Takes what the writer has let go.
    fn collect(&mut self) {
        let Some(writer) = &mut self.writer else { return };
        for piece in writer.inner_mut().take() {
            self.waiting_bytes += piece.len();
            self.waiting.push(piece);
        }
    }

    async fn send_waiting(&mut self, location: &Location) -> Result<()> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        for bytes in self.waiting.drain(..) {
            upload.wait_for_capacity(PARTS_AT_ONCE).await.map_err(|error| location.error(&self.stage, error))?;
            self.sent_bytes += bytes.len() as u64;
            upload.put(bytes);
        }
        self.waiting_bytes = 0;
        Ok(())
    }

    /// Ends the file: when it returns, the file is durable under its staged name.
    pub(super) async fn close(mut self, location: &Location, task: &WriteTask) -> Result<ManifestFile> {
        self.encode(task)?;
        if let Some(writer) = &mut self.writer {
            writer.finish().map_err(encode_failed)?;
        }
        self.collect();
        if self.upload.is_some() {
            self.send_waiting(location).await?;
        }
        let ended = match self.upload.take() {
            Some(upload) => upload.finish().await,
            None => {
                self.sent_bytes = self.waiting_bytes as u64;
                let body: PutPayload = self.waiting.drain(..).collect();
                location.store.put(&self.stage, body).await
            }
        };
        ended.map_err(|error| location.error(&self.stage, error))?;
        Ok(ManifestFile { path: self.target.to_string(), bytes: self.sent_bytes, rows: self.rows })
    }

    /// Gives the file up.
    pub(super) async fn abort(mut self) {
        if let Some(upload) = self.upload.take() {
            let _ = upload.abort().await;
        }
    }
}

/// What the encoder wrote, in pieces.
#[derive(Debug, Default)]
struct Pieces {
    full: Vec<Bytes>,
    last: Vec<u8>,
}

impl Pieces {
    fn take(&mut self) -> Vec<Bytes> {
        if !self.last.is_empty() {
            self.full.push(std::mem::take(&mut self.last).into());
        }
        std::mem::take(&mut self.full)
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.last.len() + bytes.len() > PIECE_BYTES && !self.last.is_empty() {
            self.full.push(std::mem::take(&mut self.last).into());
        }
        if bytes.len() >= PIECE_BYTES {
            self.full.push(Bytes::copy_from_slice(bytes));
        } else {
            self.last.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn encode_failed(error: parquet::errors::ParquetError) -> Error {
    Error::new(code::ENCODE, "the rows cannot be written as Parquet").because(error)
}

//! What all open Parquet files of the process hold in memory, in one sum.
//!
//! A row group is built in memory. Many files at once (tasks times partitions) would need many times a row group, so
//! they share one budget: a task that finds it exceeded ends the row group of the file that holds most.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A row group ends when it has so many bytes, however much is free.
pub(super) const ROW_GROUP_BYTES_MAX: usize = 8 << 20;
/// A row group is begun when rows of so many bytes wait.
pub(super) const ROW_GROUP_BYTES_MIN: usize = 256 << 10;
/// What a column of a row group in progress takes beside its bytes: its compressor, about.
pub(super) const COMPRESSOR_BYTES: usize = 256 << 10;
/// What is kept of each column of an ended row group until its file is closed, about: footer and page index.
pub(super) const FOOTER_BYTES: usize = 1 << 10;
/// What all open files may hold together.
const PROCESS_BYTES_MAX: usize = 64 << 20;
/// A task that holds no more than this goes on undisturbed by what others hold: it is what one file may have waiting for
/// a whole part.
pub(super) const TASK_BYTES_FREE: usize = 8 << 20;
/// A file that holds less is left alone: there is little to win, and small row groups read badly.
pub(super) const WORTH_FREEING_BYTES: usize = 64 << 10;

static USED: AtomicUsize = AtomicUsize::new(0);

/// One file's part of the sum, given back when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Held(usize);

impl Held {
    /// Sets this file's part.
    pub(super) fn set(&mut self, bytes: usize) {
        if bytes >= self.0 {
            USED.fetch_add(bytes - self.0, Ordering::Relaxed);
        } else {
            USED.fetch_sub(self.0 - bytes, Ordering::Relaxed);
        }
        self.0 = bytes;
    }

    /// This file's part.
    pub(super) fn bytes(&self) -> usize {
        self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// What the files of the process hold, for tests.
#[cfg(test)]
pub(super) fn used() -> usize {
    USED.load(Ordering::Relaxed)
}

/// Whether the files of the process hold more than they may.
pub(super) fn exceeded() -> bool {
    USED.load(Ordering::Relaxed) > PROCESS_BYTES_MAX
}

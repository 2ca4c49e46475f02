//! Tests of this folder as a whole, on the numbers of [`super::testing`].

mod batch;
mod codec;
mod json;
mod unsupported;

//! Boundaries of Tidemill: what a source, a sink and a store promise, and the words that all floors share.
//!
//! Nothing here knows DataFusion, Kafka or a query: connectors and sinks build on this crate alone.
//!
//! * words: [`ids`], [`offsets`], [`error`], [`clock`], [`rng`], [`secret`], [`options`]
//! * boundaries: [`source`], [`sink`], [`registry`]
//! * [`decode`]: from bytes to typed columns
//! * [`store`]: object stores, made durable; the one write primitive, create-if-absent
//! * [`crash`]: crash points for tests; [`rules`]: rules that tests break

pub mod clock;
pub mod crash;
pub mod decode;
pub mod error;
pub mod ids;
pub mod offsets;
pub mod options;
pub mod registry;
pub mod rng;
pub mod rules;
pub mod secret;
pub mod sink;
pub mod source;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use clock::Clock;
pub use error::{Code, Error, ErrorKind, Result, code};
pub use ids::{AttemptId, BatchId, Generation, Nonce, QueryId, RunId};
pub use offsets::{Offsets, Range, Split};
pub use options::{OptionDoc, Options};
pub use registry::{Context, Registry, SinkBuilder, SinkFormat, SourceBuilder, SourceFormat};
pub use rng::Rng;
pub use secret::{BearerToken, Secret};
pub use sink::{Ack, Acked, Guarantee, Published, Sink, SinkKey, SinkSpec, SinkWriter, WriteTask};
pub use source::{
    Hold, Loss, Offer, Owner, Pace, ReadContext, ReadItem, ReadLimit, Receipt, Source, SourceReader, SourceSpec,
};

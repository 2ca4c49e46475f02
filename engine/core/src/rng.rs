//! Randomness, behind one door: tests and simulations seed it.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where random numbers come from.
pub trait Rng: Send + Sync + Debug {
    /// The next number, uniform over all of `u64`.
    fn next_u64(&self) -> u64;
}

/// The operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRng;

impl Rng for SystemRng {
    fn next_u64(&self) -> u64 {
        // The door: a version 4 UUID is made of the system's random bytes; its six fixed bits lie in the middle.
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        high ^ low.rotate_left(32)
    }
}

/// A seeded sequence (SplitMix64): the same seed gives the same numbers, on every machine.
#[derive(Debug)]
pub struct SeededRng(AtomicU64);

impl SeededRng {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        SeededRng(AtomicU64::new(seed))
    }
}

impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

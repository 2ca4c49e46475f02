//! A gate on a driver's way: at an operation of its store the driver waits until the test lets it go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::pipeline::BOUND;

#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Stage {
    Shut,
    Reached,
    Open,
}

/// A gate as a test holds it: shut until it is opened, once and for ever. A test that fails opens it too.
#[derive(Debug)]
pub struct Gate(Arc<watch::Sender<Stage>>);

/// The same gate as a script holds it. The runtime has to be a multi-threaded one.
#[derive(Clone, Debug)]
pub struct Door(Arc<watch::Sender<Stage>>);

impl Gate {
    pub fn new() -> Gate {
        Gate(Arc::new(watch::Sender::new(Stage::Shut)))
    }

    pub fn door(&self) -> Door {
        Door(Arc::clone(&self.0))
    }

    /// Waits until somebody has come to the gate.
    pub async fn reached(&self) {
        let mut seen = self.0.subscribe();
        let come = tokio::time::timeout(BOUND, seen.wait_for(|stage| *stage >= Stage::Reached)).await;
        come.expect("somebody comes to the gate").expect("the gate is there");
    }

    /// Lets whoever waits or comes go on.
    pub fn open(&self) {
        self.0.send_replace(Stage::Open);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

impl Door {
    /// Waits until the gate is open. Scripts cannot wait as futures do; nor may this need the runtime's clock, which a
    /// test that fails takes with it.
    pub fn pass(&self) {
        self.0.send_modify(|stage| *stage = if *stage < Stage::Reached { Stage::Reached } else { *stage });
        tokio::task::block_in_place(|| {
            let since = Instant::now();
            while *self.0.borrow() != Stage::Open {
                assert!(since.elapsed() < BOUND, "nobody opens the gate");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

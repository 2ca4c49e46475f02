//! Log offsets: whoever creates `offsets/N` first decides what N reads, for every driver.

use tidemill_core::Result;
use tidemill_core::crash::crash_point;

use super::{Logged, MicroBatch, Planned};

impl MicroBatch {
    /// Makes a plan durable, or adopts the plan of the driver that was first.
    pub(super) async fn log_offsets(&self, planned: &Planned) -> Result<Logged> {
        self.checkpoint.check_fence().await?;
        let create = self.checkpoint.create_offsets(planned.body.clone(), planned.revision);
        let logged = self.timings.phase(&*self.clock, "walCommit", create).await?;
        let batch_id = planned.body.batch_id;
        crash_point("log", batch_id);
        if logged.adopted {
            self.contested(batch_id);
            self.check_program(&logged.entry)?;
        }
        Ok(Logged { entry: logged.entry, latest: planned.latest.clone() })
    }
}

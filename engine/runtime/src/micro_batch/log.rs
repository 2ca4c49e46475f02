//! Log offsets: whoever creates `offsets/N` first decides what N reads, for every driver.

use tidemill_core::Result;
use tidemill_core::crash::crash_point;

use super::{Logged, MicroBatch, Planned};

impl MicroBatch {
    /// Makes a plan durable, or adopts the plan of the driver that was first.
    pub(super) async fn log_offsets(&self, planned: &Planned) -> Result<Logged> {
        self.checkpoint.check_fence().await?;
        let create = self.checkpoint.create_offsets(planned.body.clone(), planned.revision);
        let create = self.timings.phase(&*self.clock, "walCommit", create);
        // While the disk works, the tasks are planned: nothing is read before the log says so.
        let (logged, transformed) = tokio::join!(create, self.transform(&planned.body));
        let logged = logged?;
        let batch_id = planned.body.batch_id;
        crash_point("log", batch_id);
        if logged.adopted {
            self.contested(batch_id);
            self.check_program(&logged.entry)?;
        }
        // Another driver's ranges are planned when they are run, and so is what could not be planned now.
        let transformed = transformed.ok().filter(|_| !logged.adopted);
        Ok(Logged { entry: logged.entry, latest: planned.latest.clone(), transformed })
    }
}

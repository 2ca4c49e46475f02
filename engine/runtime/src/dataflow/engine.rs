//! The engine of a session: DataFusion, set up so that a batch that is run again gives the same rows.

use std::num::NonZeroUsize;
use std::sync::Arc;

use chrono::DateTime;
use datafusion::common::alias::AliasGenerator;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::prelude::SessionConfig;
use tidemill_core::error::{Error, Result, code};
use tidemill_core::registry::{Context, Registry};

use super::clients::Clients;
use super::errors::from_datafusion;
use super::executor::LocalExecutor;
use super::json::from_json_udf;

/// Consumers of memory that are named when there is no more.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::new(5).expect("five is not zero");

/// How much of the machine an engine uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Tasks of one sink that work at the same time. As many as there are cores unless it is set.
    pub parallelism: usize,
    /// Bytes that operators and reads may hold. 1 GiB unless it is set: a session knows better what there is.
    pub memory_bytes: usize,
    /// Rows that a record batch should have. 8192 unless it is set.
    pub batch_rows: usize,
    /// Bytes that all reads of a batch may hold between client libraries and their consumers. 64 MiB unless it is set.
    pub fetch_bytes: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            parallelism: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            memory_bytes: 1 << 30,
            batch_rows: 8192,
            fetch_bytes: 64 << 20,
        }
    }
}

/// Plans and runs batches. One for a session; cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Engine {
    clients: Arc<Clients>,
    options: EngineOptions,
    state: SessionState,
}

impl Engine {
    /// An engine that knows the formats of `registry`.
    pub fn new(registry: Arc<Registry>, context: Context, options: EngineOptions) -> Result<Self> {
        let pool = FairSpillPool::new(options.memory_bytes);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(TrackConsumersPool::new(pool, NAMED_CONSUMERS)))
            .build_arc()
            .map_err(from_datafusion)?;
        let mut state = SessionStateBuilder::new()
            .with_config(config(&options))
            .with_runtime_env(runtime)
            .with_default_features()
            .with_physical_optimizer_rules(physical_rules())
            .build();
        state.register_udf(from_json_udf()).map_err(from_datafusion)?;
        Ok(Engine { clients: Arc::new(Clients::new(registry, context)), options, state })
    }

    /// What plans are built with: functions, tables (the catalogue is shared by all clones) and settings. It has no
    /// clock: `now()` means something within a batch only.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Readers and sinks.
    pub fn clients(&self) -> &Arc<Clients> {
        &self.clients
    }

    /// How much of the machine is used.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// What operators run with: memory, files to spill to.
    pub fn runtime(&self) -> &Arc<RuntimeEnv> {
        self.state.runtime_env()
    }

    /// An executor in this process.
    pub fn executor(&self) -> LocalExecutor {
        LocalExecutor::new(self)
    }

    /// Resolves types and functions, once, when a query is built. What plans a batch takes analysed plans.
    pub fn analyze(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let options = self.state.config_options();
        self.state.analyzer().execute_and_check(plan, options, |_, _| {}).map_err(from_datafusion)
    }

    /// The state for planning at a moment: `now()` is this time, also when the batch is run again.
    pub fn state_at(&self, timestamp_ms: i64) -> Result<SessionState> {
        let time = DateTime::from_timestamp_millis(timestamp_ms)
            .ok_or_else(|| Error::new(code::BUG, format!("{timestamp_ms} ms is not a time")))?;
        let mut state = self.state.clone();
        let options = Arc::clone(state.config_options());
        let properties = state.execution_props_mut();
        properties.query_execution_start_time = Some(time);
        properties.config_options = Some(options);
        // Names that the optimiser makes up are counted from one in every batch.
        properties.alias_generator = Arc::new(AliasGenerator::new());
        Ok(state)
    }
}

/// DataFusion's rules for physical plans, without those that push filters down: they write what a projection computes
/// into a filter below it, volatile or not, so a message would be decoded twice. Our sources take no filters anyway.
fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let rules = PhysicalOptimizer::new().rules.into_iter();
    rules.filter(|rule| !rule.name().starts_with("FilterPushdown")).collect()
}

/// DataFusion's settings. Each differs from the default for a reason.
fn config(options: &EngineOptions) -> SessionConfig {
    let mut config = SessionConfig::new()
        .with_target_partitions(options.parallelism)
        .with_batch_size(options.batch_rows)
        // The planner spreads splits over tasks; rows are not dealt out once more.
        .with_round_robin_repartition(false);
    let settings = config.options_mut();
    // Filters that a running operator changes would make a plan that has run another plan.
    settings.optimizer.enable_dynamic_filter_pushdown = false;
    settings.optimizer.enable_topk_dynamic_filter_pushdown = false;
    settings.optimizer.enable_join_dynamic_filter_pushdown = false;
    settings.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // It would move `data.a` into the projection that decodes `data`, and decode once for every field.
    settings.optimizer.enable_leaf_expression_pushdown = false;
    // Column names are what they are: `sensorId` is not `sensorid`.
    settings.sql_parser.enable_ident_normalization = false;
    // CAST(value AS STRING) then only checks the bytes; a view would be built row by row.
    settings.sql_parser.map_string_types_to_utf8view = false;
    // Timestamps are read and shown in one zone on every machine.
    settings.execution.time_zone = Some("UTC".to_owned());
    config
}

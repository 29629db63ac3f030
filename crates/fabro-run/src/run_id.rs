//! The id of a run, and the variable by which its processes are found.

use fabro_types::RunId;

/// The variable that marks the processes of a run, so that a later driver finds those that a dead one left running.
pub const RUN_ID_VARIABLE: &str = "FABRO_RUN_ID";

/// A new id: the time and a random number.
pub fn new_run_id() -> RunId {
    let ulid = ulid::Ulid::generate();
    RunId::from_parts(ulid.timestamp_ms(), ulid.random())
}

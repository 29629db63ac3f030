//! Reports on real logs: a machine runs workflows whose stages are written down beside them.

use std::sync::Arc;

use fabro_blob::BlobStore as _;
use fabro_engine::Input;
use fabro_events::{Event, EventBody};
use fabro_types::{Outcome, RunId};
use serde_json::json;

use super::*;
use machine_run::{Bench, LOOP, exits, ok, repaired};

#[path = "../../../fixtures/machine_run.rs"]
pub(crate) mod machine_run;

mod conversation;
mod explain;
mod points;
mod stages;
mod times;

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

fn compact(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

use serde::{Deserialize, Serialize};

/// `[run.concurrency]`: how many runs with the same key may be driven concurrently, in one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Concurrency {
    /// `key`: a template over inputs; by default the name of the workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `limit`: how many runs; by default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `on_busy`: what a run does when the limit is reached.
    pub on_busy: OnBusy,
}

/// What a run does when the limit of concurrent runs is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    /// It waits until one of them ends or pauses.
    #[default]
    Queue,
    /// It does not start.
    Skip,
    /// It cancels the oldest of them and takes its place.
    Cancel,
}

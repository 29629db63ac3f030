use serde::{Deserialize, Serialize};

/// `[run.concurrency]`: how many runs with the same key are driven at the same time, in one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Concurrency {
    /// `key`: what the runs share, a template over inputs; the name of the workflow when it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `limit`: how many runs, 1 when it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// `on_busy`: what a run does that is one too many.
    pub on_busy: OnBusy,
}

/// What a run does when as many runs as allowed are being driven.
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

use serde_json::Value;

use super::events::{Event, EventError};
use super::turn::Turn;

/// Whether more is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    More,
    Ended,
}

/// Reads the events of one stream into a turn. Does no I/O. Events, blocks, finish reasons and fields
/// that it does not know are ignored.
pub(super) trait EventReader: Send {
    /// Reads one event.
    fn read(&mut self, event: &Event, turn: &mut Turn) -> Result<Progress, EventError>;

    /// The connection was closed before an event ended the turn.
    fn close(&mut self, _turn: &mut Turn) -> Result<(), EventError> {
        Err(EventError::ended_early())
    }

    /// Reads the body of a server that did not stream.
    fn read_whole(&mut self, body: &Value, _turn: &mut Turn) -> Result<(), EventError> {
        Err(if body["error"].is_null() {
            EventError::Incomplete("the answer is not a stream of events".to_owned())
        } else {
            EventError::Reported(body.clone())
        })
    }
}

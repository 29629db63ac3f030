//! The last lines of a failed stage's output.

use std::collections::VecDeque;
use std::fmt::Write as _;

use fabro_engine::{checkpoint, read_all};
use fabro_events::{EventBody, StageFailure};
use fabro_inspect::{LogStream, StageKey, copy_recorded_text, recorded_output};
use fabro_terminal::clean;
use fabro_types::RunId;

use super::log_files::Lines;
use crate::global::Global;

/// How many lines are shown.
const MAX_LINES: usize = 20;

/// The last lines of a failed stage's output, under a heading; empty if there are none.
pub async fn last_lines(
    run: RunId,
    cause: &StageFailure,
    global: &Global,
) -> anyhow::Result<String> {
    let key =
        StageKey { branch: cause.branch.clone(), node: cause.node.clone(), visit: cause.visit };
    let store = global.store_to_read()?;
    let events = read_all(&store, run).await?;
    let end = checkpoint::effective(&events).into_iter().rev().find(|event| {
        matches!(event.entry.body, EventBody::StageFailed(_))
            && StageKey::of(event).as_ref() == Some(&key)
    });
    let mut lines: VecDeque<String> = VecDeque::new();
    for stream in [LogStream::Stdout, LogStream::Stderr, LogStream::Text] {
        // The response of a command repeats its output.
        if stream == LogStream::Text && !lines.is_empty() {
            continue;
        }
        let Some(value) = end.and_then(|event| recorded_output(event, stream)) else { continue };
        let mut keep = Lines::new(Vec::new(), 0, |line: &[u8]| {
            if lines.len() == MAX_LINES {
                lines.pop_front();
            }
            lines.push_back(String::from_utf8_lossy(line).trim_end().to_owned());
            Ok(())
        });
        copy_recorded_text(&key, &value, &store, &mut keep)?;
        keep.end()?;
    }
    let mut text = String::new();
    if !lines.is_empty() {
        let _ = writeln!(text, "The last lines of {}:", clean(&cause.stage()));
    }
    for line in lines {
        let _ = writeln!(text, "  {}", clean(&line));
    }
    Ok(text)
}

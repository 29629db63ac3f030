use std::fmt::Write as _;

use fabro_events::{Event, EventBody};

/// One line an event that matters, the edge taken behind the stage.
pub(super) fn story(events: &[Event]) -> String {
    let mut text = String::new();
    for event in events {
        let entry = &event.entry;
        let node = entry.node_id.as_deref().unwrap_or_default();
        let indent = "  ".repeat(entry.branch.as_deref().map_or(0, |b| b.matches('@').count()));
        let line = match &entry.body {
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => {
                let visit = entry.visit.unwrap_or_default();
                let mut line = format!("{:03} {node}@{visit} {}", end.rank, end.outcome.reads_as());
                if end.attempts > 1 {
                    let _ = write!(line, " in {}", end.attempts);
                }
                if let Some(failure) = &end.outcome.failure {
                    let _ = write!(line, ": {failure}");
                }
                if let Some(notes) = &end.outcome.notes {
                    let _ = write!(line, " ({notes})");
                }
                line
            }
            EventBody::EdgeSelected(choice) => {
                text.truncate(text.trim_end().len());
                let _ = writeln!(text, " -> {} ({})", choice.to, choice.tier.as_str());
                continue;
            }
            EventBody::StageRetrying { failure, delay_ms, .. } => {
                format!("{node} retries in {delay_ms} ms: {failure}")
            }
            EventBody::GateAsked { question, options, freeform, .. } => {
                let keys = options.iter().map(|option| {
                    let reason = option.unavailable.as_ref();
                    let reason = reason.map(|it| format!(" (not now: {it})")).unwrap_or_default();
                    format!("[{}] {}{reason}", option.key, option.label)
                });
                let keys: Vec<_> = keys.collect();
                let more = if *freeform { " or text" } else { "" };
                format!("{node} asks {question:?}: {}{more}", keys.join(", "))
            }
            EventBody::GateAnswered { selected, label, text, source, .. } => {
                format!("{node} is told {selected} {label:?} {text:?} by {source}")
            }
            EventBody::ContextRefused { key, reason } => format!("{node} refused {key}: {reason}"),
            EventBody::AgentWarning { kind, message, .. } => {
                format!("{node} warns ({kind}) {message}")
            }
            EventBody::ParallelStarted { branches, join, .. } => {
                let join = join.as_deref().unwrap_or("nothing");
                format!("{node} forks {}, joins at {join}", branches.len())
            }
            EventBody::BranchCompleted { status, canceled, .. } => {
                let how = if *canceled { "canceled" } else { status.as_str() };
                format!("{} {how}", entry.branch.as_deref().unwrap_or_default())
            }
            EventBody::RunCompleted { status, .. } => format!("run {status}"),
            EventBody::RunFailed { failure, .. } => format!("run failed: {failure}"),
            EventBody::RunPaused { reason, gates, .. } => format!("paused: {reason:?} {gates:?}"),
            EventBody::RunResumed { .. } => "resumed".to_owned(),
            EventBody::RunCanceled { reason, .. } => format!("run canceled: {reason}"),
            _ => continue,
        };
        let _ = writeln!(text, "{indent}{line}");
    }
    text
}

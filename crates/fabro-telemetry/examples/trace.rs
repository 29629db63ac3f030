//! Prints the trace of a log as OTLP JSON: `cargo run -p fabro-telemetry --example trace`.

use std::error::Error;
use std::io::{self, Write as _};

use fabro_events::{Entry, Event, EventBody};
use fabro_telemetry::{Contents, trace};
use fabro_types::{NodeKind, RunId};

fn main() -> Result<(), Box<dyn Error>> {
    let run_id = RunId::from_parts(1_763_900_000_000, 7);
    let started = EventBody::StageStarted {
        rank: 1,
        handler: NodeKind::Command,
        fidelity: fabro_types::Fidelity::default(),
        thread_id: None,
    };
    let stage = Entry { node_id: Some("test".into()), visit: Some(1), ..Entry::new(started) };
    let entries = [Entry::new(EventBody::RunStarted {}), stage];
    let log: Vec<Event> = (1..)
        .zip(entries)
        .map(|(seq, entry)| Event { run_id, seq, ts_ms: 1_763_900_000_000, entry })
        .collect();
    let export = trace(run_id, &[log.as_slice()], &Contents::Omitted);
    writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&export)?)?;
    Ok(())
}

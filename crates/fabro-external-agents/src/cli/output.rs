use serde_json::Value;

use crate::Progress;
use crate::cli::answer::Answer;
use crate::cli::program::Output;
use crate::lines::{LONGEST, Lines};

/// Reads the stdout of a program while it runs.
pub(super) struct OutputReader<'a> {
    output: Output,
    on_event: &'a (dyn Fn(Progress) + Send + Sync),
    lines: Lines,
    document: Vec<u8>,
    answer: Answer,
}

impl<'a> OutputReader<'a> {
    pub(super) fn new(output: Output, on_event: &'a (dyn Fn(Progress) + Send + Sync)) -> Self {
        let lines = Lines::default();
        Self { output, on_event, lines, document: Vec::new(), answer: Answer::default() }
    }

    pub(super) fn read(&mut self, bytes: &[u8]) {
        let Self { output, on_event, lines, document, answer } = self;
        match output {
            Output::Events(read) => lines.push(bytes, |line| {
                read_line(line, |event| read(event, answer, *on_event), *on_event);
            }),
            Output::Document(_) => {
                let room = LONGEST - document.len();
                document.extend_from_slice(&bytes[..bytes.len().min(room)]);
                on_event(Progress::Activity);
            }
        }
    }

    /// The answer, once the program has ended.
    pub(super) fn finish(self, stderr: &str) -> Answer {
        let Self { output, on_event, mut lines, document, mut answer } = self;
        match output {
            Output::Events(read) => lines.finish(|line| {
                read_line(line, |event| read(event, &mut answer, on_event), on_event);
            }),
            Output::Document(read) => {
                read(&String::from_utf8_lossy(&document), stderr, &mut answer);
            }
        }
        answer
    }
}

fn read_line(line: &[u8], read: impl FnOnce(&Value), on_event: &dyn Fn(Progress)) {
    match serde_json::from_slice::<Value>(line) {
        Ok(event) if event.is_object() => read(&event),
        // Programs print warnings between the events.
        _ => on_event(Progress::Activity),
    }
}

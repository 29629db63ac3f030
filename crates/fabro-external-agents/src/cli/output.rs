use fabro_sandbox::Tail;
use fabro_types::Usage;
use serde_json::Value;

use crate::Progress;
use crate::cli::answer::Answer;
use crate::cli::program::Output;
use crate::lines::{LONGEST, Lines};

/// Reads the stdout of a program while it runs.
pub(super) struct OutputReader<'a> {
    lines: Lines,
    events: Events<'a>,
}

struct Events<'a> {
    output: Output,
    on_event: &'a (dyn Fn(Progress) + Send + Sync),
    answer: Answer,
    /// What is no event: warnings, or the one object that a program prints instead of events.
    rest: Vec<u8>,
    tail: Tail,
    /// What was reported.
    session: Option<String>,
    usage: Vec<Usage>,
}

impl<'a> OutputReader<'a> {
    pub(super) fn new(
        output: Output,
        answer: Answer,
        on_event: &'a (dyn Fn(Progress) + Send + Sync),
    ) -> Self {
        let events = Events {
            output,
            on_event,
            answer,
            rest: Vec::new(),
            tail: Tail::default(),
            session: None,
            usage: Vec::new(),
        };
        Self { lines: Lines::default(), events }
    }

    pub(super) fn read(&mut self, bytes: &[u8]) {
        let Self { lines, events } = self;
        lines.push(bytes, |line| events.line(line));
    }

    /// The answer, once the program has ended.
    pub(super) fn finish(self, stderr: &str) -> Answer {
        let Self { mut lines, mut events } = self;
        lines.finish(|line| events.line(line));
        let rest = String::from_utf8_lossy(&events.rest);
        (events.output.rest)(&rest, stderr, &mut events.answer);
        events.answer.noise = events.tail.text();
        events.report();
        events.answer
    }
}

impl Events<'_> {
    fn line(&mut self, line: &[u8]) {
        if line.is_empty() {
            return (self.on_event)(Progress::Activity);
        }
        let event = serde_json::from_slice::<Value>(line).ok().filter(Value::is_object);
        let Some(event) = event.filter(|event| event[self.output.key].is_string()) else {
            // Programs print warnings between the events.
            (self.on_event)(Progress::Activity);
            let room = LONGEST.saturating_sub(self.rest.len() + 1);
            self.rest.extend_from_slice(&line[..line.len().min(room)]);
            self.rest.push(b'\n');
            self.tail.push(line);
            self.tail.push(b"\n");
            return;
        };
        (self.output.read)(&event, &mut self.answer, self.on_event);
        self.report();
    }

    /// Reports what has become known.
    fn report(&mut self) {
        if self.answer.session_id.is_some() && self.answer.session_id != self.session {
            self.session.clone_from(&self.answer.session_id);
            self.session.clone().into_iter().map(Progress::Session).for_each(self.on_event);
        }
        if self.answer.usage != self.usage {
            self.usage.clone_from(&self.answer.usage);
            (self.on_event)(Progress::Usage(self.usage.clone()));
        }
    }
}

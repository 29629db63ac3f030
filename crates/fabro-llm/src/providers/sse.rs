//! Server-sent events from lines of text.

use super::events::Event;

/// What a body turns out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// An event of a stream.
    Event(Event),
    /// The whole body: it is JSON, not a stream of events.
    Whole(String),
}

/// Puts events together from the lines of a body. Does no I/O.
#[derive(Debug, Default)]
pub(super) struct Parser {
    event: Event,
    has_data: bool,
    /// The body so far, if it is not a stream of events.
    whole: Option<String>,
    has_lines: bool,
}

impl Parser {
    /// Takes the next line; an empty one ends an event.
    pub(super) fn line(&mut self, line: &str) -> Option<Event> {
        if let Some(whole) = &mut self.whole {
            whole.push_str(line);
            return None;
        }
        let line = if self.has_lines { line } else { line.trim_start_matches('\u{feff}') };
        if line.is_empty() {
            return self.take_event();
        }
        if !self.has_lines && line.trim_start().starts_with(['{', '[']) {
            self.whole = Some(line.to_owned());
        }
        self.has_lines = true;
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            // Comments, which begin with a colon, and fields that mean nothing here.
            _ => {}
        }
        None
    }

    /// What is left at the end of the body. Some servers leave the last empty line out.
    pub(super) fn finish(&mut self) -> Option<Frame> {
        match self.whole.take() {
            Some(whole) => Some(Frame::Whole(whole)),
            None => self.take_event().map(Frame::Event),
        }
    }

    /// The bytes that are held for what is not whole yet.
    pub(super) fn held(&self) -> usize {
        self.event.data.len() + self.whole.as_ref().map_or(0, String::len)
    }

    /// An event without data does not count.
    fn take_event(&mut self) -> Option<Event> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event).filter(|event| !event.data.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expect: &[&str]) {
        let mut parser = Parser::default();
        let mut frames: Vec<_> =
            body.lines().filter_map(|line| parser.line(line)).map(Frame::Event).collect();
        frames.extend(parser.finish());
        let frames: Vec<_> = frames
            .into_iter()
            .map(|frame| match frame {
                Frame::Event(event) => format!("{}={}", event.name, event.data),
                Frame::Whole(text) => format!("whole {text}"),
            })
            .collect();
        assert_eq!(frames, expect);
    }

    #[test]
    fn events_are_put_together_from_lines() {
        check("event: a\ndata: 1\n\ndata:2\ndata: 3\n\n", &["a=1", "=2\n3"]);
        check("\u{feff}\n: comment\nid: 7\nretry\n\ndata:  x\n\n", &["= x"]);
        check("data: [DONE]\n", &["=[DONE]"]);
        check("event: ping\n\ndata\n\ndata:\n\n", &[]);
        check("hello\n\n", &[]);
    }

    #[test]
    fn a_body_of_json_is_not_a_stream() {
        check("{\"a\":\n\n  1}\n", &["whole {\"a\":  1}"]);
        check("\n[]", &["whole []"]);
        check("data: {}\n\n{\"a\": 1}\n", &["={}"]);
    }
}

//! The answer of a model while it arrives, in a file for people who watch.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fabro_agent::{Live, LiveAnswer};
use fabro_redact::{Redactor, Stream};

/// The file's name in the stage's directory. It is there while an answer arrives.
const NAME: &str = "live.log";

/// An answer that is whole before this time needs no file.
const DELAY: Duration = Duration::from_millis(200);

/// How long a line that is not ended waits for more.
const PAUSE: Duration = Duration::from_millis(100);

/// The end of the answer's text that is not shown yet.
const LINE: usize = 256;

/// Writes answers into `live.log` of a stage, redacted. Nothing depends on the file: where it cannot
/// be written, the answer is shown when it is recorded.
struct LiveFile {
    path: PathBuf,
    redactor: Redactor,
    answer: Option<Answer>,
}

struct Answer {
    since: Instant,
    /// What is not written yet; as the model sent it, until there is a file.
    text: Vec<u8>,
    file: Option<Writer>,
}

struct Writer {
    file: File,
    redaction: Stream,
    last: Instant,
}

/// What a session tells of its answers goes into the file in this directory.
pub(super) fn live_file(dir: &Path, redactor: Redactor) -> Live {
    let path = dir.join(NAME);
    // Of a driver that was killed.
    let _ = fs::remove_file(&path);
    let file = Mutex::new(LiveFile { path, redactor, answer: None });
    Arc::new(move |answer| {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            LiveAnswer::Text(text) => file.add(text),
            LiveAnswer::End => file.end(),
        }
    })
}

impl LiveFile {
    fn add(&mut self, text: &str) {
        let answer = self.answer.get_or_insert_with(|| Answer {
            since: Instant::now(),
            text: Vec::new(),
            file: None,
        });
        if let Some(writer) = &mut answer.file {
            answer.text.extend(writer.redaction.push(text.as_bytes()));
        } else {
            answer.text.extend_from_slice(text.as_bytes());
            if answer.since.elapsed() < DELAY {
                return;
            }
            let Ok(file) = File::create(&self.path) else { return };
            let mut redaction = self.redactor.stream();
            answer.text = redaction.push(&answer.text);
            answer.file = Some(Writer { file, redaction, last: answer.since });
        }
        let Some(writer) = &mut answer.file else { return };
        let is_due = answer.text.contains(&b'\n')
            || answer.text.len() > LINE
            || writer.last.elapsed() > PAUSE;
        if is_due && writer.file.write_all(&answer.text).is_ok() {
            answer.text.clear();
            writer.last = Instant::now();
        }
    }

    fn end(&mut self) {
        if self.answer.take().is_some_and(|answer| answer.file.is_some()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for LiveFile {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_takes_time_can_be_read_while_it_arrives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let redactor = Redactor::new([("KEY", "secret-value-1")]);
        let live = live_file(dir.path(), redactor);
        live(LiveAnswer::Text("quick"));
        assert!(!path.exists());
        std::thread::sleep(DELAY);
        live(LiveAnswer::Text(" answer secret-"));
        live(LiveAnswer::Text("value-1 ends\nand "));
        let shown = fs::read_to_string(&path).unwrap();
        assert!(shown.starts_with("quick answer ") && !shown.contains("secret-"), "{shown}");
        live(LiveAnswer::End);
        assert!(!path.exists());
    }
}

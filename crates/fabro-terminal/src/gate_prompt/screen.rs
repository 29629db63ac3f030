//! The terminal in raw mode, with a question drawn on it.

use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd;

use fabro_gate::Question;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, OutputModes, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::frame::{self, Frame, Tone};
use super::prompt::Prompt;

/// The most bytes that are read at once.
const CHUNK: usize = 4096;
/// The most bytes between two drawings.
const READ: usize = 64 * 1024;

/// Erases the line behind the cursor. At the start of a row it also ends the line there: terminals
/// that wrap lines anew after a resize would join a row that once was wrapped with the next one, even
/// after other text was written over both, and the question would be lower than it was drawn.
const CLEAR_LINE: &str = "\x1b[K";
/// Erases the screen behind the cursor.
const CLEAR_BELOW: &str = "\x1b[J";
const PASTE_ON: &str = "\x1b[?2004h";
const PASTE_OFF_CURSOR_ON: &str = "\x1b[?2004l\x1b[?25h";

/// A terminal in raw mode. Drop restores its settings.
pub(super) struct Screen<I: AsFd, O: AsFd> {
    input: I,
    output: O,
    saved: Termios,
    /// The widths of the lines above the question that belong to it.
    above: Vec<usize>,
    /// The widths of its own lines.
    drawn: Vec<usize>,
    /// Row and column of the cursor in those.
    cursor: (usize, usize),
    /// The last drawing, and the terminal size it was made for.
    drawing: Option<(String, (usize, usize))>,
}

impl<I: AsFd, O: AsFd> Screen<I, O> {
    pub(super) fn new(input: I, output: O) -> io::Result<Self> {
        let saved = tcgetattr(&input)?;
        let mut raw = saved.clone();
        raw.make_raw();
        // Other writers may still print whole lines.
        raw.output_modes |= saved.output_modes & (OutputModes::OPOST | OutputModes::ONLCR);
        // What was typed before the question is shown is no answer to it.
        tcsetattr(&input, OptionalActions::Flush, &raw)?;
        let mut screen = Self {
            input,
            output,
            saved,
            above: Vec::new(),
            drawn: Vec::new(),
            cursor: (0, 0),
            drawing: None,
        };
        screen.write(PASTE_ON);
        Ok(screen)
    }

    /// The available input, without waiting.
    ///
    /// # Errors
    ///
    /// The terminal was closed.
    pub(super) fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut chunk = [0; CHUNK];
        while bytes.len() < READ && self.is_ready()? {
            match rustix::io::read(&self.input, &mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    }

    fn is_ready(&self) -> io::Result<bool> {
        let mut waited = [PollFd::new(&self.input, PollFlags::IN)];
        match poll(&mut waited, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Prints the preview above the question.
    pub(super) fn preview(&mut self, text: &str) {
        let width = self.size().0.saturating_sub(1).max(1);
        let lines = text.lines().map(|line| crate::wrap(&line.replace('\t', "    "), width, 0));
        let lines: Vec<String> =
            lines.flat_map(|it| it.split('\n').map(str::to_owned).collect::<Vec<_>>()).collect();
        self.above = lines.iter().map(|line| frame::columns(line)).collect();
        self.write(&(lines.join("\r\n") + "\r\n"));
    }

    /// Draws the question, unless the screen shows this state already.
    pub(super) fn draw(&mut self, prompt: &Prompt) {
        let size = self.size();
        let frame = frame::frame(prompt, size.0, size.1);
        let new = (drawing(&frame), size);
        if self.drawing.as_ref() == Some(&new) {
            return;
        }
        let text = self.cursor_to_start(false) + &new.0;
        self.write(&text);
        self.drawing = Some(new);
        self.drawn = frame.lines.iter().map(|line| frame::columns(&line.text)).collect();
        self.cursor = frame.cursor.unwrap_or_default();
    }

    /// Erases the question, and prints it with its answer, if there is one.
    pub(super) fn close(&mut self, answer: Option<(&Question, &str)>) {
        if let Some((question, answer)) = answer {
            let mut text = self.cursor_to_start(false);
            for line in frame::answered(question, answer, self.size().0) {
                text.extend([CLEAR_LINE, &line, "\r\n"]);
            }
            self.write(&(text + CLEAR_BELOW));
        } else if !self.drawn.is_empty() || !self.above.is_empty() {
            // A terminal that is cleared as a whole may keep what it showed in its history.
            let text = self.cursor_to_start(true) + CLEAR_LINE + "\x1b[B" + CLEAR_BELOW + "\x1b[A";
            self.write(&text);
        }
        self.above.clear();
        self.drawn.clear();
        self.cursor = (0, 0);
    }

    /// Columns and rows.
    fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(&self.output).ok();
        let or = |count: Option<u16>, default| match count {
            Some(count) if count > 0 => usize::from(count),
            _ => default,
        };
        (or(size.map(|size| size.ws_col), 80), or(size.map(|size| size.ws_row), 24))
    }

    /// The escape sequence that moves the cursor to the start of the question, or of the preview. A
    /// terminal that has become narrower has wrapped its lines.
    fn cursor_to_start(&self, all: bool) -> String {
        let columns = self.size().0;
        let rows = |width: &usize| width.div_ceil(columns).max(1);
        let (row, column) = self.cursor;
        let mut up = self.drawn.iter().take(row).map(rows).sum::<usize>() + column / columns;
        if all {
            up += self.above.iter().map(rows).sum::<usize>();
        }
        if up > 0 { format!("\r\x1b[{up}A") } else { "\r".to_owned() }
    }

    fn write(&mut self, text: &str) {
        let mut bytes = text.as_bytes();
        while !bytes.is_empty() {
            match rustix::io::write(&self.output, bytes) {
                Ok(count) if count > 0 => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                // The terminal was closed; `read` reports it.
                _ => return,
            }
        }
    }
}

impl<I: AsFd, O: AsFd> Drop for Screen<I, O> {
    fn drop(&mut self) {
        self.close(None);
        self.write(PASTE_OFF_CURSOR_ON);
        // A closed terminal needs no settings.
        let _ = tcsetattr(&self.input, OptionalActions::Now, &self.saved);
    }
}

/// The frame as text for a terminal, from where the cursor is.
fn drawing(frame: &Frame) -> String {
    let mut text = String::new();
    for (row, line) in frame.lines.iter().enumerate() {
        if row > 0 {
            text.push_str("\r\n");
        }
        let (on, off) = match line.tone {
            Tone::Plain => ("", ""),
            Tone::Strong => ("\x1b[1m", "\x1b[0m"),
            Tone::Dim => ("\x1b[2m", "\x1b[0m"),
        };
        text.extend([CLEAR_LINE, on, &line.text, off]);
    }
    text.push_str(CLEAR_BELOW);
    // Without a text field the cursor waits at the start of the question: a terminal that wraps its
    // lines anew moves it with them, for any number of them.
    let (row, column) = frame.cursor.unwrap_or_default();
    let up = frame.lines.len().saturating_sub(row + 1);
    if up > 0 {
        let _ = write!(text, "\x1b[{up}A");
    }
    text.push('\r');
    if column > 0 {
        let _ = write!(text, "\x1b[{column}C");
    }
    text.push_str(if frame.cursor.is_some() { "\x1b[?25h" } else { "\x1b[?25l" });
    text
}

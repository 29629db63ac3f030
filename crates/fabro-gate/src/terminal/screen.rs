//! The terminal while a question is open.

use std::fmt::Write as _;
use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, OutputModes, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::frame::{self, Frame, Tone};
use super::prompt::Prompt;
use crate::Question;

/// The most bytes that are read at once.
const CHUNK: usize = 4096;
/// The most bytes between two drawings.
const READ: usize = 64 * 1024;

/// What is behind the cursor on its line.
const CLEAR_LINE: &str = "\x1b[K";
/// What is behind the cursor, and all below.
const CLEAR_BELOW: &str = "\x1b[J";
const PASTE_ON: &str = "\x1b[?2004h";
const PASTE_OFF_CURSOR_ON: &str = "\x1b[?2004l\x1b[?25h";

/// A terminal that sends each key as it is pressed, and has a question drawn on it. Dropped, it is
/// as it was before.
pub(super) struct Screen<I: AsFd, O: AsFd> {
    input: I,
    output: O,
    saved: Termios,
    /// The widths of the lines above the question that belong to it.
    above: Vec<usize>,
    /// The widths of its own lines.
    drawn: Vec<usize>,
    /// Where the cursor stands in those.
    cursor: (usize, usize),
    /// What was drawn last, and for which size.
    shown: Option<(String, (usize, usize))>,
}

impl<I: AsFd, O: AsFd> Screen<I, O> {
    pub(super) fn new(input: I, output: O) -> io::Result<Self> {
        let saved = tcgetattr(&input)?;
        let mut raw = saved.clone();
        raw.make_raw();
        // Others may still write whole lines.
        raw.output_modes |= saved.output_modes & (OutputModes::OPOST | OutputModes::ONLCR);
        tcsetattr(&input, OptionalActions::Now, &raw)?;
        let (above, drawn) = (Vec::new(), Vec::new());
        let mut screen = Self { input, output, saved, above, drawn, cursor: (0, 0), shown: None };
        screen.write(PASTE_ON);
        Ok(screen)
    }

    /// What has been typed since. Nothing is waited for.
    ///
    /// # Errors
    ///
    /// The terminal is gone.
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

    /// Shows what a person should see before answering.
    pub(super) fn preview(&mut self, text: &str) {
        let lines = frame::wrap(text, self.size().0.saturating_sub(1).max(1));
        self.above = lines.iter().map(|line| frame::columns(line)).collect();
        self.write(&(lines.join("\r\n") + "\r\n"));
    }

    /// Shows the question as it is now.
    pub(super) fn draw(&mut self, prompt: &Prompt) {
        let size = self.size();
        let frame = frame::frame(prompt, size.0, size.1);
        let drawing = drawing(&frame);
        let new = (drawing, size);
        if self.shown.as_ref() == Some(&new) {
            return;
        }
        let text = self.back(false) + &new.0;
        self.write(&text);
        self.shown = Some(new);
        self.drawn = frame.lines.iter().map(|line| frame::columns(&line.text)).collect();
        let last = self.drawn.len().saturating_sub(1);
        let end = (last, self.drawn.last().copied().unwrap_or_default());
        self.cursor = frame.cursor.unwrap_or(end);
    }

    /// Takes the question off the screen, and leaves what was said there, if anything.
    pub(super) fn close(&mut self, said: Option<(&Question, &str)>) {
        if let Some((question, said)) = said {
            let mut text = self.back(false);
            for line in frame::over(question, said, self.size().0) {
                text.extend([&line, CLEAR_LINE, "\r\n"]);
            }
            self.write(&(text + CLEAR_BELOW));
        } else if !self.drawn.is_empty() || !self.above.is_empty() {
            // A terminal that is cleared as a whole may keep what it showed in its history.
            let text = self.back(true) + CLEAR_LINE + "\x1b[B" + CLEAR_BELOW + "\x1b[A";
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

    /// The way back to where the question begins, or all that belongs to it. A terminal that has
    /// become narrower has broken its lines.
    fn back(&self, all: bool) -> String {
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
                // A terminal that is gone shows nothing more; reading from it says so.
                _ => return,
            }
        }
    }
}

impl<I: AsFd, O: AsFd> Drop for Screen<I, O> {
    fn drop(&mut self) {
        self.close(None);
        self.write(PASTE_OFF_CURSOR_ON);
        // A terminal that is gone needs no settings.
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
        text.extend([on, &line.text, off, CLEAR_LINE]);
    }
    text.push_str(CLEAR_BELOW);
    match frame.cursor {
        None => text.push_str("\x1b[?25l"),
        Some((row, column)) => {
            let up = frame.lines.len().saturating_sub(row + 1);
            if up > 0 {
                let _ = write!(text, "\x1b[{up}A");
            }
            text.push('\r');
            if column > 0 {
                let _ = write!(text, "\x1b[{column}C");
            }
            text.push_str("\x1b[?25h");
        }
    }
    text
}

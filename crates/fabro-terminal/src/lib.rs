//! What a terminal shows: live progress of a run, gate prompts, tables, diagnostics in their source.
//!
//! [`line()`] renders one event of a run as a sentence, and [`Story`] a run while it is running: both
//! only return text. [`Progress`] prints it, with the running stages drawn below.
//! [`TerminalInterviewer`] asks the questions of gates. [`Table`] aligns rows, [`diagnostics`] shows
//! findings in their source, and [`Paint`] colors all of it, or nothing.
//!
//! ```
//! use fabro_events::{Entry, Event, EventBody};
//! use fabro_terminal::{Align, Paint, Table};
//! use fabro_types::RunId;
//!
//! let entry = Entry::new(EventBody::RunCanceled { reason: "not needed".into(), by_parent: None });
//! let event = Event { run_id: RunId::from_parts(0, 7), seq: 1, ts_ms: 0, entry };
//! assert_eq!(fabro_terminal::line(&event).text, "run canceled: not needed");
//!
//! let mut table = Table::new(&[("stage", Align::Left), ("visits", Align::Right)]);
//! table.row(["test".to_owned(), "12".to_owned()]);
//! let text = table.render(Paint::new(false), |_, cell| cell.to_owned());
//! assert_eq!(text, "stage  visits\ntest       12\n");
//! ```
//!
//! # Limits
//!
//! - Text of scripts, models and people is shown without control characters, and lines and cells are
//!   truncated: it can neither move the cursor nor fill the screen.
//! - Finished lines are plain text that ends with a line end, and are never drawn again: resizing a
//!   terminal loses none of them.
//! - Of the running stages eight are drawn, of the diagnostics of a file fifty.
//! - Events that a rewind took back are shown like any others; [`Progress::recall`] is given those
//!   that count.
//! - One gate question is shown at a time; others are queued. One whose future is dropped is erased.
//!   An answer has at most 100,000 characters, and type-ahead counts.

mod agent_line;
mod children;
pub mod diagnostics;
mod echo;
mod fan_out;
mod gate_prompt;
mod line;
mod live_area;
mod live_output;
mod paint;
mod progress;
mod stage_line;
mod story;
mod summary;
mod summary_table;
mod table;
mod text;

use std::io::{self, Write as _};

pub use fabro_types::{clean, one_line, tokens, took};
pub use gate_prompt::TerminalInterviewer;
pub use line::{Line, line, why};
pub use live_area::clear_leftovers;
pub use live_output::StageDirs;
pub use paint::{Mark, Paint, clean_painted};
pub use progress::{Mode, Progress};
pub use stage_line::{note_text, story_text};
pub use story::{RunningStage, StageLine, StagePlace, Story, StoryLine};
pub use summary::{Summary, SummaryRow};
pub use summary_table::{paint_run, paint_stage, summary_text};
pub use table::{Align, Table};
pub use text::{cut, wrap};

/// Writes to stderr, and ignores a closed one.
pub fn stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes to stdout, all of it or an error.
pub fn stdout(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests;

//! What a run shows while it goes on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fabro_events::{Event, EventBody, EventSink};
use fabro_types::{RunId, RunStatus};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::agent_line::tokens;
use crate::line::{Line, Mark};
use crate::paint::Paint;
use crate::stage_line::{note_text, titled, told_text};
use crate::story::{AtWork, StageLine, Story, Told};
use crate::summary_table::summary_text;
use crate::text::took;
use fabro_types::one_line;

/// How often what is at work is drawn again.
const TICK: Duration = Duration::from_millis(80);

/// How many stages at work are shown; a fan-out may have hundreds.
const SHOWN: usize = 8;

/// The longest warning, in characters.
const WARNING: usize = 400;

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// How a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Events as JSON, one a line, to stdout.
    Json,
    /// Stages at work with a spinner, finished ones above them, to stderr.
    Live,
    /// A line a finished stage, to stderr.
    Plain,
    /// Nothing.
    Quiet,
}

/// Shows a run. Give it to the driver as its sink, and call [`Progress::finish`] at the end.
pub struct Progress {
    shared: Arc<Shared>,
    ticker: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    mode: Mode,
    paint: Paint,
    now_ms: fn() -> i64,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// The run that is shown; others are its sub-workflows.
    run: Option<RunId>,
    story: Story,
    children: BTreeMap<RunId, Child>,
    /// Finished lines that are not printed yet: the ticker prints many at once, and nobody prints
    /// while a question is open.
    lines: Vec<String>,
    /// How many questions are open.
    suspended: usize,
    /// The reader of stdout has left.
    closed: bool,
    done: bool,
    first_ms: Option<i64>,
    last_ms: i64,
    end: Option<RunStatus>,
    screen: Option<Screen>,
}

/// A sub-workflow at work.
struct Child {
    story: Story,
    /// How much deeper than the run it stands.
    depth: usize,
}

/// The part of the terminal that is drawn again and again.
struct Screen {
    multi: MultiProgress,
    bars: Vec<ProgressBar>,
    tick: usize,
}

impl Progress {
    /// Shows a run in this way. `now_ms` tells the milliseconds since 1970.
    pub fn new(mode: Mode, paint: Paint, now_ms: fn() -> i64) -> Arc<Self> {
        let state = Mutex::default();
        let wake = Condvar::new();
        let shared = Arc::new(Shared { mode, paint, now_ms, state, wake });
        Arc::new(Self { shared, ticker: Mutex::default() })
    }

    /// Takes account of the log so far, without what a rewind took back: what earlier drivers have
    /// shown is not shown again, and the creation of a run that no driver has seen yet is.
    pub fn recall(&self, events: &[&Event]) {
        self.shared.lock().run = events.first().map(|event| event.run_id);
        let was_driven = |event: &&Event| matches!(event.entry.body, EventBody::RunStarted {});
        if !events.iter().any(was_driven) {
            for event in events {
                self.event(event);
            }
        } else if self.shared.mode != Mode::Json {
            let mut state = self.shared.lock();
            for event in events {
                state.story.tell(event);
            }
        }
    }

    /// The same for a sub-workflow that is not over; after its parent's. What it waits for is drawn
    /// once the run goes on.
    pub fn recall_child(&self, events: &[Event]) {
        let mut state = self.shared.lock();
        if matches!(self.shared.mode, Mode::Live | Mode::Plain) {
            let shown = state.lines.len();
            for event in events {
                state.tell_child(event, self.shared.paint);
            }
            state.lines.truncate(shown);
        }
    }

    /// Says something that no event of the run says.
    pub fn warn(&self, text: &str) {
        let text = one_line(text, WARNING);
        let line = Line { depth: 0, mark: Mark::Odd, text };
        let text = note_text(&line, self.shared.paint);
        match self.shared.mode {
            Mode::Quiet => {}
            Mode::Json => crate::stderr(&format!("{text}\n")),
            Mode::Live | Mode::Plain => {
                let mut state = self.shared.lock();
                state.lines.push(text);
                if self.shared.mode == Mode::Plain && state.suspended == 0 {
                    state.print();
                }
            }
        }
    }

    /// Clears the spinners and keeps lines back until the guard is dropped; for the time of a
    /// question.
    pub fn suspend(self: &Arc<Self>) -> Suspended {
        let mut state = self.shared.lock();
        state.print();
        if let Some(screen) = &mut state.screen {
            screen.clear();
        }
        state.suspended += 1;
        Suspended { progress: Arc::clone(self) }
    }

    /// Shows what is left to show, and the summary. Only the first call does anything.
    pub fn finish(&self) {
        let mut state = self.shared.lock();
        if std::mem::replace(&mut state.done, true) {
            return;
        }
        drop(state);
        self.shared.wake.notify_all();
        let ticker = self.ticker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ticker) = ticker {
            // A ticker that panicked has nothing left to clear.
            let _ = ticker.join();
        }
        let mut state = self.shared.lock();
        if let Some(screen) = &mut state.screen {
            screen.clear();
        }
        state.print();
        if matches!(self.shared.mode, Mode::Live | Mode::Plain) {
            let status = state.end.unwrap_or(RunStatus::Interrupted);
            let elapsed = state.last_ms - state.first_ms.unwrap_or(state.last_ms);
            let elapsed = u64::try_from(elapsed).unwrap_or_default();
            let table = summary_text(state.story.summary(), status, elapsed, self.shared.paint);
            crate::stderr(&table);
        }
    }

    /// Starts the thread that draws, once.
    fn start_ticker(&self) {
        let mut ticker = self.ticker.lock().unwrap_or_else(PoisonError::into_inner);
        if ticker.is_none() {
            let shared = Arc::clone(&self.shared);
            let spawned = std::thread::Builder::new().name("progress".to_owned());
            // Without a thread the lines come at the end.
            *ticker = spawned.spawn(move || shared.tick()).ok();
        }
    }
}

impl EventSink for Progress {
    fn event(&self, event: &Event) {
        let mut state = self.shared.lock();
        if state.done {
            return;
        }
        let is_child = *state.run.get_or_insert(event.run_id) != event.run_id;
        match self.shared.mode {
            Mode::Json if is_child => {}
            Mode::Json => state.print_json(event),
            Mode::Quiet => {}
            Mode::Live | Mode::Plain => {
                if is_child {
                    state.tell_child(event, self.shared.paint);
                } else {
                    state.tell(event, self.shared.mode, self.shared.paint);
                }
                if self.shared.mode == Mode::Plain && state.suspended == 0 {
                    state.print();
                }
                drop(state);
                if self.shared.mode == Mode::Live {
                    self.start_ticker();
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.lock().done = true;
        self.shared.wake.notify_all();
    }
}

/// Keeps the terminal free for somebody else.
pub struct Suspended {
    progress: Arc<Progress>,
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let mut state = self.progress.shared.lock();
        state.suspended -= 1;
        if state.suspended == 0 && self.progress.shared.mode == Mode::Plain {
            state.print();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws until the end.
    fn tick(&self) {
        let mut state = self.lock();
        while !state.done {
            if state.suspended == 0 {
                state.draw((self.now_ms)(), self.paint);
            }
            let waited = self.wake.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    fn tell(&mut self, event: &Event, mode: Mode, paint: Paint) {
        self.first_ms.get_or_insert(event.ts_ms);
        self.last_ms = event.ts_ms;
        let end = match &event.entry.body {
            EventBody::RunCompleted { .. } => Some(RunStatus::Succeeded),
            EventBody::RunFailed { .. } => Some(RunStatus::Failed),
            EventBody::RunCanceled { .. } => Some(RunStatus::Canceled),
            EventBody::RunPaused { .. } => Some(RunStatus::Paused),
            _ => None,
        };
        let asked = matches!(event.entry.body, EventBody::GateAsked { .. });
        // Where the person sits here, the question is about to be put.
        let is_put = asked && mode == Mode::Live && io::stdin().is_terminal();
        let told = self.story.tell(event);
        let count = told.len();
        for (at, told) in told.into_iter().enumerate() {
            // The end of the run is said by the summary, and the question by the prompt.
            if (end.is_some() || is_put) && at + 1 == count {
                break;
            }
            self.lines.push(told_text(&told, paint));
        }
        self.end = end.or(self.end);
    }

    /// The same for an event of a sub-workflow, whose own beginning and end its stage tells.
    fn tell_child(&mut self, event: &Event, paint: Paint) {
        let parent = match &event.entry.body {
            EventBody::RunCreated(created) => created.parent.as_ref().map(|parent| parent.run_id),
            _ => None,
        };
        let above = parent.and_then(|run| Some(self.children.get(&run)?.depth)).unwrap_or_default();
        let child = self
            .children
            .entry(event.run_id)
            .or_insert_with(|| Child { story: Story::default(), depth: above + 1 });
        let depth = child.depth;
        let told = child.story.tell(event);
        let (is_over, is_of_run) = match &event.entry.body {
            EventBody::RunCompleted { .. }
            | EventBody::RunFailed { .. }
            | EventBody::RunCanceled { .. } => (true, true),
            EventBody::RunPaused { .. } | EventBody::RunResumed { .. } => (false, true),
            _ => (false, false),
        };
        for told in told {
            match told {
                Told::Note(_) if is_of_run => {}
                Told::Note(line) => {
                    let line = Line { depth: line.depth + depth, ..line };
                    self.lines.push(told_text(&Told::Note(line), paint));
                }
                Told::Stage(line) => {
                    let line = StageLine { depth: line.depth + depth, ..line };
                    self.lines.push(told_text(&Told::Stage(line), paint));
                }
            }
        }
        if is_over {
            self.children.remove(&event.run_id);
        }
    }

    /// Prints the lines that are due, above the spinners if there are any.
    fn print(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        let text = std::mem::take(&mut self.lines).join("\n");
        match &self.screen {
            Some(screen) => {
                // A terminal that is gone shows nothing more, and that is no reason to stop the run.
                let _ = screen.multi.println(text);
            }
            None => crate::stderr(&format!("{text}\n")),
        }
    }

    fn print_json(&mut self, event: &Event) {
        if !self.closed {
            let line = event.to_json_line();
            // The run goes on when nobody reads its events any more.
            self.closed = writeln!(io::stdout().lock(), "{line}").is_err();
        }
    }

    fn draw(&mut self, now_ms: i64, paint: Paint) {
        let screen = self.screen.get_or_insert_with(Screen::new);
        screen.tick += 1;
        let frame = FRAMES[screen.tick % FRAMES.len()];

        let of_children = self
            .children
            .values()
            .flat_map(|child| child.story.at_work().map(|stage| (stage, child.depth)));
        let at_work: Vec<(&AtWork, usize)> =
            self.story.at_work().map(|stage| (stage, 0)).chain(of_children).collect();
        let shown = at_work.iter().take(SHOWN);
        let mut wanted: Vec<String> =
            shown.map(|(stage, depth)| working(stage, *depth, frame, now_ms, paint)).collect();
        if at_work.len() > SHOWN {
            wanted.push(paint.dim(&format!("  … and {} more", at_work.len() - SHOWN)));
        }
        screen.fit(wanted.len());
        self.print();
        if let Some(screen) = &self.screen {
            for (bar, text) in screen.bars.iter().zip(wanted) {
                bar.set_message(text);
                bar.tick();
            }
        }
    }
}

impl Screen {
    fn new() -> Self {
        Self { multi: MultiProgress::new(), bars: Vec::new(), tick: 0 }
    }

    /// Makes room for so many lines.
    fn fit(&mut self, count: usize) {
        while self.bars.len() > count {
            if let Some(bar) = self.bars.pop() {
                bar.finish_and_clear();
                self.multi.remove(&bar);
            }
        }
        while self.bars.len() < count {
            let bar = ProgressBar::no_length();
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            self.bars.push(self.multi.add(bar));
        }
    }

    fn clear(&mut self) {
        self.fit(0);
        // As above: there is nobody to tell.
        let _ = self.multi.clear();
    }
}

/// The line of a stage at work, so much deeper than its run stands.
fn working(stage: &AtWork, deeper: usize, frame: char, now_ms: i64, paint: Paint) -> String {
    let since = u64::try_from(now_ms - stage.since_ms).unwrap_or_default();
    let spinner = if stage.asks { paint.odd("?") } else { paint.hint(&frame.to_string()) };
    let attempt =
        if stage.attempt > 1 { format!("  attempt {}", stage.attempt) } else { String::new() };
    let asks = if stage.asks { "  waits for an answer" } else { "" };
    format!(
        "{}{spinner} {}  {}{}{}",
        "  ".repeat(stage.depth + deeper),
        titled(&stage.name, stage.label.as_deref(), paint),
        paint.dim(&took(since)),
        paint.odd(&format!("{attempt}{asks}")),
        activity(stage, paint),
    )
}

/// What an agent is doing, and how much it has done.
fn activity(stage: &AtWork, paint: Paint) -> String {
    let mut text = String::new();
    if let Some(doing) = stage.doing() {
        let _ = write!(text, " · {doing}");
    }
    let mut done = String::new();
    if stage.turns > 0 {
        let _ =
            write!(done, " · {} {}", stage.turns, if stage.turns == 1 { "turn" } else { "turns" });
    }
    if stage.tokens > 0 {
        let _ = write!(done, " · {} tokens", tokens(stage.tokens));
    }
    text + &paint.dim(&done)
}

#[cfg(test)]
mod tests;

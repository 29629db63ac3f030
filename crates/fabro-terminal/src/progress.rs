//! The output of a run while it is running.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fabro_events::{Event, EventBody, EventSink, ParentStage, PauseReason};
use fabro_types::{RunId, RunStatus, escaped_json, one_line, tokens, took};
use rustix::process::{Signal, getpid, kill_process};

use crate::children::{Child, add_running, is_run_by};
use crate::echo::Echo;
use crate::line::{Line, SubWorkflowLabel};
use crate::live_area::{LiveArea, terminal_size};
use crate::live_output::{STAGES, StageDirs, last_lines};
use crate::paint::{Mark, Paint, clean_painted};
use crate::stage_line::{note_text, story_text, titled};
use crate::story::{RunningStage, Story, StoryLine};
use crate::summary_table::summary_text;
use crate::text::counted;

/// The interval at which the running stages are drawn again.
const TICK: Duration = Duration::from_millis(80);

/// How many running stages are shown; a fan-out may have hundreds.
const SHOWN: usize = 8;

/// The longest warning, in characters.
const WARNING: usize = 400;

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// How a run is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Events as JSON, one a line, to stdout.
    Json,
    /// Running stages with a spinner, finished ones above them, to stderr.
    Live,
    /// A line for each finished stage, to stderr.
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
    started: Instant,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// The run that is shown; others are its sub-workflows.
    run: Option<RunId>,
    story: Story,
    children: BTreeMap<RunId, Child>,
    /// Lines that are not printed yet: the ticker prints many at once, and none are printed while a
    /// question is open.
    lines: Vec<String>,
    /// How many questions are open.
    suspended: usize,
    /// Stdout takes no more events: its reader has closed the pipe, or there was an error.
    closed: bool,
    /// Why events could not be written, unless nothing reads them.
    unwritten: Option<io::Error>,
    done: bool,
    end: Option<RunStatus>,
    /// Why the run is paused, when the command line does not say it.
    paused: Option<String>,
    area: LiveArea,
    echo: Echo,
    /// Where the output of running stages is; it is not shown without.
    dirs: Option<StageDirs>,
    tick: usize,
}

impl Progress {
    /// Shows a run in this mode. `now_ms` returns the milliseconds since 1970.
    pub fn new(mode: Mode, paint: Paint, now_ms: fn() -> i64) -> Arc<Self> {
        let state = Mutex::default();
        let wake = Condvar::new();
        let started = Instant::now();
        let shared = Arc::new(Shared { mode, paint, now_ms, started, state, wake });
        Arc::new(Self { shared, ticker: Mutex::default() })
    }

    /// Shows this line before the first event, and not at all without one.
    pub fn announce(&self, line: String) {
        if matches!(self.shared.mode, Mode::Live | Mode::Plain) {
            self.shared.lock().lines.push(line);
        }
    }

    /// Writes a text to stderr at once, in every mode, in the place of the running stages.
    pub fn interject(&self, text: &str) {
        let mut state = self.shared.lock();
        let cleared = state.area.draw(&[], &[], terminal_size());
        crate::stderr(&format!("{cleared}{text}"));
    }

    /// Stops the process, as Ctrl-Z asks for: the running stages are cleared and the terminal is as it was
    /// before. Once the process continues, they are drawn again. A question that is open stays as it is.
    ///
    /// # Errors
    /// The system does not stop the process.
    pub fn stop_process(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        if state.suspended == 0 {
            crate::stderr(&state.area.draw(&[], &[], terminal_size()));
            state.echo.restore();
        }
        // No line is drawn before that, for the state is locked.
        Ok(kill_process(getpid(), Signal::STOP)?)
    }

    /// Shows the last lines of what running stages write below them, in [`Mode::Live`]: `dirs` tells
    /// where their files are.
    pub fn show_output(&self, dirs: StageDirs) {
        self.shared.lock().dirs = Some(dirs);
    }

    /// Warns when one of these nodes of the run is entered for the 10th, 20th, 40th … time: nothing limits
    /// how often that happens.
    pub fn watch_visits(&self, unlimited: BTreeSet<Arc<str>>) {
        self.shared.lock().story.unlimited = unlimited;
    }

    /// Reads the log so far, without what a rewind took back: what earlier drivers have shown is not
    /// shown again; the creation of a run that was never driven is.
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

    /// The same for a running sub-workflow; after its parent's.
    pub fn recall_child(&self, events: &[Event]) {
        let mut state = self.shared.lock();
        if matches!(self.shared.mode, Mode::Live | Mode::Plain) {
            let shown = state.lines.len();
            for event in events {
                state.tell_child(event, self.shared.mode, self.shared.paint);
            }
            state.lines.truncate(shown);
        }
    }

    /// Shows a warning that is not an event of the run.
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

    /// Clears the spinners and holds lines back until the guard is dropped, while a question is open.
    pub(crate) fn suspend(self: &Arc<Self>) -> Suspended {
        let mut state = self.shared.lock();
        state.print();
        state.suspended += 1;
        Suspended { progress: Arc::clone(self) }
    }

    /// Sets the total model usage of the run. Without it, the last line adds up the finished stages.
    pub fn set_spent(&self, tokens: u64, cost_usd: f64) {
        self.shared.lock().story.set_spent(tokens, cost_usd);
    }

    /// Why events are missing in what was printed as JSON; a reader that has closed the pipe is no reason.
    pub fn take_write_error(&self) -> Option<io::Error> {
        self.shared.lock().unwritten.take()
    }

    /// Shows the remaining lines, and the summary. Only the first call has an effect.
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
        state.print();
        state.echo.restore();
        if matches!(self.shared.mode, Mode::Live | Mode::Plain) {
            let status = state.end.unwrap_or(RunStatus::Interrupted);
            let elapsed = self.shared.started.elapsed().as_millis();
            let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
            let table = summary_text(state.story.summary(), status, elapsed, self.shared.paint);
            let paused = state.paused.iter().map(|why| format!("paused: {why}\n"));
            crate::stderr(&clean_painted(&paused.fold(table, |text, why| text + &why)));
        }
    }

    /// Starts the thread that draws, once.
    fn start_ticker(&self) {
        let mut ticker = self.ticker.lock().unwrap_or_else(PoisonError::into_inner);
        if ticker.is_none() {
            let shared = Arc::clone(&self.shared);
            let spawned = std::thread::Builder::new().name("progress".to_owned());
            // Without a thread the lines are printed at the end.
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
                    state.tell_child(event, self.shared.mode, self.shared.paint);
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
        let mut state = self.shared.lock();
        state.done = true;
        state.echo.restore();
        drop(state);
        self.shared.wake.notify_all();
    }
}

/// Holds lines back as long as it lives.
pub(crate) struct Suspended {
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
                state.echo.turn_off();
                state.draw((self.now_ms)(), self.paint);
            }
            let waited = self.wake.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    fn tell(&mut self, event: &Event, mode: Mode, paint: Paint) {
        let end = match &event.entry.body {
            EventBody::RunCompleted { status, .. } => Some(RunStatus::of_completed(*status)),
            EventBody::RunFailed { .. } => Some(RunStatus::Failed),
            EventBody::RunCanceled { .. } => Some(RunStatus::Canceled),
            EventBody::RunPaused { .. } => Some(RunStatus::Paused),
            _ => None,
        };
        let mut lines = self.story.tell(event);
        // The summary shows the end of the run, and the prompt the question.
        if end.is_some() || has_prompt(event, mode) {
            lines.pop();
        }
        self.lines.extend(lines.iter().map(|line| story_text(line, paint)));
        self.end = end.or(self.end);
        // A driver that waits for a model resumes the run itself.
        if matches!(event.entry.body, EventBody::RunResumed { .. }) {
            self.end = None;
            self.paused = None;
        }
        if let EventBody::RunPaused { reason: PauseReason::Budget, message, .. } = &event.entry.body
        {
            let why = message.split_once("; `fabro").map_or(&**message, |(text, _)| text);
            self.paused = Some(one_line(why, WARNING));
        }
    }

    /// The same for an event of a sub-workflow, whose start and end are those of its stage.
    fn tell_child(&mut self, event: &Event, mode: Mode, paint: Paint) {
        let parent = match &event.entry.body {
            EventBody::RunCreated(created) => created.parent.clone(),
            _ => None,
        };
        let above = parent.as_ref().map_or(0, |parent| self.depth_of(parent));
        let sub_workflow =
            parent.as_ref().map(|parent| self.sub_workflow_label(parent)).unwrap_or_default();
        let child = self.children.entry(event.run_id);
        let child =
            child.or_insert_with(|| Child { story: Story::below(above + 1, sub_workflow), parent });
        let mut lines = child.story.tell(event);
        if has_prompt(event, mode) {
            lines.pop();
        }
        let (has_ended, is_of_run) = match &event.entry.body {
            EventBody::RunCompleted { .. }
            | EventBody::RunFailed { .. }
            | EventBody::RunCanceled { .. } => (true, true),
            EventBody::RunCreated(_)
            | EventBody::RunPaused { .. }
            | EventBody::RunResumed { .. } => (false, true),
            _ => (false, false),
        };
        let is_shown = |line: &&StoryLine| !is_of_run || matches!(line, StoryLine::Stage(_));
        self.lines.extend(lines.iter().filter(is_shown).map(|line| story_text(line, paint)));
        if has_ended {
            self.children.remove(&event.run_id);
        }
    }

    /// How deep the stage is that runs a sub-workflow.
    fn depth_of(&self, parent: &ParentStage) -> usize {
        let story = self.children.get(&parent.run_id).map_or(&self.story, |child| &child.story);
        let mut running = story.running_branches();
        let stage = running.find(|(branch, stage)| is_run_by(parent, branch, stage));
        stage.map_or(story.depth(), |(_, stage)| stage.depth)
    }

    /// The label of the sub-workflow that a stage runs.
    fn sub_workflow_label(&self, parent: &ParentStage) -> SubWorkflowLabel {
        let story = self.children.get(&parent.run_id).map_or(&self.story, |child| &child.story);
        story.sub_workflow().below(parent)
    }

    /// All running stages, those of a sub-workflow below the stage that runs it.
    fn running(&self) -> Vec<&RunningStage> {
        let mut shown = Vec::new();
        let mut left: BTreeMap<&RunId, &Child> = self.children.iter().collect();
        add_running(&self.story, &mut left, &mut shown);
        // Those whose stage is not known.
        while let Some((_, child)) = left.pop_first() {
            add_running(&child.story, &mut left, &mut shown);
        }
        shown
    }

    /// Prints the lines that are due, without running stages below them.
    fn print(&mut self) {
        self.print_above(&[]);
    }

    /// Prints the lines that are due, and the running stages below them.
    fn print_above(&mut self, area: &[String]) {
        let lines = std::mem::take(&mut self.lines);
        let safe = |line: &String| clean_painted(line).into_owned();
        let lines: Vec<String> = lines.iter().map(safe).collect();
        let area: Vec<String> = area.iter().map(safe).collect();
        let text = self.area.draw(&lines, &area, terminal_size());
        if !text.is_empty() {
            crate::stderr(&text);
        }
    }

    fn print_json(&mut self, event: &Event) {
        if !self.closed {
            let line = escaped_json(event.to_json_line());
            // The run continues when its events are no longer read.
            if let Err(error) = writeln!(io::stdout().lock(), "{line}") {
                self.closed = true;
                self.unwritten = Some(error).filter(|it| it.kind() != io::ErrorKind::BrokenPipe);
            }
        }
    }

    fn draw(&mut self, now_ms: i64, paint: Paint) {
        self.tick += 1;
        let frame = FRAMES[self.tick % FRAMES.len()];
        let area = self.area_text(frame, now_ms, paint);
        self.print_above(&area);
    }

    /// The lines below the finished ones.
    fn area_text(&self, frame: char, now_ms: i64, paint: Paint) -> Vec<String> {
        let running = self.running();
        let shown = running.iter().take(SHOWN);
        let dirs = self.dirs.as_ref().filter(|_| running.len() <= STAGES);
        let mut lines = Vec::new();
        for stage in shown {
            lines.push(stage_text(stage, frame, now_ms, paint));
            let output = dirs.map(|dirs| last_lines(stage, dirs)).unwrap_or_default();
            let indent = "  ".repeat(stage.depth + 1);
            lines.extend(output.iter().map(|line| format!("{indent}{}", paint.dim(line))));
        }
        if running.len() > SHOWN {
            lines.push(paint.dim(&format!("  … and {} more", running.len() - SHOWN)));
        }
        lines
    }
}

/// Whether the event is a question that a prompt shows.
fn has_prompt(event: &Event, mode: Mode) -> bool {
    let asks = matches!(event.entry.body, EventBody::GateAsked { .. });
    asks && mode == Mode::Live && io::stdin().is_terminal()
}

/// The line of a running stage.
fn stage_text(stage: &RunningStage, frame: char, now_ms: i64, paint: Paint) -> String {
    let since = u64::try_from(now_ms - stage.since_ms).unwrap_or_default();
    let spinner = if stage.asks { paint.odd("?") } else { paint.hint(&frame.to_string()) };
    let attempt =
        if stage.attempt > 1 { format!("  attempt {}", stage.attempt) } else { String::new() };
    let asks = if stage.asks { "  waits for an answer" } else { "" };
    let activity = stage.activity().map(|activity| format!(" · {activity}")).unwrap_or_default();
    let mut usage = String::new();
    if stage.turns > 0 {
        let _ = write!(usage, " · {}", counted(stage.turns, "turn"));
    }
    if stage.tokens > 0 {
        let _ = write!(usage, " · {} tokens", tokens(stage.tokens));
    }
    format!(
        "{}{spinner} {}  {}{}{activity}{}",
        "  ".repeat(stage.depth),
        titled(&stage.name, stage.label.as_deref(), paint),
        paint.dim(&took(since)),
        paint.odd(&format!("{attempt}{asks}")),
        paint.dim(&usage),
    )
}

#[cfg(test)]
mod tests;

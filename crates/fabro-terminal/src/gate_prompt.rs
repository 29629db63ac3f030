//! Gate questions at the terminal: [`TerminalInterviewer`].

use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use fabro_gate::{AskError, GateAnswer, Interviewer, Question, Reply, shown_lines};
use fabro_types::clean;
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::Mutex;
use tokio::time::Instant;

use keys::{Key, Keys};
use prompt::{Input, OptionList, Prompt, Step};
use screen::Screen;

use crate::progress::Progress;

mod frame;
mod keys;
mod prompt;
mod screen;

/// The polling interval of the keyboard: too short for a person to notice, and cheap.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The time a program has to shut down after Ctrl-C before the question fails as interrupted.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// An Enter this short after the one that answered a question is the same press or a held key, and does
/// not answer the next question.
const BOUNCE: Duration = Duration::from_millis(250);

/// The lock on the terminal of this process: one question is shown at a time. It holds when the last
/// one was answered.
static TERMINAL: Mutex<Option<Instant>> = Mutex::const_new(None);

/// The number of questions that wait for the terminal.
static QUEUED: AtomicUsize = AtomicUsize::new(0);

/// A question that waits for the terminal.
struct Queued;

impl Queued {
    fn new() -> Self {
        QUEUED.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        QUEUED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Asks at the terminal, on standard error. The source is `terminal`.
///
/// Options are chosen with the arrow keys, or by typing a key, a number or the beginning of the
/// label, and confirmed with Enter; where several can be chosen, the space bar marks them. Where
/// free text is accepted, the answer is typed, and refused until it matches. Where standard input or
/// standard error is not a terminal, the reply is [`Reply::Unavailable`].
///
/// The questions of a process are queued and shown one at a time. One whose future is dropped, shown
/// or queued, disappears. What was typed before a question is shown is dropped: no key answers a
/// question that was not read.
///
/// Escape leaves a question unanswered. Ctrl-C sends SIGINT to the process, after the terminal is
/// restored. Two seconds later the question fails with [`AskError::Interrupted`].
#[derive(Clone, Default)]
pub struct TerminalInterviewer {
    progress: Option<Arc<Progress>>,
}

impl TerminalInterviewer {
    /// Asks at the terminal of this process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the output of this progress while a question is shown.
    #[must_use]
    pub fn suspending(self, progress: Arc<Progress>) -> Self {
        Self { progress: Some(progress) }
    }
}

impl fmt::Debug for TerminalInterviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TerminalInterviewer").finish_non_exhaustive()
    }
}

#[async_trait]
impl Interviewer for TerminalInterviewer {
    async fn ask(&self, question: &Question) -> Result<Reply, AskError> {
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return Ok(Reply::Unavailable);
        }
        let queued = Queued::new();
        let mut answered = TERMINAL.lock().await;
        drop(queued);
        let _suspended = self.progress.as_ref().map(Progress::suspend);
        let step = {
            let screen = Screen::new(std::io::stdin(), std::io::stderr()).map_err(failed)?;
            prompt_until_answered(screen, &mut answered, printable(question))
                .await
                .map_err(failed)?
        };
        match step {
            Step::Answered(text) => Ok(Reply::Answer { text, source: "terminal" }),
            Step::Interrupted => {
                kill_process(getpid(), Signal::INT).map_err(failed)?;
                tokio::time::sleep(SHUTDOWN_GRACE).await;
                Err(AskError::Interrupted)
            }
            Step::Postponed | Step::Unfinished => Err(AskError::Interrupted),
        }
    }
}

/// Shows the question until a key ends it. When the future is dropped, the question is erased.
/// `answered` is when the last question was.
async fn prompt_until_answered<I: std::os::fd::AsFd, O: std::os::fd::AsFd>(
    mut screen: Screen<I, O>,
    answered: &mut Option<Instant>,
    question: Question,
) -> std::io::Result<Step> {
    let above = text_above(&question);
    if !above.is_empty() {
        screen.preview(above.trim_end());
    }
    let deadline = question.deadline.map(Instant::from_std);
    let mut prompt = Prompt::new(question);
    let mut keys = Keys::default();
    let mut is_idle = false;
    let mut is_first = true;
    loop {
        while let Some(key) = keys.next(is_idle) {
            let now = Instant::now();
            if is_first && key == Key::Enter && answered.is_some_and(|at| now < at + BOUNCE) {
                *answered = Some(now);
                continue;
            }
            is_first = false;
            let step = prompt.key(key);
            if step != Step::Unfinished {
                let result = result_text(&prompt, &step);
                *answered = Some(now);
                screen.close(result.as_deref().map(|result| (&prompt.question, result)));
                return Ok(step);
            }
        }
        prompt.queued = QUEUED.load(Ordering::Relaxed);
        prompt.time_left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        screen.draw(&prompt);
        tokio::time::sleep(POLL_INTERVAL).await;
        let bytes = screen.read()?;
        is_idle = bytes.is_empty();
        keys.push(&bytes);
    }
}

/// How many lines of a text are shown above a question.
const SHOWN_LINES: usize = 30;

/// The text above a question: the branch and the element that it asks about, the failures before it, and what the gate
/// shows.
fn text_above(question: &Question) -> String {
    let Question { within, branch, item, failures, show, run, .. } = question;
    let place = [within.as_deref(), branch.as_deref(), item.as_deref()];
    let place = place.into_iter().flatten().collect::<Vec<_>>().join(" · ");
    let place = Some(place).filter(|place| !place.is_empty()).into_iter();
    let mut lines: Vec<String> = place.chain(failures.iter().map(|it| format!("✗ {it}"))).collect();
    for shown in show {
        lines.extend(shown_lines(shown, *run, SHOWN_LINES));
    }
    lines.join("\n")
}

/// The text that stays on the screen beside the question.
fn result_text(prompt: &Prompt, step: &Step) -> Option<String> {
    let options = &prompt.question.options;
    let label = |index: &usize| options.get(*index).map(|option| option.label.clone());
    match (step, &prompt.input) {
        (Step::Answered(text), Input::Text { .. }) => Some(match prompt.question.read(text) {
            Ok(GateAnswer::Option(index)) => label(&index).unwrap_or_default(),
            _ => text.trim().to_owned(),
        }),
        (Step::Answered(_), Input::List(OptionList { marked: Some(marked), .. })) => {
            Some(marked.iter().filter_map(label).collect::<Vec<_>>().join(", "))
        }
        (Step::Answered(_), Input::List(OptionList { at, .. })) => label(at),
        (Step::Postponed, _) => Some("left for later".to_owned()),
        (Step::Unfinished | Step::Interrupted, _) => None,
    }
}

fn failed(error: impl fmt::Display) -> AskError {
    AskError::Terminal { reason: error.to_string() }
}

/// The question without control characters: its strings can come from a model.
fn printable(question: &Question) -> Question {
    let mut question = question.clone();
    question.text = without_controls(&question.text);
    question.item = question.item.as_deref().map(without_controls);
    for failure in &mut question.failures {
        *failure = without_controls(failure);
    }
    for shown in &mut question.show {
        shown.text = without_controls(&shown.text);
    }
    for option in question.options.iter_mut().chain(&mut question.text_option) {
        option.label = without_controls(&option.label);
        option.unavailable = option.unavailable.as_deref().map(without_controls);
    }
    question
}

fn without_controls(text: &str) -> String {
    let text: String =
        text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    clean(&text).into_owned()
}

#[cfg(test)]
mod tests;

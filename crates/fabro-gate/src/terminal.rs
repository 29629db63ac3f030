use std::any::Any;
use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::Mutex;

use crate::{AskError, Interviewer, Question, Reply};
use keys::Keys;
use prompt::{Input, Prompt, Step};
use screen::Screen;

mod frame;
mod keys;
mod prompt;
mod screen;

/// How often the keyboard is looked at: not noticed by a person, nor by a processor.
const TICK: Duration = Duration::from_millis(20);

/// How long a program has to call the question off after Ctrl-C.
const GRACE: Duration = Duration::from_secs(2);

/// The terminal of this process, which one question at a time has; with what was typed beyond the
/// last answer.
static TURN: Mutex<Keys> = Mutex::const_new(Keys::new());

/// Asks at the terminal, on standard error. The source is `terminal`.
///
/// Options are chosen with the arrow keys, or by typing a key, a number or the beginning of the
/// label, and confirmed with Enter; where several can be chosen, the space bar marks them. Where
/// free text is taken, all is typed, and refused until it means something. Where standard input or
/// standard error is no terminal, nobody is there to answer.
///
/// Questions of a process come one at a time, in the order they were asked. One whose future is
/// dropped, open or not, disappears without taking a key.
///
/// Escape leaves a question unanswered. Ctrl-C does what it does elsewhere: the process gets SIGINT,
/// with the terminal already as it was. A program that is still asking two seconds later is told
/// that the question was interrupted.
#[derive(Clone, Default)]
pub struct TerminalInterviewer {
    free: Option<Arc<dyn Fn() -> Box<dyn Any + Send> + Send + Sync>>,
}

impl TerminalInterviewer {
    /// Asks at the terminal of this process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `free` when the turn of a question comes, to keep the terminal free of all else. What
    /// it returns is dropped when the question is over.
    #[must_use]
    pub fn freed_by<G: Send + 'static>(self, free: impl Fn() -> G + Send + Sync + 'static) -> Self {
        Self { free: Some(Arc::new(move || Box::new(free()))) }
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
        let mut keys = TURN.lock().await;
        let _freed = self.free.as_ref().map(|free| free());
        let asked = {
            let screen = Screen::new(std::io::stdin(), std::io::stderr()).map_err(failed)?;
            converse(screen, &mut keys, displayable(question)).await.map_err(failed)?
        };
        match asked {
            Step::Answered(text) => Ok(Reply::Answer { text, source: "terminal" }),
            Step::Interrupted => {
                kill_process(getpid(), Signal::INT).map_err(failed)?;
                tokio::time::sleep(GRACE).await;
                Err(AskError::Interrupted)
            }
            Step::Left | Step::Open => Err(AskError::Interrupted),
        }
    }
}

/// Shows the question until a key ends it. Dropped before that, it takes the question off the
/// screen.
async fn converse<I: std::os::fd::AsFd, O: std::os::fd::AsFd>(
    mut screen: Screen<I, O>,
    keys: &mut Keys,
    question: Question,
) -> std::io::Result<Step> {
    if let Some(preview) = &question.preview {
        screen.preview(preview.trim_end());
    }
    let mut prompt = Prompt::new(question);
    let mut is_idle = false;
    loop {
        while let Some(key) = keys.next(is_idle) {
            let step = prompt.key(key);
            if step != Step::Open {
                let said = said(&prompt, &step);
                screen.close(said.as_deref().map(|said| (&prompt.question, said)));
                return Ok(step);
            }
        }
        screen.draw(&prompt);
        tokio::time::sleep(TICK).await;
        let bytes = screen.read()?;
        is_idle = bytes.is_empty();
        keys.push(&bytes);
    }
}

/// What stays on the screen beside the question.
fn said(prompt: &Prompt, step: &Step) -> Option<String> {
    let options = &prompt.question.options;
    let label = |index: &usize| options.get(*index).map(|option| option.label.clone());
    match (step, &prompt.input) {
        (Step::Answered(text), Input::Text { .. }) => Some(text.trim().to_owned()),
        (Step::Answered(_), Input::List { marked: Some(marked), .. }) => {
            Some(marked.iter().filter_map(label).collect::<Vec<_>>().join(", "))
        }
        (Step::Answered(_), Input::List { at, .. }) => label(at),
        (Step::Left, _) => Some("left for later".to_owned()),
        (Step::Open | Step::Interrupted, _) => None,
    }
}

fn failed(error: impl fmt::Display) -> AskError {
    AskError::Terminal { reason: error.to_string() }
}

/// The question without what would steer the terminal: its texts can come from a model.
fn displayable(question: &Question) -> Question {
    let mut question = question.clone();
    question.text = plain(&question.text);
    question.preview = question.preview.as_deref().map(plain);
    for option in &mut question.options {
        option.label = plain(&option.label);
    }
    question
}

fn plain(text: &str) -> String {
    text.chars().filter(|&c| prompt::is_shown(c)).collect()
}

#[cfg(test)]
mod tests;

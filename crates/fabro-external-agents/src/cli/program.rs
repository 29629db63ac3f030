use fabro_types::Permissions;
use serde_json::Value;

use crate::cli::answer::Answer;
use crate::error::StatedKind;
use crate::{ContextServer, Progress, Task};

/// What is known of a program: how it is installed and started, and how its output is read.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// How it is installed.
    pub(super) install: &'static str,
    /// How to log in, for messages.
    pub(super) login: &'static str,
    /// The provider of its models.
    pub(super) provider: &'static str,
    /// How the names of its variables, and of its provider's, begin.
    pub(super) variables: &'static [&'static str],
    pub(super) args: &'static [&'static str],
    pub(super) read_only: &'static [&'static str],
    pub(super) read_write: &'static [&'static str],
    pub(super) full: &'static [&'static str],
    /// In the place of those for `full`: turns off every check.
    pub(super) dangerous: &'static [&'static str],
    /// Gives it what it may spend, in US dollars.
    pub(super) budget: Option<&'static str>,
    /// The arguments that give it a server for the context of the workflow, after those for permissions; `None`
    /// where there are none.
    pub(super) context: Option<ContextArgs>,
    /// Continues the session whose id follows.
    pub(super) resume: Option<&'static str>,
    pub(super) prompt: PromptBy,
    pub(super) output: Output,
}

/// How a program gets its prompt.
pub(super) enum PromptBy {
    /// On stdin, which these arguments say.
    Stdin(&'static [&'static str]),
    /// As the argument after this one.
    Argument(&'static str),
}

/// The arguments for a server, after these for permissions.
pub(super) type ContextArgs = fn(&ContextServer, &[&str]) -> Vec<String>;

/// How the output of a program is read.
#[derive(Clone, Copy)]
pub(super) struct Output {
    /// The key that every event has, with its type.
    pub(super) key: &'static str,
    /// Reads an event, which is a line of stdout.
    pub(super) read: fn(&Value, &mut Answer, &dyn Fn(Progress)),
    /// Reads the rest of stdout, and stderr, when the program has ended.
    pub(super) rest: fn(&str, &str, &mut Answer),
    /// What its exit codes mean.
    pub(super) exit: fn(i32) -> Option<StatedKind>,
}

impl Program {
    /// The arguments for a task.
    pub(super) fn args(&self, task: &Task<'_>, dangerous: bool) -> Vec<String> {
        let allowed = match task.permissions {
            Permissions::ReadOnly => self.read_only,
            Permissions::ReadWrite => self.read_write,
            Permissions::Full if dangerous => self.dangerous,
            Permissions::Full => self.full,
        };
        let fixed = [self.args, allowed].concat();
        let mut args: Vec<String> = fixed.into_iter().map(str::to_owned).collect();
        if let (Some(context), Some(server)) = (self.context, task.context_server) {
            args.extend(context(server, allowed));
        }
        let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
        if let Some(model) = task.model {
            add(&["--model", model]);
        }
        if let (Some(name), Some(dollars)) = (self.budget, task.budget_usd) {
            // Less would not be taken.
            add(&[name, &format!("{:.4}", dollars.max(0.0001))]);
        }
        if let (Some(name), Some(session)) = (self.resume, &task.resume) {
            add(&[name, session.id]);
        }
        match self.prompt {
            PromptBy::Stdin(last) => add(last),
            PromptBy::Argument(name) => add(&[name, task.prompt]),
        }
        args
    }

    pub(super) fn install(&self) -> String {
        let Self { title, install, .. } = self;
        format!("install {title} {install}, or give the path of the program")
    }
}

/// For programs that print nothing besides events that matters.
pub(super) fn ignore_rest(_: &str, _: &str, _: &mut Answer) {}

/// For programs whose exit codes have no meaning of their own.
pub(super) fn no_codes(_: i32) -> Option<StatedKind> {
    None
}

use fabro_types::Permissions;
use serde_json::Value;

use crate::Progress;
use crate::cli::answer::Answer;

/// What is known of a program: how it is installed and started, and how its output is read.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The npm package.
    pub(super) package: &'static str,
    /// The provider of its models.
    pub(super) provider: &'static str,
    /// How the names of its variables, and of its provider's, begin.
    pub(super) variables: [&'static str; 2],
    pub(super) args: &'static [&'static str],
    pub(super) read_only: &'static [&'static str],
    pub(super) read_write: &'static [&'static str],
    pub(super) full: &'static [&'static str],
    /// In the place of those for `full`: turns off every check.
    pub(super) dangerous: &'static [&'static str],
    /// After all others.
    pub(super) last: &'static [&'static str],
    pub(super) output: Output,
}

/// How the stdout of a program is read.
#[derive(Clone, Copy)]
pub(super) enum Output {
    /// Each line is an event.
    Events(fn(&Value, &mut Answer, &dyn Fn(Progress))),
    /// It is one object, at its end. The error may be on stderr, the second text.
    Document(fn(&str, &str, &mut Answer)),
}

impl Program {
    /// The arguments for a task.
    pub(super) fn args(
        &self,
        permissions: Permissions,
        dangerous: bool,
        model: Option<&str>,
    ) -> Vec<String> {
        let allowed = match permissions {
            Permissions::ReadOnly => self.read_only,
            Permissions::ReadWrite => self.read_write,
            Permissions::Full if dangerous => self.dangerous,
            Permissions::Full => self.full,
        };
        let model = model.map(|model| ["--model", model]);
        let model = model.as_ref().map(|model| &model[..]).unwrap_or_default();
        [self.args, allowed, model, self.last].concat().into_iter().map(str::to_owned).collect()
    }

    pub(super) fn install(&self) -> String {
        let Self { title, package, .. } = self;
        format!("install {title} with `npm install -g {package}`, or give the path of the program")
    }
}

//! Runs the hooks of a run: commands and HTTP requests at its events, which may forbid what follows.
//!
//! A [`Runner`] is made from one [`Hook`] of the settings. [`Runner::run`] hands it an [`Occasion`]: a
//! script gets its JSON on standard input, a server as the body of a POST. The [`Answer`] says whether
//! what follows may happen, and what went wrong with the hook itself, which is never an error of the run.
//!
//! ```
//! use fabro_config::{Hook, HookAction, HookEvent, OnHookError};
//! use fabro_hooks::{Decision, Occasion, Runner, Surroundings};
//! use serde_json::json;
//! use tokio_util::sync::CancellationToken;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let hook = Hook {
//!     name: Some("guard".to_owned()),
//!     event: HookEvent::PreToolUse,
//!     action: HookAction::Command { script: "grep -q rm && { echo no rm >&2; exit 2; }".to_owned() },
//!     matcher: Some("^shell$".to_owned()),
//!     blocking: true,
//!     timeout: None,
//!     on_error: OnHookError::Proceed,
//! };
//! let path = std::env::var("PATH")?;
//! let around = Surroundings { env: vec![("PATH".to_owned(), path)], ..Surroundings::default() };
//! let runner = Runner::new(hook, around)?;
//! assert!(runner.matches(&["shell"]) && !runner.matches(&["read_file"]));
//!
//! let data = json!({ "event": "pre_tool_use", "tool_input": { "command": "rm -r /" } });
//! let occasion = Occasion { data, cwd: std::env::temp_dir(), env: Vec::new() };
//! let answer = runner.run(&occasion, &CancellationToken::new()).await;
//! assert_eq!(answer.decision, Decision::Block("no rm".to_owned()));
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Limits
//!
//! - A hook has 60 seconds where it does not say; then its whole process group is ended.
//! - It may print, or answer, 1 MiB; more is a failure of the hook. A reason has 2,000 characters.
//! - Responses of servers are not followed to other addresses, and are not decompressed.
//! - Unix only. The tokio runtime needs its I/O and time drivers.

mod answer;
mod command;
mod request;

use std::path::PathBuf;
use std::time::Duration;

use answer::Reply;
pub use answer::{Answer, Decision};
pub use fabro_config::{Hook, HookAction, HookEvent, OnHookError};
use fabro_redact::Redactor;
use regex::Regex;
use request::Endpoint;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// How long a hook may take that does not say.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// The most that a hook may print or answer, in bytes.
pub const OUTPUT_LIMIT: usize = 1 << 20;

/// What a hook works with, besides what happened.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The whole environment of commands.
    pub env: Vec<(String, String)>,
    /// The headers of a request, with variables put in.
    pub headers: Vec<(String, String)>,
    /// Redacts what it is given and what it answers.
    pub redactor: Redactor,
}

/// What happened.
#[derive(Clone, Debug)]
pub struct Occasion {
    /// As a hook gets it.
    pub data: Value,
    /// The directory that commands start in.
    pub cwd: PathBuf,
    /// Variables for commands, besides those of their surroundings.
    pub env: Vec<(String, String)>,
}

/// Why a hook cannot be used at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The matcher of this hook is not a regular expression.
    #[error("the matcher of {0} is not a regular expression: {1}")]
    Matcher(String, regex::Error),
    /// The URL of this hook is none.
    #[error("the URL of {0} is not valid")]
    Url(String),
    /// This header of this hook cannot be sent.
    #[error("the header `{0}` of {1} cannot be sent: it has characters that no header has")]
    Header(String, String),
}

/// One hook, ready to be run.
#[derive(Debug)]
pub struct Runner {
    hook: Hook,
    matcher: Option<Regex>,
    /// Where it sends events; `None` for a command.
    endpoint: Option<Endpoint>,
    env: Vec<(String, String)>,
    redactor: Redactor,
}

impl Runner {
    /// A hook in these surroundings.
    ///
    /// # Errors
    ///
    /// Its matcher, its URL or a header is not valid.
    pub fn new(hook: Hook, around: Surroundings) -> Result<Self, SetupError> {
        let matcher = hook.matcher.as_deref().map(Regex::new).transpose();
        let matcher = matcher.map_err(|error| SetupError::Matcher(called(&hook), error))?;
        let endpoint = match &hook.action {
            HookAction::Command { .. } => None,
            HookAction::Http { url, .. } => {
                Some(Endpoint::new(&called(&hook), url, &around.headers)?)
            }
        };
        Ok(Self { hook, matcher, endpoint, env: around.env, redactor: around.redactor })
    }

    /// The hook as the settings have it.
    pub fn hook(&self) -> &Hook {
        &self.hook
    }

    /// What messages call it: by its name, or by its event.
    pub fn called(&self) -> String {
        called(&self.hook)
    }

    /// Whether it is for one of these nodes or tools.
    pub fn matches(&self, subjects: &[&str]) -> bool {
        let Some(matcher) = &self.matcher else { return true };
        subjects.iter().any(|subject| matcher.is_match(subject))
    }

    /// Runs it to its end. A canceled hook has forbidden nothing, and its processes have ended.
    pub async fn run(&self, occasion: &Occasion, cancel: &CancellationToken) -> Answer {
        let mut data = occasion.data.clone();
        self.redactor.redact_value(&mut data);
        let reply = self.reply(format!("{data}\n"), occasion, cancel).await;
        // Before reasons are cut: of a secret that is cut through, the rest would stay.
        let reply = reply.map(|reply| reply.redacted(&self.redactor));
        let mut answer = answer::judge(&self.hook, reply);
        if let Decision::Block(reason) = &mut answer.decision {
            *reason = self.redactor.redact(reason).into_owned();
        }
        answer.failure = answer.failure.map(|text| self.redactor.redact(&text).into_owned());
        answer
    }

    async fn reply(
        &self,
        data: String,
        occasion: &Occasion,
        cancel: &CancellationToken,
    ) -> Result<Reply, String> {
        let limit = self.hook.timeout.unwrap_or(TIMEOUT);
        match (&self.hook.action, &self.endpoint) {
            (HookAction::Command { script }, _) => {
                let env: Vec<_> = self.env.iter().chain(&occasion.env).cloned().collect();
                let call = command::Call { script, cwd: &occasion.cwd, env: &env, limit };
                command::run(&call, &data, cancel).await
            }
            (HookAction::Http { .. }, Some(endpoint)) => endpoint.send(data, limit, cancel).await,
            (HookAction::Http { .. }, None) => Err("it has no address".to_owned()),
        }
    }
}

fn called(hook: &Hook) -> String {
    match &hook.name {
        Some(name) => format!("the hook `{name}`"),
        None => format!("a hook of `{}`", hook.event.as_str()),
    }
}

#[cfg(test)]
mod tests;

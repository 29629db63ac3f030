use std::collections::BTreeMap;
use std::time::Duration;

use fabro_types::{Diagnostic, ModelInfo, OnFailure, OnUnavailable};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::agent::AgentSettings;
use crate::checked_settings::CheckedSettings;
use crate::concurrency::Concurrency;
use crate::git::GitSettings;
use crate::hooks::Hook;
use crate::model::ModelSettings;
use crate::provider::ProviderSettings;
use crate::reader::{Unsupported, read};
use crate::sandbox::SandboxSettings;
use crate::schema::RUN_FILE;

/// What a run.toml sets, as it is written: paths are relative to the file it stands in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunConfig {
    /// `workflow.graph`: the workflow file; `workflow.fabro` when it is absent.
    pub graph: Option<String>,
    /// `run.goal`: the goal, or `@file`; `@@` stands for a literal `@` at its start.
    pub goal: Option<String>,
    /// `run.inputs`: the run's inputs, in the order of the file.
    pub inputs: Map<String, Value>,
    /// `run.model`: the model of stages that do not name one.
    pub model: ModelSettings,
    /// `run.sandbox.env`: environment variables that scripts get besides the user's.
    pub env: BTreeMap<String, String>,
    /// `run.prepare.steps`: what runs before the first stage, in order.
    pub prepare: Vec<PrepareStep>,
    /// `run.agent`: the settings of agents whose node does not set them.
    pub agent: AgentSettings,
    /// `run.on_failure`: what follows a failure, unless the workflow sets it.
    pub on_failure: Option<OnFailure>,
    /// `run.max_cost`: the spending limit in US dollars of a workflow without its own.
    pub max_cost: Option<f64>,
    /// `run.command_timeout`: the timeout of commands without their own.
    pub command_timeout: Option<Duration>,
    /// `run.on_unavailable`: what follows when no model or agent is available, where the workflow
    /// does not say.
    pub on_unavailable: Option<OnUnavailable>,
    /// `run.retry_unavailable`: after which time a run that paused because of that retries.
    pub retry_unavailable: Option<Duration>,
    /// `run.resume_threads`: the first stages after a resume continue the conversations of their threads.
    pub resume_threads: Option<bool>,
    /// `run.max_time`: the total time that the run may be driven.
    pub max_time: Option<Duration>,
    /// `run.concurrency`: how many runs with the same key may be driven concurrently.
    pub concurrency: Option<Concurrency>,
    /// `run.execution`: how it is executed.
    pub execution: Execution,
    /// `run.sandbox`: what confines scripts and agents.
    pub sandbox: SandboxSettings,
    /// `run.git`: what the run does with git.
    pub git: GitSettings,
    /// `run.artifacts`: which files are kept besides those of test tools, and which are not.
    pub artifacts: ArtifactPatterns,
    /// `run.hooks`: what is run or requested at events.
    pub hooks: Vec<Hook>,
    /// `providers`: providers of models, by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// `models`: what overrides the built-in catalog, by name.
    pub models: BTreeMap<String, ModelInfo>,
}

/// One `[[run.prepare.steps]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PrepareStep {
    /// The shell script.
    pub script: String,
}

/// `[run.execution]`: how a run is executed, where the command line does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Execution {
    /// `mode = "dry_run"`: nothing is executed.
    pub dry_run: Option<bool>,
    /// `approval = "auto"`: gates are answered by their default, else their first option.
    pub auto_approve: Option<bool>,
}

impl Execution {
    /// These settings, completed from weaker ones.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        Self {
            dry_run: self.dry_run.or(weaker.dry_run),
            auto_approve: self.auto_approve.or(weaker.auto_approve),
        }
    }

    pub(crate) fn take(checked: &mut CheckedSettings) -> Self {
        let mut word = |pointer| checked.take::<Option<String>>(pointer);
        Self {
            dry_run: word("/run/execution/mode").map(|mode| mode == "dry_run"),
            auto_approve: word("/run/execution/approval").map(|approval| approval == "auto"),
        }
    }
}

/// `[run.artifacts]`: glob patterns, relative to the working directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArtifactPatterns {
    /// Files that are kept besides those of test tools.
    pub include: Vec<String>,
    /// Files that are not kept.
    pub exclude: Vec<String>,
}

impl ArtifactPatterns {
    /// No patterns.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// These patterns, else the weaker ones.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        if self.is_empty() { weaker } else { self }
    }

    pub(crate) fn take(checked: &mut CheckedSettings) -> Self {
        let include = checked.take("/run/artifacts/include");
        Self { include, exclude: checked.take("/run/artifacts/exclude") }
    }
}

/// `run.prepare`: the commands, then the steps.
pub(crate) fn take_prepare(checked: &mut CheckedSettings) -> Vec<PrepareStep> {
    let commands: Vec<String> = checked.take("/run/prepare/commands");
    let mut steps: Vec<_> = commands.into_iter().map(|script| PrepareStep { script }).collect();
    steps.extend(checked.take::<Vec<PrepareStep>>("/run/prepare/steps"));
    steps
}

/// Reads a run.toml. The warnings are unknown keys and a missing `_version`.
///
/// # Errors
///
/// All errors and warnings of the file, in its order: a syntax error, a version this crate does not
/// read, values of the wrong type or out of range.
pub fn parse(text: &str) -> Result<(RunConfig, Vec<Diagnostic>), Vec<Diagnostic>> {
    parse_as(text, Unsupported::Refused)
}

pub(crate) fn parse_as(
    text: &str,
    unsupported: Unsupported,
) -> Result<(RunConfig, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (mut checked, warnings) = read(text, RUN_FILE, unsupported)?;
    let config = RunConfig {
        graph: checked.take("/workflow/graph"),
        goal: checked.take("/run/goal"),
        inputs: checked.take("/run/inputs"),
        model: checked.take("/run/model"),
        env: checked.take("/run/sandbox/env"),
        prepare: take_prepare(&mut checked),
        agent: checked.take("/run/agent"),
        on_failure: checked.take("/run/on_failure"),
        max_cost: checked.take("/run/max_cost"),
        command_timeout: checked.take("/run/command_timeout"),
        on_unavailable: checked.take("/run/on_unavailable"),
        retry_unavailable: checked.take("/run/retry_unavailable"),
        resume_threads: checked.take("/run/resume_threads"),
        max_time: checked.take("/run/max_time"),
        concurrency: checked.take("/run/concurrency"),
        execution: Execution::take(&mut checked),
        sandbox: SandboxSettings::take(&mut checked),
        git: GitSettings::take(&mut checked),
        artifacts: ArtifactPatterns::take(&mut checked),
        hooks: checked.take("/run/hooks"),
        providers: checked.take("/providers"),
        models: checked.take("/models"),
    };
    Ok((config, warnings))
}

#[cfg(test)]
mod tests;

//! All that a run depends on, kept with the run: its workflow's text, the files that it names,
//! and the settings it was started with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fabro_blob::{BlobError, BlobStore};
use fabro_config::{
    AgentSettings, ArtifactPatterns, Concurrency, GitSettings, Hook, ProviderSettings,
    SandboxSettings, TelemetrySettings,
};
use fabro_engine::{Constants, GraphDefaults, Plan, PlanError, ReadError, read_blob};
use fabro_events::CreatedRun;
use fabro_graph::{MemorySources, Node, schema};
use fabro_types::{BlobRef, Diagnostic, ModelInfo, OnFailure, OnUnavailable, Severity};
use fabro_validate::RelativeSources;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::goal::{GoalError, render_goal};

/// A workflow with everything it needs to run again on another day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// The name for a workflow that does not say its own: the file's stem.
    pub name: String,
    /// The path of the workflow file as it was given, for messages.
    pub file: String,
    /// The text of the workflow.
    pub source: String,
    /// Its path relative to the workflow that `files` are relative to; empty when it is that one.
    #[serde(default)]
    pub base: String,
    /// The texts of all files it and its sub-workflows name.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// How the run was started.
    #[serde(default)]
    pub settings: RunSettings,
    /// What attributes such as conditions read; `None` while there is no run, and for a sub-workflow
    /// with inputs of its own until its run begins. The record of the run has them.
    #[serde(skip)]
    pub constants: Option<Constants>,
}

/// How a run was started; a resume starts it the same way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSettings {
    /// Variables added to every script's environment.
    pub env: BTreeMap<String, String>,
    /// Scripts that run before the first stage.
    pub prepare: Vec<String>,
    /// The text of the model script that LLM stages are answered from.
    pub model_script: Option<String>,
    /// The name of its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_script_file: Option<String>,
    /// The model asked for on the command line or in the run's settings.
    pub model: Option<String>,
    /// The provider asked for there.
    pub provider: Option<String>,
    /// The model that the project's or the user's settings name.
    pub configured_model: Option<String>,
    /// The provider that they name.
    pub configured_provider: Option<String>,
    /// The text of the file of answers to gates.
    pub answers: Option<String>,
    /// Gates are answered by their default, else their first option.
    pub auto_approve: bool,
    /// What agents may do and are given.
    pub agent: AgentSettings,
    /// Who serves models, the first one when nothing else says.
    pub providers: Vec<ProviderSettings>,
    /// Models that the catalog does not know, or not like this, by name.
    pub models: BTreeMap<String, ModelInfo>,
    /// The models named in run.toml and the settings. They are accepted even if the provider does not
    /// list them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub named_models: BTreeSet<String>,
    /// What to ask when a model fails, in order: `provider` or `provider/model`.
    pub fallbacks: Vec<String>,
    /// The failure policy, unless the workflow sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// The spending limit in US dollars, unless the workflow sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<f64>,
    /// The timeout of commands without their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeout: Option<Duration>,
    /// What follows when no model or agent is available, where the workflow does not say.
    pub on_unavailable: Option<OnUnavailable>,
    /// After which time a run that paused because of that retries.
    pub retry_unavailable: Option<Duration>,
    /// Whether the first stages after a resume continue their conversations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_threads: Option<bool>,
    /// The maximum total time that the run is driven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time: Option<Duration>,
    /// The limit on concurrent runs with the same key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// What confines scripts and agents.
    #[serde(skip_serializing_if = "SandboxSettings::is_empty")]
    pub sandbox: SandboxSettings,
    /// What the run does with git.
    #[serde(skip_serializing_if = "GitSettings::is_empty")]
    pub git: GitSettings,
    /// What is run or requested at events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Variables of the environment whose values are secret under any name: those that sign webhooks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secret_variables: Vec<String>,
    /// Headers with secrets that no stage uses: those of a telemetry collector.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_headers: BTreeMap<String, String>,
    /// The collector that receives the trace of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<TelemetrySettings>,
    /// Which files are kept.
    #[serde(skip_serializing_if = "ArtifactPatterns::is_empty")]
    pub artifacts: ArtifactPatterns,
}

impl RunSettings {
    /// The defaults for attributes that the workflow does not set.
    pub(crate) fn graph_defaults(&self) -> GraphDefaults {
        GraphDefaults {
            on_failure: self.on_failure,
            on_unavailable: self.on_unavailable,
            max_cost: self.max_cost,
            command_timeout: self.command_timeout,
        }
    }
}

/// Why a bundle cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// It cannot be read back.
    #[error("the run's workflow cannot be read back: {0}")]
    Read(#[from] ReadError),
    /// It is not a bundle.
    #[error("the run's workflow cannot be read back: {0}")]
    Json(#[from] serde_json::Error),
    /// The workflow has errors.
    #[error("{file} is not valid: {}", first(findings))]
    Invalid {
        /// The file.
        file: String,
        /// What is wrong.
        findings: Vec<Diagnostic>,
    },
    /// The workflow cannot be compiled.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A manager node without a workflow.
    #[error("`{node}` names no workflow: set stack.child_workflow")]
    NoChild {
        /// The node.
        node: Arc<str>,
    },
    /// The goal cannot be rendered.
    #[error(transparent)]
    Goal(#[from] GoalError),
}

fn first(findings: &[Diagnostic]) -> &str {
    findings.first().map_or("", |finding| finding.message.as_str())
}

impl Bundle {
    /// Reads a run's bundle back.
    pub fn load(blobs: &dyn BlobStore, run: &CreatedRun) -> Result<Self, BundleError> {
        let bundle = &run.bundle;
        // `read_blob` takes a name that the store does not know for a text.
        if let Err(missing @ BlobError::Missing { .. }) = blobs.len(bundle) {
            return Err(ReadError::from(missing).into());
        }
        let constants = Some(Constants::new(&run.goal, &run.inputs));
        let loaded = serde_json::from_value(read_blob(blobs, bundle)?)?;
        Ok(Self { constants, ..loaded })
    }

    /// The bytes that are stored.
    ///
    /// # Panics
    /// Never: strings, numbers and maps with string keys are valid JSON.
    #[expect(clippy::expect_used, reason = "an empty bundle could not be resumed")]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings, numbers and maps with string keys are valid JSON")
    }

    /// The seed of a run that names none: the same for the same workflow and inputs, and a number
    /// that every JSON reader keeps whole.
    pub fn seed(&self, inputs: &Map<String, Value>) -> u64 {
        let sorted: BTreeMap<_, _> = inputs.iter().collect();
        let text = format!("{}\n{}", self.source, serde_json::json!(sorted));
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&BlobRef::of(text.as_bytes()).digest()[..8]);
        u64::from_be_bytes(bytes) >> 11
    }

    /// The workflow, compiled.
    pub fn plan(&self) -> Result<Plan, BundleError> {
        let files = MemorySources(self.files.clone());
        let beside = RelativeSources::new(&files, &self.base);
        let constants = self.constants.as_ref();
        let workflow = fabro_validate::prepare(&self.name, &self.source, &beside, constants)
            .map_err(|findings| BundleError::Invalid { file: self.file.clone(), findings })?;
        let plan = Plan::compile_recorded(workflow, constants)?;
        Ok(plan.with_defaults(self.settings.graph_defaults()))
    }

    /// What validation warns of in the workflow of a run that is part of no other.
    pub(crate) fn warnings(&self, inputs: &Map<String, Value>) -> Vec<Diagnostic> {
        let files = MemorySources(self.files.clone());
        let checked = fabro_validate::check(&self.name, &self.source, &files, Some(inputs));
        let mut warnings = checked.findings;
        let is_settled = |finding: &Diagnostic| {
            self.settings.on_failure.is_some() && finding.rule == "unhandled-failure"
        };
        warnings.retain(|finding| finding.severity == Severity::Warning && !is_settled(finding));
        warnings
    }

    /// The goal that the workflow itself states, rendered with these inputs.
    pub fn goal(&self, inputs: &Map<String, Value>) -> Result<Option<String>, BundleError> {
        let plan = self.plan()?;
        let Some(goal) = plan.workflow().attrs().text("goal") else { return Ok(None) };
        Ok(Some(render_goal(goal, inputs)?))
    }

    /// The workflow of a manager node.
    pub fn child(&self, node: &Node) -> Result<Self, BundleError> {
        let attr = node.attrs.get("stack.child_workflow");
        let inline = node.attrs.text("stack.child_dot_source");
        let source = attr.and_then(|attr| attr.value.text()).or(inline);
        let Some(source) = source else {
            return Err(BundleError::NoChild { node: Arc::clone(&node.id) });
        };
        let file = attr.and_then(|attr| attr.file.as_deref());
        let has_inputs = node.attrs.iter().any(|attr| schema::input_name(&attr.name).is_some());
        let files = MemorySources::default();
        let beside = RelativeSources::new(&files, &self.base);
        Ok(Self {
            name: node.id.to_string(),
            file: file.unwrap_or(&self.file).to_owned(),
            base: file.map_or_else(|| self.base.clone(), |file| beside.join(file)),
            source: source.to_owned(),
            files: self.files.clone(),
            settings: self.settings.clone(),
            constants: self.constants.clone().filter(|_| !has_inputs),
        })
    }
}

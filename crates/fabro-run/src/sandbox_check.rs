//! What of a sandbox is known to be refused before a run exists: settings that do not go together, and stages that
//! do not run in it.

use std::path::Path;

use fabro_config::{RunFile, SandboxProvider, SandboxSettings, Settings};
use fabro_engine::{Backend, LlmSpec, NodeBody, Plan};
use fabro_graph::{NodeIx, Workflow};
use fabro_types::{Diagnostic, Permissions, Span};

use crate::error::UNAVAILABLE;
use crate::reach;
use crate::sandbox::check_settings;
use crate::spec::{Overrides, sandbox_settings};

/// Errors by the file that they are in.
#[derive(Clone, Debug, Default)]
pub struct SandboxFindings {
    /// The workflow; what is wrong with the settings of the project or the user is said here, without a place.
    pub in_workflow: Vec<Diagnostic>,
    /// Its run.toml.
    pub in_run_file: Option<Diagnostic>,
}

/// The errors with which a run of this workflow would be refused because of its sandbox, as far as they do not depend
/// on what is installed.
pub fn check_sandbox(
    workflow: Option<&Workflow>,
    run_file: Option<&RunFile>,
    settings: &Settings,
    home: Option<&Path>,
) -> SandboxFindings {
    let mut found = SandboxFindings::default();
    let configured = match run_file.map(|file| file.settings(settings.clone(), home)) {
        Some(Ok(settings)) => settings.sandbox,
        // That error is reported for the run.toml as a whole.
        Some(Err(_)) => return found,
        None => settings.sandbox.clone(),
    };
    let checked = sandbox_settings(configured.clone(), &Overrides::default());
    if let Err(error) = checked.and_then(|settings| check_settings(&settings)) {
        let finding = |span| {
            Diagnostic::error("setting-value", span, error.message.clone())
                .with_fix(error.fix.clone())
        };
        if let Some(file) = run_file.filter(|file| !file.config.sandbox.is_empty()) {
            found.in_run_file = Some(finding(file.span_of("run.sandbox")));
        } else {
            let finding = finding(Span::default());
            let message =
                format!("{} (in the settings of the project or of the user)", finding.message);
            found.in_workflow.push(Diagnostic { message, ..finding });
        }
    }
    let is_local = configured.provider.is_none_or(|it| it == SandboxProvider::Local);
    if let Some(workflow) = workflow.filter(|_| configured.is_remote() || is_local)
        && let Ok(plan) = Plan::compile(workflow.clone())
    {
        let mut findings = Vec::new();
        let reached: Vec<_> = reach::from_start(&plan).into_keys().collect();
        if is_local {
            let default = run_file.and_then(|file| file.config.agent.permissions);
            let default = default.or(settings.agent.permissions);
            findings.extend(keys_in_reach(&plan, &reached, default));
        }
        for ix in reached {
            let llm = match &plan.spec(ix).body {
                NodeBody::Agent(agent) => &agent.llm,
                NodeBody::Prompt(llm) => llm,
                _ => continue,
            };
            let Some((message, fix)) = program_elsewhere(&configured, llm) else { continue };
            let node = plan.workflow().node(ix);
            let span = node.attrs.get("backend").map_or(node.span, |attr| attr.span);
            let message = format!("`{}`: {message}", node.id);
            findings.push(Diagnostic::error(UNAVAILABLE, span, message).with_fix(fix));
        }
        plan.workflow().place(&mut findings);
        found.in_workflow.extend(findings);
    }
    found
}

/// Warns once that an agent without a sandbox can read the API keys of this machine.
fn keys_in_reach(
    plan: &Plan,
    reached: &[NodeIx],
    default: Option<Permissions>,
) -> Option<Diagnostic> {
    let is_script = |ix: &&NodeIx| matches!(plan.spec(**ix).body, NodeBody::Command(_));
    let script = plan.workflow().node(*reached.iter().find(is_script)?);
    let is_full = |ix: &&NodeIx| {
        let spec = plan.spec(**ix);
        let own = spec.llm().and_then(|llm| llm.permissions);
        spec.agent().is_some() && own.or(default) == Some(Permissions::Full)
    };
    let agent = plan.workflow().node(*reached.iter().find(is_full)?);
    let span = agent.attrs.get("permissions").map_or(agent.span, |attr| attr.span);
    let message = format!(
        "`{}` has full permissions and no sandbox: its commands can read all your files, and the keys in the environment of a script (`{}`) that runs concurrently or left a server running",
        agent.id, script.id
    );
    let fix = "set `run.sandbox.provider = \"bwrap\"` or \"docker\", or trust what the agent reads";
    Some(Diagnostic::warning("keys-in-reach", span, message).with_fix(fix))
}

/// Says that an agent is another program, which would not run where the scripts do; with a fix.
pub(crate) fn program_elsewhere(
    sandbox: &SandboxSettings,
    llm: &LlmSpec,
) -> Option<(String, &'static str)> {
    let name = sandbox.provider.filter(|_| sandbox.is_remote()).map(SandboxProvider::name)?;
    let backend = match llm.backend {
        Backend::Api => return None,
        Backend::Cli => "cli",
        Backend::Acp { .. } => "acp",
    };
    let message = format!(
        "`backend={backend}` is a program on this machine, which does not run in the sandbox `{name}`"
    );
    Some((message, "use a model of a provider, or the sandbox `bwrap`"))
}

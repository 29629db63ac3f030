//! What a run needs and does not have, found before its first stage: providers, keys, programs, turns
//! of a model script. Nothing is asked over the network.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fabro_config::{McpTransport, expand_variables};
use fabro_engine::{Backend, Language, LlmSpec, NodeBody, NodeSpec, Plan, pauses_when_unavailable};
use fabro_external_agents::{Acp, CliAgent};
use fabro_graph::{NodeIx, NodeKind};
use fabro_handlers::ModelDefaults;
use fabro_llm::{Catalog, Fallback, Providers, Request, Script};
use fabro_types::{Diagnostic, Permissions, ProviderKind, Severity, nearest};
use serde_json::{Map, Value};

use crate::bundle::{Bundle, BundleError, RunSettings};
use crate::models::{catalog, client};
use crate::secrets::variable;
use crate::{RunError, SetupError};

/// The rule of these findings.
const RULE: &str = "unavailable";

/// How deep sub-workflows nest in a valid workflow.
const MAX_DEPTH: usize = fabro_types::MAX_SUB_WORKFLOW_DEPTH;

/// Checks what the reachable stages of a workflow, its sub-workflows included, need. Gives warnings:
/// what is missing for a stage that handles it.
///
/// # Errors
/// All that is missing, with the place of each; or the settings cannot be used.
pub(crate) fn check(
    bundle: &Bundle,
    plan: &Plan,
    work_dir: &Path,
) -> Result<Vec<String>, RunError> {
    let settings = &bundle.settings;
    let preflight = Preflight {
        settings,
        models: Models::new(settings)?,
        defaults: settings.model_defaults(),
        catalog: catalog(&settings.models),
        path: search_path(settings),
        work_dir,
    };
    let mut findings = preflight.findings(bundle, plan, 0)?;
    findings.sort_by_key(|finding| finding.span.start);
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        let path = PathBuf::from(&bundle.file);
        return Err(RunError::Invalid { path, text: bundle.source.clone(), findings });
    }
    Ok(findings.into_iter().map(|finding| finding.message).collect())
}

/// What answers the stages that ask a model by its interface.
enum Models {
    Script(Script),
    Providers(Providers),
    /// That is reported for the workflow as a whole.
    Missing,
}

impl Models {
    fn new(settings: &RunSettings) -> Result<Self, SetupError> {
        if let Some(text) = &settings.model_script {
            let script = Script::from_json(text).map_err(|error| {
                SetupError::new(format!("the model script is not valid: {error}"), "fix the file")
            })?;
            return Ok(Self::Script(script));
        }
        if settings.providers.is_empty() {
            return Ok(Self::Missing);
        }
        Ok(Self::Providers(client(&settings.providers, &settings.models)?))
    }
}

/// Something that a stage needs and does not have.
struct Missing {
    /// The attribute that names it; the node itself when it has none.
    attribute: &'static str,
    message: String,
    fix: String,
    /// The stage may run without it after all, or handles that it cannot.
    is_warning: bool,
}

struct Preflight<'a> {
    settings: &'a RunSettings,
    models: Models,
    defaults: ModelDefaults,
    catalog: Catalog,
    path: Vec<PathBuf>,
    work_dir: &'a Path,
}

impl Preflight<'_> {
    fn findings(
        &self,
        bundle: &Bundle,
        plan: &Plan,
        depth: usize,
    ) -> Result<Vec<Diagnostic>, BundleError> {
        let mut findings = Vec::new();
        for ix in reachable(plan) {
            let spec = plan.spec(ix);
            let node = plan.workflow().node(ix);
            if let Some(missing) = self.missing(plan, spec) {
                let handled = !pauses_when_unavailable(plan, ix, false);
                let attr = node.attrs.get(missing.attribute);
                let span = attr.map_or(node.span, |attr| attr.span);
                let message = format!("`{}`: {}", node.id, missing.message);
                let finding = if missing.is_warning || handled && missing.attribute != "provider" {
                    Diagnostic::warning(RULE, span, message)
                } else {
                    Diagnostic::error(RULE, span, message)
                };
                findings.push(finding.with_fix(missing.fix));
            }
            if spec.kind == NodeKind::ManagerLoop && depth < MAX_DEPTH {
                let child = bundle.child(node)?;
                for inner in self.findings(&child, &child.plan()?, depth + 1)? {
                    let message = format!("`{}`: {}: {}", node.id, child.file, inner.message);
                    findings.push(Diagnostic { span: node.span, message, ..inner });
                }
            }
        }
        Ok(findings)
    }

    fn missing(&self, plan: &Plan, spec: &NodeSpec) -> Option<Missing> {
        match &spec.body {
            NodeBody::Command(command) if command.language == Language::Python => {
                let missing =
                    self.program("language", "python3", "install Python 3, or use a shell script")?;
                // A command without its interpreter fails, which the workflow may handle.
                let accepts = spec.allow_partial || spec.auto_status || spec.on_failure.is_some();
                let ix = plan.workflow().find(&spec.id)?;
                let handles = accepts || plan.outgoing(ix).any(|edge| edge.condition.is_some());
                Some(Missing { is_warning: missing.is_warning || handles, ..missing })
            }
            NodeBody::Agent(agent) => self.asked(plan, spec, &agent.llm),
            NodeBody::Prompt(llm) => self.asked(plan, spec, llm),
            NodeBody::FanIn(Some(llm)) => self.model(plan, spec, llm),
            _ => None,
        }
    }

    fn asked(&self, plan: &Plan, spec: &NodeSpec, llm: &LlmSpec) -> Option<Missing> {
        match &llm.backend {
            Backend::Api => self.model(plan, spec, llm).or_else(|| self.server(spec)),
            Backend::Cli => {
                let provider = self.defaults.provider_of(plan, spec).or_else(|| {
                    let model = self.defaults.model_of(plan, spec)?;
                    self.catalog.find(&model)?.provider.clone()
                });
                let agent = CliAgent::of_provider(provider.as_deref().unwrap_or("anthropic"))?;
                self.program("backend", agent.name(), &agent.install())
            }
            Backend::Acp { command, .. } => {
                let none = Value::Object(Map::new());
                let acp = Acp::new(command.as_deref()?, &none).ok()?;
                self.program("acp.command", acp.program(), "install it, or correct the command")
            }
        }
    }

    /// What is missing of the model that the stage asks, and of those it may ask instead.
    fn model(&self, plan: &Plan, spec: &NodeSpec, llm: &LlmSpec) -> Option<Missing> {
        let providers = match &self.models {
            Models::Missing => return None,
            Models::Script(script) if script.has_turns(&spec.id) => return None,
            Models::Script(_) => {
                return Some(Missing {
                    attribute: "",
                    message: "the model script has no turns for it".to_owned(),
                    fix: format!("add a list for \"{}\" to the script, or one for \"*\"", spec.id),
                    is_warning: false,
                });
            }
            Models::Providers(providers) => providers,
        };
        let provider = self.defaults.provider_of(plan, spec);
        if let Some(name) = provider.as_deref().filter(|name| !self.is_known(name)) {
            let configured = self.settings.providers.iter().map(|it| it.name.as_str());
            let names = configured.chain(ProviderKind::NAMES);
            let fix = match nearest(name, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("correct the name, or add [providers.{name}] to the settings"),
            };
            let message = format!("there is no provider `{name}`");
            return Some(Missing { attribute: "provider", message, fix, is_warning: false });
        }
        let mut request = Request::new(Vec::new());
        request.provider = provider;
        request.model = self.defaults.model_of(plan, spec);
        let error = providers.route(&request).err()?;
        let own = llm.fallbacks.as_ref().map(|own| own.iter().map(ToString::to_string).collect());
        let fallbacks: Vec<String> = own.unwrap_or_else(|| self.settings.fallbacks.clone());
        let is_warning = fallbacks.iter().any(|name| {
            let Fallback { provider, model } = Fallback::new(name.as_str());
            let mut request = Request::new(Vec::new());
            request.provider = provider;
            request.model = model;
            providers.route(&request).is_ok()
        });
        let fix = "configure the provider, or choose another model".to_owned();
        Some(Missing { attribute: "model", message: error.message, fix, is_warning })
    }

    fn is_known(&self, name: &str) -> bool {
        ProviderKind::parse(name).is_some()
            || self.settings.providers.iter().any(|provider| provider.name == name)
    }

    /// The first MCP server whose program is missing, for an agent that may use it.
    fn server(&self, spec: &NodeSpec) -> Option<Missing> {
        spec.agent()?;
        let own = spec.llm().and_then(|llm| llm.permissions);
        if own.or(self.settings.agent.permissions) != Some(Permissions::Full) {
            return None;
        }
        self.settings.agent.mcp.iter().find_map(|(name, server)| {
            let McpTransport::Command { command, .. } = &server.transport else { return None };
            let fix = format!("install it, or correct [run.agent.mcp.{name}] in the settings");
            let missing = self.program("", command, &fix)?;
            Some(Missing {
                message: format!("MCP server `{name}`: {}", missing.message),
                ..missing
            })
        })
    }

    fn program(&self, attribute: &'static str, program: &str, fix: &str) -> Option<Missing> {
        let is_program = |path: &Path| {
            let file = path.metadata().ok().filter(std::fs::Metadata::is_file);
            file.is_some_and(|file| file.permissions().mode() & 0o111 != 0)
        };
        let is_there = if program.contains('/') {
            is_program(&self.work_dir.join(program))
        } else {
            self.path.iter().any(|dir| is_program(&self.work_dir.join(dir).join(program)))
        };
        (!is_there).then(|| Missing {
            attribute,
            message: format!("the program `{program}` is not installed"),
            fix: fix.to_owned(),
            // A preparation step may install it.
            is_warning: !self.settings.prepare.is_empty(),
        })
    }
}

/// The directories in which programs are looked for.
fn search_path(settings: &RunSettings) -> Vec<PathBuf> {
    let own = settings.env.get("PATH");
    let own = own.and_then(|path| expand_variables(path, variable).ok());
    let path = own.or_else(|| variable("PATH")).unwrap_or_default();
    std::env::split_paths(&path).collect()
}

/// The nodes that a run can come to, in the order of the file.
fn reachable(plan: &Plan) -> BTreeSet<NodeIx> {
    let targets = plan.graph().retry_targets;
    let start = plan.workflow().find(&plan.start().id);
    let mut open: Vec<NodeIx> =
        start.into_iter().chain(targets.first).chain(targets.fallback).collect();
    let mut seen = BTreeSet::new();
    while let Some(ix) = open.pop() {
        if seen.insert(ix) {
            let own = plan.spec(ix).retry_targets;
            open.extend(plan.outgoing(ix).map(|edge| edge.to));
            open.extend(own.first.into_iter().chain(own.fallback));
        }
    }
    seen
}

//! What a run needs and does not have, found before its first stage and before it is resumed:
//! providers, keys, programs, turns of a model script. Nothing is asked over the network; what servers list whose
//! model is not named is asked before (`asked_models`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fabro_config::{Hook, HookEvent, McpTransport, expand_variables};
use fabro_engine::{
    Backend, Isolation, Language, LlmSpec, NodeBody, NodeSpec, Plan, RunState,
    pauses_when_unavailable,
};
use fabro_external_agents::{Acp, CliAgent};
use fabro_graph::{NodeIx, NodeKind};
use fabro_handlers::ModelDefaults;
use fabro_llm::{Catalog, Fallback, Provider, Providers, Request, Script};
use fabro_types::{
    Diagnostic, MAX_SUB_WORKFLOW_DEPTH, OnFailure, Permissions, ProviderKind, RunId, Severity,
    Span, nearest,
};
use serde_json::{Map, Value};

use crate::asked_models::{ServerModels, is_named, list_text, no_model};
use crate::bundle::{Bundle, BundleError, RunSettings};
use crate::error::UNAVAILABLE;
use crate::model_names::{UnknownModel, serves_any_model, unknown_model, unknown_provider};
use crate::models::{catalog, client};
use crate::reach::{self, Reached};
use crate::sandbox_check::program_elsewhere;
use crate::secrets::variable;
use crate::{RunError, SetupError};

/// Checks what the reachable stages of a workflow, its sub-workflows included, need. Gives warnings:
/// what is missing for a stage that handles it.
///
/// # Errors
/// All that is missing, with the place of each; or the settings cannot be used.
pub(crate) fn check(
    bundle: &Bundle,
    plan: &Plan,
    work_dir: &Path,
    servers: ServerModels,
) -> Result<Vec<String>, RunError> {
    let reached = reach::from_start(plan);
    let subject = Subject { bundle, plan, reached: &reached, depth: 0, is_handled: false };
    let findings = Preflight::new(&bundle.settings, work_dir, servers)?.findings(&subject)?;
    let mut warnings = warnings_of(bundle, findings)?;
    warnings.extend(unused_servers(&bundle.settings, plan, &reached));
    warnings.extend(skipped_post_tool_hooks(&bundle.settings, plan, &reached));
    Ok(warnings)
}

/// Says that the workflow has agents, and none that may use the MCP servers of the settings.
fn unused_servers(settings: &RunSettings, plan: &Plan, reached: &Reached) -> Option<String> {
    let names: Vec<String> = settings.agent.mcp.keys().map(|name| format!("`{name}`")).collect();
    let specs = || reached.keys().map(|ix| plan.spec(*ix));
    let mut agents = specs().filter(|spec| spec.agent().is_some()).peekable();
    let has_more = specs().any(|spec| spec.kind == NodeKind::ManagerLoop);
    if names.is_empty() || has_more || agents.peek().is_none() {
        return None;
    }
    let is_full = |spec: &NodeSpec| permissions(settings, spec) == Some(Permissions::Full);
    (!agents.any(is_full)).then(|| {
        format!(
            "no agent of the workflow may use the MCP server {} (permissions=full allows it)",
            names.join(", ")
        )
    })
}

/// Warns if a blocking post-tool hook is combined with external agents.
fn skipped_post_tool_hooks(
    settings: &RunSettings,
    plan: &Plan,
    reached: &Reached,
) -> Option<String> {
    let is_waiting = |hook: &&Hook| hook.blocking && hook.event.is_after_call();
    let hook = settings.hooks.iter().find(is_waiting)?;
    let mut agents = reached.keys().filter_map(|ix| plan.spec(*ix).agent());
    let name = hook.name.as_deref().unwrap_or(hook.event.as_str());
    agents.any(|agent| agent.llm.backend != Backend::Api).then(|| {
        format!(
            "the hook `{name}` blocks, so it does not run after tools that other programs (backend=cli, acp) call"
        )
    })
}

/// Says that a hook would check the tool calls of an agent that is another program, and cannot.
fn unguarded(settings: &RunSettings, spec: &NodeSpec) -> Option<String> {
    let is_guard = |hook: &&Hook| hook.event == HookEvent::PreToolUse && hook.blocking;
    let guard = settings.hooks.iter().find(is_guard)?;
    let is_own = spec.llm().is_none_or(|llm| llm.backend == Backend::Api);
    let name = guard.name.as_deref().unwrap_or("pre_tool_use");
    (!is_own).then(|| {
        format!(
            "another program calls the tools of this agent, and the hook `{name}` cannot check that"
        )
    })
}

/// The permissions of an agent, as far as they are set.
fn permissions(settings: &RunSettings, spec: &NodeSpec) -> Option<Permissions> {
    spec.llm().and_then(|llm| llm.permissions).or(settings.agent.permissions)
}

/// A run, or a running sub-workflow of it, that is to be resumed.
pub(crate) struct Resumed {
    pub(crate) run: RunId,
    pub(crate) bundle: Bundle,
    pub(crate) plan: Plan,
    pub(crate) state: RunState,
}

/// Checks what the stages need that a run and its running sub-workflows can still come to; the run
/// itself is the first. Gives warnings, as [`check`] does.
///
/// # Errors
/// As those of [`check`].
pub(crate) fn check_resumed(
    members: &[Resumed],
    settings: &RunSettings,
    work_dir: &Path,
    servers: ServerModels,
) -> Result<Vec<String>, RunError> {
    let Some(root) = members.first() else { return Ok(Vec::new()) };
    let preflight = Preflight::new(settings, work_dir, servers)?;
    let mut all = Vec::new();
    // By run: what holds it, where in the file of the root, and whether that handles its failures.
    let mut holders: BTreeMap<RunId, Holder> = BTreeMap::new();
    for member in members {
        let Resumed { run, bundle, plan, state } = member;
        let parent = state.created.as_ref().and_then(|created| created.parent.as_ref());
        let above = parent.and_then(|parent| {
            let holder = members.iter().find(|it| it.run == parent.run_id)?;
            let (ix, node) = holder.plan.node(&parent.node_id)?;
            let outer = holders.get(&parent.run_id);
            let is_branch = reach::from_state(&holder.plan, &holder.state).get(&ix) == Some(&true);
            Some(Holder {
                span: outer.map_or(node.span, |outer| outer.span),
                prefix: format!(
                    "{}`{}`: {}: ",
                    outer.map_or("", |outer| &outer.prefix),
                    node.id,
                    bundle.file
                ),
                handles: outer.is_some_and(|outer| outer.handles)
                    || !pauses_when_unavailable(&holder.plan, ix, is_branch),
                depth: outer.map_or(0, |outer| outer.depth) + 1,
            })
        });
        let mut reached = reach::from_state(plan, state);
        // What has begun is a member of its own.
        for (node, _) in state.active().filter_map(|(_, at)| plan.node(&at.node)) {
            if members.iter().any(|it| it.is_child_of(*run, plan, node)) {
                reached.remove(&node);
            }
        }
        let subject = Subject {
            bundle,
            plan,
            reached: &reached,
            depth: above.as_ref().map_or(0, |above| above.depth),
            is_handled: above.as_ref().is_some_and(|above| above.handles),
        };
        let findings = preflight.findings(&subject)?.into_iter();
        all.extend(findings.map(|finding| match &above {
            None => finding,
            Some(above) => Diagnostic {
                span: above.span,
                message: format!("{}{}", above.prefix, finding.message),
                ..finding
            },
        }));
        holders.extend(above.map(|above| (*run, above)));
    }
    warnings_of(&root.bundle, all)
}

/// The stage that a sub-workflow is run by.
struct Holder {
    /// Its place in the file of the outermost run.
    span: Span,
    /// What messages of the sub-workflow begin with.
    prefix: String,
    /// Its failure is handled when nothing can be asked.
    handles: bool,
    depth: usize,
}

impl Resumed {
    fn is_child_of(&self, run: RunId, plan: &Plan, node: NodeIx) -> bool {
        let parent = self.state.created.as_ref().and_then(|created| created.parent.as_ref());
        parent.is_some_and(|it| it.run_id == run && it.node_id == plan.spec(node).id)
    }
}

/// The warnings among the findings, in the order of the file.
fn warnings_of(bundle: &Bundle, mut findings: Vec<Diagnostic>) -> Result<Vec<String>, RunError> {
    findings.sort_by_key(|finding| finding.span.start);
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        let path = PathBuf::from(&bundle.file);
        return Err(RunError::Invalid { path, text: bundle.source.clone(), findings });
    }
    let text = |finding: Diagnostic| match finding.fix {
        Some(fix) => format!("{} ({fix})", finding.message),
        None => finding.message,
    };
    Ok(findings.into_iter().map(text).collect())
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

/// Why the branches of a stage cannot have git worktrees of their own, and what to do.
fn not_isolated(settings: &RunSettings, spec: &NodeSpec) -> Option<(&'static str, &'static str)> {
    if spec.parallel()?.isolation == Isolation::None {
        return None;
    }
    if settings.sandbox.is_mounted() {
        let message = "isolation=worktree makes directories after the container has started, which it does not see";
        return Some((message, "set `run.sandbox.workspace = \"copy\"`"));
    }
    (settings.git.worktree != Some(true)).then_some((
        "isolation=worktree needs a run with a git worktree of its own",
        "set `worktree = true` in [run.git], or remove isolation=worktree",
    ))
}

/// Something that a stage needs and does not have.
struct Missing {
    /// The attribute that names it; the node itself when it has none.
    attribute: &'static str,
    message: String,
    fix: String,
    consequence: Consequence,
}

/// What follows when the stage is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consequence {
    /// Nothing can be asked: an error, unless the workflow handles that.
    NothingToAsk,
    /// A mistake, or a failure that nothing handles: an error.
    Failure,
    /// The stage may do without it after all, or its failure is handled: a warning.
    None,
}

impl Consequence {
    fn severity(self, is_handled: bool) -> Severity {
        match self {
            Self::Failure => Severity::Error,
            Self::NothingToAsk if !is_handled => Severity::Error,
            Self::NothingToAsk | Self::None => Severity::Warning,
        }
    }
}

/// A workflow, and which of its nodes are looked at.
struct Subject<'a> {
    bundle: &'a Bundle,
    plan: &'a Plan,
    reached: &'a Reached,
    /// How many workflows it is inside of.
    depth: usize,
    /// A stage that it is a sub-workflow of handles that nothing can be asked.
    is_handled: bool,
}

struct Preflight<'a> {
    settings: &'a RunSettings,
    models: Models,
    defaults: ModelDefaults,
    catalog: Catalog,
    path: Vec<PathBuf>,
    work_dir: &'a Path,
    /// The models that servers list.
    servers: ServerModels,
}

impl<'a> Preflight<'a> {
    fn new(
        settings: &'a RunSettings,
        work_dir: &'a Path,
        servers: ServerModels,
    ) -> Result<Self, SetupError> {
        Ok(Self {
            settings,
            models: Models::new(settings)?,
            defaults: settings.model_defaults(),
            catalog: catalog(&settings.models),
            path: search_path(settings),
            work_dir,
            servers,
        })
    }

    fn findings(&self, subject: &Subject<'_>) -> Result<Vec<Diagnostic>, BundleError> {
        let Subject { bundle, plan, reached, depth, is_handled } = subject;
        let mut findings = Vec::new();
        let mut unknown = BTreeSet::new();
        for (ix, is_branch) in *reached {
            let spec = plan.spec(*ix);
            let node = plan.workflow().node(*ix);
            let is_handled = *is_handled || !pauses_when_unavailable(plan, *ix, *is_branch);
            if let Some(missing) = self.missing(plan, spec, &mut unknown) {
                let attr = node.attrs.get(missing.attribute);
                findings.push(Diagnostic {
                    severity: missing.consequence.severity(is_handled),
                    ..Diagnostic::error(
                        UNAVAILABLE,
                        attr.map_or(node.span, |attr| attr.span),
                        format!("`{}`: {}", node.id, missing.message),
                    )
                    .with_fix(missing.fix)
                });
            }
            findings.extend(unguarded(self.settings, spec).map(|message| {
                let fix = "use a model of a provider for this node, or set `blocking = false` to be told only";
                let message = format!("`{}`: {message}", node.id);
                Diagnostic::error("unguarded", node.span, message).with_fix(fix)
            }));
            findings.extend(not_isolated(self.settings, spec).map(|(message, fix)| {
                let span = node.attrs.get("isolation").map_or(node.span, |attr| attr.span);
                Diagnostic::error("isolation", span, format!("`{}`: {message}", node.id))
                    .with_fix(fix)
            }));
            if spec.kind == NodeKind::ManagerLoop && *depth < MAX_SUB_WORKFLOW_DEPTH {
                let child = bundle.child(node)?;
                let plan = child.plan()?;
                let reached = reach::from_start(&plan);
                let inner = Subject {
                    bundle: &child,
                    plan: &plan,
                    reached: &reached,
                    depth: depth + 1,
                    is_handled,
                };
                for inner in self.findings(&inner)? {
                    let message = format!("`{}`: {}: {}", node.id, child.file, inner.message);
                    findings.push(Diagnostic { span: node.span, message, ..inner });
                }
            }
        }
        plan.workflow().place(&mut findings);
        Ok(findings)
    }

    /// What the stage lacks. `unknown` has the models that were reported as unknown before.
    fn missing(
        &self,
        plan: &Plan,
        spec: &NodeSpec,
        unknown: &mut BTreeSet<String>,
    ) -> Option<Missing> {
        match &spec.body {
            // What is installed in another place is found out there.
            NodeBody::Command(command)
                if command.language == Language::Python && !self.settings.sandbox.is_remote() =>
            {
                let missing =
                    self.program("language", "python3", "install Python 3, or use a shell script")?;
                let is_certain = missing.consequence != Consequence::None;
                let is_failure = is_certain && !handles_failure(plan, spec);
                let consequence = if is_failure { Consequence::Failure } else { Consequence::None };
                Some(Missing { consequence, ..missing })
            }
            NodeBody::Agent(agent) => self.asked(plan, spec, &agent.llm, unknown),
            NodeBody::Prompt(llm) => self.asked(plan, spec, llm, unknown),
            NodeBody::FanIn(Some(llm), _) => self.model(plan, spec, llm, unknown),
            _ => None,
        }
    }

    fn asked(
        &self,
        plan: &Plan,
        spec: &NodeSpec,
        llm: &LlmSpec,
        unknown: &mut BTreeSet<String>,
    ) -> Option<Missing> {
        let sandbox = &self.settings.sandbox;
        if let Some((message, fix)) = program_elsewhere(sandbox, llm) {
            return Some(Missing {
                attribute: "backend",
                message,
                fix: fix.to_owned(),
                consequence: Consequence::Failure,
            });
        }
        if llm.backend != Backend::Api && !sandbox.has_network() {
            return Some(Missing {
                attribute: "backend",
                message: "another program asks the model, and the sandbox has no network"
                    .to_owned(),
                fix: "set `run.sandbox.network = true`, or use a model of a provider".to_owned(),
                consequence: Consequence::Failure,
            });
        }
        match &llm.backend {
            Backend::Api => self.model(plan, spec, llm, unknown).or_else(|| self.server(spec)),
            Backend::Cli => {
                let provider = self.defaults.provider_of(plan, spec).or_else(|| {
                    let model = self.defaults.model_of(plan, spec)?;
                    self.catalog.find(&model)?.provider.clone()
                });
                let provider = provider.as_deref().unwrap_or("anthropic");
                let Some(agent) = CliAgent::of_provider(provider) else {
                    return Some(Missing {
                        attribute: "backend",
                        message: format!("no command-line agent asks the provider `{provider}`"),
                        fix: "name another one for the node, as in provider=anthropic (claude), openai (codex), gemini or antigravity (agy)".to_owned(),
                        consequence: Consequence::Failure,
                    });
                };
                let missing = self.program("backend", agent.name(), &agent.install())?;
                let other = agent.successor();
                let is_there = |other: CliAgent| self.program("", other.name(), "").is_none();
                (!other.is_some_and(is_there)).then_some(missing)
            }
            Backend::Acp { command, .. } => {
                let none = Value::Object(Map::new());
                let acp = Acp::new(command.as_deref()?, &none).ok()?;
                self.program("acp.command", acp.program(), "install it, or correct the command")
            }
        }
    }

    /// What is missing of the model that the stage asks, and of those it may ask instead.
    fn model(
        &self,
        plan: &Plan,
        spec: &NodeSpec,
        llm: &LlmSpec,
        unknown: &mut BTreeSet<String>,
    ) -> Option<Missing> {
        let providers = match &self.models {
            Models::Missing => return None,
            Models::Script(script) if script.has_turns(&spec.id) => return None,
            Models::Script(script) => {
                let unused = script.names().filter(|name| plan.find(name).is_none());
                let fix = match nearest(&spec.id, unused) {
                    Some(near) => format!(
                        "the script has a list for \"{near}\", which is no node: did you mean \"{}\"?",
                        spec.id
                    ),
                    None => {
                        format!("add a list for \"{}\" to the script, or one for \"*\"", spec.id)
                    }
                };
                return Some(Missing {
                    attribute: "",
                    message: "the model script has no turns for it".to_owned(),
                    fix,
                    consequence: Consequence::NothingToAsk,
                });
            }
            Models::Providers(providers) => providers,
        };
        let provider = self.defaults.provider_of(plan, spec);
        if let Some(name) = provider.as_deref().filter(|name| !self.is_known(name)) {
            let configured = self.settings.providers.iter().map(|it| it.name.as_str());
            let (message, fix) = unknown_provider(name, configured);
            let consequence = Consequence::Failure;
            return Some(Missing { attribute: "provider", message, fix, consequence });
        }
        let mut request = Request::new(Vec::new());
        request.provider = provider;
        request.model = self.defaults.model_of(plan, spec);
        let error = match providers.route(&request) {
            Ok((provider, model)) => {
                return self
                    .unlisted_model(&request, &provider.name, &model)
                    .or_else(|| foreign_model(providers, &request, &provider.name, unknown))
                    .or_else(|| self.misspelled_provider(&request, &provider.name, unknown))
                    .or_else(|| self.unknown_model(provider, model, unknown));
            }
            Err(error) => error,
        };
        let own = llm.fallbacks.as_ref().map(|own| own.iter().map(ToString::to_string).collect());
        let fallbacks: Vec<String> = own.unwrap_or_else(|| self.settings.fallbacks.clone());
        let is_answered = fallbacks.iter().any(|name| {
            let Fallback { provider, model } = Fallback::new(name.as_str());
            let mut request = Request::new(Vec::new());
            request.provider = provider;
            request.model = model;
            providers.route(&request).is_ok()
        });
        let consequence = if is_answered { Consequence::None } else { Consequence::NothingToAsk };
        if let Some(provider) = providers.provider_of_unnamed(&request) {
            let name = &provider.name;
            let unnamed = self.servers.unnamed.get(name);
            let (message, fix) = unnamed.map_or_else(
                || (no_model(name), "name a model with `model`".to_owned()),
                |unnamed| (unnamed.message(name), unnamed.fix.clone()),
            );
            return Some(Missing { attribute: "provider", message, fix, consequence });
        }
        // Where no provider can be chosen, the name may be the mistake.
        let name = request.model.as_deref();
        let near = name.and_then(|name| unknown_model(&self.catalog, name)?.near);
        let fix = match near {
            Some(near) => format!("did you mean `{near}`? else configure the provider"),
            None => "configure the provider, or choose another model".to_owned(),
        };
        Some(Missing { attribute: "model", message: error.message, fix, consequence })
    }

    /// Reports an unknown model that its server does not list: the server may answer with another
    /// model.
    fn unlisted_model(&self, request: &Request, provider: &str, model: &str) -> Option<Missing> {
        let listed = self.servers.listed.get(provider)?;
        let UnknownModel { near, .. } = unknown_model(&self.catalog, model)?;
        let is_listed = listed.as_ref().is_ok_and(|models| models.iter().any(|it| it == model));
        if is_listed || is_named(self.settings, request, model) {
            return None;
        }
        let described = || {
            format!(
                "describe the model as [models.\"{model}\"] in the settings, or correct the name"
            )
        };
        let (message, fix) = match listed {
            Err(why) => (
                format!(
                    "neither the catalog nor the settings name the model `{model}`, and `{provider}` does not list its models: {why}"
                ),
                described(),
            ),
            Ok(models) => {
                let of_provider = || {
                    let (prefix, rest) = model.split_once('/')?;
                    let names = self.settings.providers.iter().map(|it| it.name.as_str());
                    Some(format!("{}/{rest}", nearest(prefix, names)?))
                };
                let listed =
                    || nearest(model, models.iter().map(String::as_str)).map(str::to_owned);
                let fix = match of_provider().or_else(listed).or(near) {
                    Some(near) => format!("did you mean `{near}`? {}", list_text(models)),
                    None if models.is_empty() => described(),
                    None => format!("{}; or {}", list_text(models), described()),
                };
                (
                    format!(
                        "`{provider}` does not list the model `{model}`, and neither the catalog nor the settings name it"
                    ),
                    fix,
                )
            }
        };
        Some(Missing { attribute: "model", message, fix, consequence: Consequence::Failure })
    }

    /// A model that its provider probably does not have, the first time.
    fn unknown_model(
        &self,
        provider: &Provider,
        model: String,
        unknown: &mut BTreeSet<String>,
    ) -> Option<Missing> {
        if serves_any_model(provider.kind, provider.base_url.as_deref()) {
            return None;
        }
        let UnknownModel { message, fix, .. } = unknown_model(&self.catalog, &model)?;
        let consequence = Consequence::None;
        let is_first = unknown.insert(model);
        is_first.then_some(Missing { attribute: "model", message, fix, consequence })
    }

    fn is_known(&self, name: &str) -> bool {
        ProviderKind::parse(name).is_some()
            || self.settings.providers.iter().any(|provider| provider.name == name)
    }

    /// The first MCP server whose program is missing, for an agent that may use it.
    fn server(&self, spec: &NodeSpec) -> Option<Missing> {
        spec.agent()?;
        if permissions(self.settings, spec) != Some(Permissions::Full) {
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

    /// A model whose name begins with nearly the name of a provider, the first time: it is asked for by its whole
    /// name.
    fn misspelled_provider(
        &self,
        request: &Request,
        provider: &str,
        unknown: &mut BTreeSet<String>,
    ) -> Option<Missing> {
        let model = request.model.as_deref().filter(|_| request.provider.is_none())?;
        let (prefix, rest) = model.split_once('/')?;
        if self.is_known(prefix) || self.settings.models.contains_key(model) {
            return None;
        }
        let near = nearest(prefix, self.settings.providers.iter().map(|it| it.name.as_str()))?;
        let is_first = unknown.insert(model.to_owned());
        is_first.then(|| Missing {
            attribute: "model",
            message: format!(
                "there is no provider `{prefix}`; asking {provider} for a model `{model}`"
            ),
            fix: format!("did you mean `{near}/{rest}`?"),
            consequence: Consequence::None,
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
            consequence: if self.settings.prepare.is_empty() {
                Consequence::NothingToAsk
            } else {
                Consequence::None
            },
        })
    }
}

/// A model of a vendor that is not configured, the first time: another provider is asked.
fn foreign_model(
    providers: &Providers,
    request: &Request,
    provider: &str,
    unknown: &mut BTreeSet<String>,
) -> Option<Missing> {
    let owner = providers.absent_owner(request)?;
    let model = request.model.clone()?;
    let message =
        format!("`{model}` is a model of {owner}, which is not configured; asking {provider}");
    let fix = format!("write `{provider}/{model}` if that is right, else configure {owner}");
    let is_first = unknown.insert(model);
    let consequence = Consequence::None;
    is_first.then_some(Missing { attribute: "model", message, fix, consequence })
}

/// The directories in which programs are looked for.
fn search_path(settings: &RunSettings) -> Vec<PathBuf> {
    let own = settings.env.get("PATH");
    let own = own.and_then(|path| expand_variables(path, variable).ok());
    let path = own.or_else(|| variable("PATH")).unwrap_or_default();
    std::env::split_paths(&path).collect()
}

/// Whether the workflow says what follows when a command fails.
fn handles_failure(plan: &Plan, spec: &NodeSpec) -> bool {
    let on_failure = spec.on_failure.or(plan.graph().on_failure);
    let Some(ix) = plan.workflow().find(&spec.id) else { return false };
    spec.allow_partial
        || spec.auto_status
        || on_failure.is_some_and(OnFailure::allows_success)
        || spec.retry_targets.first.or(spec.retry_targets.fallback).is_some()
        || plan.deciding_edges(ix).any(|edge| edge.condition.is_some())
}

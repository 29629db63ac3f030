//! Lowering: from attributes by name to typed specifications, with their default values.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fabro_graph::schema;
use fabro_graph::{Attr, Attrs, Diagnostic, Edge, EdgeIx, Node, Span, Workflow};
use fabro_template::{Mode, Template};
use fabro_types::{NodeKind, Severity, Status, SyntaxError, excerpt, tool_names};
use strum::EnumString;

use crate::compiled::{Compiled, Compiler, SCRIPT_VALUE};
use crate::constants::Constants;
use crate::spec::{
    AgentSpec, Backend, CommandSpec, EdgeCondition, EdgeSpec, ExitSpec, ForEachSpec, GraphSpec,
    HumanSpec, InputSpec, JoinPolicy, Language, LlmSpec, ManagerSpec, NodeBody, NodeSpec,
    OutputSpec, ParallelSpec, RetryPolicy, RetryTargets, ShowSpec, TextTemplate, VisitLimit,
};

/// How often an answer that does not match its schema is sent back, unless the node says.
const OUTPUT_RETRIES: u32 = 2;

/// What a gate may say about an option besides its label.
const ABOUT_OPTION: [&str; 2] = ["human.description", "human.preview"];

/// How many steps the searches for the ends of lists take in one workflow: only lists that overlap
/// each other many times over need more.
const SEARCH_STEPS: usize = 500_000;

/// The specifications of a workflow, as far as they have no errors: what validation looks at.
#[derive(Clone, Debug)]
pub struct Specs {
    /// Of the graph.
    pub graph: GraphSpec,
    /// Of the nodes, by index.
    pub nodes: Vec<NodeSpec>,
    /// Of the edges, by index.
    pub edges: Vec<EdgeSpec>,
    /// Conditions, templates and schemas by their attribute.
    pub compiled: Compiled,
    /// Whether an attribute reads a [constant](Constants).
    pub reads_constants: bool,
    /// What reading the workflow has found, and all errors of its attributes.
    pub findings: Vec<Diagnostic>,
}

impl Specs {
    /// Lowers every attribute once. What has an error is left out of the specifications. Without
    /// `constants`, templates that read them stay as they are written.
    pub fn lower(workflow: &Workflow, constants: Option<&Constants>) -> Self {
        let mut findings = workflow.findings().to_vec();
        findings.extend(not_applied(workflow));
        findings.extend(start_errors(workflow));
        let compiler = Compiler {
            workflow,
            constants,
            reads_constants: false,
            compiled: Compiled::default(),
            findings,
        };
        let mut lowering =
            Lowering { attrs: workflow.attrs(), compiler, search_steps: SEARCH_STEPS };
        let graph = lowering.graph();
        let mut nodes: Vec<_> = workflow.nodes().map(|node| lowering.node(node)).collect();
        let edges: Vec<_> = workflow.edges().map(|edge| lowering.edge(edge)).collect();
        spare_deterministic_failures(workflow, &mut nodes, &edges);
        let Compiler { compiled, reads_constants, findings, .. } = lowering.compiler;
        Self { graph, nodes, edges, compiled, reads_constants, findings }
    }
}

/// `max_retries` alone does not retry a deterministic failure if the workflow handles it: with a retry
/// target of the node, or with an edge that selects failures.
fn spare_deterministic_failures(workflow: &Workflow, nodes: &mut [NodeSpec], edges: &[EdgeSpec]) {
    for ix in workflow.node_indices() {
        let attrs = &workflow.node(ix).attrs;
        if attrs.int("max_retries").is_none() || has_text(attrs, "retry_policy") {
            continue;
        }
        let is_for_failure = |edge: EdgeIx| {
            let condition = edges[edge.index()].condition.as_ref();
            condition.is_some_and(|condition| condition.parsed.is_for_failure())
        };
        let spec = &mut nodes[ix.index()];
        spec.retry.spares_deterministic = spec.retry_targets != RetryTargets::default()
            || workflow.deciding_edges(ix).any(is_for_failure);
    }
}

/// Files that were not read and a stylesheet that was not applied: a run without them would be
/// another one than the workflow says.
fn not_applied(workflow: &Workflow) -> Vec<Diagnostic> {
    let finding = |attr: &Attr, message| {
        Diagnostic::error("not-prepared", attr.span, message).with_fix(
            "load the workflow with `fabro_validate::prepare`, which reads files and applies the stylesheet",
        )
    };
    let unread = workflow.unresolved_files().map(|attr| {
        let text = attr.value.as_text();
        let text = excerpt(&text, 100);
        finding(attr, format!("`{}` is still `{text}`: no files have been read", attr.written))
    });
    let stylesheet = workflow.unapplied_stylesheet().map(|attr| {
        finding(attr, "the model stylesheet has not been applied to the nodes".to_owned())
    });
    let imports = workflow.unread_imports().map(|attr| {
        let text = attr.value.as_text();
        finding(attr, format!("`import` is still `{}`: it has not been read", excerpt(&text, 100)))
    });
    unread.chain(imports).chain(stylesheet).collect()
}

/// A run begins at the one start node.
fn start_errors(workflow: &Workflow) -> Vec<Diagnostic> {
    let mut starts = workflow.nodes().filter(|node| node.kind == NodeKind::Start);
    let Some(first) = starts.next() else {
        let message = "the workflow has no start node";
        let finding = Diagnostic::error("start-node", workflow.head_span(), message);
        return vec![finding.with_fix("add a node with the id `start`, or with shape=Mdiamond")];
    };
    let second = |other: &Node| {
        let message = format!("`{}` is a second start node, after `{}`", other.id, first.id);
        Diagnostic::error("start-node", other.span, message)
            .with_fix("keep one of them, and give the other a handler of its own")
    };
    starts.map(second).collect()
}

pub(crate) struct Lowering<'w> {
    /// The graph's own attributes, which have defaults for nodes.
    attrs: &'w Attrs,
    pub(crate) compiler: Compiler<'w>,
    /// What is left for the searches for the ends of lists.
    pub(crate) search_steps: usize,
}

impl Lowering<'_> {
    fn graph(&mut self) -> GraphSpec {
        let attrs = self.attrs;
        let stall_timeout = attrs.duration("stall_timeout").unwrap_or(Duration::from_mins(30));
        let signature_limit = attrs.int("loop_restart_signature_limit").map_or(3, count);
        if let Some(stylesheet) = attrs.get("model_stylesheet") {
            // It has been applied; errors in its templates are reported here.
            self.compiler.is_constant(stylesheet);
        }
        GraphSpec {
            goal: attrs.get("goal").and_then(|attr| self.compiler.goal(attr)),
            default_model: self.constant(attrs, "default_model"),
            default_provider: attrs.shared_text("default_provider"),
            default_fidelity: self.word(attrs, "default_fidelity"),
            default_thread: attrs.shared_text("default_thread"),
            max_cost: attrs.float("max_cost"),
            max_tokens: attrs.int("max_tokens_total").and_then(|max| u64::try_from(max).ok()),
            stall_timeout: Some(stall_timeout).filter(|limit| !limit.is_zero()),
            retry_targets: self.retry_targets(attrs),
            signature_limit,
            on_failure: self.parsed(attrs, "on_failure"),
            on_unavailable: self.parsed(attrs, "on_unavailable"),
        }
    }

    fn node(&mut self, node: &Node) -> NodeSpec {
        let attrs = &node.attrs;
        let max_visits = attrs.int("max_visits").or_else(|| self.attrs.int("max_node_visits"));
        NodeSpec {
            id: Arc::clone(&node.id),
            label: self.node_label(node),
            kind: node.kind,
            timeout: attrs.duration("timeout").filter(|limit| !limit.is_zero()),
            max_visits: visit_limit(max_visits),
            retry: self.retry_policy(node),
            retry_targets: self.retry_targets(attrs),
            fidelity: self.parsed(attrs, "fidelity"),
            thread_id: attrs.shared_text("thread_id"),
            goal_gate: attrs.is_true("goal_gate"),
            auto_status: attrs.is_true("auto_status"),
            allow_partial: attrs.is_true("allow_partial"),
            on_failure: self.parsed(attrs, "on_failure"),
            on_unavailable: self.parsed(attrs, "on_unavailable"),
            selection: self.word(attrs, "selection"),
            body: self.body(node),
        }
    }

    /// Texts are compiled for every kind of node: an error in one that has no effect is an error too.
    fn body(&mut self, node: &Node) -> NodeBody {
        let attrs = &node.attrs;
        let prompt = self.prompt(node);
        let script = attrs.get("script").and_then(|attr| self.compiler.template(attr));
        let output = self.output(attrs);
        let stop = attrs.get("manager.stop_condition");
        let stop_condition = stop.and_then(|attr| self.compiler.condition(attr));
        let for_each = self.for_each(node);
        match node.kind {
            NodeKind::Start => NodeBody::Start,
            NodeKind::Exit => NodeBody::Exit(self.exit(attrs)),
            NodeKind::Conditional => NodeBody::Conditional,
            NodeKind::Agent => {
                let llm = self.llm(attrs, prompt, output);
                NodeBody::Agent(Box::new(self.agent(attrs, llm)))
            }
            NodeKind::Prompt => NodeBody::Prompt(Box::new(self.llm(attrs, prompt, output))),
            NodeKind::FanIn => {
                let asks = has_text(attrs, "prompt");
                let llm = asks.then(|| Box::new(self.llm(attrs, prompt, output)));
                NodeBody::FanIn(llm, self.word(attrs, "merge"))
            }
            NodeKind::Command => NodeBody::Command(self.command(attrs, script, output)),
            NodeKind::Human => NodeBody::Human(HumanSpec {
                question: self.question(node),
                show: self.show(attrs),
                review_target: attrs.is_true("review_target"),
                question_type: self.word(attrs, "question_type"),
                default_choice: attrs.shared_text("human.default_choice"),
            }),
            NodeKind::Parallel => NodeBody::Parallel(self.parallel(attrs, for_each)),
            NodeKind::Wait => NodeBody::Wait(attrs.duration("duration")),
            NodeKind::ManagerLoop => {
                let stop_condition = stop_condition.filter(|condition| !condition.is_always());
                let inputs = self.inputs(attrs);
                NodeBody::Manager(Box::new(manager(attrs, inputs, stop_condition)))
            }
        }
    }

    fn exit(&mut self, attrs: &Attrs) -> ExitSpec {
        let status = attrs.get("status").filter(|_| has_text(attrs, "status"));
        let status = status.and_then(|attr| {
            let text = attr.value.as_text();
            let status = Status::parse(text.trim()).filter(|status| *status != Status::Skipped);
            if status.is_none() {
                let message = format!("`{}` is not a status of a run", excerpt(&text, 40));
                let fix = "use `failed`, `succeeded` or `partially_succeeded`";
                let finding = Diagnostic::error("attribute-value", attr.span, message);
                self.compiler.findings.push(finding.with_fix(fix));
            }
            status
        });
        let reason = attrs.get("reason").filter(|_| has_text(attrs, "reason"));
        ExitSpec { status, reason: reason.and_then(|attr| self.compiler.template(attr)) }
    }

    fn constant(&mut self, attrs: &Attrs, name: &str) -> Option<Arc<str>> {
        self.compiler.constant(attrs.get(name)?)
    }

    /// The label as people see it, else the id. That of a model stage without a prompt, or of a gate, is
    /// rendered when the stage runs.
    fn node_label(&mut self, node: &Node) -> Arc<str> {
        let is_text = node.kind.is_llm() || node.kind == NodeKind::Human;
        let label = node.attrs.get("label").and_then(|attr| {
            if is_text { attr.value.shared_text() } else { self.compiler.label(attr) }
        });
        label.filter(|label| !label.is_empty()).unwrap_or_else(|| Arc::clone(&node.id))
    }

    /// The prompt, or for a model stage without one its label.
    fn prompt(&mut self, node: &Node) -> TextTemplate {
        let attrs = &node.attrs;
        let prompt = attrs.get("prompt").filter(|_| has_text(attrs, "prompt"));
        let label = || attrs.get("label").filter(|_| node.kind.is_llm());
        let compiled = prompt.or_else(label).and_then(|attr| self.compiler.template(attr));
        compiled.unwrap_or_else(|| plain(&node.id))
    }

    /// The question of a gate: its label, else its id.
    fn question(&mut self, node: &Node) -> TextTemplate {
        let label = node.attrs.get("label").filter(|_| has_text(&node.attrs, "label"));
        match label.filter(|attr| attr.value.text().is_some()) {
            Some(attr) => self.compiler.template(attr).unwrap_or_else(|| plain(&node.id)),
            None => plain(
                &label.map_or_else(|| Arc::clone(&node.id), |attr| attr.value.as_text().into()),
            ),
        }
    }

    /// Context keys or `last`, separated by commas or whitespace, or a text with templates.
    fn show(&mut self, attrs: &Attrs) -> Vec<ShowSpec> {
        let Some(attr) = attrs.get("show").filter(|_| has_text(attrs, "show")) else {
            return vec![ShowSpec::Last];
        };
        let text = attr.value.as_text();
        if text.contains("{{") || text.contains("{%") {
            return self.compiler.template(attr).map(ShowSpec::Text).into_iter().collect();
        }
        let names = text.split(|c: char| c == ',' || c.is_whitespace());
        let names = names.filter(|name| !name.is_empty());
        names
            .map(|name| match name.strip_prefix("context.").unwrap_or(name) {
                "last" => ShowSpec::Last,
                key => ShowSpec::Key(key.into()),
            })
            .collect()
    }

    fn output(&mut self, attrs: &Attrs) -> OutputSpec {
        let Some(attr) = attrs.get("output_schema") else { return OutputSpec::Free };
        match attr.value.text().map(str::trim) {
            None | Some("") => OutputSpec::Free,
            Some("routing") => OutputSpec::Routing,
            Some(text) if is_missing_file(attr, text) => OutputSpec::Free,
            Some(_) => self.compiler.schema(attr).map_or(OutputSpec::Free, OutputSpec::Schema),
        }
    }

    fn llm(&mut self, attrs: &Attrs, prompt: TextTemplate, output: OutputSpec) -> LlmSpec {
        let number = |name| attrs.int(name).and_then(|max| u32::try_from(max).ok());
        let graph = self.attrs;
        let memory = self.parsed(attrs, "memory").or_else(|| self.parsed(graph, "memory"));
        let rag = attrs.text("rag").map(str::trim).filter(|globs| !globs.is_empty());
        LlmSpec {
            prompt,
            model: self.constant(attrs, "model"),
            provider: attrs.shared_text("provider"),
            reasoning_effort: attrs.shared_text("reasoning_effort"),
            speed: attrs.shared_text("speed"),
            max_tokens: number("max_tokens"),
            max_turns: number("max_turns"),
            fallbacks: attrs
                .text("fallbacks")
                .map(|names| tool_names(names).map(Arc::from).collect()),
            backend: self.backend(attrs),
            output,
            output_retries: attrs.int("output_retries").map_or(OUTPUT_RETRIES, count),
            permissions: self.parsed(attrs, "permissions"),
            memory_turns: memory == Some(Memory::Turns),
            rag: rag.map(Arc::from),
        }
    }

    fn backend(&mut self, attrs: &Attrs) -> Backend {
        match self.word(attrs, "backend") {
            Backend::Acp { .. } => Backend::Acp {
                command: self.constant(attrs, "acp.command"),
                config: attrs.get("acp.config").and_then(|attr| self.acp_config(attr)),
            },
            backend => backend,
        }
    }

    fn acp_config(&mut self, attr: &Attr) -> Option<serde_json::Value> {
        let text = attr.value.as_text();
        match serde_json::from_str(&text) {
            Ok(config) => Some(config),
            Err(error) => {
                let message = format!("acp.config is not JSON: {error}");
                let fix = "write a JSON object such as {\"mode\": \"ask\"}";
                let whole = Span::new(0, text.len());
                self.compiler.report(
                    "attribute-value",
                    attr,
                    &SyntaxError::new(message, whole).with_fix(fix),
                );
                None
            }
        }
    }

    fn edge(&mut self, edge: &Edge) -> EdgeSpec {
        let attrs = &edge.attrs;
        let condition = attrs.get("condition").filter(|_| edge.condition().is_some());
        let condition = condition.and_then(|attr| {
            let parsed = self.compiler.condition(attr)?;
            let is_filled = self.compiler.constants.is_some() && edge.condition()?.contains("{{");
            let text = if is_filled { parsed.to_string().into() } else { edge.condition()?.into() };
            Some(EdgeCondition { text, parsed })
        });
        let is_option = self.compiler.workflow.node(edge.from).kind == NodeKind::Human;
        let label = attrs.get("label").and_then(|attr| {
            if is_option { attr.value.shared_text() } else { self.compiler.label(attr) }
        });
        EdgeSpec {
            from: edge.from,
            to: edge.to,
            label: label.filter(|label| !label.is_empty()),
            option: self.option(edge),
            about: if is_option { self.about(attrs) } else { Vec::new() },
            condition,
            weight: edge.weight(),
            fidelity: self.parsed(attrs, "fidelity"),
            thread_id: attrs.shared_text("thread_id"),
            loop_restart: attrs.is_true("loop_restart"),
            freeform: attrs.is_true("freeform"),
        }
    }

    /// The label of a gate's edge, if it has templates.
    fn option(&mut self, edge: &Edge) -> Option<TextTemplate> {
        let is_option = self.compiler.workflow.node(edge.from).kind == NodeKind::Human;
        let attr =
            edge.attrs.get("label").filter(|attr| is_option && attr.value.text().is_some())?;
        self.compiler.template(attr).filter(|label| !label.template.is_plain())
    }

    fn about(&mut self, attrs: &Attrs) -> Vec<TextTemplate> {
        let texts = ABOUT_OPTION.iter().filter(|name| has_text(attrs, name));
        let attrs: Vec<_> = texts.filter_map(|name| attrs.get(name)).collect();
        attrs.into_iter().filter_map(|attr| self.compiler.template(attr)).collect()
    }

    fn retry_targets(&self, attrs: &Attrs) -> RetryTargets {
        // Names of nodes that do not exist are findings of validation.
        let target = |name| self.compiler.workflow.find(attrs.text(name)?);
        RetryTargets { first: target("retry_target"), fallback: target("fallback_retry_target") }
    }

    /// `retry_policy` is a preset; `max_retries` replaces its number of attempts, or is a policy of
    /// its own.
    fn retry_policy(&mut self, node: &Node) -> RetryPolicy {
        let attempts = |retries: i64| count(retries).saturating_add(1);
        let own = node.attrs.int("max_retries").map(attempts);
        let named = self.parsed(&node.attrs, "retry_policy").map(RetryPreset::policy);
        match (named, own) {
            (Some(named), Some(attempts)) => RetryPolicy { attempts, ..named },
            (Some(named), None) => named,
            (None, Some(attempts)) => retries_of_any_failure(attempts, 5_000, 2),
            // The stages of its branches have been retried as the graph says.
            (None, None) if node.kind == NodeKind::Parallel => retries_of_any_failure(1, 0, 1),
            (None, None) => {
                let attempts = self.attrs.int("default_max_retries").map_or(1, attempts);
                RetryPolicy { any_failure: false, ..retries_of_any_failure(attempts, 5_000, 2) }
            }
        }
    }

    fn agent(&mut self, attrs: &Attrs, llm: LlmSpec) -> AgentSpec {
        AgentSpec {
            llm,
            tools: attrs.text("tools").map(|names| tool_names(names).map(Arc::from).collect()),
            context_tool: self.word(attrs, "context_tool"),
            project_memory: attrs.bool("project_memory") != Some(false),
        }
    }

    fn command(
        &mut self,
        attrs: &Attrs,
        script: Option<TextTemplate>,
        output: OutputSpec,
    ) -> CommandSpec {
        let language = self.word(attrs, "language");
        let env = self.variables(attrs);
        if let (Some(attr), Some(script)) = (attrs.get("script"), &script) {
            let mode = match language {
                Language::Shell => Mode::Shell,
                Language::Python => Mode::Python,
            };
            self.compiler.values_in_script(attr, script, mode);
            if language == Language::Shell {
                self.evaluated_variables(attrs, script, &env);
            }
        }
        let stdin = attrs.text("stdin_source").map(str::trim).filter(|key| !key.is_empty());
        let merge_stderr = attrs.bool("merge_stderr") == Some(true);
        let stdin = stdin.map(|key| key.strip_prefix("context.").unwrap_or(key).into());
        CommandSpec { script, language, env, stdin, merge_stderr, output }
    }

    /// Variables that hold values, where the script evaluates them.
    fn evaluated_variables(
        &mut self,
        attrs: &Attrs,
        script: &TextTemplate,
        env: &[(Arc<str>, TextTemplate)],
    ) {
        let is_value =
            |text: &TextTemplate| !text.template.is_plain() && !text.template.is_number();
        if !env.iter().any(|(_, text)| is_value(text)) {
            return;
        }
        let Some(evaluated) = script.template.evaluated() else { return };
        for (name, _) in
            env.iter().filter(|(name, text)| is_value(text) && evaluated.contains(&**name))
        {
            let Some(attr) = attrs.get(&format!("env.{name}")) else { continue };
            let message = format!(
                "`{name}` holds a value, and the script evaluates `{name}` as code or in arithmetic"
            );
            let fix = format!(
                "end the value in `| int`, or use \"${name}\" only as a word that is not evaluated"
            );
            let finding = Diagnostic::error(SCRIPT_VALUE, attr.key_span, message).with_fix(fix);
            self.compiler.findings.push(finding);
        }
    }

    /// The attributes `env.NAME` of a command.
    fn variables(&mut self, attrs: &Attrs) -> Vec<(Arc<str>, TextTemplate)> {
        let mut variables = Vec::new();
        for attr in attrs.iter() {
            let Some(name) = schema::env_name(&attr.name) else { continue };
            let value = match attr.value.text() {
                Some(_) => self.compiler.template(attr),
                None => Some(plain(&attr.value.as_text().into())),
            };
            let Some(value) = value else { continue };
            match variable_error(name, &value) {
                Some((message, fix)) => {
                    let finding = Diagnostic::error("attribute-value", attr.key_span, message);
                    self.compiler.findings.push(finding.with_fix(fix));
                }
                None => variables.push((Arc::from(name), value)),
            }
        }
        variables
    }

    /// The attributes `inputs.KEY` of a sub-workflow.
    fn inputs(&mut self, attrs: &Attrs) -> Vec<(Arc<str>, InputSpec)> {
        let mut inputs = Vec::new();
        for attr in attrs.iter() {
            let Some(name) = schema::input_name(&attr.name) else { continue };
            let input = match &attr.value {
                fabro_graph::Value::Int(number) => Some(InputSpec::Value((*number).into())),
                fabro_graph::Value::Float(number) => Some(InputSpec::Value((*number).into())),
                fabro_graph::Value::Bool(flag) => Some(InputSpec::Value((*flag).into())),
                fabro_graph::Value::Duration { .. } => {
                    Some(InputSpec::Value(attr.value.as_text().into()))
                }
                _ => self.compiler.template(attr).map(InputSpec::Text),
            };
            inputs.extend(input.map(|input| (Arc::from(name), input)));
        }
        inputs
    }

    fn parallel(&mut self, attrs: &Attrs, for_each: Option<ForEachSpec>) -> ParallelSpec {
        let join_policy = match self.word(attrs, "join_policy") {
            JoinPolicy::Quorum(_) => {
                JoinPolicy::Quorum(attrs.int("quorum").map(count).filter(|needed| *needed > 0))
            }
            policy => policy,
        };
        let max_parallel = attrs.int("max_parallel").map_or(4, count).max(1);
        let isolation = self.word(attrs, "isolation");
        ParallelSpec { join_policy, max_parallel, for_each, isolation }
    }

    /// The value of an attribute that is one of a few words, or else the default.
    fn word<T: FromStr + Default>(&mut self, attrs: &Attrs, name: &str) -> T {
        self.parsed(attrs, name).unwrap_or_default()
    }

    /// The value of an attribute that is one of a few words; `None` when it is absent, empty, or
    /// another word, which is an error.
    fn parsed<T: FromStr>(&mut self, attrs: &Attrs, name: &str) -> Option<T> {
        let attr = attrs.get(name)?;
        let text = attr.value.as_text();
        if text.trim().is_empty() {
            return None;
        }
        let value = text.parse().ok();
        if value.is_none() {
            self.report_word(attr, &text);
        }
        value
    }

    /// An error, unless reading the workflow has found it.
    fn report_word(&mut self, attr: &Attr, text: &str) {
        let is_known =
            |finding: &Diagnostic| finding.severity == Severity::Error && finding.span == attr.span;
        if !self.compiler.findings.iter().any(is_known) {
            let message = format!("`{}` cannot be `{}`", attr.name, excerpt(text, 40));
            let fix = "use one of the words that the reference of the language lists";
            let finding = Diagnostic::error("attribute-value", attr.span, message).with_fix(fix);
            self.compiler.findings.push(finding);
        }
    }
}

/// Whether prompts have the conversation of earlier stages.
#[derive(Clone, Copy, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "snake_case")]
enum Memory {
    Turns,
    Off,
}

/// The presets of `retry_policy`.
#[derive(Clone, Copy, EnumString)]
#[strum(serialize_all = "snake_case")]
enum RetryPreset {
    None,
    Standard,
    Aggressive,
    Linear,
    Patient,
}

impl RetryPreset {
    fn policy(self) -> RetryPolicy {
        match self {
            Self::None => retries_of_any_failure(1, 0, 1),
            Self::Standard => retries_of_any_failure(5, 200, 2),
            Self::Aggressive => retries_of_any_failure(5, 500, 2),
            Self::Linear => retries_of_any_failure(3, 500, 1),
            Self::Patient => retries_of_any_failure(3, 2_000, 3),
        }
    }
}

fn retries_of_any_failure(attempts: u32, first_delay_ms: u64, backoff_factor: u64) -> RetryPolicy {
    RetryPolicy {
        attempts,
        first_delay_ms,
        backoff_factor,
        any_failure: true,
        spares_deterministic: false,
    }
}

fn visit_limit(written: Option<i64>) -> VisitLimit {
    match written.map(count) {
        None => VisitLimit::Unstated,
        Some(0) => VisitLimit::Unlimited,
        Some(limit) => VisitLimit::AtMost(limit),
    }
}

fn manager(
    attrs: &Attrs,
    inputs: Vec<(Arc<str>, InputSpec)>,
    stop_condition: Option<Arc<fabro_condition::Condition>>,
) -> ManagerSpec {
    let child = attrs.get("stack.child_workflow");
    let source = child.or_else(|| attrs.get("stack.child_dot_source"));
    let interval = attrs.duration("manager.poll_interval").unwrap_or(Duration::from_secs(45));
    let cycles = attrs.int("manager.max_cycles").map_or(1_000, count).max(1);
    ManagerSpec {
        file: child.and_then(|attr| attr.file.clone()),
        source: source.and_then(|attr| attr.value.shared_text()),
        timeout: interval.saturating_mul(cycles),
        inputs,
        stop_condition,
    }
}

/// Why a variable cannot be given to a script, and what to do.
fn variable_error(name: &str, value: &TextTemplate) -> Option<(String, &'static str)> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        let message = format!("`{name}` cannot be the name of an environment variable");
        return Some((message, "use letters, digits and `_`, and do not begin with a digit"));
    }
    if name.starts_with("FABRO_") {
        let message =
            format!("`{name}` belongs to fabro, which sets variables of this name itself");
        return Some((message, "choose a name that does not begin with `FABRO_`"));
    }
    if fabro_template::is_code_variable(name) && !value.template.is_plain() {
        let message = format!("the content of `{name}` is run as code, so it cannot be a value");
        return Some((message, "choose another name, or write a fixed text"));
    }
    if value.text.contains('\0') {
        let message = format!("`{name}` holds a NUL character, which no environment variable can");
        return Some((message, "remove it"));
    }
    None
}

/// A text without tags, such as an id.
#[expect(clippy::expect_used, reason = "an id has no `{{`, so that nothing in it can be wrong")]
fn plain(text: &Arc<str>) -> TextTemplate {
    let template = Template::parse(text).expect("a text without tags is a template");
    TextTemplate { text: Arc::clone(text), template }
}

/// The text is there and not only whitespace, which means the same as no text.
fn has_text(attrs: &Attrs, name: &str) -> bool {
    attrs.text(name).is_some_and(|text| !text.trim().is_empty())
}

/// The file is missing, which is an error of its own.
fn is_missing_file(attr: &Attr, text: &str) -> bool {
    attr.file.is_none() && text.starts_with('@') && !text.starts_with("@@")
}

/// A whole number from 0, as large as 32 bits hold.
fn count(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

//! Behavior that differs from upstream Fabro. The reasons are in `docs/migration.md`.

use fabro_graph::{Node, NodeKind, Span, Workflow};
use fabro_types::Diagnostic;
use fabro_validate::Checked;
use serde_json::{Value, json};

/// A difference that concerns a workflow.
pub(super) struct Change {
    pub(super) name: &'static str,
    /// The first place.
    pub(super) span: Span,
    /// The nodes that it is about.
    pub(super) nodes: Vec<String>,
    pub(super) message: &'static str,
    pub(super) fix: &'static str,
}

impl Change {
    pub(super) fn as_json(&self, line: impl Fn(&Span) -> usize) -> Value {
        json!({
            "name": self.name,
            "line": line(&self.span),
            "nodes": self.nodes,
            "message": self.message,
            "fix": self.fix,
        })
    }
}

/// The differences that concern this workflow.
pub(super) fn changes(checked: &Checked) -> Vec<Change> {
    let Some(workflow) = &checked.workflow else { return Vec::new() };
    let about = |name, message, fix, concerns: &dyn Fn(&Node) -> bool| {
        let nodes: Vec<&Node> = workflow.nodes().filter(|node| concerns(node)).collect();
        let span = nodes.first()?.span;
        let nodes = nodes.iter().map(|node| node.id.to_string()).collect();
        Some(Change { name, span, nodes, message, fix })
    };
    let all = [
        about(
            "command-timeout",
            "no timeout here; upstream ends a command after 600 s",
            "set `[run] command_timeout = \"10m\"` in .fabro/config.toml, or `timeout` on the node",
            &|node| node.kind == NodeKind::Command && node.attrs.get("timeout").is_none(),
        ),
        about(
            "max-retries",
            "`max_retries` also repeats a command that fails by its exit code; upstream does not",
            "route its failure by an edge with condition=\"outcome=failed\", or remove `max_retries`",
            &|node| repeats_exit_codes(checked, workflow, node),
        ),
        about(
            "command-output",
            "`command.output` has no stderr here, and these nodes or their edges read it",
            "set merge_stderr=true on the command, or read `command.stderr`",
            &|node| reads_output(workflow, node),
        ),
    ];
    let mut changes: Vec<Change> = all.into_iter().flatten().collect();
    changes.extend(unhandled(workflow, &checked.findings));
    changes
}

/// A failure that makes a run fail here, and not in upstream.
fn unhandled(workflow: &Workflow, findings: &[Diagnostic]) -> Option<Change> {
    let rules = ["unhandled-failure", "failure-to-exit"];
    let found: Vec<_> = findings.iter().filter(|it| rules.contains(&it.rule)).collect();
    let span = found.first()?.span;
    let is_at =
        |node: &&Node| found.iter().any(|it| it.message.contains(&format!("`{}`", node.id)));
    let nodes = workflow.nodes().filter(is_at).map(|node| node.id.to_string()).collect();
    Some(Change {
        name: "green-run",
        span,
        nodes,
        message: "a failure of these nodes that no edge handles ends the run with exit code 1; upstream's ends with 0",
        fix: "route it by an edge with condition=\"outcome=failed\", or set on_failure=continue",
    })
}

/// Whether the node is a command whose failure is repeated although it is deterministic.
fn repeats_exit_codes(checked: &Checked, workflow: &Workflow, node: &Node) -> bool {
    let has = |name: &str| node.attrs.get(name).is_some();
    let retries = node.attrs.get("max_retries").is_some_and(|attr| attr.value.as_text() != "0");
    let handles = || {
        let Some(ix) = workflow.find(&node.id) else { return false };
        let Some(specs) = &checked.specs else { return false };
        let mut edges = workflow.outgoing(ix).map(|edge| &specs.edges[edge.index()]);
        edges.any(|edge| edge.condition.as_ref().is_some_and(|it| it.parsed.is_for_failure()))
    };
    node.kind == NodeKind::Command
        && retries
        && !has("retry_policy")
        && !has("retry_target")
        && !handles()
}

fn reads_output(workflow: &Workflow, node: &Node) -> bool {
    const KEY: &str = "command.output";
    let reads = |text: &str| text.contains(KEY);
    let Some(ix) = workflow.find(&node.id) else { return false };
    let mut edges = workflow.outgoing(ix).map(|edge| workflow.edge(edge));
    edges.any(|edge| edge.condition().is_some_and(reads))
        || node.attrs.iter().any(|attr| attr.value.text().is_some_and(reads))
}

use std::collections::{HashMap, HashSet};

use fabro_condition::Condition;
use fabro_graph::{Attr, NodeIx, NodeKind, Span};
use fabro_plan::TextPlace;
use fabro_template::ReadTarget;
use fabro_types::Status;

use crate::checking::Checking;
use crate::family::ChildKey;
use crate::findings::Findings;
use crate::flow::{
    Found, Mentions, Nearest, Need, Read, Unmet, Writer, can_write, need, shares_context, unmet,
};
use crate::lints::label_condition::meant_as_label;

/// How many reads are followed in one workflow: nodes and edges may share one text that reads many
/// keys, and their product is not written down.
const MAX_READS: usize = 500_000;

/// Keys that conditions read for the status of a stage, which is `outcome`.
const STATUS_KEYS: [&str; 3] = ["result", "state", "status"];

/// Conditions and templates that read a context key which no stage on any way to them can write.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut search = Search { checking, needs: HashMap::new(), found: Vec::new(), left: MAX_READS };
    search.conditions();
    search.texts();
    search.lists();
    search.report(findings);
    stop_conditions(checking, findings);
}

/// The keys of one text, each once, with the place where it is first read.
type Keys<'k> = Vec<(&'k str, Need, Span)>;

struct Search<'c, 'a> {
    checking: &'c Checking<'a>,
    needs: HashMap<String, Need>,
    found: Vec<Use<'a>>,
    left: usize,
}

/// A key that is read, where and by whom.
struct Use<'a> {
    key: String,
    need: Need,
    attr: &'a Attr,
    span: Span,
    at: usize,
    after: bool,
}

impl<'a> Search<'_, 'a> {
    fn need(&mut self, key: &str) -> Need {
        if let Some(need) = self.needs.get(key) {
            return need.clone();
        }
        let mut need = need(&self.checking.mentions, key, &self.checking.nearby);
        if matches!(need, Need::Impossible { .. }) && self.checking.sub_workflow_can_write(key) {
            need = Need::Stage(Writer::SubWorkflow);
        }
        self.needs.insert(key.to_owned(), need.clone());
        need
    }

    /// The keys of one text that are not always there, each once.
    fn keys<'k>(&mut self, reads: impl Iterator<Item = (&'k str, Span)>) -> Keys<'k> {
        let mut seen = HashSet::new();
        reads
            .filter(|(key, _)| seen.insert(*key))
            .map(|(key, span)| (key, self.need(key), span))
            .filter(|(_, need, _)| *need != Need::Nothing)
            .collect()
    }

    fn add(&mut self, attr: &'a Attr, at: usize, after: bool, keys: &Keys<'_>) {
        self.left = self.left.saturating_sub(keys.len());
        if self.left == 0 {
            return;
        }
        self.found.extend(keys.iter().map(|(key, need, span)| Use {
            key: (*key).to_owned(),
            need: need.clone(),
            attr,
            span: *span,
            at,
            after,
        }));
    }

    fn conditions(&mut self) {
        let checking = self.checking;
        let workflow = checking.workflow;
        // Edges that share a text are looked at once for each node that they leave.
        let mut by_place: HashMap<TextPlace, Keys<'_>> = HashMap::new();
        let mut seen = HashSet::new();
        for ix in workflow.edge_indices() {
            let edge = workflow.edge(ix);
            let Some(condition) = checking.condition(ix) else { continue };
            let Some(attr) = edge.attrs.get("condition") else { continue };
            // That has a finding of its own.
            if !seen.insert((edge.from, attr.span)) || meant_as_label(checking, ix).is_some() {
                continue;
            }
            let keys = by_place
                .entry(TextPlace::of(attr))
                .or_insert_with(|| self.keys(reads_of(condition)));
            // Which branches a fan-out begins is decided before it has written anything.
            let after = workflow.node(edge.from).kind != NodeKind::Parallel;
            self.add(attr, edge.from.index(), after, keys);
        }
    }

    fn texts(&mut self) {
        let checking = self.checking;
        // What a condition reads in braces is an error, or an input.
        let is_condition = |attr: &Attr| attr.name.ends_with("condition");
        for text in checking.texts.iter().filter(|text| !is_condition(text.attr)) {
            let reads = text.template.reads().iter().filter(|read| !read.optional);
            let reads = reads.filter_map(|read| match &read.target {
                ReadTarget::Context(key) => Some((key.as_str(), read.span)),
                _ => None,
            });
            let keys = self.keys(reads);
            if keys.is_empty() {
                continue;
            }
            for node in &text.nodes {
                self.add(text.attr, node.index(), false, &keys);
            }
        }
    }

    fn lists(&mut self) {
        for (ix, node) in self.checking.of_kind(NodeKind::Parallel) {
            let Some(key) = self.checking.list_key(ix) else { continue };
            let Some(attr) = node.for_each() else { continue };
            let whole = Span::new(0, attr.value.as_text().len());
            let keys = self.keys(std::iter::once((key, whole)));
            self.add(attr, ix.index(), false, &keys);
        }
        for (ix, node) in self.checking.of_kind(NodeKind::Command) {
            let Some(key) = self.checking.stdin_key(ix) else { continue };
            let Some(attr) = node.attrs.get("stdin_source") else { continue };
            if key.contains("{{") {
                // That has a finding of its own.
                continue;
            }
            let whole = Span::new(0, attr.value.as_text().len());
            let keys = self.keys(std::iter::once((key, whole)));
            self.add(attr, ix.index(), false, &keys);
        }
    }

    fn report(self, findings: &mut Findings) {
        let Self { checking, found, .. } = self;
        if found.is_empty() {
            return;
        }
        let flow = checking.flow();
        let nearest = Nearest::new(checking.workflow, flow);
        let mut reads = Vec::new();
        let mut of_read = Vec::new();
        for used in &found {
            let at = used.at;
            match &used.need {
                Need::Impossible { why, fix } if flow.reached[at] => {
                    let message = format!("no stage writes `{}`: {why}", used.key);
                    used.report(checking, message, fix.clone(), findings);
                }
                Need::Stage(writer) => {
                    reads.push(Read { writer: *writer, at, after: used.after });
                    of_read.push(used);
                }
                _ => {}
            }
        }
        let Unmet { always, at_first } = unmet(checking.workflow, flow, &reads);
        for number in always {
            let Read { writer, at, .. } = reads[number];
            let used = of_read[number];
            let (message, mut fix) = explain(checking, used, writer, nearest.find(writer, at));
            if used.after {
                fix.push_str(&meant(used));
            }
            used.report(checking, message, fix, findings);
        }
        for number in at_first {
            let Read { writer, at, .. } = reads[number];
            let (message, fix) = explain_first(checking, of_read[number], nearest.find(writer, at));
            of_read[number].report(checking, message, fix, findings);
        }
    }
}

impl Use<'_> {
    fn report(
        &self,
        checking: &Checking<'_>,
        message: String,
        fix: String,
        findings: &mut Findings,
    ) {
        let place = checking.place(self.attr, self.span);
        findings.warning("unwritten-key", place, message, fix);
    }
}

/// The keys of a condition with their places in it.
fn reads_of(condition: &Condition) -> impl Iterator<Item = (&str, Span)> {
    condition.clauses().iter().map(|clause| {
        let Span { start, end } = clause.span();
        let key = if clause.text().starts_with(clause.key()) {
            Span::new(start, start + clause.key().len())
        } else {
            Span::new(start, end)
        };
        (clause.context_key(), key)
    })
}

/// What a condition may mean instead of a key that is never there: the status of the stage, or a label.
fn meant(used: &Use<'_>) -> String {
    if STATUS_KEYS.contains(&used.key.as_str()) {
        return "; or did you mean `outcome`, the status of a stage?".to_owned();
    }
    if used.attr.value.as_text().trim() != used.key {
        return String::new();
    }
    match Status::parse_loosely(&used.key) {
        Some(status) => format!("; or did you mean outcome={}?", status.as_str()),
        None => format!("; or did you mean label=\"{}\"?", used.key),
    }
}

/// The message and the fix for a key that only comes too late, or never.
fn explain(
    checking: &Checking<'_>,
    used: &Use<'_>,
    writer: Writer,
    found: Option<Found>,
) -> (String, String) {
    let workflow = checking.workflow;
    let id = |ix| &workflow.node(ix).id;
    let here = id(NodeIx::new(used.at));
    if let Writer::Element { list, .. } = writer {
        let list = id(list);
        let message = format!("`{}` is there only in the branches of `{list}`", used.key);
        return (
            message,
            format!(
                "read it on the path from `{list}` to its join, or read parallel.outputs after that"
            ),
        );
    }
    let no_stage = format!("no stage before this writes `{}`", used.key);
    let add = match writer {
        Writer::Node(ix) => format!("lead the way to `{here}` through `{}`", id(ix)),
        _ => format!("only {} writes it: put one before `{here}`", writer.name(workflow)),
    };
    match found {
        Some(Found::InBranch { writer, fan_out }) => {
            let writer = id(writer);
            let fan_out = id(fan_out);
            let why = format!(
                "`{writer}` does, but in a branch of `{fan_out}`, which keeps it to itself"
            );
            let fix = "read it from `parallel.results`, or write it after the fan-out".to_owned();
            (format!("{no_stage}: {why}"), fix)
        }
        Some(Found::BeforeRestart { writer }) => {
            let why =
                format!("`{}` does, but loop_restart begins with a fresh context", id(writer));
            (format!("{no_stage}: {why}"), "write it after the restart".to_owned())
        }
        Some(Found::Later { writer }) => {
            (format!("{no_stage}; the nearest that can, `{}`, comes after it", id(writer)), add)
        }
        Some(Found::Elsewhere { writer }) => {
            (format!("{no_stage}; the nearest that can, `{}`, is not on the way", id(writer)), add)
        }
        None => (no_stage, add),
    }
}

/// The message and the fix for a key that is there only at later visits of a node in a loop.
fn explain_first(
    checking: &Checking<'_>,
    used: &Use<'_>,
    found: Option<Found>,
) -> (String, String) {
    let id = |ix| &checking.workflow.node(ix).id;
    let here = id(NodeIx::new(used.at));
    let later = match found {
        Some(Found::Later { writer }) if id(writer) != here => {
            format!("the nearest that can, `{}`, comes after it", id(writer))
        }
        _ => "what writes it comes after that".to_owned(),
    };
    let key = &used.key;
    let message =
        format!("`{key}` is not written on any path to the first visit of `{here}`; {later}");
    let fix = if matches!(&*used.attr.name, "for_each" | "stdin_source") {
        format!("write it before `{here}`")
    } else {
        format!(
            "write it before `{here}`, or give a default: {{{{ context.{key} | default(\"\") }}}}"
        )
    };
    (message, fix)
}

/// Stop conditions read the context of the sub-workflow, which may begin with that of the parent.
fn stop_conditions(checking: &Checking<'_>, findings: &mut Findings) {
    let mut seen = HashSet::new();
    for (ix, node) in checking.of_kind(NodeKind::ManagerLoop) {
        let Some(attr) = node.attrs.get("manager.stop_condition") else { continue };
        let Some(condition) = checking.stop_condition(ix) else { continue };
        let Some((key, _)) = ChildKey::of(node, &checking.sources) else { continue };
        if !seen.insert((attr.span, key)) {
            continue;
        }
        let Some(child) = checking.sub_workflow(node) else { continue };
        let mentions = Mentions::new(&child);
        for (key, span) in reads_of(condition) {
            let (why, fix) = match need(&mentions, key, &checking.nearby) {
                Need::Nothing => continue,
                Need::Impossible { why, fix } => (format!(": {why}"), fix),
                Need::Stage(writer) => {
                    if (0..child.nodes().len()).any(|at| writer.is(&child, at)) {
                        continue;
                    }
                    (String::new(), format!("only {} writes it", writer.name(&child)))
                }
            };
            if shares_context(node) && can_write(checking.workflow, key, &checking.nearby) {
                continue;
            }
            let message =
                format!("no stage of the sub-workflow of `{}` writes `{key}`{why}", node.id);
            let place = checking.place(attr, span);
            findings.warning("unwritten-key", place, message, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::support::{reported, reported_with};

    #[test]
    fn the_status_of_a_stage_is_suggested() {
        let condition = |text: &str| {
            let t =
                "start -> t; t [shape=parallelogram, script=x]; t -> a; a [prompt=x]; a -> exit";
            reported("unwritten-key", &format!("{t}; t -> exit [condition=\"{text}\"]"))
        };
        insta::assert_snapshot!(condition("status=succeeded"), @r#"
        1:115 warning: no stage before this writes `status`; the nearest that can, `a`, comes after it
          at: status
          fix: only an agent or prompt node, or a command with output_schema="routing", by its context_updates, writes it: put one before `t`; or did you mean `outcome`, the status of a stage?
        "#);
        insta::assert_snapshot!(condition("failed"), @r#"
        1:115 warning: no stage before this writes `failed`; the nearest that can, `a`, comes after it
          at: failed
          fix: only an agent or prompt node, or a command with output_schema="routing", by its context_updates, writes it: put one before `t`; or did you mean outcome=failed?
        "#);
        insta::assert_snapshot!(condition("ready"), @r#"
        1:115 warning: no stage before this writes `ready`; the nearest that can, `a`, comes after it
          at: ready
          fix: only an agent or prompt node, or a command with output_schema="routing", by its context_updates, writes it: put one before `t`; or did you mean label="ready"?
        "#);
    }

    #[test]
    fn elements_are_known_in_the_branches_of_their_list() {
        let list = |more: &str| {
            let nodes = r#"start -> p -> each -> work -> join -> end -> exit; p [shape=tab, prompt=x, output_schema="{}"]; join [shape=tripleoctagon]"#;
            reported("unwritten-key", &format!("{nodes}; {more}"))
        };
        insta::assert_snapshot!(list(r#"each [shape=component, for_each="output.p.files"]; work [prompt="{{ context.item.name }} {{ context.item_index }}"]; end [shape=tab, prompt="{{ context.parallel.outputs }}"]"#), @"nothing");
        insta::assert_snapshot!(list(r#"each [shape=component, for_each="{{ context.output.p }}", as=file]; work [shape=parallelogram, script="cat {{ context.file }} {{ context.file_index }}"]; end [prompt="x"]"#), @"nothing");
        insta::assert_snapshot!(list(r#"each [shape=component, for_each="output.q.files"]; work [shape=parallelogram, script=x]; end [shape=tab, prompt="{{ context.item }}"]"#), @r"
        1:170 warning: no stage writes `output.q.files`: there is no node `q`
          at: output.q.files
          fix: name a node of this workflow
        1:253 warning: `item` is there only in the branches of `each`
          at: context.item
          fix: read it on the path from `each` to its join, or read parallel.outputs after that
        ");
        insta::assert_snapshot!(list(r#"each [shape=component, for_each="command.output", as=file]; work [shape=parallelogram, script="echo {{ context.files }}"]; end [shape=tab, prompt="{{ context.file_index }}"]"#), @r"
        1:170 warning: no stage before this writes `command.output`; the nearest that can, `work`, comes after it
          at: command.output
          fix: only a command node writes it: put one before `each`
        1:240 warning: no stage writes `files`: the engine has no such key, and no prompt mentions it
          at: context.files
          fix: did you mean `file`?
        1:287 warning: `file_index` is there only in the branches of `each`
          at: context.file_index
          fix: read it on the path from `each` to its join, or read parallel.outputs after that
        ");
    }

    #[test]
    fn the_nearest_writer_is_named() {
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> report -> test -> exit; test [shape=parallelogram, script=x]; report [prompt="{{ context.command.output }}"]"#), @r"
        1:103 warning: no stage before this writes `command.output`; the nearest that can, `test`, comes after it
          at: context.command.output
          fix: only a command node writes it: put one before `report`
        ");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a -> b -> exit; a [prompt="{{ context.response.b }}"]; b [prompt=x]; a -> c -> exit; c [prompt="{{ context.response.b }}"]"#), @r"
        1:52 warning: no stage before this writes `response.b`; the nearest that can, `b`, comes after it
          at: context.response.b
          fix: lead the way to `a` through `b`
        1:121 warning: no stage before this writes `response.b`; the nearest that can, `b`, is not on the way
          at: context.response.b
          fix: lead the way to `c` through `b`
        ");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a -> exit; a [prompt="{{ context.human.gate.text }}"]"#), @r"
        1:47 warning: no stage before this writes `human.gate.text`
          at: context.human.gate.text
          fix: only a human gate writes it: put one before `a`
        ");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a; a -> b [condition="context.score > 3"]; a -> exit; a [shape=parallelogram, script=x]; b [prompt=x]; b -> exit"#), @r#"
        1:44 warning: no stage before this writes `score`; the nearest that can, `b`, comes after it
          at: context.score
          fix: only an agent or prompt node, or a command with output_schema="routing", by its context_updates, writes it: put one before `a`
        "#);
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> p; p [shape=component]; p -> a [condition="parallel.results"]; p -> exit; a -> exit; a [prompt=x]"#), @r"
        1:65 warning: no stage before this writes `parallel.results`; the nearest that can, `p`, comes after it
          at: parallel.results
          fix: only a parallel node writes it: put one before `p`
        ");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a; a -> exit [condition="ready"]; a -> exit; a [shape=parallelogram, script=x]"#), @r#"
        1:47 warning: no stage before this writes `ready`
          at: ready
          fix: only an agent or prompt node, or a command with output_schema="routing", by its context_updates, writes it: put one before `a`; or did you mean label="ready"?
        "#);
    }

    #[test]
    fn commands_that_route_write_keys_and_stdin_source_reads_one() {
        let c = "start -> c -> b -> exit; c [shape=parallelogram, script=x, output_schema=";
        insta::assert_snapshot!(reported("unwritten-key", &format!(r#"{c}routing]; b [shape=parallelogram, script="{{{{ context.verdict }}}} {{{{ context.output.z }}}}", stdin_source="context.verdict"]"#)), @"nothing");
        insta::assert_snapshot!(reported("unwritten-key", &format!(r#"{c}"{{}}"]; b [shape=parallelogram, script="{{{{ context.output.c.x }}}}", stdin_source="context.verdict"]"#)), @r#"
        1:166 warning: no stage before this writes `verdict`
          at: context.verdict
          fix: only an agent or prompt node, or a command with output_schema="routing", by its context_updates, writes it: put one before `b`
        "#);
    }

    #[test]
    fn what_comes_before_counts() {
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> test; test [shape=parallelogram, script=x]; test -> exit [condition="context.command.exit_code = 0"]; test -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a -> test -> a; test [shape=parallelogram, script=x]; a [prompt="{{ context.command.output }}"]; test -> exit"#), @r#"
        1:90 warning: `command.output` is not written on any path to the first visit of `a`; the nearest that can, `test`, comes after it
          at: context.command.output
          fix: write it before `a`, or give a default: {{ context.command.output | default("") }}
        "#);
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a -> b -> exit; a [prompt=x]; b [prompt="{{ context.response.a }} {{ context.tests_passed }} {{ context.audit.score }}"]"#), @"nothing");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a -> b -> exit; a [prompt=x, output_schema="{}"]; b [prompt="{{ context.output.a.score }}"]"#), @"nothing");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a; a -> exit [condition="outcome=success && internal.node_visit_count < 3 && graph.goal && failure_class!=x"]; a -> exit; a [shape=parallelogram, script=x]"#), @"nothing");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a; a [shape=parallelogram, script=x, retry_target=b]; a -> exit [condition="outcome=success"]; b [prompt="{{ context.command.stderr }}"]; b -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> g; g [shape=hexagon]; g -> a [label=Go]; a [prompt="{{ context.human.gate.label }}"]; a -> exit"#), @"nothing");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a -> exit; a [prompt="{{ context.nothing | default(1) }}"]"#), @"nothing");
    }

    #[test]
    fn a_branch_keeps_its_updates() {
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> p -> {a; b} -> join -> exit; p [shape=component]; join [shape=tripleoctagon]; a [prompt=x]; b [shape=parallelogram, script=x]; join -> done [condition="context.verdict=ship"]; done [shape=parallelogram, script="echo {{ context.command.output }} {{ context.parallel.results }} {{ context.parallel.fan_in.best_id }}"]; done -> exit"#), @r"
        1:174 warning: no stage before this writes `verdict`: `a` does, but in a branch of `p`, which keeps it to itself
          at: context.verdict
          fix: read it from `parallel.results`, or write it after the fan-out
        1:241 warning: no stage before this writes `command.output`: `b` does, but in a branch of `p`, which keeps it to itself
          at: context.command.output
          fix: read it from `parallel.results`, or write it after the fan-out
        ");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a -> p -> {b; c} -> join -> exit; a [shape=parallelogram, script=x]; p [shape=component]; node [shape=parallelogram]; b [script="{{ context.command.output }}"]; c [script=x]; join [prompt="{{ context.command.output }}", type=agent]"#), @"nothing");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> p -> {a; b} -> join -> exit; p [shape=component]; a [prompt=x]; b [prompt=x]; join [prompt="{{ context.response.a }}"]; start2 [prompt=x]; join -> a [condition="x"]"#), @"nothing");
    }

    #[test]
    fn a_restart_begins_afresh() {
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a; a [prompt="{{ context.command.output }}"]; a -> t; t [shape=parallelogram, script=x]; t -> a [loop_restart=true, condition="outcome=fail"]; t -> exit"#), @r"
        1:39 warning: no stage before this writes `command.output`: `t` does, but loop_restart begins with a fresh context
          at: context.command.output
          fix: write it after the restart
        ");
    }

    #[test]
    fn keys_that_nobody_can_write() {
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> plan -> b -> exit; plan [prompt=x]; b [prompt="{{ context.response.plna }} {{ context.output.plan.x }} {{ context.response.plan.x }} {{ context.child.plan }}"]"#), @r"
        1:72 warning: no stage writes `response.plna`: there is no node `plna`
          at: context.response.plna
          fix: did you mean `response.plan`?
        1:100 warning: no stage writes `output.plan.x`: `plan` has no output_schema of its own
          at: context.output.plan.x
          fix: give it one, or read `response.plan`
        1:128 warning: no stage writes `response.plan.x`: `response.plan` is a text, with nothing inside it
          at: context.response.plan.x
          fix: give `plan` an output_schema and read `output.plan.x`
        1:158 warning: no stage writes `child.plan`: `plan` (agent) has no sub-workflow
          at: context.child.plan
          fix: name another node
        ");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> test -> b -> exit; test [shape=parallelogram, script=x]; b [prompt="{{ context.response.test }} {{ context.command.outptu }} {{ context.command.output.x }} {{ context.parallel.best }}"]"#), @r"
        1:93 warning: no stage writes `response.test`: `test` is a command node
          at: context.response.test
          fix: read `command.output`
        1:121 warning: no stage writes `command.outptu`: keys of this name belong to the engine, which writes no such key
          at: context.command.outptu
          fix: read `command.output`
        1:150 warning: no stage writes `command.output.x`: `command.output` is a text, with nothing inside it
          at: context.command.output.x
          fix: read `command.output`
        1:181 warning: no stage writes `parallel.best`: keys of this name belong to the engine, which writes no such key
          at: context.parallel.best
          fix: read one of parallel.fan_in.best_id, parallel.fan_in.best_outcome, parallel.fan_in.best_head_sha, parallel.results, parallel.outputs, parallel.branch_count
        ");
        insta::assert_snapshot!(reported("unwritten-key", r#"graph [owner=x]; start -> b -> exit; b [prompt="{{ context.graph.ownr }} {{ context.graph.owner }} {{ context.internal.node_visits_count }} {{ context.internal.retry_count.c }} {{ context.last_answer }}"]"#), @r"
        1:64 warning: no stage writes `graph.ownr`: the graph has no attribute `ownr`
          at: context.graph.ownr
          fix: did you mean `graph.owner`?
        1:115 warning: no stage writes `internal.node_visits_count`: the engine writes no such key
          at: context.internal.node_visits_count
          fix: did you mean `internal.node_visit_count`?
        1:156 warning: no stage writes `internal.retry_count.c`: there is no node `c`
          at: context.internal.retry_count.c
          fix: name a node of this workflow
        1:193 warning: no stage writes `last_answer`: keys of this name belong to the engine, which writes no such key
          at: context.last_answer
          fix: read one of last_stage, last_response, failure_class, failure_signature
        ");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a -> b -> exit; a [prompt=x, output_schema="{}"]; b [shape=parallelogram, script="{{ context.verdict }}"]"#), @r#"
        1:107 warning: no stage before this writes `verdict`
          at: context.verdict
          fix: only an agent or prompt node, or a command with output_schema="routing", by its context_updates, writes it: put one before `b`
        "#);
    }

    #[test]
    fn misspelled_keys_that_a_model_could_write() {
        let conditions = |keys: &[&str]| {
            let edge = |key: &&str| format!("a -> exit [condition=\"{key}\"]; ");
            let edges = keys.iter().map(edge).collect::<Vec<_>>().concat();
            let report = reported(
                "unwritten-key",
                &format!(
                    r#"start -> a; a -> exit; {edges} a [prompt="Test, set the score, and give {{\"context_updates\": {{\"tests_passed\": 1, \"round_1\": 2}}}}"]"#
                ),
            );
            let lines: Vec<_> = report.lines().filter(|line| !line.contains("at: ")).collect();
            lines.join("\n")
        };
        insta::assert_snapshot!(conditions(&["outcom=success", "exit_code=0", "prefered_label=x", "context.contxt.x=1", "contxt.x", "comand.output contains x", "test_passed=1", "stdout=x"]), @r"
        1:58 warning: no stage writes `outcom`: the engine has no such key, and no prompt mentions it
          fix: did you mean `outcome`?
        1:98 warning: no stage writes `exit_code`: the engine has no such key, and no prompt mentions it
          fix: did you mean `command.exit_code`?
        1:135 warning: no stage writes `prefered_label`: the engine has no such key, and no prompt mentions it
          fix: did you mean `preferred_label`?
        1:177 warning: no stage writes `contxt.x`: the engine has no such key, and no prompt mentions it
          fix: did you mean `context.x`?
        1:221 warning: no stage writes `contxt.x`: the engine has no such key, and no prompt mentions it
          fix: did you mean `context.x`?
        1:255 warning: no stage writes `comand.output`: the engine has no such key, and no prompt mentions it
          fix: did you mean `command.output`?
        1:305 warning: no stage writes `test_passed`: the engine has no such key, and no prompt mentions it
          fix: did you mean `tests_passed`?
        1:344 warning: no stage writes `stdout`: the engine has no such key, and no prompt mentions it
          fix: did you mean `command.output`?
        ");
        insta::assert_snapshot!(conditions(&["tests_passed=1", "score > 3", "scores > 3", "round_2=1", "verdict=1", "audit.score", "coverage.output"]), @"nothing");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a -> exit; a [prompt="Give the outcomes as context_updates"]; a -> b [condition="outcomes=x && context.outcomes"]; b -> exit; b [prompt=x]"#), @"nothing");
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> test -> plan -> exit; test [shape=parallelogram, script=x]; plan [prompt="See {{ context.tset.output }} and {{ context.test.output }}, {{ context.plan.result }} of the test"]"#), @r"
        1:103 warning: no stage writes `tset.output`: there is no node `tset` (`test` is near), and keys do not begin with nodes
          at: context.tset.output
          fix: read `command.output` of the last command, or its `command.exit_code`
        1:133 warning: no stage writes `test.output`: `test` is a node, and keys do not begin with nodes
          at: context.test.output
          fix: read `command.output` of the last command, or its `command.exit_code`
        1:160 warning: no stage writes `plan.result`: `plan` is a node, and keys do not begin with nodes
          at: context.plan.result
          fix: read `response.plan`
        ");
    }

    #[test]
    fn inputs_stand_on_the_right() {
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> a; a [script=x]; a -> exit [condition="inputs.target=prod"]; a -> exit"#), @r#"
        1:61 warning: no stage writes `inputs.target`: conditions read context keys; inputs can only be on the right-hand side
          at: inputs.target
          fix: compare a key with {{ inputs.target }}, or let a command print the input (script="echo {{ inputs.target }}") and read command.output
        "#);
        let braces = r#"start -> a; a [script=x]; a -> exit [condition="{{ context.command.exit_code }} = 0"]; a -> exit"#;
        for rule in ["unwritten-key", "condition-syntax"] {
            assert_eq!(reported(rule, braces), "nothing");
        }
        insta::assert_snapshot!(reported("constant-template", braces), @r"
        1:64 error: `context.command.exit_code` is read in `condition`, which is settled when the run is created
          at: context.command.exit_code
          fix: write the context key without braces: command.exit_code
        ");
        insta::assert_snapshot!(reported("condition-syntax", r#"start -> a; a [script=x]; a -> exit [condition="{{ inputs.target }} = prod"]; a -> exit"#), @r"
        1:61 error: expected a condition, found `{`
          at: {
          fix: write the context key on the left without braces, the input on the right: context.KEY = {{ inputs.NAME }}
        ");
    }

    #[test]
    fn sub_workflows_without_inputs_share_the_context() {
        let files = [
            (
                "c.fabro",
                "digraph { start -> c -> inner -> exit; c [script=ls]; inner [shape=house, stack.child_workflow=\"sub/d.fabro\"] }",
            ),
            ("sub/d.fabro", "digraph { start -> plan -> exit; plan [prompt=x] }"),
        ];
        let sub = |inputs: &str, read: &str| {
            let body = format!(
                r#"start -> m -> t -> exit; m [shape=house{inputs}, stack.child_workflow="c.fabro"]; t [script="{read}"]"#
            );
            reported_with("unwritten-key", &body, &files, None)
        };
        let reads =
            "{{ context.command.exit_code }} {{ context.response.plan }} {{ context.verdict }}";
        insta::assert_snapshot!(sub("", reads), @"nothing");
        insta::assert_snapshot!(sub("", "{{ context.response.plna }} {{ context.human.gate.tset }}"), @r"
        1:101 warning: no stage writes `response.plna`: there is no node `plna`
          at: context.response.plna
          fix: name a node of this workflow
        1:129 warning: no stage writes `human.gate.tset`: keys of this name belong to the engine, which writes no such key
          at: context.human.gate.tset
          fix: read `human.gate.text`
        ");
        insta::assert_snapshot!(sub(", inputs.x=1", reads), @r#"
        1:113 warning: no stage before this writes `command.exit_code`; the nearest that can, `t`, comes after it
          at: context.command.exit_code
          fix: only a command node writes it: put one before `t`
        1:145 warning: no stage writes `response.plan`: there is no node `plan`
          at: context.response.plan
          fix: name a node of this workflow
        1:173 warning: no stage before this writes `verdict`
          at: context.verdict
          fix: only an agent or prompt node, or a command with output_schema="routing", by its context_updates, writes it: put one before `t`
        "#);
    }

    #[test]
    fn stop_conditions_read_the_sub_workflow() {
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> m -> exit; m [shape=house, stack.child_dot_source="digraph { start -> t -> exit; t [shape=parallelogram, script=x] }", manager.stop_condition="command.exit_code=0 || done=true || response.x"]"#), @r#"
        1:188 warning: no stage of the sub-workflow of `m` writes `done`
          at: done
          fix: only an agent or prompt node, or a command with output_schema="routing", by its context_updates, writes it
        1:201 warning: no stage of the sub-workflow of `m` writes `response.x`: there is no node `x`
          at: response.x
          fix: name a node of this workflow
        "#);
        insta::assert_snapshot!(reported("unwritten-key", r#"start -> m -> exit; m [shape=house, stack.child_dot_source="digraph { start -> t -> exit; t [prompt=x] }", manager.stop_condition="done=true"]"#), @"nothing");
    }
}

use std::collections::{HashMap, HashSet};

use fabro_condition::Condition;
use fabro_graph::{Attr, Diagnostic, NodeKind, Span};
use fabro_template::ReadTarget;

use crate::checking::Checking;
use crate::family::ChildKey;
use crate::flow::{Found, Nearest, Need, Read, Writer, need, unmet};
use crate::load::load;
use crate::relative::RelativeSources;

/// How many reads are followed in one workflow: nodes and edges may share one text that reads many
/// keys, and their product is not written down.
const MAX_READS: usize = 500_000;

/// Conditions and templates that read a context key which no stage on any way to them can write.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let mut search = Search { checking, needs: HashMap::new(), found: Vec::new(), left: MAX_READS };
    search.conditions();
    search.texts();
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
    /// `None` in the goal, which is rendered before any stage.
    at: Option<usize>,
    after: bool,
}

impl<'a> Search<'_, 'a> {
    fn need(&mut self, key: &str) -> Need {
        if let Some(need) = self.needs.get(key) {
            return need.clone();
        }
        let need = need(self.checking.workflow, key);
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

    fn add(&mut self, attr: &'a Attr, at: Option<usize>, after: bool, keys: &Keys<'_>) {
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
        let mut of_condition: Vec<Option<Keys<'_>>> = vec![None; checking.condition_count()];
        let mut seen = HashSet::new();
        for ix in workflow.edge_indices() {
            let edge = workflow.edge(ix);
            let Some(number) = checking.condition_index(ix) else { continue };
            let Some(condition) = checking.parsed(ix) else { continue };
            let Some(attr) = edge.attrs.get("condition") else { continue };
            // The edges of a fan-out are all taken; nobody looks at their conditions.
            if workflow.node(edge.from).kind == NodeKind::Parallel
                || !seen.insert((edge.from, number))
            {
                continue;
            }
            if of_condition[number].is_none() {
                of_condition[number] = Some(self.keys(reads_of(condition)));
            }
            if let Some(keys) = of_condition[number].take() {
                self.add(attr, Some(edge.from.index()), true, &keys);
                of_condition[number] = Some(keys);
            }
        }
    }

    fn texts(&mut self) {
        let checking = self.checking;
        for text in &checking.texts {
            let Ok(template) = &text.template else { continue };
            let reads = template.reads().iter().filter(|read| !read.optional);
            let reads = reads.filter_map(|read| match &read.target {
                ReadTarget::Context(key) => Some((key.as_str(), read.span)),
                _ => None,
            });
            let keys = self.keys(reads);
            if keys.is_empty() {
                continue;
            }
            if text.nodes.is_empty() {
                self.add(text.attr, None, false, &keys);
            }
            for node in &text.nodes {
                self.add(text.attr, Some(node.index()), false, &keys);
            }
        }
    }

    fn report(self, findings: &mut Vec<Diagnostic>) {
        let Self { checking, found, .. } = self;
        if found.is_empty() {
            return;
        }
        let flow = checking.flow();
        let nearest = Nearest::new(checking.workflow, flow);
        let mut reads = Vec::new();
        let mut of_read = Vec::new();
        for used in &found {
            match (&used.need, used.at) {
                (_, None) => findings.push(in_goal(checking, used)),
                (Need::Impossible { why, fix }, Some(at)) if flow.reached[at] => {
                    let message = format!("no stage writes `{}`: {why}", used.key);
                    findings.push(used.finding(checking, message, fix.clone()));
                }
                (Need::Stage(writer), Some(at)) => {
                    reads.push(Read { writer: *writer, at, after: used.after });
                    of_read.push(used);
                }
                _ => {}
            }
        }
        for number in unmet(checking.workflow, flow, &reads) {
            let Read { writer, at, .. } = reads[number];
            let (message, fix) =
                explain(checking, of_read[number], writer, nearest.find(writer, at));
            findings.push(of_read[number].finding(checking, message, fix));
        }
    }
}

impl Use<'_> {
    fn finding(&self, checking: &Checking<'_>, message: String, fix: String) -> Diagnostic {
        let place = checking.place(self.attr, self.span);
        Diagnostic::warning("unwritten-key", place, message).with_fix(fix)
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

fn in_goal(checking: &Checking<'_>, used: &Use<'_>) -> Diagnostic {
    let message = format!("`{}` is read in the goal, before any stage can write it", used.key);
    used.finding(checking, message, "read an input instead: {{ inputs.NAME }}".to_owned())
}

fn explain(
    checking: &Checking<'_>,
    used: &Use<'_>,
    writer: Writer,
    found: Option<Found>,
) -> (String, String) {
    let workflow = checking.workflow;
    let id = |ix| &workflow.node(ix).id;
    let key = &used.key;
    let here = used.at.map_or("", |at| &*workflow.node(fabro_graph::NodeIx::new(at)).id);
    match found {
        Some(Found::InBranch { writer, fan_out }) => (
            format!(
                "no stage on the way here writes `{key}`: `{}` does in a branch of `{}`, and what a branch writes stays in it",
                id(writer),
                id(fan_out)
            ),
            "read it from `parallel.results`, or write it after the fan-out".to_owned(),
        ),
        Some(Found::BeforeRestart { writer }) => (
            format!(
                "no stage on the way here writes `{key}`: `{}` does, but loop_restart begins with a fresh context",
                id(writer)
            ),
            "write it after the restart, or remove loop_restart".to_owned(),
        ),
        Some(Found::Elsewhere { writer: at }) => (
            format!(
                "no stage on the way here writes `{key}`; the nearest that can is `{}`, which does not come before `{here}`",
                id(at)
            ),
            format!("lead the way to `{here}` through `{}`, or read something else", id(at)),
        ),
        None => (
            format!("no stage on the way here writes `{key}`"),
            format!("only {} can write it: add one before `{here}`", writer.name(workflow)),
        ),
    }
}

/// Stop conditions read the context of the sub-workflow, which starts with nothing of the parent's.
fn stop_conditions(checking: &Checking<'_>, findings: &mut Vec<Diagnostic>) {
    let mut children: HashMap<ChildKey, Option<fabro_graph::Workflow>> = HashMap::new();
    let mut seen = HashSet::new();
    for (_, node) in checking.of_kind(NodeKind::ManagerLoop) {
        let Some(attr) = node.attrs.get("manager.stop_condition") else { continue };
        let Ok(condition) = Condition::parse(&attr.value.as_text()) else { continue };
        let Some((key, text)) = super::child_workflow::child(checking, node) else { continue };
        if !seen.insert((attr.span, key.clone())) {
            continue;
        }
        let child = children.entry(key.clone()).or_insert_with(|| {
            let sources = RelativeSources::new(checking.sources.sources(), key.base());
            load(&node.id, text, &sources).read.map(|read| read.workflow)
        });
        let Some(child) = child else { continue };
        for (key, span) in reads_of(&condition) {
            let (why, fix) = match need(child, key) {
                Need::Nothing => continue,
                Need::Impossible { why, fix } => (format!(": {why}"), fix),
                Need::Stage(writer) => {
                    if (0..child.nodes().len()).any(|at| writer.is(child, at)) {
                        continue;
                    }
                    (String::new(), format!("only {} can write it", writer.name(child)))
                }
            };
            let message =
                format!("no stage of the sub-workflow of `{}` writes `{key}`{why}", node.id);
            let place = checking.place(attr, span);
            findings.push(Diagnostic::warning("unwritten-key", place, message).with_fix(fix));
        }
    }
}

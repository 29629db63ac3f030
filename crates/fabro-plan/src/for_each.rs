//! `for_each`: a fan-out with a branch for each element of a list.

use std::sync::Arc;

use fabro_condition::Condition;
use fabro_graph::{Attr, Diagnostic, Join, Node, NodeIx, Origin, join};
use fabro_types::{NodeKind, excerpt, key_refusal};
use serde_json::Value;

use crate::lower::Lowering;
use crate::spec::{ForEachSpec, ListSource, TextTemplate};

const RULE: &str = "for-each";

/// How many elements a list may have unless `max_items` says otherwise, and at most.
const MAX_ITEMS: i64 = 1_000;
const MOST_ITEMS: i64 = 100_000;

impl Lowering<'_> {
    /// The list of a node. Other nodes than parallel ones have none; what they get from the defaults
    /// of a scope is meant for others there.
    pub(crate) fn for_each(&mut self, node: &Node) -> Option<ForEachSpec> {
        let attr = node.attrs.get("for_each")?;
        if node.kind != NodeKind::Parallel {
            if attr.origin == Origin::Own {
                let message = format!("`for_each` on `{}`, which is no parallel node", node.id);
                let fix = "write it on a node with shape=component, and lead that to this one";
                self.report(attr, message, fix);
            }
            return None;
        }
        if node.for_each().is_none() {
            self.report(attr, "`for_each` is empty".to_owned(), "name a list, or take it out");
            return None;
        }
        let list = self.list(attr);
        let name = self.element_name(node);
        let max_items = self.max_items(node);
        self.check_path(node, attr);
        Some(ForEachSpec { text: attr.value.shared_text()?, list: list?, name: name?, max_items })
    }

    fn list(&mut self, attr: &Attr) -> Option<ListSource> {
        let TextTemplate { text, template } = self.compiler.template(attr)?;
        let key = text.trim();
        if !template.is_plain() || key.contains('\n') {
            return Some(ListSource::Text(TextTemplate { text, template }));
        }
        if key.starts_with('[') {
            if let Err(error) = serde_json::from_str::<Vec<Value>>(key) {
                let message = format!("`for_each` is no JSON array: {error}");
                self.report(attr, message, r#"write a list such as [\"a\", \"b\"]"#);
                return None;
            }
            return Some(ListSource::Text(TextTemplate { text, template }));
        }
        if key.starts_with("inputs.") {
            let message = format!("`{key}` is no context key");
            self.report(attr, message, &format!("write a template: {{{{ {key} }}}}"));
            return None;
        }
        if is_key(key) {
            return Some(ListSource::Key(key.into()));
        }
        let message =
            format!("`for_each` is no context key and no template: `{}`", excerpt(key, 40));
        let fix = "name a key, such as output.plan.files, or write a template: {{ inputs.files }}";
        self.report(attr, message, fix);
        None
    }

    fn element_name(&mut self, node: &Node) -> Option<Arc<str>> {
        let Some(attr) = node.attrs.get("as") else { return Some("item".into()) };
        let text = attr.value.as_text();
        let name = text.trim();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let why = if name.is_empty()
            || name.starts_with(|c: char| c.is_ascii_digit())
            || !name.chars().all(is_word)
        {
            "a name has letters, digits and underscores, no digit first".to_owned()
        } else if let Some(why) = key_refusal(name) {
            why
        } else if matches!(name, "goal" | "inputs" | "item_index") {
            format!("`{name}` has a meaning of its own")
        } else {
            return Some(name.into());
        };
        let message = format!("an element cannot be called `{}`: {why}", excerpt(name, 40));
        self.report(attr, message, "use another name, such as as=file");
        None
    }

    fn max_items(&mut self, node: &Node) -> usize {
        let given = node.attrs.get("max_items").and_then(|attr| Some((attr, attr.value.to_int()?)));
        if let Some((attr, _)) = given.filter(|(_, most)| *most > MOST_ITEMS) {
            let message = format!("`max_items` is at most {MOST_ITEMS}");
            self.report(attr, message, "lower it, and work through longer lists in parts");
        }
        let most = given.map_or(MAX_ITEMS, |(_, most)| most).clamp(1, MOST_ITEMS);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// One edge leads to the path of every element, which ends at a fan-in.
    fn check_path(&mut self, node: &Node, attr: &Attr) {
        let workflow = self.compiler.workflow;
        let Some(ix) = workflow.find(&node.id) else { return };
        let edges: Vec<_> = workflow.outgoing(ix).map(|edge| workflow.edge(edge)).collect();
        let id = &node.id;
        if let [_, second, ..] = edges[..] {
            let message = format!(
                "`{id}` has a list and {} outgoing edges: every element takes the same path",
                edges.len()
            );
            let fix = "lead one edge to the first node of that path; a conditional node (shape=diamond) can choose there";
            self.compiler
                .findings
                .push(Diagnostic::error(RULE, second.span, message).with_fix(fix));
            return;
        }
        let condition = edges.first().and_then(|edge| edge.attrs.get("condition"));
        if let Some(condition) = condition.filter(|attr| !attr.value.as_text().trim().is_empty()) {
            let message =
                format!("the edge of `{id}` has a condition, and every element of a list takes it");
            let fix = "take the condition out; a conditional node (shape=diamond) behind the edge can decide for each element";
            self.report(condition, message, fix);
        }
        if self.end_of(ix) == Join::Nowhere {
            let message = format!("the path of the list of `{id}` never reaches a join");
            self.report(attr, message, "lead it to a node with shape=tripleoctagon");
        }
    }

    fn end_of(&mut self, list: NodeIx) -> Join {
        join(self.compiler.workflow, list, &mut self.search_steps)
    }

    fn report(&mut self, attr: &Attr, message: String, fix: &str) {
        let finding = Diagnostic::error(RULE, attr.span, message).with_fix(fix);
        self.compiler.findings.push(finding);
    }
}

/// Whether a condition would read the text as one key.
fn is_key(text: &str) -> bool {
    Condition::parse(text).is_ok_and(|condition| match condition.clauses() {
        [clause] => clause.key() == text && clause.operator().is_none(),
        _ => false,
    })
}

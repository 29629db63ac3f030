//! Keys that a model could write, but that look like a misspelling of another.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};

use fabro_graph::{Node, NodeKind, Workflow};

use super::writer::{Need, element_name, no_key_of_node};
use crate::near::Nearby;

/// What is written for a key, and the key.
const BUILT_IN: &[(&str, &str)] = &[
    ("outcome", "outcome"),
    ("preferred_label", "preferred_label"),
    ("current_node", "current_node"),
    ("last_stage", "last_stage"),
    ("last_response", "last_response"),
    ("failure_class", "failure_class"),
    ("failure_signature", "failure_signature"),
    ("exit_code", "command.exit_code"),
    ("command_output", "command.output"),
    ("stdout", "command.output"),
    ("stderr", "command.stderr"),
];

/// The first part of keys that the engine writes.
const ROOTS: &[&str] =
    &["context", "command", "human", "parallel", "response", "output", "internal", "graph"];

/// Fields that a stage has in other systems: a key that ends so is no key that a model was asked for.
pub(crate) const FIELDS: &[&str] =
    &["output", "response", "result", "stdout", "stderr", "exit_code", "outcome", "status"];

/// The words in the texts that models get, and the keys that these ask for.
pub(crate) struct Mentions<'w> {
    workflow: &'w Workflow,
    words: OnceCell<HashSet<&'w str>>,
    updates: OnceCell<BTreeSet<&'w str>>,
}

impl<'w> Mentions<'w> {
    pub(crate) fn new(workflow: &'w Workflow) -> Self {
        Self { workflow, words: OnceCell::new(), updates: OnceCell::new() }
    }

    pub(super) fn workflow(&self) -> &'w Workflow {
        self.workflow
    }

    fn texts(&self) -> impl Iterator<Item = &'w str> + use<'w> {
        let workflow = self.workflow;
        let of_nodes = workflow.nodes().flat_map(|node: &Node| {
            ["prompt", "label"].into_iter().filter_map(|name| node.attrs.text(name))
        });
        of_nodes.chain(workflow.attrs().text("goal")).flat_map(outside_templates)
    }

    /// Whether one of the texts has this word.
    pub(crate) fn has(&self, word: &str) -> bool {
        let words = self.words.get_or_init(|| {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            self.texts().flat_map(|text| text.split(move |c| !is_part(c))).collect()
        });
        words.contains(word)
    }

    /// The names of fields in a prompt that says something about `context_updates`.
    pub(crate) fn updates(&self) -> &BTreeSet<&'w str> {
        self.updates.get_or_init(|| {
            let texts = self.texts().filter(|text| text.contains("context_updates"));
            texts.flat_map(field_names).collect()
        })
    }
}

/// What stays when a template is rendered.
fn outside_templates(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{").enumerate().map(|(at, part)| match part.split_once("}}") {
        Some((_, rest)) if at > 0 => rest,
        _ => part,
    })
}

/// `"name":` in a text.
fn field_names(text: &str) -> impl Iterator<Item = &str> {
    let parts: Vec<&str> = text.split('"').collect();
    let pairs = parts.windows(2).filter(|pair| pair[1].trim_start().starts_with(':'));
    pairs.map(|pair| pair[0]).collect::<Vec<_>>().into_iter()
}

/// What was meant by a key that only a model can write. A key that a prompt mentions is meant as it is.
pub(super) fn misspelled(mentions: &Mentions<'_>, key: &str, nearby: &Nearby) -> Option<Need> {
    let workflow = mentions.workflow;
    let (root, rest) = key.split_once('.').unwrap_or((key, ""));
    let ids = || workflow.nodes().filter(|node| runs(node)).map(|node| &*node.id);
    if FIELDS.contains(&rest)
        && let Some(id) = nearby.nearest(root, ids())
    {
        let why = if id == root {
            format!("`{id}` is a node, and keys do not begin with nodes")
        } else {
            format!("there is no node `{root}` (`{id}` is near), and keys do not begin with nodes")
        };
        return Some(Need::Impossible { why, fix: no_key_of_node(workflow, id) });
    }
    if mentions.has(root) {
        return None;
    }
    let meant = if rest.is_empty() {
        let built_in = BUILT_IN.iter().map(|(name, _)| *name);
        let elements = workflow.nodes().filter(|node| node.for_each().is_some()).map(element_name);
        let updates = mentions.updates().iter().copied();
        let near = nearby.nearest(key, built_in.chain(elements).chain(updates))?;
        let names = BUILT_IN.iter().find(|(name, _)| *name == near);
        names.map_or(near, |(_, key)| key).to_owned()
    } else {
        format!("{}.{rest}", nearby.nearest(root, ROOTS.iter().copied())?)
    };
    let differs = |c: &char| !c.is_ascii_digit();
    if meant == key || meant.chars().filter(differs).eq(key.chars().filter(differs)) {
        return None;
    }
    let why = "the engine has no such key, and no prompt mentions it".to_owned();
    Some(Need::Impossible { why, fix: format!("did you mean `{meant}`?") })
}

fn runs(node: &Node) -> bool {
    !matches!(
        node.kind,
        NodeKind::Start | NodeKind::Exit | NodeKind::Conditional | NodeKind::Parallel
    )
}

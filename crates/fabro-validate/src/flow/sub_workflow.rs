//! Sub-workflows that share the context of their parent.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use fabro_graph::{Node, Workflow};

use super::keys::need;
use super::misspelled::Mentions;
use super::writer::{Need, shares_context};
use crate::family::ChildKey;
use crate::load::load;
use crate::near::Nearby;
use crate::relative::RelativeSources;

/// Workflows of sub-workflow nodes, each read once; `None` for one that does not parse.
#[derive(Default)]
pub(crate) struct SubWorkflows {
    read: RefCell<HashMap<ChildKey, Option<Rc<Workflow>>>>,
}

impl SubWorkflows {
    /// The workflow that a node of a workflow with these sources runs.
    pub(crate) fn of(&self, node: &Node, sources: &RelativeSources<'_>) -> Option<Rc<Workflow>> {
        let (key, text) = ChildKey::of(node, sources)?;
        if let Some(known) = self.read.borrow().get(&key) {
            return known.clone();
        }
        let own = RelativeSources::new(sources.sources, key.base());
        let workflow = load(&node.id, text, &own, None).ok().map(|read| Rc::new(read.workflow));
        self.read.borrow_mut().insert(key, workflow.clone());
        workflow
    }

    /// The workflows of the sub-workflows that share this workflow's context, and of those in them.
    pub(crate) fn sharing(
        &self,
        workflow: &Workflow,
        sources: &RelativeSources<'_>,
    ) -> Vec<Rc<Workflow>> {
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        self.add_sharing(workflow, sources, &mut seen, &mut found);
        let mut next = 0;
        while next < found.len() {
            let (child, base): (Rc<Workflow>, String) = found[next].clone();
            let sources = RelativeSources::new(sources.sources, &base);
            self.add_sharing(&child, &sources, &mut seen, &mut found);
            next += 1;
        }
        found.into_iter().map(|(workflow, _)| workflow).collect()
    }

    fn add_sharing(
        &self,
        workflow: &Workflow,
        sources: &RelativeSources<'_>,
        seen: &mut HashSet<ChildKey>,
        found: &mut Vec<(Rc<Workflow>, String)>,
    ) {
        for node in workflow.nodes().filter(|node| shares_context(node)) {
            let Some((key, _)) = ChildKey::of(node, sources) else { continue };
            let base = key.base().to_owned();
            if seen.insert(key)
                && let Some(child) = self.of(node, sources)
            {
                found.push((child, base));
            }
        }
    }
}

/// Whether a stage of this workflow can write a key, apart from those of its sub-workflows.
pub(crate) fn can_write(workflow: &Workflow, key: &str, nearby: &Nearby) -> bool {
    match need(&Mentions::new(workflow), key, nearby) {
        Need::Nothing => true,
        Need::Impossible { .. } => false,
        Need::Stage(writer) => (0..workflow.nodes().len()).any(|at| writer.is_itself(workflow, at)),
    }
}

impl ChildKey {
    /// The sub-workflow that a node names, and its text. Of two the one in a file counts.
    pub(crate) fn of<'n>(node: &'n Node, sources: &RelativeSources<'_>) -> Option<(Self, &'n str)> {
        let attrs = &node.attrs;
        let inline = || attrs.get("stack.child_dot_source");
        let attr = attrs.get("stack.child_workflow").or_else(inline)?;
        let text = attr.value.text()?;
        if attr.name == "stack.child_workflow" {
            return Some((Self::File(sources.join(attr.file.as_deref()?)), text));
        }
        let base = sources.folder.to_owned();
        Some((Self::Inline { base, text: text.to_owned() }, text))
    }
}

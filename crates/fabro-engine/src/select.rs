//! Which edge a stage leaves by, and why. Rules: `docs/workflow-language.md`, "Transitions".

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use fabro_blob::BlobStore;
use fabro_condition::{Lookup, LookupError};
use fabro_context::Context;
use fabro_events::{Candidate, EdgeChoice, Tier};
use fabro_graph::{EdgeIx, NodeIx};
use fabro_types::{BlobRef, Outcome, Weight, accelerator, strip_accelerator};
use serde_json::Value;

use crate::Plan;
use crate::random;

/// A context as conditions see it: blobs are read back, up to 16 MB each.
pub struct Reading<'a> {
    /// The keys.
    pub context: &'a Context,
    /// Where references lead.
    pub blobs: &'a dyn BlobStore,
}

impl Lookup for Reading<'_> {
    fn get(&self, key: &str) -> Result<Option<Cow<'_, Value>>, LookupError> {
        let Some(value) = self.context.get(key) else { return Ok(None) };
        let read = self.referred(key, value)?;
        Ok(Some(read.map_or(Cow::Borrowed(value), Cow::Owned)))
    }

    fn referred(&self, path: &str, value: &Value) -> Result<Option<Value>, LookupError> {
        let Some(blob) = BlobRef::from_value(value) else { return Ok(None) };
        let read = crate::read_blob(self.blobs, &blob);
        read.map(Some).map_err(|error| LookupError(format!("`{path}` cannot be read: {error}")))
    }
}

/// What edge selection is asked.
pub(crate) struct Question<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) node: NodeIx,
    /// The last stage's signals; `None` before any.
    pub(crate) outcome: Option<&'a Outcome>,
    pub(crate) reading: Reading<'a>,
    pub(crate) random: random::Source<'a>,
    /// After a gate that nobody answered only conditions count.
    pub(crate) only_conditions: bool,
}

/// The chosen edge, or none, and all that were looked at.
pub(crate) struct Answer {
    pub(crate) edge: Option<(EdgeIx, EdgeChoice)>,
    pub(crate) candidates: Vec<Candidate>,
}

/// Chooses by tier: conditions that hold, the preferred label, suggested nodes, the rest.
pub(crate) fn select(question: &Question<'_>) -> Result<Answer, LookupError> {
    let candidates = look(question)?;
    let edges: Vec<EdgeIx> = question.plan.workflow().outgoing(question.node).collect();
    let conditional: Vec<EdgeIx> = held(&edges, &candidates, true);
    let plain: Vec<EdgeIx> = held(&edges, &candidates, false);
    let mut tiers = vec![(Tier::Condition, conditional)];
    if !question.only_conditions {
        tiers.push((Tier::PreferredLabel, labelled(question, &plain)));
        tiers.push((Tier::SuggestedNext, suggested(question, &plain)));
        tiers.push((Tier::Unconditional, plain));
    }
    let chosen = tiers.into_iter().find(|(_, edges)| !edges.is_empty());
    let edge = chosen.and_then(|(tier, edges)| {
        let ix = best(question, &edges)?;
        let edge = question.plan.workflow().edge(ix);
        let choice = EdgeChoice {
            to: Arc::clone(&question.plan.workflow().node(edge.to).id),
            label: edge.label().map(Arc::from),
            tier,
            random: edges.len() > 1 && is_random(question),
            restart: edge.attrs.bool("loop_restart") == Some(true),
            gate: None,
            candidates: candidates.clone(),
        };
        Some((ix, choice))
    });
    Ok(Answer { edge, candidates })
}

fn look(question: &Question<'_>) -> Result<Vec<Candidate>, LookupError> {
    let workflow = question.plan.workflow();
    workflow
        .outgoing(question.node)
        .map(|ix| {
            let edge = workflow.edge(ix);
            let condition = question.plan.condition(ix);
            let verdict = condition.map(|c| c.explain(&question.reading)).transpose()?;
            Ok(Candidate {
                to: Arc::clone(&workflow.node(edge.to).id),
                label: edge.label().map(Arc::from),
                condition: condition.and_then(|_| edge.condition()).map(Arc::from),
                weight: edge.weight(),
                holds: verdict.as_ref().is_none_or(|verdict| verdict.holds),
                clauses: verdict.map(|verdict| verdict.clauses).unwrap_or_default(),
            })
        })
        .collect()
}

fn held(edges: &[EdgeIx], candidates: &[Candidate], conditional: bool) -> Vec<EdgeIx> {
    let pairs = edges.iter().zip(candidates);
    pairs
        .filter(|(_, candidate)| candidate.holds && candidate.condition.is_some() == conditional)
        .map(|(edge, _)| *edge)
        .collect()
}

fn labelled(question: &Question<'_>, edges: &[EdgeIx]) -> Vec<EdgeIx> {
    let preferred = question.outcome.and_then(|outcome| outcome.preferred_label.as_deref());
    let Some(preferred) = preferred.filter(|label| !label.trim().is_empty()) else {
        return Vec::new();
    };
    let workflow = question.plan.workflow();
    let matches = |edge: &&EdgeIx| {
        workflow.edge(**edge).label().is_some_and(|label| label_matches(label, preferred))
    };
    edges.iter().filter(matches).copied().collect()
}

fn label_matches(label: &str, preferred: &str) -> bool {
    let plain = |text: &str| strip_accelerator(text).to_lowercase();
    let key = accelerator(label).0.map(str::to_lowercase);
    plain(label) == plain(preferred) || key.as_deref() == Some(&preferred.trim().to_lowercase())
}

fn suggested(question: &Question<'_>, edges: &[EdgeIx]) -> Vec<EdgeIx> {
    let workflow = question.plan.workflow();
    let ids = question.outcome.map(|outcome| outcome.suggested_next_ids.as_slice());
    let to = |id: &str| -> Vec<EdgeIx> {
        let leads = |edge: &&EdgeIx| workflow.node(workflow.edge(**edge).to).id.as_ref() == id;
        edges.iter().filter(leads).copied().collect()
    };
    let mut found = ids.unwrap_or_default().iter().map(|id| to(id.trim()));
    found.find(|edges| !edges.is_empty()).unwrap_or_default()
}

/// Highest weight, then lowest target id, then file order; with `selection=random`, by weight.
fn best(question: &Question<'_>, edges: &[EdgeIx]) -> Option<EdgeIx> {
    let workflow = question.plan.workflow();
    if !is_random(question) {
        return edges.iter().copied().min_by_key(|edge| {
            let edge = workflow.edge(*edge);
            (Reverse(edge.weight()), Arc::clone(&workflow.node(edge.to).id))
        });
    }
    let weight = |edge: &EdgeIx| parts(workflow.edge(*edge).weight());
    let total = edges.iter().map(weight).fold(0_u64, u64::saturating_add);
    let mut left = question.random.below(total, "edge");
    edges.iter().copied().find(|edge| {
        let own = weight(edge);
        let hit = left < own;
        left = left.saturating_sub(own);
        hit
    })
}

fn is_random(question: &Question<'_>) -> bool {
    let node = question.plan.workflow().node(question.node);
    node.attrs.text("selection") == Some("random")
}

/// A weight in thousandths; one that is not above 0 counts as 1.
#[expect(clippy::cast_sign_loss, reason = "only weights above 0 are converted")]
fn parts(weight: Weight) -> u64 {
    let weight = if weight > Weight::default() { weight } else { Weight::new(1.0) };
    ((weight.get() * 1_000.0) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_match_without_their_accelerators() {
        for (label, preferred) in [
            ("[A] Approve", "approve"),
            ("Approve", "[A] Approve"),
            ("[A] Approve", "a"),
            ("R) Revise ", " REVISE"),
            ("S - Skip", "s"),
        ] {
            assert!(label_matches(label, preferred), "{label} {preferred}");
        }
        assert!(!label_matches("[A] Approve", "b"));
        assert!(!label_matches("Approve it", "approve"));
    }
}

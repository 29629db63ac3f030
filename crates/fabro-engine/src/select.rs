//! Edge selection: which outgoing edge is taken, and why. By conditions, else the preferred label, else the
//! suggested next ids; among several by weight. Rules: `docs/workflow-language.md`, "Transitions".

use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fabro_blob::{BlobStore, NewBlob, READ_LIMIT, ReadError};
use fabro_condition::{Clause, Condition, ConditionResult, Lookup};
use fabro_context::Context;
use fabro_events::{Candidate, EdgeChoice, Tier};
use fabro_graph::{EdgeIx, NodeIx};
use fabro_plan::{EdgeSpec, Plan, Selection};
use fabro_types::{BlobRef, NodeKind, Outcome, Weight, label_matches, strip_accelerator};
use serde_json::Value;

use crate::random;

/// A context value that a condition needs and that cannot be read: its blob is too large, missing or
/// damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LookupError(pub String);

/// A context whose blobs, of up to 16 MB each, are read for conditions.
pub struct Reading<'a> {
    /// The keys.
    pub context: &'a Context,
    /// Where references lead.
    pub blobs: &'a dyn BlobStore,
}

impl Reading<'_> {
    /// Evaluates a condition.
    ///
    /// # Errors
    /// A value that decides the result cannot be read.
    pub fn evaluate(&self, condition: &Condition) -> Result<ConditionResult, LookupError> {
        let read =
            |blob: &BlobRef| crate::read_blob(self.blobs, blob).map_err(|error| error.to_string());
        evaluate(condition, self.context, &read)
    }
}

/// Reads the value that a reference stands for; an error in words.
pub(crate) type ReadBlob<'a> = dyn Fn(&BlobRef) -> Result<Value, String> + 'a;

fn evaluate(
    condition: &Condition,
    context: &Context,
    read: &ReadBlob<'_>,
) -> Result<ConditionResult, LookupError> {
    let keys = condition.clauses().iter().map(Clause::key);
    let values = keys.map(|key| (key, find(key, context, read).transpose())).collect();
    let values = KeyValues { values, error: RefCell::default() };
    condition.holds(&values);
    match values.error.take() {
        Some(error) => Err(error),
        None => Ok(condition.explain(&values)),
    }
}

pub(crate) fn find<'c>(
    key: &str,
    context: &'c Context,
    read: &ReadBlob<'_>,
) -> Result<Option<Cow<'c, Value>>, LookupError> {
    let resolve = |key: &str, value: Cow<'c, Value>| {
        let Some(blob) = BlobRef::from_value(&value) else { return Ok(value) };
        let error = |error| LookupError(format!("`{key}` cannot be read: {error}"));
        read(&blob).map(Cow::Owned).map_err(error)
    };
    let get = |flat: &str| {
        let value = context.get(flat);
        value.map(|value| resolve(flat, Cow::Borrowed(value))).transpose()
    };
    let value = fabro_condition::find(key, get)?;
    value.map(|value| resolve(key, value)).transpose()
}

/// The large values that the machine has: those that were read for it, and those that the commit
/// which is being prepared will store.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    pub(crate) read: &'a BTreeMap<BlobRef, Result<Value, String>>,
    pub(crate) pending: &'a [NewBlob],
}

impl Values<'_> {
    pub(crate) fn get(self, blob: &BlobRef) -> Option<Result<Value, String>> {
        if let Some(value) = self.read.get(blob) {
            return Some(value.clone());
        }
        let (_, bytes) = self.pending.iter().find(|(name, _)| name == blob)?;
        let bytes_len = bytes.len() as u64;
        if bytes_len > READ_LIMIT {
            return Some(Err(ReadError::TooLarge { bytes: bytes_len }.to_string()));
        }
        Some(serde_json::from_slice(bytes).map_err(|error| ReadError::Json(error).to_string()))
    }
}

/// Why no edge can be selected.
pub(crate) enum SelectError {
    /// These blobs have to be read first.
    Needs(BTreeSet<BlobRef>),
    /// A value that decides a condition cannot be read.
    Lookup(LookupError),
}

/// The values of the keys of one condition.
struct KeyValues<'a> {
    values: BTreeMap<&'a str, Option<Result<Cow<'a, Value>, LookupError>>>,
    /// The first value that was needed and could not be read.
    error: RefCell<Option<LookupError>>,
}

impl Lookup for KeyValues<'_> {
    fn get(&self, key: &str) -> Option<Cow<'_, Value>> {
        match self.values.get(key)?.as_ref()? {
            Ok(value) => Some(Cow::Borrowed(&**value)),
            Err(error) => {
                self.error.borrow_mut().get_or_insert_with(|| error.clone());
                Some(Cow::Owned(Value::from(format!("({error})"))))
            }
        }
    }
}

/// What decides which edge is selected.
pub(crate) struct EdgeQuery<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) node: NodeIx,
    /// The last stage's signals; `None` before any.
    pub(crate) outcome: Option<&'a Outcome>,
    pub(crate) context: &'a Context,
    pub(crate) values: Values<'a>,
    pub(crate) random: random::Source<'a>,
    /// After a gate without an answer only conditions count.
    pub(crate) only_conditions: bool,
    /// Takes no plain edge, unless it leads to a conditional node, whose edges then decide.
    pub(crate) avoids_plain: bool,
}

/// The selected edge, if there is one, and all that were considered.
pub(crate) struct Selected {
    pub(crate) edge: Option<EdgeChoice>,
    pub(crate) candidates: Vec<Candidate>,
}

/// Selects by tier: conditions that hold, the preferred label, suggested nodes, the rest.
pub(crate) fn select(query: &EdgeQuery<'_>) -> Result<Selected, SelectError> {
    let candidates = evaluate_edges(query)?;
    let declined = declined_options(query);
    let edges: Vec<EdgeIx> = query.plan.workflow().outgoing(query.node).collect();
    let held = |conditional| {
        let mut held = held(&edges, &candidates, conditional);
        held.retain(|edge| !declined.contains(edge));
        held
    };
    let mut tiers = vec![(Tier::Condition, held(true))];
    if !query.only_conditions {
        let plain = held(false);
        tiers.push((Tier::PreferredLabel, labelled(query, &plain)));
        tiers.push((Tier::SuggestedNext, suggested(query, &plain)));
        let mut plain = plain;
        if query.avoids_plain {
            let leads_to = |edge: &EdgeIx| query.plan.spec(query.plan.edge(*edge).to).kind;
            plain.retain(|edge| leads_to(edge) == NodeKind::Conditional);
        }
        tiers.push((Tier::Unconditional, plain));
    }
    // A tier without edges has no best one.
    let edge = tiers.into_iter().find_map(|(tier, edges)| {
        let chosen = best(query, &edges)?;
        let edge = query.plan.edge(chosen);
        Some(EdgeChoice {
            to: Arc::clone(&query.plan.spec(edge.to).id),
            label: edge.label.clone(),
            edge: ordinal(query.plan, query.node, chosen, |other| other.label == edge.label),
            tier,
            random: edges.len() > 1 && is_random(query),
            restart: edge.loop_restart,
            gate: None,
            failure: None,
            overrides: Vec::new(),
            candidates: candidates.clone(),
        })
    });
    Ok(Selected { edge, candidates })
}

/// The options of a gate that its answer did not choose: they are not followed, even if their
/// conditions hold. Of several that were chosen, the first counts.
fn declined_options(query: &EdgeQuery<'_>) -> Vec<EdgeIx> {
    let Some(outcome) = query.outcome.filter(|outcome| outcome.status.is_good()) else {
        return Vec::new();
    };
    if query.plan.spec(query.node).kind != NodeKind::Human || outcome.suggested_next_ids.is_empty()
    {
        return Vec::new();
    }
    let preferred = outcome.preferred_label.as_deref();
    let plain = |label: &str| strip_accelerator(label).to_lowercase();
    let is_chosen = |edge: &EdgeIx| {
        let to = target(query, *edge);
        let label = query.plan.edge(*edge).label.as_deref().unwrap_or_default();
        outcome.suggested_next_ids.iter().any(|id| **id == **to)
            && preferred.is_none_or(|preferred| plain(preferred) == plain(label))
    };
    let mut options = query.plan.gate_options(query.node);
    if options.iter().any(is_chosen) {
        options.retain(|edge| !is_chosen(edge));
        return options;
    }
    Vec::new()
}

/// Which of a node's outgoing edges this is, if another edge to the same target is `alike`.
pub(crate) fn ordinal(
    plan: &Plan,
    node: NodeIx,
    edge: EdgeIx,
    alike: impl Fn(&EdgeSpec) -> bool,
) -> Option<u32> {
    let to = plan.edge(edge).to;
    let mut same = plan.outgoing(node).filter(|other| other.to == to && alike(other));
    same.nth(1)?;
    let index = plan.workflow().outgoing(node).position(|other| other == edge)?;
    u32::try_from(index).ok()
}

/// Evaluates the condition of every edge.
fn evaluate_edges(query: &EdgeQuery<'_>) -> Result<Vec<Candidate>, SelectError> {
    let needs = RefCell::new(BTreeSet::new());
    let read = |blob: &BlobRef| {
        query.values.get(blob).unwrap_or_else(|| {
            needs.borrow_mut().insert(*blob);
            Err("it is not read yet".to_owned())
        })
    };
    let candidates: Result<Vec<Candidate>, LookupError> = query
        .plan
        .outgoing(query.node)
        .map(|edge| {
            let condition = edge.condition.as_ref();
            let result =
                condition.map(|it| evaluate(&it.parsed, query.context, &read)).transpose()?;
            Ok(Candidate {
                to: Arc::clone(&query.plan.spec(edge.to).id),
                label: edge.label.clone(),
                condition: condition.map(|condition| Arc::clone(&condition.text)),
                weight: edge.weight,
                holds: result.as_ref().is_none_or(|result| result.holds),
                clauses: result.map(|result| result.clauses).unwrap_or_default(),
            })
        })
        .collect();
    let needs = needs.take();
    if needs.is_empty() {
        candidates.map_err(SelectError::Lookup)
    } else {
        Err(SelectError::Needs(needs))
    }
}

fn held(edges: &[EdgeIx], candidates: &[Candidate], conditional: bool) -> Vec<EdgeIx> {
    let pairs = edges.iter().zip(candidates);
    pairs
        .filter(|(_, candidate)| candidate.holds && candidate.condition.is_some() == conditional)
        .map(|(edge, _)| *edge)
        .collect()
}

fn labelled(query: &EdgeQuery<'_>, edges: &[EdgeIx]) -> Vec<EdgeIx> {
    let preferred = query.outcome.and_then(|outcome| outcome.preferred_label.as_deref());
    let Some(preferred) = preferred.filter(|label| !label.trim().is_empty()) else {
        return Vec::new();
    };
    let matches = |edge: &&EdgeIx| {
        let label = query.plan.edge(**edge).label.as_ref();
        label.is_some_and(|label| label_matches(label, preferred))
    };
    edges.iter().filter(matches).copied().collect()
}

fn suggested(query: &EdgeQuery<'_>, edges: &[EdgeIx]) -> Vec<EdgeIx> {
    let ids = query.outcome.map(|outcome| outcome.suggested_next_ids.as_slice());
    let to = |id: &str| -> Vec<EdgeIx> {
        let leads = |edge: &&EdgeIx| **target(query, **edge) == *id;
        edges.iter().filter(leads).copied().collect()
    };
    let mut found = ids.unwrap_or_default().iter().map(|id| to(id.trim()));
    found.find(|edges| !edges.is_empty()).unwrap_or_default()
}

/// Highest weight, then lowest target id, then file order; with `selection=random`, by weight.
fn best(query: &EdgeQuery<'_>, edges: &[EdgeIx]) -> Option<EdgeIx> {
    if !is_random(query) {
        let order = |edge: &EdgeIx| (Reverse(query.plan.edge(*edge).weight), target(query, *edge));
        return edges.iter().copied().min_by_key(order);
    }
    let weight = |edge: &EdgeIx| parts(query.plan.edge(*edge).weight);
    let total = edges.iter().map(weight).fold(0_u64, u64::saturating_add);
    let mut left = query.random.below(total, "edge");
    edges.iter().copied().find(|edge| {
        let own = weight(edge);
        let hit = left < own;
        left = left.saturating_sub(own);
        hit
    })
}

fn target<'a>(query: &EdgeQuery<'a>, edge: EdgeIx) -> &'a Arc<str> {
    &query.plan.spec(query.plan.edge(edge).to).id
}

fn is_random(query: &EdgeQuery<'_>) -> bool {
    query.plan.spec(query.node).selection == Selection::Random
}

/// A weight in thousandths; one that is not above 0 counts as 1.
#[expect(clippy::cast_sign_loss, reason = "only weights above 0 are converted")]
fn parts(weight: Weight) -> u64 {
    let weight = if weight > Weight::default() { weight } else { Weight::new(1.0) };
    ((weight.get() * 1_000.0) as u64).max(1)
}

/// Which of its node's outgoing edges was taken, if there are several.
pub(crate) fn place_of(choice: &EdgeChoice) -> Option<usize> {
    if choice.candidates.len() < 2 {
        return None;
    }
    let same = |it: &Candidate| it.to == choice.to && it.label == choice.label;
    match choice.edge {
        Some(edge) => usize::try_from(edge).ok(),
        None => choice.candidates.iter().position(same),
    }
}

#[cfg(test)]
mod tests {
    use fabro_blob::MemoryBlobs;
    use serde_json::json;

    use super::*;

    #[test]
    fn blobs_are_read_where_a_condition_needs_them() {
        let blobs = MemoryBlobs::default();
        let blob = |value: Value| blobs.put(value.to_string().as_bytes()).unwrap().to_value();
        let mut context = Context::new();
        context.set("report", blob(json!({"score": 91})));
        context.set("branches", json!([{"text": blob(json!("done"))}]));
        let gone = blobs.put(b"\"gone\"").unwrap();
        blobs.lose(&gone);
        context.set("gone", gone.to_value());
        let reading = Reading { context: &context, blobs: &blobs };
        let evaluate = |text: &str| reading.evaluate(&Condition::parse(text).unwrap());
        for text in ["report.score > 90", "context.branches.0.text = done", "report || gone"] {
            assert!(evaluate(text).unwrap().holds, "{text}");
        }
        let result = evaluate("report || gone").unwrap();
        assert!(result.clauses[1].value.starts_with("(`gone` cannot be read: "));
        assert!(evaluate("report && gone").is_err());
    }

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

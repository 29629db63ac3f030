//! Which edge was taken, and why.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::body::{Candidate, Tier};

/// An edge that was taken, and every one that could have been.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeChoice {
    /// Where it leads.
    pub to: Arc<str>,
    /// Its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Arc<str>>,
    /// Which of the node's outgoing edges it is, counted from 0 in file order; absent where target
    /// and label tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<u32>,
    /// Why it was this one.
    pub tier: Tier,
    /// It was drawn by weight among several that the rule left; the run's seed decided.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub random: bool,
    /// It starts the loop again with a fresh context.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
    /// The goal gate that was not satisfied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Arc<str>>,
    /// All outgoing edges, in file order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
}

impl EdgeChoice {
    /// The condition of the edge that was taken, if that is why it was.
    pub fn taken_condition(&self) -> Option<&str> {
        if self.tier != Tier::Condition {
            return None;
        }
        let by_place = self.edge.and_then(|at| self.candidates.get(usize::try_from(at).ok()?));
        // Older versions have recorded no place.
        let by_target = || {
            let holds = |it: &&Candidate| it.to == self.to && it.holds && it.condition.is_some();
            self.candidates.iter().find(holds)
        };
        by_place.or_else(by_target)?.condition.as_deref()
    }
}

//! Which edge was taken, and why.

use std::sync::Arc;

use fabro_types::{ClauseResult, Weight};
use serde::{Deserialize, Serialize};

use crate::OverriddenCheck;

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
    /// How the edge handles the failures that leave by it; absent without failures and in logs of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureHandling>,
    /// The failed checks that a person overrides by choosing this edge of a gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverriddenCheck>,
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

/// How an edge handles the failures that leave by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureHandling {
    /// It handles them, unless the run reaches an exit before the next stage that does work.
    Handled,
    /// It does not handle them.
    Unhandled,
    /// It leads to an exit without `status`, or to the join of its branch: failures that reach it directly are
    /// unhandled.
    AtExit,
}

/// Which rule an edge was chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tier {
    /// Its condition holds.
    Condition,
    /// Its label is the preferred one.
    PreferredLabel,
    /// Its target was suggested.
    SuggestedNext,
    /// It has no condition.
    Unconditional,
    /// The branches of a fan-out meet here.
    Join,
    /// The stage failed and names where to continue.
    RetryTarget,
    /// The same, second choice.
    FallbackRetryTarget,
    /// A goal gate was not satisfied at the exit.
    GoalGate,
    /// A dry run assumed it: nothing wrote the values that conditions read, or a loop had to end.
    Assumed,
}

impl Tier {
    /// The machine-read word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::PreferredLabel => "preferred_label",
            Self::SuggestedNext => "suggested_next",
            Self::Unconditional => "unconditional",
            Self::Join => "join",
            Self::RetryTarget => "retry_target",
            Self::FallbackRetryTarget => "fallback_retry_target",
            Self::GoalGate => "goal_gate",
            Self::Assumed => "assumed",
        }
    }
}

/// An edge that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Where it leads.
    pub to: Arc<str>,
    /// Its label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Arc<str>>,
    /// Its condition, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Arc<str>>,
    /// Its weight.
    #[serde(default, skip_serializing_if = "Weight::is_default")]
    pub weight: Weight,
    /// Whether the condition held; true without one.
    pub holds: bool,
    /// What each clause saw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clauses: Vec<ClauseResult>,
}

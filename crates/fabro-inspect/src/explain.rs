use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fabro_engine::checkpoint;
use fabro_events::{AnsweredBy, Candidate, EdgeChoice, Event, EventBody, Tier};
use fabro_types::{ClauseResult, Failure, Weight, one_line, strip_accelerator, took};
use serde::Serialize;

use crate::at::{StageKey, end_of, find_left, is_any_visit};
use crate::{NoEdge, ReportError, StageRow};

/// Why a run took an edge after a stage, or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explain {
    /// The stage, as `[BRANCH/]NODE@VISIT`.
    pub stage: String,
    /// If the requested name has no branch: the last visits of the same node in other branches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// The next node; `None` when no edge could be taken.
    pub chosen: Option<Arc<str>>,
    /// The rule that decided; `None` when nothing was chosen.
    pub tier: Option<Tier>,
    /// What decided among several edges that the rule left, when there were several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tie_break: Option<TieBreak>,
    /// The answer that the stage, a human gate, was given; present only when there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<GateAnswered>,
    /// The seed of a random choice among several edges; present only when there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The goal gate that was not met; present only when that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<Arc<str>>,
    /// What the run, or the branch, failed with; present only when nothing was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Every edge that could have been taken, in the order of the file.
    pub candidates: Vec<Considered>,
}

/// What decides among edges of the same rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TieBreak {
    /// The highest weight.
    Weight,
    /// The lowest target id, the weights being equal.
    Target,
    /// The first in the file, weights and targets being equal.
    FileOrder,
}

impl TieBreak {
    /// For people, after the rule: `, the highest weight of several`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Weight => ", the highest weight of several",
            Self::Target => ", the lowest target id of several",
            Self::FileOrder => ", the first in the file of several",
        }
    }
}

/// How a human gate was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GateAnswered {
    /// The keys of the options, or `freeform`.
    pub selected: String,
    /// The label of the option, without its accelerator.
    pub label: String,
    /// The free text, when there was some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `terminal`, `answers`, `cli`, `timeout`, `auto`, ….
    pub source: String,
    /// Who answered; left out after a timeout and in older logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<AnsweredBy>,
    /// How long the question had been open, in milliseconds; left out where nobody answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
}

impl fmt::Display for GateAnswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.as_str() {
            _ if let Some(by) = self.by.as_ref().filter(|by| by.is_person()) => {
                write!(
                    f,
                    "answered by {} after {}: ",
                    one_line(&by.to_string(), 100),
                    took(self.after_ms.unwrap_or_default())
                )?;
            }
            "terminal" => f.write_str("a person answered at the terminal: ")?,
            "answers" => f.write_str("answered by the file of answers: ")?,
            "cli" => f.write_str("a person answered with `fabro answer`: ")?,
            "timeout" => f.write_str("the gate timed out, the default was taken: ")?,
            "auto" => f.write_str("answered without a person: ")?,
            other => write!(f, "answered by {}: ", one_line(other, 60))?,
        }
        match (&self.text, self.label.as_str()) {
            (Some(text), _) if !text.trim().is_empty() => write!(f, "\"{}\"", one_line(text, 120)),
            (_, "") => f.write_str("without a text"),
            (_, label) if self.selected == "freeform" => {
                write!(f, "{}, without a text", one_line(label, 60))
            }
            (_, label) => write!(f, "[{}] {}", self.selected, one_line(label, 60)),
        }
    }
}

/// An edge that could have been taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Considered {
    /// Where it leads.
    pub to: Arc<str>,
    /// Its label.
    pub label: Option<Arc<str>>,
    /// Its condition, as written.
    pub condition: Option<Arc<str>>,
    /// Its weight.
    pub weight: Weight,
    /// Whether its condition held; true without one.
    pub holds: bool,
    /// What each clause of the condition saw.
    pub clauses: Vec<ClauseResult>,
    /// It was taken; left out where it was not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

impl From<&Candidate> for Considered {
    fn from(candidate: &Candidate) -> Self {
        Self {
            to: Arc::clone(&candidate.to),
            label: candidate.label.clone(),
            condition: candidate.condition.clone(),
            weight: candidate.weight,
            holds: candidate.holds,
            clauses: candidate.clauses.clone(),
            taken: false,
        }
    }
}

/// Why the run took an edge after a stage, or none. The stage is named as
/// [`StageName`](checkpoint::StageName) has it; without a visit, the last one that was left is meant.
/// The exit that a goal gate kept the run from has an explanation too.
///
/// # Errors
///
/// There is no such stage, several are meant, or no edge was taken after it.
pub fn explain(events: &[Event], stage: &str) -> Result<Explain, ReportError> {
    let events = checkpoint::effective(events);
    let key = find_left(&events, stage)?;
    let others = others(&events, stage, &key);
    let explained = match explain_of(&events, &key) {
        Err(ReportError::NoEdge { why: NoEdge::Running, .. }) if is_any_visit(stage) => {
            // A loop has re-entered the node: the previous visit is the last finished one.
            let mut before = key.clone();
            before.visit = key.visit.saturating_sub(1);
            explain_of(&events, &before).or_else(|_| explain_of(&events, &key))
        }
        explained => explained,
    };
    Ok(Explain { others, ..explained? })
}

/// The last visits of the node in other branches that the name matches.
fn others(events: &[&Event], name: &str, key: &StageKey) -> Vec<String> {
    let name = checkpoint::StageName::parse(name.trim());
    let started = |event: &&&Event| matches!(event.entry.body, EventBody::StageStarted { .. });
    let events = events.iter().filter(|event| name.is_of(&event.entry)).filter(started);
    in_other_branches(events.filter_map(|event| StageKey::of(event)), key)
}

/// The last visits of the node of `row` in other branches that the name matches, from the rows of a run.
pub fn other_branches(rows: &[StageRow], name: &str, row: &StageRow) -> Vec<String> {
    let name = checkpoint::StageName::parse(name.trim());
    let keys = rows.iter().map(StageRow::key).filter(|key| key.is_called(name));
    in_other_branches(keys, &row.key())
}

fn in_other_branches(keys: impl Iterator<Item = StageKey>, key: &StageKey) -> Vec<String> {
    let mut last: BTreeMap<Option<Arc<str>>, StageKey> = BTreeMap::new();
    for stage in keys.filter(|stage| stage.branch != key.branch) {
        last.insert(stage.branch.clone(), stage);
    }
    last.values().map(StageKey::full_name).collect()
}

/// The full name of the last stage that has an explanation: an edge was taken after it, or none was found.
pub fn last_explained(events: &[Event]) -> Option<String> {
    let events = checkpoint::effective(events);
    events.iter().rev().find_map(|event| {
        let ends = matches!(
            event.entry.body,
            EventBody::EdgeSelected(_) | EventBody::StageCompleted(_) | EventBody::StageFailed(_)
        );
        let key = StageKey::of(event).filter(|_| ends)?;
        explain_of(&events, &key).ok().map(|_| key.full_name())
    })
}

/// The same of a stage whose row is known: from the first event of the run, those of the stage, and the next one of
/// its line. There may be others among them.
///
/// # Errors
///
/// No edge was taken after it.
pub fn explain_row(events: &[&Event], row: &StageRow) -> Result<Explain, ReportError> {
    explain_of(events, &row.key())
}

/// The same of one visit.
pub(crate) fn explain_of(events: &[&Event], key: &StageKey) -> Result<Explain, ReportError> {
    let choice = events.iter().rev().find_map(|event| match &event.entry.body {
        EventBody::EdgeSelected(choice) if key.is(event) => Some(choice),
        _ => None,
    });
    let Some(choice) = choice else {
        return stuck(events, key);
    };
    let seed = events.iter().find_map(|event| match &event.entry.body {
        EventBody::RunCreated(created) => Some(created.seed),
        _ => None,
    });
    let answer = answer_of(events, key);
    let mut candidates: Vec<_> = choice.candidates.iter().map(Considered::from).collect();
    show_asked_labels(&mut candidates, events, key);
    let taken = taken(choice);
    if let Some(candidate) = taken.and_then(|taken| candidates.get_mut(taken)) {
        candidate.taken = true;
    }
    // After an answer the other options are out of question.
    let tie_break = taken.filter(|_| answer.is_none()).and_then(|taken| tie_break(choice, taken));
    Ok(Explain {
        stage: key.full_name(),
        tie_break,
        answer,
        chosen: Some(Arc::clone(&choice.to)),
        tier: Some(choice.tier),
        seed: seed.filter(|_| choice.random),
        gate: choice.gate.clone(),
        candidates,
        ..Explain::default()
    })
}

/// Puts the labels that a person saw in the place of templates.
fn show_asked_labels(candidates: &mut [Considered], events: &[&Event], key: &StageKey) {
    let is_template = |label: &Arc<str>| label.contains("{{");
    let has_template = |edge: &&mut Considered| edge.label.as_ref().is_some_and(is_template);
    for candidate in candidates.iter_mut().filter(has_template) {
        let asked = events.iter().rev().find_map(|event| match &event.entry.body {
            EventBody::GateAsked { options, .. } if key.is(event) => Some(options),
            _ => None,
        });
        let mut same = asked.into_iter().flatten().filter(|option| *option.to == *candidate.to);
        if let (Some(option), None) = (same.next(), same.next()) {
            candidate.label = Some(format!("[{}] {}", option.key, option.label).into());
        }
    }
}

/// How a visit of a human gate was answered.
pub(crate) fn answer_of(events: &[&Event], key: &StageKey) -> Option<GateAnswered> {
    let own = || events.iter().filter(|event| key.is(event));
    own().rev().find_map(|event| {
        let EventBody::GateAnswered { selected, label, text, source, by } = &event.entry.body
        else {
            return None;
        };
        let asked = own().find(|it| matches!(it.entry.body, EventBody::GateAsked { .. }));
        let asked_ms = asked.map_or(event.ts_ms, |asked| asked.ts_ms);
        let after_ms = u64::try_from(event.ts_ms.saturating_sub(asked_ms)).unwrap_or_default();
        Some(GateAnswered {
            selected: selected.clone(),
            label: label.clone(),
            text: text.clone(),
            source: source.clone(),
            by: by.clone(),
            after_ms: by.as_ref().map(|_| after_ms),
        })
    })
}

/// Which candidate was taken; `None` for a jump, which follows no edge.
fn taken(choice: &EdgeChoice) -> Option<usize> {
    let is_jump = matches!(
        choice.tier,
        Tier::Join | Tier::RetryTarget | Tier::FallbackRetryTarget | Tier::GoalGate
    );
    if is_jump {
        return None;
    }
    let is_open = |edge: &Candidate| edge.holds || choice.tier == Tier::Assumed;
    let is_it =
        |edge: &Candidate| edge.to == choice.to && edge.label == choice.label && is_open(edge);
    match choice.edge {
        Some(edge) => usize::try_from(edge).ok(),
        None => choice.candidates.iter().position(is_it),
    }
}

/// What decided between the edge taken and others of its rule.
fn tie_break(choice: &EdgeChoice, taken: usize) -> Option<TieBreak> {
    let own = choice.candidates.get(taken)?;
    let plain =
        |edge: &Candidate| edge.label.as_deref().map(|it| strip_accelerator(it).to_lowercase());
    let is_rival = |edge: &Candidate| {
        edge.holds
            && edge.condition.is_some() == own.condition.is_some()
            && match choice.tier {
                Tier::PreferredLabel => plain(edge) == plain(own),
                Tier::SuggestedNext => edge.to == own.to,
                _ => true,
            }
    };
    let others = choice.candidates.iter().enumerate().filter(|(index, _)| *index != taken);
    let rivals: Vec<_> = others.map(|(_, edge)| edge).filter(|edge| is_rival(edge)).collect();
    if rivals.is_empty() || choice.random || choice.tier == Tier::Assumed {
        return None;
    }
    let equal: Vec<_> = rivals.iter().filter(|edge| edge.weight == own.weight).collect();
    Some(match equal.first() {
        None => TieBreak::Weight,
        Some(_) if equal.iter().all(|edge| edge.to != own.to) => TieBreak::Target,
        Some(_) => TieBreak::FileOrder,
    })
}

/// The failure after a stage without a next edge.
fn stuck(events: &[&Event], key: &StageKey) -> Result<Explain, ReportError> {
    let no_edge = |why| Err(ReportError::NoEdge { stage: key.name(), why });
    let Some(end) = end_of(events, key) else { return no_edge(NoEdge::Running) };
    // What ends the line is the next thing that happens in it.
    let next = events[end + 1..].iter().find(|event| event.entry.branch == key.branch);
    let (failure, candidates) = match next.map(|event| &event.entry.body) {
        Some(EventBody::RunFailed { failure, candidates, .. }) => (Some(failure), candidates),
        Some(EventBody::BranchCompleted { failure, candidates, .. }) => {
            (failure.as_ref(), candidates)
        }
        Some(EventBody::RunCompleted { .. }) => return no_edge(NoEdge::End),
        _ => return no_edge(NoEdge::NotYet),
    };
    if candidates.is_empty() {
        return no_edge(NoEdge::End);
    }
    let candidates = candidates.iter().map(Considered::from).collect();
    let stage = key.full_name();
    Ok(Explain { stage, failure: failure.cloned(), candidates, ..Explain::default() })
}

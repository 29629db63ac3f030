//! Open gates: those that wait for an answer, and their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_engine::checkpoint::{self, StageName};
use fabro_engine::{ActiveStage, Cursor, Phase, RunState};
use fabro_events::{Entry, Event, EventBody, GateOption, QuestionType, ShownText};
use fabro_handlers::read_all;
use fabro_store::{InboxId, Message, Store, StoreError};
use fabro_types::{BranchPath, RunId, one_line};
use serde::Serialize;

use crate::family::holding_stages_of;
use crate::{NamedGate, RunError, Within, running_members};

/// Whether a name matches the path of stages that ends in a gate.
type StageMatcher<'a> = &'a dyn Fn(&[String]) -> bool;

/// A gate that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gate {
    /// Its run, or the run of the sub-workflow it is in.
    #[serde(skip)]
    pub run: RunId,
    /// Its node.
    pub node: Arc<str>,
    /// Which visit of it.
    pub visit: u32,
    /// The branch it is asked in; `None` on the main line.
    pub branch: Option<Arc<str>>,
    /// The stages whose sub-workflows it is in, as `[BRANCH/]NODE@VISIT`, outermost first; left out for one of
    /// the run itself. [`open_gates`] reads one log only, and leaves it empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
    /// The list element that it asks about; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    /// The question.
    pub question: String,
    /// The texts displayed with the question: the last output or answer before it, or as set by `show`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub show: Vec<ShownText>,
    /// How it is asked.
    pub question_type: QuestionType,
    /// The failures before it, each with its stage: those that nothing has handled, and those that edges have
    /// handled since the last gate. Left out when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// What can be chosen.
    pub options: Vec<GateOption>,
    /// Free text is taken too.
    pub freeform: bool,
    /// The edge for free text; left out in logs that do not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_option: Option<GateOption>,
    /// The target node when the gate times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_choice: Option<Arc<str>>,
    /// When it was asked, in milliseconds since 1970.
    #[serde(skip)]
    pub asked_ms: i64,
    /// When it gives up, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// An answer that was sent and that no driver has taken yet: a resume takes it. [`open_gates`] reads the log
    /// only, and leaves it empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_answer: Option<String>,
}

impl Gate {
    /// How long it still waits, in milliseconds: no longer than its timeout, also when the clock was set back
    /// since it was asked; 0 when it has timed out. `None` for one that waits forever.
    pub fn left_ms(&self, now_ms: i64) -> Option<u64> {
        let deadline_ms = self.deadline_ms?;
        let timeout_ms = deadline_ms.saturating_sub(self.asked_ms);
        let left_ms = deadline_ms.saturating_sub(now_ms).min(timeout_ms);
        Some(u64::try_from(left_ms).unwrap_or_default())
    }

    /// `NODE@VISIT`, or `NODE[3]` in the branch of a list element.
    fn short_name(&self) -> String {
        match self.elements() {
            elements if elements.is_empty() => format!("{}@{}", self.node, self.visit),
            elements => format!("{}{elements}", self.node),
        }
    }

    /// `NODE@VISIT` with the stages that contain it, without branches: `sub@1/review@2`.
    fn path(&self) -> String {
        let own = format!("{}@{}", self.node, self.visit);
        let holding = self.within.iter().map(|stage| BranchPath::split_stage(stage).1);
        holding.chain([own.as_str()]).collect::<Vec<_>>().join("/")
    }

    /// The stages that contain it, then its own, each as `[BRANCH/]NODE@VISIT`.
    fn stages(&self) -> Vec<String> {
        let branch = BranchPath::new(self.branch.as_deref().unwrap_or_default());
        self.within.iter().cloned().chain([branch.stage(&self.node, self.visit)]).collect()
    }

    /// The indexes of its list elements, outermost first: `[3][0]`.
    fn elements(&self) -> String {
        elements(&self.stages())
    }
}

fn elements(stages: &[String]) -> String {
    stages.iter().map(|stage| branch_of(stage).elements()).collect()
}

fn branch_of(stage: &str) -> BranchPath<'_> {
    BranchPath::split_stage(stage).0.unwrap_or(BranchPath::MAIN)
}

/// The shortest unambiguous name of each gate: `NODE@VISIT` or `NODE[ELEMENT]`, else with the stages that hold it, else
/// with its branch too.
pub fn gate_names(gates: &[Gate]) -> Vec<String> {
    let names: [Vec<String>; 3] = [
        gates.iter().map(Gate::short_name).collect(),
        gates.iter().map(Gate::path).collect(),
        gates.iter().map(|gate| gate.stages().join("/")).collect(),
    ];
    let mut counts: [BTreeMap<&str, usize>; 3] = Default::default();
    for (counts, names) in counts.iter_mut().zip(&names) {
        for name in names {
            *counts.entry(name).or_default() += 1;
        }
    }
    let elements: Vec<String> = gates.iter().map(Gate::elements).collect();
    // `NODE[0]` also matches `NODE[3][0]`, of a nested list.
    let is_end = |at: usize, other: usize| {
        let is_same = gates[at].node == gates[other].node && !elements[at].is_empty();
        at != other && is_same && elements[other].ends_with(&elements[at])
    };
    let shortest = |at: usize| {
        let is_clear = |tier: usize| {
            counts[tier][&*names[tier][at]] == 1
                && (tier > 0 || !(0..gates.len()).any(|other| is_end(at, other)))
        };
        let tier = (0..names.len()).find(|tier| is_clear(*tier)).unwrap_or(names.len() - 1);
        names[tier][at].clone()
    };
    (0..gates.len()).map(shortest).collect()
}

/// Whether a name matches the last of these nested stages: the name of the stage alone, or after the
/// names of stages that contain it. With `whole`, all of them must be named.
fn is_named(stages: &[String], name: &str, whole: bool) -> bool {
    let Some((own, holding)) = stages.split_last() else { return false };
    let is_own = |name: &str| {
        let name = StageName::parse(name);
        let (branch, stage) = BranchPath::split_stage(own);
        let (node, visit) = checkpoint::split(stage);
        let branch = branch.unwrap_or(BranchPath::MAIN);
        node == Some(name.node)
            && name.visit.is_none_or(|wanted| visit == Some(wanted))
            && name.branch.is_none_or(|wanted| branch.is_called(wanted))
            && (name.elements.is_empty() || elements(stages).ends_with(name.elements))
    };
    if is_own(name) && (!whole || holding.is_empty()) {
        return true;
    }
    let mut cuts = name.match_indices('/').map(|(at, _)| (&name[..at], &name[at + 1..]));
    cuts.any(|(rest, name)| is_own(name) && is_named(holding, rest, whole))
}

/// The stage that a name means in the sub-workflows of a run, with names as [`answer`](crate::answer) takes them: the
/// run it is in, and its full name there. Of several the one that started last. `None` without any.
///
/// # Errors
///
/// A log cannot be read.
pub async fn find_stage_below(
    store: &dyn Store,
    run: RunId,
    name: &str,
) -> Result<Option<(RunId, String)>, StoreError> {
    let name = name.trim();
    let mut holding = BTreeMap::new();
    let mut best = None;
    for member in store.family(run).await? {
        let events = read_all(store, member).await?;
        let within = holding_stages_of(&events, &holding);
        for event in checkpoint::effective(&events).into_iter().filter(|_| member != run) {
            let Entry { node_id: Some(node), visit, branch, body, .. } = &event.entry else {
                continue;
            };
            if !matches!(body, EventBody::StageStarted { .. }) {
                continue;
            }
            let branch = BranchPath::new(branch.as_deref().unwrap_or_default());
            let stage = branch.stage(node, visit.unwrap_or(1));
            let stages: Within = within.iter().cloned().chain([stage.clone()]).collect();
            let rank = (is_named(&stages, name, true), event.ts_ms);
            let is_better = best.as_ref().is_none_or(|(other, _)| rank > *other);
            if is_better && is_named(&stages, name, false) {
                best = Some((rank, (member, stage)));
            }
        }
        holding.insert(member, within);
    }
    Ok(best.map(|(_, found)| found))
}

/// The indexes of the gates that match a name: a path of `NODE` or `NODE@VISIT`, optionally with list
/// elements (`NODE[3]`) and branches. A match of the whole path takes precedence over a match of its
/// end, and that over a match of a containing stage. A name from [`gate_names`] matches one gate.
fn find_gates(gates: &[Gate], name: &str) -> Vec<usize> {
    let name = name.trim();
    let stages: Vec<Vec<String>> = gates.iter().map(Gate::stages).collect();
    let found = |means: &dyn Fn(&[String]) -> bool| -> Vec<usize> {
        (0..gates.len()).filter(|at| means(&stages[*at])).collect()
    };
    let ways: [StageMatcher<'_>; 4] = [
        &|stages| stages.join("/") == name,
        &|stages| is_named(stages, name, true),
        &|stages| is_named(stages, name, false),
        &|stages| (1..stages.len()).any(|holding| is_named(&stages[..holding], name, false)),
    ];
    ways.into_iter().map(found).find(|found| !found.is_empty()).unwrap_or_default()
}

/// The gates of one log that have been asked and not answered, the main line's first.
pub fn open_gates(events: &[Event]) -> Vec<Gate> {
    let Some(first) = events.first() else { return Vec::new() };
    let mut state = RunState::new(first.run_id);
    let mut asked = AskedGates::default();
    for event in checkpoint::effective(events) {
        state.apply(event);
        asked.apply(event);
    }
    asked.open(&state)
}

/// A stage: its branch, its node, and which visit of it.
type GateStage = (Option<Arc<str>>, Arc<str>, u32);

/// The gates that the events of one run have asked and that were not answered, folded as the events are read.
/// Takes the events that count: after a rewind it begins again.
#[derive(Clone, Debug, Default)]
pub struct AskedGates {
    asked: BTreeMap<GateStage, Gate>,
}

impl AskedGates {
    /// Takes an event in.
    pub fn apply(&mut self, event: &Event) {
        let Entry { node_id: Some(node), visit, branch, body, .. } = &event.entry else { return };
        let visit = visit.unwrap_or(1);
        let stage = (branch.clone(), Arc::clone(node), visit);
        match body {
            EventBody::GateAsked {
                question,
                question_type,
                options,
                freeform,
                text_option,
                default_choice,
                deadline_ms,
                item,
                show,
            } => {
                let gate = Gate {
                    item: item.clone(),
                    show: show.clone(),
                    run: event.run_id,
                    node: Arc::clone(node),
                    visit,
                    branch: branch.clone(),
                    within: Vec::new(),
                    question: question.clone(),
                    question_type: *question_type,
                    failures: Vec::new(),
                    options: options.clone(),
                    freeform: *freeform,
                    text_option: text_option.clone(),
                    default_choice: default_choice.clone(),
                    asked_ms: event.ts_ms,
                    deadline_ms: *deadline_ms,
                    pending_answer: None,
                };
                self.asked.insert(stage, gate);
            }
            EventBody::GateAnswered { .. }
            | EventBody::StageCompleted(_)
            | EventBody::StageFailed(_) => {
                self.asked.remove(&stage);
            }
            _ => {}
        }
    }

    /// Those that wait for an answer in this state of the run, the main line's first.
    pub fn open(&self, state: &RunState) -> Vec<Gate> {
        if matches!(state.phase, Phase::Ended(..)) {
            return Vec::new();
        }
        let waiting = state.active().filter(|(_, stage)| stage.gate_asked_ms.is_some());
        let gate = |(branch, stage): (&Arc<str>, &ActiveStage)| {
            let branch = (!branch.is_empty()).then(|| Arc::clone(branch));
            let gate = self.asked.get(&(branch.clone(), Arc::clone(&stage.node), stage.visit))?;
            let failures = state.cursor(branch.as_deref()).map(Cursor::failures_before);
            let failures = failures.unwrap_or_default();
            let failures =
                failures.iter().map(|it| format!("{}: {}", it.stage(), it.failure.message));
            Some(Gate { failures: failures.collect(), ..gate.clone() })
        };
        waiting.filter_map(gate).collect()
    }
}

/// The open gates of a run and of its running sub-workflows, each with the answer that waits for it.
///
/// # Errors
///
/// The log or the inbox of one of them cannot be read.
pub async fn open_gates_of_family(store: &dyn Store, run: RunId) -> Result<Vec<Gate>, StoreError> {
    let mut gates = Vec::new();
    for member in running_members(store, run).await? {
        let mut own = open_gates(&member.events);
        if let Some(gate) = own.first() {
            let pending = store.pending(gate.run).await?;
            for gate in &mut own {
                gate.pending_answer = answer_to(gate, &pending);
            }
        }
        gates.push((member.within, own));
    }
    Ok(gates_of_family(gates))
}

/// What one of these messages answers to the gate.
fn answer_to(gate: &Gate, messages: &[(InboxId, Message)]) -> Option<String> {
    messages.iter().find_map(|(_, message)| match message {
        Message::Answer { node, visit, branch, choice, .. } => {
            let is_it = *node == *gate.node
                && *visit == gate.visit
                && branch.as_deref() == gate.branch.as_deref();
            is_it.then(|| choice.clone())
        }
        _ => None,
    })
}

/// The gates of the members of a family, each with the stages that hold its run.
pub fn gates_of_family(members: Vec<(Within, Vec<Gate>)>) -> Vec<Gate> {
    let mut gates = Vec::new();
    for (within, own) in members {
        gates.extend(own.into_iter().map(|gate| Gate { within: within.clone(), ..gate }));
    }
    // Sub-workflows that run at the same time begin in any order.
    gates.sort_by(|one, other| one.within.cmp(&other.within));
    gates
}

/// The gate that a name means; without a name, the only one.
pub(crate) fn select_gate(
    mut gates: Vec<Gate>,
    run: RunId,
    name: Option<&str>,
) -> Result<Gate, RunError> {
    let found = match name {
        Some(name) => find_gates(&gates, name),
        None => (0..gates.len()).collect(),
    };
    match found[..] {
        [one] => Ok(gates.swap_remove(one)),
        _ if gates.is_empty() => Err(RunError::NoOpenGate { run }),
        [] => {
            let name = name.unwrap_or_default().to_owned();
            Err(RunError::NoSuchGate { name, open: named_gates(&gates) })
        }
        _ => {
            let mut named = named_gates(&gates);
            let is_found = |at: usize| found.contains(&at);
            let mut at = 0..;
            named.retain(|_| at.next().is_some_and(is_found));
            Err(RunError::AmbiguousGate { gates: named })
        }
    }
}

/// Each gate with its shortest name.
pub fn named_gates(gates: &[Gate]) -> Vec<NamedGate> {
    let of_gate = |(name, gate): (String, &Gate)| NamedGate {
        name,
        item: gate.item.clone(),
        question: gate.question.clone(),
    };
    gate_names(gates).into_iter().zip(gates).map(of_gate).collect()
}

/// The error for a gate that was already answered: the last one with this name, or the last of all
/// without a name. `within` are the stages that contain the run of `events`.
pub(crate) fn earlier_answer(
    events: &[Event],
    within: &[String],
    name: Option<&str>,
) -> Option<RunError> {
    let effective = checkpoint::effective(events);
    effective.into_iter().rev().find_map(|event| {
        let Entry { node_id, visit, branch, body, .. } = &event.entry;
        let EventBody::GateAnswered { selected, label, text, source, by } = body else {
            return None;
        };
        let node = node_id.as_deref().unwrap_or_default();
        let visit = visit.unwrap_or(1);
        let branch = BranchPath::new(branch.as_deref().unwrap_or_default());
        let stages: Vec<String> =
            within.iter().cloned().chain([branch.stage(node, visit)]).collect();
        if name.is_some_and(|name| !is_named(&stages, name.trim(), false)) {
            return None;
        }
        let answer = match text {
            Some(text) => format!("\"{}\"", one_line(text, 60)),
            None => format!("[{selected}] {}", one_line(label, 60)),
        };
        Some(RunError::GateAnswered {
            gate: format!("{node}{}@{visit}", elements(&stages)),
            answer,
            by: by.as_ref().map_or_else(|| source.clone(), ToString::to_string),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(path: &str) -> Gate {
        let mut within: Vec<String> = path.split('/').map(str::to_owned).collect();
        let own = within.pop().unwrap();
        let (Some(node), Some(visit)) = checkpoint::split(&own) else { panic!("{path}") };
        Gate {
            run: RunId::from_parts(0, 1),
            node: node.into(),
            visit,
            branch: None,
            within,
            item: None,
            question: String::new(),
            show: Vec::new(),
            question_type: QuestionType::default(),
            failures: Vec::new(),
            options: Vec::new(),
            freeform: false,
            text_option: None,
            default_choice: None,
            asked_ms: 0,
            deadline_ms: None,
            pending_answer: None,
        }
    }

    #[test]
    fn gate_names_are_unambiguous() {
        let gates = ["g@1", "s@1/g@1", "t@1/g@1", "t@1/u@2/h@3", "s@2"].map(gate);
        let names = gate_names(&gates);
        assert_eq!(names, ["g@1", "s@1/g@1", "t@1/g@1", "h@3", "s@2"]);
        for (at, name) in names.iter().enumerate() {
            assert_eq!(find_gates(&gates, name), [at], "{name}");
        }
        let twice = ["fan@1/a", "fan@1/b"]
            .map(|branch| Gate { branch: Some(branch.into()), ..gate("c@1") });
        let names = gate_names(&twice);
        assert_eq!(names, ["fan@1/a/c@1", "fan@1/b/c@1"]);
        assert_eq!(
            names.iter().flat_map(|name| find_gates(&twice, name)).collect::<Vec<_>>(),
            [0, 1]
        );
        let check = |name: &str, expect: &[usize]| {
            assert_eq!(find_gates(&gates, name), expect, "{name}");
        };
        check("g", &[0]);
        check("s/g", &[1]);
        check("u/h", &[3]);
        check("h", &[3]);
        check("u", &[3]);
        check("s", &[4]);
        check("s@1", &[1]);
        check("t", &[2, 3]);
        check("g@2", &[]);
        check("s@2/g", &[]);
        check("t/h", &[]);
        check("u/h@3", &[3]);
        check("", &[]);
    }

    #[test]
    fn gate_names_include_list_elements() {
        let of = |branch: &str, path: &str| Gate { branch: Some(branch.into()), ..gate(path) };
        let inner = Gate { within: vec!["each@1/work[3]/sub@1".to_owned()], ..gate("review@1") };
        let gates = [
            of("each@1/classify[0]", "escalate@1"),
            of("each@1/classify[1]", "escalate@1"),
            of("each@1/classify[1]/parts@1/part[0]", "escalate@1"),
            inner,
            gate("ship@2"),
        ];
        let names = gate_names(&gates);
        assert_eq!(
            names,
            [
                "each@1/classify[0]/escalate@1",
                "escalate[1]",
                "escalate[1][0]",
                "review[3]",
                "ship@2"
            ]
        );
        for (at, name) in names.iter().enumerate() {
            assert_eq!(find_gates(&gates, name), [at], "{name}");
        }
        let check = |name: &str, expect: &[usize]| {
            assert_eq!(find_gates(&gates, name), expect, "{name}");
        };
        check("escalate", &[0, 1, 2]);
        check("escalate[0]", &[0, 2]);
        check("classify[0]/escalate", &[0]);
        check("each@1/classify[1]/escalate@1", &[1]);
        check("each@2/classify[1]/escalate@1", &[]);
        check("escalate[1]@1", &[1]);
        check("escalate[2]", &[]);
        check("work[3]/sub/review", &[3]);
        check("work[2]/sub/review", &[]);
        check("sub@1/review@1", &[3]);
        check("work[3]/sub@1", &[3]);
    }
}

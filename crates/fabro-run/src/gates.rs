//! Open gates: those that wait for an answer, and their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_engine::{ActiveStage, Cursor, Phase, RunState, checkpoint};
use fabro_events::{Entry, Event, EventBody, GateOption, QuestionType};
use fabro_store::{InboxId, Message, Store, StoreError};
use fabro_types::RunId;
use serde::Serialize;

use crate::{RunError, Within, running_members};

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
    /// The stages whose sub-workflows it is in, as `NODE@VISIT`, outermost first; left out for one of
    /// the run itself. [`open_gates`] reads one log only, and leaves it empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
    /// The question.
    pub question: String,
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

    /// `NODE@VISIT`, after the stages that hold it: `sub@1/review@2`.
    fn path(&self) -> String {
        let own = format!("{}@{}", self.node, self.visit);
        self.within.iter().map(String::as_str).chain([own.as_str()]).collect::<Vec<_>>().join("/")
    }

    /// The same with the branch before the last, for branches of one fan-out may make the same visit.
    fn full_path(&self) -> String {
        let own = format!("{}@{}", self.node, self.visit);
        let parts = self.within.iter().map(String::as_str).chain(self.branch.as_deref());
        parts.chain([own.as_str()]).collect::<Vec<_>>().join("/")
    }

    fn stages(&self) -> impl DoubleEndedIterator<Item = (&str, u32)> + Clone {
        let within = self.within.iter().filter_map(|stage| match checkpoint::split(stage) {
            (Some(node), Some(visit)) => Some((node, visit)),
            _ => None,
        });
        within.chain([(&*self.node, self.visit)])
    }
}

/// The shortest unambiguous name of each gate: `NODE@VISIT`, else with the stages that hold it, else
/// with its branch too.
pub fn gate_names(gates: &[Gate]) -> Vec<String> {
    let own = |gate: &Gate| format!("{}@{}", gate.node, gate.visit);
    let names: [Vec<String>; 3] = [
        gates.iter().map(own).collect(),
        gates.iter().map(Gate::path).collect(),
        gates.iter().map(Gate::full_path).collect(),
    ];
    let mut counts: [BTreeMap<&str, usize>; 3] = Default::default();
    for (counts, names) in counts.iter_mut().zip(&names) {
        for name in names {
            *counts.entry(name).or_default() += 1;
        }
    }
    let shortest = |at: usize| {
        let shorter = counts.iter().zip(&names).find(|(counts, names)| counts[&*names[at]] == 1);
        shorter.map_or_else(|| names[2][at].clone(), |(_, names)| names[at].clone())
    };
    (0..gates.len()).map(shortest).collect()
}

/// The indexes of the gates that match a name: a path of `NODE` or `NODE@VISIT`. A match of the whole
/// path wins over one of its end, and that over one of a stage that holds the gates. A name from
/// [`gate_names`] matches one gate.
fn find_gates(gates: &[Gate], name: &str) -> Vec<usize> {
    let parts: Vec<_> = name.split('/').map(checkpoint::split).collect();
    let is = |part: &(Option<&str>, Option<u32>), (node, visit): (&str, u32)| {
        part.0 == Some(node) && part.1.is_none_or(|wanted| wanted == visit)
    };
    let ends = |gate: &Gate| {
        let mut stages = gate.stages().rev();
        parts.iter().rev().all(|part| stages.next().is_some_and(|stage| is(part, stage)))
    };
    let in_full = |gate: &Gate| gate.full_path() == name;
    let whole = |gate: &Gate| gate.within.len() + 1 == parts.len() && ends(gate);
    let holds = |gate: &Gate| match &parts[..] {
        [part] => gate.stages().any(|stage| is(part, stage)),
        _ => false,
    };
    let found = |means: &dyn Fn(&Gate) -> bool| -> Vec<usize> {
        (0..gates.len()).filter(|at| means(&gates[*at])).collect()
    };
    let ways: [&dyn Fn(&Gate) -> bool; 4] = [&in_full, &whole, &ends, &holds];
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
            } => {
                let gate = Gate {
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
        let within: Vec<_> = within.iter().map(|(node, visit)| format!("{node}@{visit}")).collect();
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
    let mut names = gate_names(&gates);
    match found[..] {
        [one] => Ok(gates.swap_remove(one)),
        _ if gates.is_empty() => Err(RunError::NoOpenGate { run }),
        [] => {
            let name = name.unwrap_or_default().to_owned();
            Err(RunError::NoSuchGate { name, open: names })
        }
        _ => {
            let names = found.iter().map(|at| std::mem::take(&mut names[*at])).collect();
            Err(RunError::AmbiguousGate { names })
        }
    }
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
            question: String::new(),
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
        check("", &[]);
    }
}

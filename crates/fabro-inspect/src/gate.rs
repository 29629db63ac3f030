//! Gates that wait for an answer, and what they are called.

use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_engine::{Phase, RunState, checkpoint};
use fabro_events::{Event, EventBody, GateOption, QuestionType};
use serde::Serialize;

use crate::at::StageKey;

/// A gate that waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gate {
    /// Its node.
    pub node: Arc<str>,
    /// Which visit of it.
    pub visit: u32,
    /// The branch it is asked in; `None` on the main line.
    pub branch: Option<Arc<str>>,
    /// The stages whose sub-workflows it is in, as `NODE@VISIT`, outermost first; left out for one of
    /// the run itself. [`open_gates`] sees one log alone, and leaves it empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
    /// The question.
    pub question: String,
    /// How it is asked.
    pub question_type: QuestionType,
    /// What can be chosen.
    pub options: Vec<GateOption>,
    /// Free text is taken too.
    pub freeform: bool,
}

impl Gate {
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

/// What each of these gates is called: `NODE@VISIT` where that means one of them, else after the stages
/// that hold it, else after its branch too.
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

/// The places of those gates that a name means: a path of `NODE` or `NODE@VISIT`, whole before its
/// end, and before the stage that holds them. None of the names that [`gate_names`] gives means two.
pub fn find_gates(gates: &[Gate], name: &str) -> Vec<usize> {
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

/// The gates of a run that have been asked and not answered, the main line's first.
pub fn open_gates(events: &[Event]) -> Vec<Gate> {
    let Some(first) = events.first() else { return Vec::new() };
    let events = checkpoint::effective(events);
    let mut state = RunState::new(first.run_id);
    for event in &events {
        state.apply(event);
    }
    if matches!(state.phase, Phase::Ended(..)) {
        return Vec::new();
    }
    let waiting = state.active().filter(|(_, stage)| stage.gate_asked_ms.is_some());
    waiting
        .filter_map(|(branch, stage)| {
            let branch = (!branch.is_empty()).then(|| Arc::clone(branch));
            let key = StageKey { branch, node: Arc::clone(&stage.node), visit: stage.visit };
            let last = events.iter().rev().find(|event| is_gate(event) && key.is(event))?;
            let EventBody::GateAsked { question, question_type, options, freeform, .. } =
                &last.entry.body
            else {
                return None;
            };
            Some(Gate {
                node: key.node,
                visit: key.visit,
                branch: key.branch,
                within: Vec::new(),
                question: question.clone(),
                question_type: *question_type,
                options: options.clone(),
                freeform: *freeform,
            })
        })
        .collect()
}

fn is_gate(event: &Event) -> bool {
    matches!(event.entry.body, EventBody::GateAsked { .. } | EventBody::GateAnswered { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(path: &str) -> Gate {
        let mut within: Vec<String> = path.split('/').map(str::to_owned).collect();
        let own = within.pop().unwrap();
        let (Some(node), Some(visit)) = checkpoint::split(&own) else { panic!("{path}") };
        Gate {
            node: node.into(),
            visit,
            branch: None,
            within,
            question: String::new(),
            question_type: QuestionType::default(),
            options: Vec::new(),
            freeform: false,
        }
    }

    #[test]
    fn gates_are_named_so_that_one_is_meant() {
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

//! The invariants after kills: pure checks of snapshots.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

/// The result of the undisturbed run.
pub(crate) struct Baseline {
    pub(crate) context: BTreeMap<String, String>,
    pub(crate) effects: BTreeMap<String, usize>,
    /// The files that stages left and found, in a git repository.
    pub(crate) trees: BTreeMap<String, String>,
}

impl Baseline {
    /// How many stages left lines.
    pub(crate) fn stages(&self) -> usize {
        self.effects.len()
    }
}

/// The state after a kill.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    events: BTreeMap<String, Vec<String>>,
    /// How many lines each stage has left.
    pub(crate) effects: BTreeMap<String, usize>,
    committed: BTreeSet<String>,
    in_flight: BTreeSet<String>,
}

impl Snapshot {
    /// From the events of each run, a line each, and the lines that stages left.
    pub(crate) fn new(
        events: BTreeMap<String, Vec<String>>,
        effects: BTreeMap<String, usize>,
    ) -> Result<Self> {
        let mut seen =
            Self { effects, committed: BTreeSet::new(), in_flight: BTreeSet::new(), events };
        for line in seen.events.values().flatten() {
            let event: Value = serde_json::from_str(line).context("read an event")?;
            let (Some(node), Some(visit)) = (event["node_id"].as_str(), event["visit"].as_u64())
            else {
                continue;
            };
            let stage = format!("{node}@{visit}");
            match event["event"].as_str().unwrap_or_default() {
                "stage.started" => {
                    seen.in_flight.insert(stage);
                }
                "stage.completed" | "stage.failed" => {
                    seen.in_flight.remove(&stage);
                    seen.committed.insert(stage);
                }
                _ => {}
            }
        }
        Ok(seen)
    }

    /// The events of all runs, a line each.
    pub(crate) fn all_events(&self) -> impl Iterator<Item = &String> {
        self.events.values().flatten()
    }

    fn lines_of(&self, stage: &str) -> usize {
        self.effects.get(stage).copied().unwrap_or_default()
    }
}

/// What is wrong with the undisturbed run. All other checks depend on it: with an empty one they
/// would find nothing.
pub(crate) fn baseline(
    baseline: &Baseline,
    last: &Snapshot,
    reported: &BTreeSet<String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (is_empty, what) in [
        (baseline.context.is_empty(), "the context is empty"),
        (baseline.effects.is_empty(), "no stage left a line"),
        (reported.is_empty(), "no event was reported"),
    ] {
        wrong.extend(is_empty.then(|| what.to_owned()));
    }
    let unseen = baseline.effects.keys().filter(|stage| !last.committed.contains(*stage));
    wrong.extend(unseen.map(|stage| format!("{stage} left lines, and its end is not in the log")));
    let open = last.in_flight.iter();
    wrong.extend(open.map(|stage| format!("the log has the start of {stage} and not its end")));
    wrong
}

/// How the final context differs from that of the undisturbed run.
pub(crate) fn contexts(
    baseline: &BTreeMap<String, String>,
    last: &BTreeMap<String, String>,
) -> Vec<String> {
    let keys: BTreeSet<_> = baseline.keys().chain(last.keys()).collect();
    let differing = keys.into_iter().filter(|key| baseline.get(*key) != last.get(*key));
    let shown = |value: Option<&String>| value.map_or("nothing".to_owned(), |it| shorten(it));
    differing
        .map(|key| format!("`{key}` is {}, not {}", shown(last.get(key)), shown(baseline.get(key))))
        .collect()
}

/// Stages that ran although they were committed, ran too often, or not at all.
pub(crate) fn effects(
    baseline: &BTreeMap<String, usize>,
    seen: &[Snapshot],
    last: &Snapshot,
) -> Vec<String> {
    let mut wrong = ran_again(seen, &last.effects);
    let stages: BTreeSet<_> = baseline.keys().chain(last.effects.keys()).collect();
    for stage in stages {
        let expected = baseline.get(stage).copied().unwrap_or_default();
        let again = seen.iter().filter(|at| at.in_flight.contains(stage)).count();
        let lines = last.lines_of(stage);
        if lines < expected || lines > expected + again {
            let most = expected + again;
            wrong.push(format!(
                "{stage} left {lines} lines, between {expected} and {most} are right"
            ));
        }
    }
    wrong
}

/// Committed stages that have left other lines since.
pub(crate) fn ran_again(seen: &[Snapshot], effects: &BTreeMap<String, usize>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, at) in seen.iter().enumerate() {
        for stage in &at.committed {
            let before = at.lines_of(stage);
            let after = effects.get(stage).copied().unwrap_or_default();
            if before != after {
                let kill = number + 1;
                wrong.push(format!("{stage} was committed before kill {kill}, and left {after} lines instead of {before}"));
            }
        }
    }
    wrong
}

/// What is wrong with the logs: gaps, events that changed or went, events reported too early.
pub(crate) fn logs(seen: &[Snapshot], last: &Snapshot, reported: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut logged = BTreeSet::new();
    for (run, lines) in &last.events {
        let events = lines.iter().map(|line| serde_json::from_str(line).unwrap_or_default());
        let events: Vec<Value> = events.collect();
        let gap = events.iter().zip(1_u64..).find(|(event, at)| event["seq"] != *at);
        wrong.extend(
            gap.map(|(event, at)| format!("event {at} of run {run} has seq {}", event["seq"])),
        );
        logged.extend(events.iter().filter_map(|event| event["id"].as_str().map(str::to_owned)));
    }
    for (number, at) in seen.iter().enumerate() {
        for (run, lines) in &at.events {
            let now = last.events.get(run).map(Vec::as_slice).unwrap_or_default();
            if !now.starts_with(lines) {
                let kill = number + 1;
                wrong.push(format!("events of run {run} from before kill {kill} changed"));
            }
        }
    }
    let early = reported.difference(&logged);
    wrong.extend(early.map(|id| format!("event {id} was reported and is not in the log")));
    wrong
}

fn shorten(text: &str) -> String {
    const SHOWN: usize = 200;
    text.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counts(of: &[(&str, usize)]) -> BTreeMap<String, usize> {
        of.iter().map(|(stage, lines)| ((*stage).to_owned(), *lines)).collect()
    }

    fn snapshot(events: &[(&str, &str)], effects: &[(&str, usize)]) -> Snapshot {
        let lines = events.iter().zip(1..).map(|((name, node), seq)| {
            json!({"id": format!("r-{seq}"), "seq": seq, "event": name, "node_id": node, "visit": 1})
                .to_string()
        });
        let events = [("r".to_owned(), lines.collect())].into();
        Snapshot::new(events, counts(effects)).unwrap()
    }

    #[test]
    fn a_committed_stage_that_ran_again_is_seen() {
        let started = "stage.started";
        let completed = "stage.completed";
        let check = |at: &[(&str, &str)], lines: usize, expect: &[&str]| {
            let seen = [snapshot(at, &[("a@1", 1)])];
            let last = snapshot(&[], &[("a@1", lines)]);
            assert_eq!(effects(&counts(&[("a@1", 1)]), &seen, &last), expect);
        };
        check(&[(started, "a"), (completed, "a")], 1, &[]);
        check(
            &[(started, "a"), (completed, "a")],
            2,
            &[
                "a@1 was committed before kill 1, and left 2 lines instead of 1",
                "a@1 left 2 lines, between 1 and 1 are right",
            ],
        );
        check(&[(started, "a")], 2, &[]);
        check(&[(started, "a")], 3, &["a@1 left 3 lines, between 1 and 2 are right"]);
        check(&[], 0, &["a@1 left 0 lines, between 1 and 1 are right"]);
    }

    #[test]
    fn gaps_changes_and_early_news_are_seen() {
        let before = snapshot(&[("stage.started", "a")], &[]);
        let last = snapshot(&[("stage.started", "a"), ("stage.completed", "a")], &[]);
        let reported = |id: &str| BTreeSet::from([id.to_owned()]);
        assert_eq!(logs(&[before], &last, &reported("r-2")), [""; 0]);
        let other = snapshot(&[("stage.started", "b")], &[]);
        let wrong = logs(&[other], &last, &reported("r-3"));
        assert_eq!(
            wrong,
            [
                "events of run r from before kill 1 changed",
                "event r-3 was reported and is not in the log"
            ]
        );
        let gap = json!({"id": "r-2", "seq": 2}).to_string();
        let gap = Snapshot::new([("r".to_owned(), vec![gap])].into(), counts(&[])).unwrap();
        assert_eq!(logs(&[], &gap, &reported("r-2")), ["event 1 of run r has seq 2"]);
    }

    #[test]
    fn an_undisturbed_run_that_shows_nothing_is_seen() {
        let check = |events: &[(&str, &str)], context: &[(&str, &str)], reported: &[&str]| {
            let own = |it: &&str| (*it).to_owned();
            let context = context.iter().map(|(key, value)| (own(key), own(value))).collect();
            let effects = counts(&[("a@1", 1)]);
            let reported = reported.iter().map(own).collect();
            let trees = BTreeMap::new();
            baseline(&Baseline { context, effects, trees }, &snapshot(events, &[]), &reported)
        };
        let whole = [("stage.started", "a"), ("stage.completed", "a")];
        assert_eq!(check(&whole, &[("a", "1")], &["r-1"]), [""; 0]);
        assert_eq!(
            check(&whole[..1], &[], &[]),
            [
                "the context is empty",
                "no event was reported",
                "a@1 left lines, and its end is not in the log",
                "the log has the start of a@1 and not its end",
            ]
        );
    }

    #[test]
    fn another_context_is_seen() {
        let context = |value: &str| BTreeMap::from([("a".to_owned(), value.to_owned())]);
        assert_eq!(contexts(&context("1"), &context("1")), [""; 0]);
        assert_eq!(contexts(&context("1"), &context("2")), ["`a` is 2, not 1"]);
        assert_eq!(contexts(&context("1"), &BTreeMap::new()), ["`a` is nothing, not 1"]);
    }
}

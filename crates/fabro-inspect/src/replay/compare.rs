//! Compares two logs, line by line of the run, event by event.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use fabro_blob::BlobStore;
use fabro_engine::{ReadError, keys};
use fabro_events::{CompletedStage, CreatedRun, Event, EventBody};
use fabro_types::Failure;
use serde_json::{Map, Value};
use similar::TextDiff;

use crate::replay::record::{recorded_message, resolved};
use crate::replay::{Aspect, Difference, ReplayError};

/// How the instructions of a server's tool begin in a prompt.
const SERVER_TOOL: &str = "### mcp__";

const STAGE_STARTED: &str = "stage.started";

/// A log as it is compared.
pub(crate) struct Log {
    lines: BTreeMap<Line, Vec<Item>>,
    /// Branches that were ended before they were done, or that never ended.
    cut: BTreeSet<Arc<str>>,
    pub(crate) is_whole: bool,
}

/// A branch, and in it a session that is not the stage's own.
type Line = (Arc<str>, Option<Arc<str>>);

/// The kind of an event and its stage: where they differ, the logs diverge.
type At = (&'static str, Option<String>);

/// Something that happened on a line.
struct Item {
    seq: u64,
    at: At,
    facets: Vec<(Aspect, String)>,
}

impl Log {
    /// `normalize` removes irrelevant differences, such as run ids, from a text; `None` if there
    /// are none.
    pub(crate) fn read(
        events: &[&Event],
        blobs: &dyn BlobStore,
        normalize: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ReplayError> {
        let mut log = Self { lines: BTreeMap::new(), cut: BTreeSet::new(), is_whole: false };
        let mut asked = BTreeSet::new();
        for event in events {
            let branch = event.entry.branch.clone().unwrap_or_default();
            match &event.entry.body {
                EventBody::BranchStarted {} => _ = log.cut.insert(Arc::clone(&branch)),
                EventBody::BranchCompleted { canceled: false, .. } => _ = log.cut.remove(&branch),
                EventBody::RunCompleted { .. } | EventBody::RunFailed { .. } => log.is_whole = true,
                _ => {}
            }
            let Some((name, mut facets)) = facets(event, blobs)? else { continue };
            let stage = stage(event);
            // A gate asks again after an answer that matches no option.
            if name == "gate.asked" && !asked.insert((branch.clone(), stage.clone())) {
                continue;
            }
            for (_, text) in &mut facets {
                if let Some(normalized) = normalize(text) {
                    *text = normalized;
                }
            }
            let entry = &event.entry;
            let session = entry.session_id.clone().filter(|_| entry.parent_session_id.is_some());
            let item = Item { seq: event.seq, at: (name, stage), facets };
            log.lines.entry((branch, session)).or_default().push(item);
        }
        Ok(log)
    }

    fn items(&self, line: &Line) -> &[Item] {
        self.lines.get(line).map(Vec::as_slice).unwrap_or_default()
    }

    /// A line need not have come as far in both: it was cut off by others.
    fn is_loose(&self, (branch, session): &Line) -> bool {
        let inner = |outer: &&Arc<str>| {
            branch
                .strip_prefix(&***outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        session.is_some() || self.cut.iter().any(|outer| inner(&outer))
    }
}

/// Replaces every absolute path that ends with the id of the run, as `run_dir` does, by `run_dir`:
/// the store may have been elsewhere when the run was recorded. `None` if there is no such path.
pub(crate) fn with_run_dir(text: &str, run_dir: &Path) -> Option<String> {
    let last = format!("/{}", run_dir.file_name()?.to_str()?);
    let to = run_dir.to_str()?;
    let mut moved = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&last) {
        let before = &rest[..at];
        let is_outside = |c: char| c.is_whitespace() || "\"'`()[]{}<>=,;:|&$".contains(c);
        let start = before.char_indices().rev().find(|(_, c)| is_outside(*c));
        let start = start.map_or(0, |(at, c)| at + c.len_utf8());
        let end = at + last.len();
        if before.ends_with(to.strip_suffix(&last)?) {
            moved.push_str(&rest[..end]);
        } else if before[start..].starts_with('/') {
            moved.extend([&before[..start], to]);
        } else {
            moved.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    (!moved.is_empty()).then(|| moved + rest)
}

/// What is compared of a line after the first divergence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterDivergence {
    /// Nothing: later differences are consequences.
    Nothing,
    /// Everything from the next stage that both logs have.
    NextCommonStage,
}

/// How many recorded events were looked at, and where they differ.
pub(crate) fn compare(
    recorded: &Log,
    replayed: &Log,
    after: AfterDivergence,
) -> (u64, Vec<Difference>) {
    let mut compared = 0;
    let mut found = Vec::new();
    let lines: BTreeSet<&Line> = recorded.lines.keys().chain(replayed.lines.keys()).collect();
    for line in lines {
        let is_loose = recorded.is_loose(line) && replayed.is_loose(line);
        let old = recorded.items(line);
        let new = replayed.items(line);
        let starts = match after {
            AfterDivergence::Nothing => BTreeMap::new(),
            AfterDivergence::NextCommonStage => stage_starts(new),
        };
        let mut at = (0, 0);
        loop {
            match (old.get(at.0), new.get(at.1)) {
                (Some(one), Some(other)) if one.at == other.at => {
                    found.extend(facet_differences(line, one, other));
                    at = (at.0 + 1, at.1 + 1);
                }
                (None, None) => break,
                // What comes after the end of the record has nothing to be compared with.
                (None, Some(_)) if !recorded.is_whole => break,
                _ if is_loose => break,
                (one, other) => {
                    found.push(divergence(line, one, other));
                    let common = (at.0..old.len()).find_map(|place| {
                        let there = *starts.get(&old[place].at)?;
                        (there >= at.1).then_some((place, there))
                    });
                    let Some(common) = common else { break };
                    at = common;
                }
            }
        }
        compared += old.len().min(at.0 + 1) as u64;
    }
    found.sort_by_key(|(seq, _)| *seq);
    (compared, found.into_iter().map(|(_, difference)| difference).collect())
}

/// Where stages start on a line.
fn stage_starts(items: &[Item]) -> BTreeMap<&At, usize> {
    let starts = items.iter().enumerate().filter(|(_, item)| item.at.0 == STAGE_STARTED);
    starts.map(|(place, item)| (&item.at, place)).collect()
}

fn facet_differences(line: &Line, old: &Item, new: &Item) -> Vec<(u64, Difference)> {
    let differ = old.facets.iter().zip(&new.facets);
    let differ = differ.filter(|((aspect, old), (_, new))| !is_same(*aspect, old, new));
    let found = differ.map(|((aspect, before), (_, after))| {
        let is_long = before.contains('\n') || after.contains('\n');
        let difference = Difference {
            aspect: *aspect,
            branch: Some(line.0.clone()).filter(|branch| !branch.is_empty()),
            stage: old.at.1.clone(),
            seq: Some(old.seq),
            recorded: Some(before.clone()),
            replayed: Some(after.clone()),
            diff: is_long.then(|| diff(before, after)),
        };
        (old.seq, difference)
    });
    found.collect()
}

/// Equal, or different only in the instructions of MCP servers, which a replay does not have.
fn is_same(aspect: Aspect, old: &str, new: &str) -> bool {
    if old == new {
        return true;
    }
    if aspect != Aspect::Prompt || new.len() > old.len() {
        return false;
    }
    let old = old.as_bytes();
    let new = new.as_bytes();
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let tail = tail.min(new.len() - head);
    // What is missing may begin, or end, as what follows it does.
    let near = SERVER_TOOL.len();
    let missing = head.saturating_sub(near)..(old.len() - tail + near).min(old.len());
    head + tail == new.len() && String::from_utf8_lossy(&old[missing]).contains(SERVER_TOOL)
}

/// The difference between the inputs of two runs, if there is one.
pub(crate) fn input_difference(
    old: Option<&CreatedRun>,
    new: Option<&CreatedRun>,
) -> Option<Difference> {
    let text = |created: Option<&CreatedRun>| {
        let inputs = created.into_iter().flat_map(|created| &created.inputs);
        let lines = inputs.map(|(name, value)| format!("{name} = {value}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let before = text(old);
    let after = text(new);
    let is_long = before.contains('\n') || after.contains('\n');
    (before != after).then(|| Difference {
        aspect: Aspect::Inputs,
        branch: None,
        stage: None,
        seq: None,
        diff: is_long.then(|| diff(&before, &after)),
        recorded: Some(before).filter(|text| !text.is_empty()),
        replayed: Some(after).filter(|text| !text.is_empty()),
    })
}

fn diff(before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    let mut unified = diff.unified_diff();
    unified.context_radius(2).missing_newline_hint(false).to_string()
}

/// The logs diverge here: later events are not compared.
fn divergence(line: &Line, old: Option<&Item>, new: Option<&Item>) -> (u64, Difference) {
    let at = old.or(new);
    let difference = Difference {
        aspect: Aspect::Event,
        branch: Some(line.0.clone()).filter(|branch| !branch.is_empty()),
        stage: at.and_then(|item| item.at.1.clone()),
        seq: old.map(|item| item.seq),
        recorded: old.map(Item::text),
        replayed: new.map(Item::text),
        diff: None,
    };
    (at.map_or(0, |item| item.seq), difference)
}

impl Item {
    fn text(&self) -> String {
        let (name, stage) = &self.at;
        let stage = stage.as_deref().map(|stage| format!(" {stage}")).unwrap_or_default();
        let text = self.facets.first().map(|(_, text)| text.lines().next().unwrap_or_default());
        let text = text.filter(|text| !text.is_empty()).map(|text| format!(": {text}"));
        format!("{name}{stage}{}", text.unwrap_or_default())
    }
}

fn stage(event: &Event) -> Option<String> {
    let node = event.entry.node_id.as_deref()?;
    Some(format!("{node}@{}", event.entry.visit.unwrap_or(1)))
}

type Facets = Vec<(Aspect, String)>;

/// What of an event is compared; `None` for one that is not.
fn facets(
    event: &Event,
    blobs: &dyn BlobStore,
) -> Result<Option<(&'static str, Facets)>, ReplayError> {
    let one = |aspect, text: String| vec![(aspect, text)];
    let node = || stage(event).unwrap_or_default();
    Ok(Some(match &event.entry.body {
        EventBody::RunCompleted { status, unhandled, .. } => {
            let failures = unhandled.iter().map(|it| format!(", {}", it.stage()));
            let text = format!("{status}{}", failures.collect::<String>());
            ("run.completed", one(Aspect::Run, text))
        }
        EventBody::RunFailed { failure, .. } => ("run.failed", one(Aspect::Run, why(failure))),
        EventBody::StageStarted { handler, fidelity, thread_id, .. } => {
            let thread = thread_id.as_ref().map(|it| format!(", thread {it}")).unwrap_or_default();
            let text = format!("{handler}, fidelity {}{thread}", fidelity.as_str());
            (STAGE_STARTED, one(Aspect::Start, text))
        }
        EventBody::StageRetrying { attempt, failure, .. } => {
            let text = format!("attempt {attempt} failed: {}", why(failure));
            ("stage.retrying", one(Aspect::Outcome, text))
        }
        // Success and failure are compared as outcomes.
        EventBody::StageCompleted(done) | EventBody::StageFailed(done) => {
            ("stage.ended", ended(done, blobs)?)
        }
        EventBody::EdgeSelected(choice) => {
            let label = choice.label.as_ref().map(|it| format!(" \"{it}\"")).unwrap_or_default();
            let gate =
                choice.gate.as_ref().map(|it| format!(", goal gate {it}")).unwrap_or_default();
            let restart = if choice.restart { ", restart" } else { "" };
            let text = format!("{} → {}{label}{restart}{gate}", node(), choice.to);
            ("edge.selected", one(Aspect::Edge, text))
        }
        EventBody::LoopRestart { to } => ("loop.restart", one(Aspect::Edge, to.to_string())),
        EventBody::ContextRefused { key, .. } => {
            ("context.refused", one(Aspect::Context, key.clone()))
        }
        EventBody::AgentMessage { role, message: Some(message), .. } => {
            let message = recorded_message(blobs, role, message, event.seq)?;
            let calls = message.tool_calls().map(|it| format!("\n{}({})", it.name, it.arguments));
            let text = message.text() + &calls.collect::<String>();
            match role.as_str() {
                "assistant" => ("agent.answer", one(Aspect::Answer, text)),
                _ => ("agent.message", one(Aspect::Prompt, text)),
            }
        }
        other => return Ok(of_many(other)),
    }))
}

/// The same of fan-outs and gates.
fn of_many(body: &EventBody) -> Option<(&'static str, Facets)> {
    let one = |aspect, text: String| vec![(aspect, text)];
    Some(match body {
        EventBody::ParallelStarted { branches, join, max_parallel, for_each, isolated } => {
            let names: Vec<&str> = branches.iter().map(|it| &*it.branch).collect();
            let join = join.as_deref().unwrap_or("nowhere");
            let mut text =
                format!("{}, joined at {join}, {max_parallel} at a time", names.join(" "));
            if *isolated {
                text.push_str(", isolated");
            }
            for item in for_each.iter().flat_map(|list| &list.items) {
                let _ = write!(text, "\n{item}");
            }
            ("parallel.started", one(Aspect::FanOut, text))
        }
        EventBody::BranchStarted {} => ("parallel.branch.started", Vec::new()),
        EventBody::BranchCompleted { status, failure, canceled, .. } => {
            let why = failure.as_ref().map(|it| format!(": {}", why(it))).unwrap_or_default();
            let canceled = if *canceled { ", no longer needed" } else { "" };
            let text = format!("{}{canceled}{why}", status.as_str());
            ("parallel.branch.completed", one(Aspect::FanOut, text))
        }
        EventBody::ParallelCompleted { status } => {
            ("parallel.completed", one(Aspect::FanOut, status.as_str().to_owned()))
        }
        EventBody::GateAsked { question, options, freeform, .. } => {
            let mut lines = vec![question.clone()];
            lines.extend(options.iter().map(|it| format!("[{}] {} → {}", it.key, it.label, it.to)));
            lines.extend(freeform.then(|| "free text".to_owned()));
            ("gate.asked", one(Aspect::Gate, lines.join("\n")))
        }
        EventBody::GateAnswered { selected, label, text, .. } => {
            let text = text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            ("gate.answered", one(Aspect::Gate, format!("[{selected}] {label}{text}")))
        }
        _ => return None,
    })
}

/// Without its details: logs of older versions have none.
fn why(failure: &Failure) -> String {
    format!("{} ({})", failure.message, failure.class)
}

fn ended(done: &CompletedStage, blobs: &dyn BlobStore) -> Result<Facets, ReplayError> {
    let CompletedStage { attempts, outcome, script, env, .. } = done;
    let mut text = outcome.status.as_str().to_owned();
    let mut add = |name: &str, value: Option<&str>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            let _ = write!(text, ", {name} {value}");
        }
    };
    add("word", outcome.word.as_deref());
    add("label", outcome.preferred_label.as_deref());
    add("next", Some(&outcome.suggested_next_ids.join(" ")));
    add("after attempts:", (*attempts > 1).then(|| attempts.to_string()).as_deref());
    add("because of", outcome.failure.as_ref().map(why).as_deref());
    let mut updates = Map::new();
    for (key, value) in &outcome.context_updates {
        // What branches have made follows from their stages, which are compared; logs of earlier
        // versions do not have it.
        if key == keys::PARALLEL_OUTPUTS || key == keys::PARALLEL_COUNT {
            continue;
        }
        let mut value = match resolved(blobs, value) {
            // The reference is compared instead, as it has the hash: no stage could read the value either.
            Err(ReadError::TooLarge { .. }) => Value::clone(value),
            value => value?,
        };
        if key == keys::PARALLEL_RESULTS {
            let results = value.as_array_mut().into_iter().flatten();
            for result in results.filter_map(Value::as_object_mut) {
                let is_older = |field: &str| {
                    !["output", "index", "item_label", "context_updates"].contains(&field)
                };
                result.retain(|field, _| is_older(field));
            }
        }
        updates.insert(key.clone(), value);
    }
    let updates =
        if updates.is_empty() { String::new() } else { format!("{:#}", Value::Object(updates)) };
    let mut script = script.as_deref().unwrap_or_default().to_owned();
    for (name, value) in env {
        let _ = write!(script, "\n{name}={value}");
    }
    Ok(vec![(Aspect::Outcome, text), (Aspect::Context, updates), (Aspect::Outcome, script)])
}

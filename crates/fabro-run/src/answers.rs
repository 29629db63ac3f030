//! Prepared answers to gates, and the check of what is recorded of a run's input.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{Bundle, RunSettings};
use fabro_engine::{Plan, checkpoint};
use fabro_events::{Event, EventBody};
use fabro_gate::{GateVisit, QueueInterviewer};
use fabro_graph::NodeKind;
use fabro_handlers::read_all;
use fabro_llm::Script;
use fabro_redact::Redactor;
use fabro_store::{Message, RunStore, StoreError};
use fabro_types::{MAX_SUB_WORKFLOW_DEPTH, RunId, nearest, stage_node};
use serde_json::{Map, Value};

use crate::bundle::BundleError;

use crate::SetupError;
use crate::secrets::{refuse_secret, refuse_secrets};

/// Refuses secrets in what is recorded when a run is created: inputs, goal and prepared answers.
pub(crate) fn refuse_secrets_in_input(
    redactor: &Redactor,
    settings: &RunSettings,
    inputs: &Map<String, Value>,
    goal: &str,
) -> Result<(), SetupError> {
    refuse_secrets(redactor, "the inputs", inputs)?;
    refuse_secret(redactor, "the goal", goal)?;
    let Some(text) = &settings.answers else { return Ok(()) };
    // Parsed, because an escape sequence could hide a secret.
    let parsed = serde_json::from_str::<Value>(text).map(|answers| answers.to_string());
    refuse_secret(redactor, "the file of answers", parsed.as_deref().unwrap_or(text))
}

/// Refuses secrets in the rest of what is recorded: the workflow, the files that it names, and the settings.
#[expect(
    clippy::expect_used,
    reason = "settings were read from JSON, and no key of theirs is no string"
)]
pub(crate) fn refuse_secrets_in_bundle(
    redactor: &Redactor,
    bundle: &Bundle,
) -> Result<(), SetupError> {
    refuse_secret(redactor, &format!("the workflow `{}`", bundle.file), &bundle.source)?;
    for (path, text) in &bundle.files {
        refuse_secret(redactor, &format!("the file `{path}`"), text)?;
    }
    // The values are looked for one by one, so that a message can name the setting.
    let settings = serde_json::to_value(&bundle.settings).expect("settings are JSON");
    for (name, value) in settings.as_object().into_iter().flatten() {
        refuse_secret(redactor, &format!("the setting `{name}`"), &value.to_string())?;
    }
    Ok(())
}

/// The prepared answers without those that an earlier driver has used. A rewind makes the answers
/// after its stage available again.
pub(crate) fn prepared_answers(
    settings: &RunSettings,
    used: &UsedAnswers,
) -> Result<Option<QueueInterviewer>, SetupError> {
    let Some(text) = &settings.answers else { return Ok(None) };
    let queue = QueueInterviewer::from_json(text).map_err(|error| {
        let fix = r#"write an object of lists by gate, such as {"ask": ["K", "free text"]}"#;
        SetupError::new(format!("the answers are not valid: {error}"), fix)
    })?;
    for (gate, count) in used {
        queue.skip(gate, *count);
    }
    Ok(Some(queue))
}

/// How many prepared answers each gate visit used.
pub(crate) type UsedAnswers = BTreeMap<GateVisit, usize>;

/// The prepared answers that a run and its sub-workflows have used; `events` is the log of the run
/// itself. An answer that an earlier driver had put into the inbox when it died is one of them: its
/// gate takes it from there.
pub(crate) async fn used_answers_of_family(
    store: &dyn RunStore,
    run: RunId,
    events: &[Event],
) -> Result<UsedAnswers, StoreError> {
    let mut used = UsedAnswers::new();
    let mut starts = BTreeMap::new();
    for member in store.family(run).await? {
        let own = if member == run { Vec::new() } else { read_all(store, member).await? };
        let events = if member == run { events } else { &own };
        if member != run && !is_child_of(events, &starts) {
            continue;
        }
        for event in checkpoint::effective(events) {
            if let EventBody::StageStarted { handler: NodeKind::ManagerLoop, .. } = event.entry.body
            {
                let stage = (member, event.entry.node_id.clone(), event.entry.visit);
                starts.entry(stage).or_insert(event.ts_ms);
            }
        }
        for (gate, count) in used_answers(events) {
            *used.entry(gate).or_default() += count;
        }
        for (_, message) in store.pending(member).await? {
            if let Message::Answer { node, visit, branch, source, .. } = message
                && source == QueueInterviewer::SOURCE
            {
                let gate = GateVisit { node: node.into(), visit, branch: branch.map(Arc::from) };
                *used.entry(gate).or_default() += 1;
            }
        }
    }
    Ok(used)
}

/// When the stages of sub-workflows began, by run, node and visit, in milliseconds since 1970.
type Starts = BTreeMap<(RunId, Option<Arc<str>>, Option<u32>), i64>;

/// Whether a sub-workflow belongs to a stage that no rewind has taken back: such a stage may have the
/// same name as one that began later.
fn is_child_of(events: &[Event], starts: &Starts) -> bool {
    let Some(first) = events.first() else { return false };
    let EventBody::RunCreated(created) = &first.entry.body else { return false };
    let Some(parent) = &created.parent else { return false };
    let stage = (parent.run_id, Some(Arc::clone(&parent.node_id)), Some(parent.visit));
    starts.get(&stage).is_some_and(|started_ms| first.ts_ms >= *started_ms)
}

/// A warning for each list of which [`prepared_answers`] leaves nothing, because as many answers were
/// used before: in a file other than the one `recorded` with the run, they were likely meant for the
/// next gates. No warning for a file that is not valid.
pub(crate) fn exhausted_answers(
    settings: &RunSettings,
    recorded: &RunSettings,
    events: &[Event],
) -> Vec<String> {
    if settings.answers == recorded.answers {
        return Vec::new();
    }
    let text = settings.answers.as_deref().unwrap_or("{}");
    // A file that is not valid is reported by `prepared_answers`.
    let lists: BTreeMap<String, Vec<Value>> = serde_json::from_str(text).unwrap_or_default();
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    for (gate, given) in used_answers(events) {
        if let Some(list) = gate.names().into_iter().find(|name| lists.contains_key(name)) {
            *used.entry(list).or_default() += given;
        }
    }
    let warning = |(list, given): (String, usize)| {
        let listed = lists.get(&list)?.len();
        (1..=given).contains(&listed).then(|| {
            let given = match given {
                1 => "1 answer was".to_owned(),
                more => format!("{more} answers were"),
            };
            format!(
                "`{list}`: {given} already given, but the file has {listed}: list all answers from the start of the run"
            )
        })
    };
    used.into_iter().filter_map(warning).collect()
}

/// Warnings for prepared answers and model script turns whose stage exists neither in the workflow nor
/// in its sub-workflows.
///
/// # Errors
/// A sub-workflow cannot be read.
pub(crate) fn unknown_stages(
    settings: &RunSettings,
    bundle: &Bundle,
    plan: &Plan,
) -> Result<Vec<String>, BundleError> {
    let text = settings.answers.as_deref().unwrap_or("{}");
    // Invalid files are reported where they are used.
    let answers: BTreeMap<String, Value> = serde_json::from_str(text).unwrap_or_default();
    let script = settings.model_script.as_deref().and_then(|text| Script::from_json(text).ok());
    let scripted: Vec<&str> = script.iter().flat_map(Script::names).collect();
    if answers.is_empty() && scripted.is_empty() {
        return Ok(Vec::new());
    }
    let mut stages = Stages::default();
    stages.add(bundle, plan, false, 0)?;
    let gates: Vec<_> = stages.gates.keys().map(|gate| format!("`{gate}`")).collect();
    let gates = match gates.as_slice() {
        [] => "the workflow has no gates".to_owned(),
        gates => format!("the gates are {}", gates.join(", ")),
    };
    let answers = answers.keys().filter_map(|name| {
        let wrong = unmatched(name, &stages.gates, "gate", &gates)?;
        Some(format!("the answers have a list for `{name}`, {wrong}"))
    });
    let scripted = scripted.into_iter().filter_map(|name| {
        let near = nearest(stage_node(name), stages.models.keys().map(String::as_str));
        let near = near.map_or_else(
            || "no stage uses its turns".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        let wrong = unmatched(name, &stages.models, "stage that asks a model", &near)?;
        Some(format!("the model script has a list for `{name}`, {wrong}"))
    });
    Ok(answers.chain(scripted).collect())
}

/// Why a list with this stage name is never used; `None` if it can be.
fn unmatched(
    name: &str,
    stages: &BTreeMap<String, bool>,
    kind: &str,
    known: &str,
) -> Option<String> {
    let node = stage_node(name);
    match stages.get(node) {
        None => Some(format!("which is not a {kind}: {known}")),
        Some(false) if name.contains('[') => {
            Some(format!("but `{node}` is not on the path of a list (`for_each`)"))
        }
        Some(_) => None,
    }
}

/// The nodes of a workflow and its sub-workflows, each with whether it runs per list element.
#[derive(Default)]
struct Stages {
    gates: BTreeMap<String, bool>,
    models: BTreeMap<String, bool>,
}

impl Stages {
    fn add(
        &mut self,
        bundle: &Bundle,
        plan: &Plan,
        in_list: bool,
        depth: usize,
    ) -> Result<(), BundleError> {
        let workflow = plan.workflow();
        let of_lists: BTreeSet<&str> = workflow
            .node_indices()
            .filter(|ix| workflow.node(*ix).for_each().is_some())
            .flat_map(|ix| plan.branch_nodes(ix))
            .map(|ix| &*workflow.node(ix).id)
            .collect();
        for node in workflow.nodes() {
            let in_list = in_list || of_lists.contains(&*node.id);
            let add = |stages: &mut BTreeMap<String, bool>| {
                *stages.entry(node.id.to_string()).or_default() |= in_list;
            };
            match node.kind {
                NodeKind::Human => add(&mut self.gates),
                NodeKind::Agent | NodeKind::Prompt | NodeKind::FanIn => add(&mut self.models),
                NodeKind::ManagerLoop if depth < MAX_SUB_WORKFLOW_DEPTH => {
                    let child = bundle.child(node)?;
                    self.add(&child, &child.plan()?, in_list, depth + 1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// How many prepared answers each gate visit of one run used, according to its log.
fn used_answers(events: &[Event]) -> UsedAnswers {
    let mut used = UsedAnswers::new();
    for event in checkpoint::effective(events) {
        if let EventBody::GateAnswered { source, .. } = &event.entry.body
            && source == QueueInterviewer::SOURCE
        {
            let gate = GateVisit {
                node: event.entry.node_id.clone().unwrap_or_default(),
                visit: event.entry.visit.unwrap_or(1),
                branch: event.entry.branch.clone(),
            };
            *used.entry(gate).or_default() += 1;
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use fabro_events::Entry;
    use fabro_types::RunId;

    use super::*;
    use crate::ServiceBuilder;

    fn redactor(settings: &RunSettings) -> Redactor {
        ServiceBuilder::new(settings).recorded_redactor()
    }

    fn settings(answers: &str) -> RunSettings {
        let env = [("A_TOKEN".to_owned(), "hunter2\"hunter2".to_owned())].into();
        RunSettings { env, answers: Some(answers.to_owned()), ..RunSettings::default() }
    }

    #[test]
    fn recorded_input_holds_no_secret() {
        let check = |input: (&str, Value), goal: &str, answers: &str| {
            let inputs = [(input.0.to_owned(), input.1)].into_iter().collect();
            let settings = settings(answers);
            let checked = refuse_secrets_in_input(&redactor(&settings), &settings, &inputs, goal);
            checked.map_err(|error| error.to_string())
        };
        let of = |what: &str| {
            Err(format!(
                "{what} holds the value of the secret `A_TOKEN`, and would be stored with the run"
            ))
        };
        let none = || ("t", Value::Null);
        let plain = ("t", "as $A_TOKEN [redacted:A_TOKEN]".into());
        assert_eq!(check(plain, "hunter2", "{}"), Ok(()));
        let list = serde_json::json!([{"a": "[redacted:A_TOKEN] hunter2\"hunter2"}]);
        assert_eq!(check(("t", list), "", "{}"), of("`t` of the inputs"));
        assert_eq!(check(("hunter2\"hunter2", Value::Null), "", "{}"), of("a name in the inputs"));
        assert_eq!(check(none(), "with hunter2\"hunter2", "{}"), of("the goal"));
        let answers = r#"{"ask": ["it is \u0068unter2\"hunter2"]}"#;
        assert_eq!(check(none(), "", answers), of("the file of answers"));
        // Invalid JSON is reported where it is read.
        assert_eq!(check(none(), "", "hunter2\"hunter2"), of("the file of answers"));
    }

    #[test]
    fn the_recorded_workflow_holds_no_secret() {
        let secret = "hunter2\"hunter2";
        let check = |change: &dyn Fn(&mut Bundle)| {
            let mut bundle: Bundle = serde_json::from_value(
                serde_json::json!({"name": "w", "file": "w.fabro", "source": "digraph {}"}),
            )
            .unwrap();
            change(&mut bundle);
            let checked = refuse_secrets_in_bundle(&redactor(&settings("{}")), &bundle);
            checked.map_err(|error| error.to_string())
        };
        let of = |what: &str| {
            Err(format!(
                "{what} holds the value of the secret `A_TOKEN`, and would be stored with the run"
            ))
        };
        assert_eq!(check(&|_| ()), Ok(()));
        assert_eq!(check(&|it| it.source = secret.to_owned()), of("the workflow `w.fabro`"));
        let file = |it: &mut Bundle| {
            it.files.insert("p.md".to_owned(), format!("A_TOKEN={secret}\0"));
        };
        assert_eq!(check(&file), of("the file `p.md`"));
        let hex = |it: &mut Bundle| it.source = "68756e746572322268756e74657232".to_owned();
        assert_eq!(check(&hex), of("the workflow `w.fabro`"));
        let script = |it: &mut Bundle| {
            it.settings.model_script = Some(serde_json::json!([secret]).to_string());
        };
        assert_eq!(check(&script), of("the setting `model_script`"));
        let prepare = |it: &mut Bundle| it.settings.prepare = vec![format!("login '{secret}'")];
        assert_eq!(check(&prepare), of("the setting `prepare`"));
        let url = |it: &mut Bundle| {
            it.settings.env = [("URL".to_owned(), format!("x {secret}"))].into();
        };
        assert_eq!(check(&url), of("the setting `env`"));
    }

    #[test]
    fn lists_that_were_used_up_are_warnings() {
        let answered = |(seq, (node, source)): (u64, (&str, &str))| {
            let body = EventBody::GateAnswered {
                selected: "Y".into(),
                label: "Yes".into(),
                text: None,
                source: source.into(),
                by: None,
            };
            let entry = Entry { node_id: Some(node.into()), visit: Some(1), ..Entry::new(body) };
            Event { run_id: RunId::from_parts(0, 1), seq, ts_ms: 0, entry }
        };
        let given = [("a", "answers"), ("b", "answers"), ("b", "answers"), ("c", "cli")];
        let events: Vec<Event> = (1..).zip(given).map(answered).collect();
        let warnings =
            |file: &str| exhausted_answers(&settings(file), &settings("{}"), &events).join("\n");
        assert_eq!(
            warnings(r#"{"a": ["Y"], "b": ["N"], "c": ["N"], "d": ["Y"]}"#),
            "`a`: 1 answer was already given, but the file has 1: list all answers from the start of the run\n\
             `b`: 2 answers were already given, but the file has 1: list all answers from the start of the run"
        );
        for file in [r#"{"a": ["Y", "N"], "b": []}"#, "{}", "{"] {
            assert_eq!(warnings(file), "");
        }
        let own = settings(r#"{"a": ["Y"]}"#);
        assert_eq!(exhausted_answers(&own, &own, &events), [""; 0]);
    }

    #[test]
    fn short_and_common_values_are_not_refused() {
        let env = [("DEBUG_TOKEN", "1"), ("DB_PASSWORD", "postgres"), ("AUTH", "disabled")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let settings = RunSettings { env, ..RunSettings::default() };
        let inputs = serde_json::json!({"port": 11, "db": "postgres", "tls": "disabled"});
        let inputs = inputs.as_object().unwrap();
        let goal = "1 postgres, tls disabled";
        let checked = refuse_secrets_in_input(&redactor(&settings), &settings, inputs, goal);
        assert_eq!(checked, Ok(()));
    }
}

//! Runs over the store in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fabro_config::ProviderSettings;
use fabro_engine::DriveError;
use fabro_events::{Event, EventBody};
use fabro_store::{
    Inbox as _, Lease, LeaseOwner, Leases as _, MemoryStore, Message, RunLog as _, RunStore,
    StoreError,
};
use fabro_types::{ProviderKind, RunId};
use futures_util::FutureExt as _;
use tokio::sync::mpsc;

use crate::lease::HeldLease;
use crate::*;

async fn create(store: &Arc<MemoryStore>, dir: &Path, script: &str) -> Run {
    let source = format!(
        "digraph {{ start -> work -> exit; work [shape=parallelogram, script=\"{script}\"] }}"
    );
    let spec = RunSpec::new(LoadedWorkflow::parse("demo", &source).unwrap(), dir);
    Run::create(store.clone(), &dir.join("runs"), spec).await.unwrap()
}

/// Gives the lease of a run to a process on another machine, as after it expired.
async fn take_over(store: &MemoryStore, run: RunId) {
    store.release(Lease { run, epoch: 1 }).await.unwrap();
    let owner = LeaseOwner { host: "elsewhere".into(), pid: 7, started: 1 };
    store.acquire(run, &owner, Duration::from_mins(1)).await.unwrap();
}

#[tokio::test]
async fn a_run_is_driven_over_a_store_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let run = create(&store, dir.path(), "echo done").await;
    let id = run.id();
    assert!(is_driven(&*store, id).await.unwrap());
    let second = Run::open(store.clone(), dir.path(), id).await.err().unwrap();
    assert!(matches!(second, RunError::Store(StoreError::Driven { .. })), "{second}");
    assert_eq!(run.drive(RunServices::default()).await.unwrap(), DriveResult::Succeeded);
    assert!(!is_driven(&*store, id).await.unwrap());
    assert!(dir.path().join("runs").join(id.to_string()).exists());
}

#[tokio::test]
async fn a_driver_stops_when_another_process_has_taken_the_run_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let run = create(&store, dir.path(), "sleep 600").await;
    let id = run.id();
    let (started, mut is_started) = mpsc::unbounded_channel();
    let sink = move |event: &Event| {
        if matches!(event.entry.body, EventBody::StageStarted { .. }) {
            started.send(()).unwrap();
        }
    };
    let services = RunServices { sink: Arc::new(sink), ..RunServices::default() };
    let other = async {
        is_started.recv().await.unwrap();
        take_over(&store, id).await;
        // The driver records what follows from a message.
        store.post(id, &Message::Cancel { reason: "test".into() }).await.unwrap();
    };
    let (result, ()) = tokio::join!(run.drive(services), other);
    let error = result.unwrap_err();
    assert!(
        matches!(error, RunError::Drive(DriveError::Store(StoreError::LeaseLost { .. }))),
        "{error}"
    );
    let events = store.read(id, 0, 100).await.unwrap();
    assert!(!events.iter().any(|event| matches!(event.entry.body, EventBody::RunCanceled { .. })));
    assert_eq!(store.driver(id).await.unwrap().unwrap().host, "elsewhere");
}

#[tokio::test]
async fn a_cancellation_that_arrives_while_the_driver_pauses_is_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let source = "digraph { start -> ask -> exit; ask [shape=hexagon, label=\"Ship it?\"] }";
    let spec = RunSpec::new(LoadedWorkflow::parse("demo", source).unwrap(), dir.path());
    let run = Run::create(store.clone(), &dir.path().join("runs"), spec).await.unwrap();
    let id = run.id();
    let other = Arc::clone(&store);
    // The driver has read its messages for the last time when it records that it pauses.
    let sink = move |event: &Event| {
        if matches!(event.entry.body, EventBody::RunPaused { .. }) {
            let requested = cancel(&*other, id, "not today", None).now_or_never().unwrap().unwrap();
            assert_eq!(requested, Cancellation::Requested);
        }
    };
    let services = RunServices { sink: Arc::new(sink), ..RunServices::default() };
    assert_eq!(run.drive(services).await.unwrap(), DriveResult::Canceled);
    let last = store.read(id, 0, 100).await.unwrap().pop().unwrap();
    let EventBody::RunCanceled { reason, .. } = last.entry.body else { panic!("{last:?}") };
    assert_eq!(reason, "not today");
}

/// Drives a run whose clock is `behind_ms` behind, up to its gate with a timeout of a minute, and answers that: while
/// it is driven, and with `is_paused` after its driver was interrupted.
async fn answered_by_another_clock(behind_ms: i64, is_paused: bool) -> Result<Gate, RunError> {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let source = r#"digraph { start -> ask -> exit; ask [shape=hexagon, timeout="1m"] }"#;
    let spec = RunSpec::new(LoadedWorkflow::parse("demo", source).unwrap(), dir.path());
    let run = Run::create(store.clone(), &dir.path().join("runs"), spec).await.unwrap();
    let id = run.id();
    let (asked, mut was_asked) = mpsc::unbounded_channel();
    let sink = move |event: &Event| {
        if matches!(event.entry.body, EventBody::GateAsked { .. }) {
            asked.send(()).unwrap();
        }
    };
    let clock = Arc::new(move || now_ms() - behind_ms);
    let services = RunServices { sink: Arc::new(sink), clock, ..RunServices::default() };
    let interrupt = services.interrupt.clone();
    let driver = tokio::spawn(Box::pin(run.drive(services)));
    was_asked.recv().await.unwrap();
    if is_paused {
        interrupt.cancel();
        assert_eq!(driver.await.unwrap().unwrap(), DriveResult::Interrupted);
        return answer(&*store, id, None, "1", AnsweredBy::new("ann", "cli"), None).await;
    }
    let answered = answer(&*store, id, None, "1", AnsweredBy::new("ann", "cli"), None).await;
    assert_eq!(driver.await.unwrap().unwrap(), DriveResult::Succeeded);
    answered
}

#[tokio::test]
async fn the_clock_of_who_answers_decides_no_timeout_of_a_driver() {
    const DAY: i64 = 86_400_000;
    for behind_ms in [DAY, -DAY] {
        let gate = Box::pin(answered_by_another_clock(behind_ms, false)).await.unwrap();
        let deadline_ms = gate.deadline_ms.unwrap();
        // The timeout begins with the stage, a moment before the question is recorded.
        let timeout = gate.left_ms(gate.asked_ms - DAY).unwrap();
        assert!((50_000..=60_000).contains(&timeout), "{timeout}");
        assert_eq!(gate.left_ms(deadline_ms - 20_000), Some(20_000));
        assert_eq!(gate.left_ms(gate.asked_ms + DAY), Some(0));
    }
    let late = Box::pin(answered_by_another_clock(DAY, true)).await.unwrap_err();
    assert!(matches!(late, RunError::GateTimedOut { .. }), "{late}");
    Box::pin(answered_by_another_clock(-DAY, true)).await.unwrap();
}

/// Drives a run whose driver died between an answer and its record, and says which answers its gates
/// got. `source` has a gate `ask` with an option for a loop, `A`, and one that leaves it, `D`.
async fn answers_after_a_crash(source: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let spec = RunSpec::new(LoadedWorkflow::parse("demo", source).unwrap(), dir.path());
    let run = Run::create(store.clone(), &dir.path().join("runs"), spec).await.unwrap();
    let id = run.id();
    let end = run.drive(RunServices::default()).await.unwrap();
    let DriveResult::Paused { gates, .. } = end else { panic!("{end:?}") };
    // The answer is in the inbox before it is in the log.
    let claimed = Message::Answer {
        node: "ask".to_owned(),
        visit: 1,
        branch: None,
        choice: "A".to_owned(),
        source: "answers".to_owned(),
        by: None,
    };
    store.post(gates[0].run, &claimed).await.unwrap();
    let run = Run::open(store.clone(), &dir.path().join("runs"), id).await.unwrap();
    let answers = Some(r#"{"ask": ["A", "D"]}"#.to_owned());
    let run = run.with_resume_options(ResumeOptions { answers, ..ResumeOptions::default() });
    let end = run.unwrap().drive(RunServices::default()).await.unwrap();
    assert_eq!(end, DriveResult::Succeeded);
    let events = store.read(gates[0].run, 0, 100).await.unwrap();
    let answered = events.iter().filter_map(|event| match &event.entry.body {
        EventBody::GateAnswered { selected, .. } => Some(selected.as_str()),
        _ => None,
    });
    answered.collect()
}

#[tokio::test]
async fn a_prepared_answer_counts_once_when_its_driver_dies() {
    let gate = "start -> ask; ask [shape=hexagon]; ask -> again [label=\"[A] Again\"]; again -> ask
        again [shape=parallelogram, script=true]; ask -> exit [label=\"[D] Done\"]";
    assert_eq!(Box::pin(answers_after_a_crash(&format!("digraph {{ {gate} }}"))).await, "AD");
    let child = format!("digraph {{ {gate} }}").replace('"', "\\\"");
    let parent = format!(
        "digraph {{ start -> sub -> exit; sub [shape=house, stack.child_dot_source=\"{child}\"] }}"
    );
    assert_eq!(Box::pin(answers_after_a_crash(&parent)).await, "AD");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_noticed_when_it_is_renewed() {
    let store = Arc::new(MemoryStore::default());
    let run = RunId::from_parts(0, 1);
    let held = HeldLease::acquire(&(store.clone() as Arc<dyn RunStore>), run).await.unwrap();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert!(!held.lost().is_cancelled());
    take_over(&store, run).await;
    held.lost().cancelled().await;
    drop(held);
    assert_eq!(store.driver(run).await.unwrap().unwrap().host, "elsewhere");
}

/// What creating a run of this workflow finds missing: each error with its line, then the warnings.
async fn missing(settings: RunSettings, body: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let source = format!("digraph {{\n{body}\n}}");
    let spec = RunSpec {
        settings,
        ..RunSpec::new(LoadedWorkflow::parse("demo", &source).unwrap(), dir.path())
    };
    match Box::pin(Run::create(store.clone(), &dir.path().join("runs"), spec)).await {
        Ok(run) => run.warnings().join("\n"),
        Err(RunError::Invalid { text, findings, .. }) => {
            assert!(fabro_store::Runs::list(&*store).await.unwrap().is_empty());
            let line = |at: usize| text[..at].lines().count();
            let lines = findings.iter().map(|it| {
                format!(
                    "{}: {:?} {}; {}",
                    line(it.span.start),
                    it.severity,
                    it.message,
                    it.fix.as_deref().unwrap_or_default()
                )
            });
            lines.collect::<Vec<_>>().join("\n")
        }
        Err(error) => error.to_string(),
    }
}

fn scripted(script: &str) -> RunSettings {
    RunSettings { model_script: Some(script.to_owned()), ..RunSettings::default() }
}

#[tokio::test]
async fn what_is_missing_is_found_before_the_first_stage() {
    let misspelled = scripted(r#"{"drafts": [{"text": "x"}], "b": [{"text": "x"}]}"#);
    insta::assert_snapshot!(missing(misspelled, "start -> draft -> b -> exit").await, @r#"2: Error `draft`: the model script has no turns for it; the script has a list for "drafts", which is no node: did you mean "draft"?"#);
    let script = scripted(r#"{"a": [{"text": "x"}]}"#);
    let body = "start -> a -> b -> exit; b -> c [condition=\"outcome=fail\"]; c -> exit\nlost";
    insta::assert_snapshot!(missing(script.clone(), body).await, @r#"
    2: Error `b`: the model script has no turns for it; add a list for "b" to the script, or one for "*"
    2: Error `c`: the model script has no turns for it; add a list for "c" to the script, or one for "*"
    "#);
    let all = scripted(r#"{"*": [{"text": "x"}]}"#);
    insta::assert_snapshot!(missing(all.clone(), body).await, @"");
    let programs = "start -> a -> b -> exit\na [backend=acp, acp.command=\"./no-such-agent --x\"]\n\
        b [backend=acp, acp.command=\"no-such-agent\", on_unavailable=fail]";
    insta::assert_snapshot!(missing(all.clone(), programs).await, @r#"
    3: Error `a`: the program `./no-such-agent` is not installed; install it, or correct the command
    4: Warning `b`: the program `no-such-agent` is not installed; install it, or correct the command
    "#);
    let child = "start -> m -> exit\nm [shape=house, stack.child_dot_source=\"digraph { start -> q -> exit }\"]";
    insta::assert_snapshot!(missing(script, child).await, @r#"
    2: Error `m`: demo: `q`: the model script has no turns for it; add a list for "q" to the script, or one for "*"
    "#);
}

#[tokio::test]
async fn what_handles_that_a_stage_cannot_be_asked() {
    let none = || scripted(r#"{"z": [{"text": "x"}]}"#);
    // The graph's retry target is for the main line; in a branch the run would pause.
    let branch = "graph [retry_target=t, max_node_visits=2]; t [shape=parallelogram, script=true]; t -> exit\n\
        start -> f; f [shape=component]; f -> a; f -> t2 -> j; j [shape=tripleoctagon]; j -> exit\n\
        a [prompt=x]; a -> a2 [condition=\"outcome=success\"]; t2 [shape=parallelogram, script=true]; a2 -> j; a2 [shape=parallelogram, script=true]";
    insta::assert_snapshot!(missing(none(), branch).await, @r#"
    3: Error `a`: the model script has no turns for it; add a list for "a" to the script, or one for "*"
    "#);
    let line = "graph [retry_target=t, max_node_visits=2]; t [shape=parallelogram, script=true]; t -> exit\n\
        start -> a; a [prompt=x]; a -> exit [condition=\"outcome=success\"]";
    insta::assert_snapshot!(missing(none(), line).await, @r#"
    the model script has a list for `z`, which is not a stage that asks a model: no stage uses its turns
    `a`: the model script has no turns for it (add a list for "a" to the script, or one for "*")
    "#);
    let child = |attrs: &str| {
        format!(
            "start -> m -> exit\nm [shape=house, stack.child_dot_source=\"digraph {{ start -> q -> exit }}\"{attrs}]"
        )
    };
    insta::assert_snapshot!(missing(none(), &child(", on_unavailable=fail")).await, @r#"
    the model script has a list for `z`, which is not a stage that asks a model: no stage uses its turns
    `m`: demo: `q`: the model script has no turns for it (add a list for "q" to the script, or one for "*")
    "#);
    let provider = |name: &str| ProviderSettings {
        headers: [("x-key".to_owned(), "k".to_owned())].into(),
        ..ProviderSettings::new(name, ProviderKind::parse(name).unwrap())
    };
    let openai = RunSettings { providers: vec![provider("openai")], ..RunSettings::default() };
    let names = "start -> a -> b -> c -> exit\na [model=\"gtp-5\"]\nb [model=\"gtp-5\"]\nc [model=\"claude-sonet-4-5\"]";
    insta::assert_snapshot!(missing(openai.clone(), names).await, @r"
    3: Warning `a`: neither the catalog nor the settings know the model `gtp-5`; did you mean `gpt-5`?
    5: Error `c`: provider `anthropic` is not configured: set ANTHROPIC_API_KEY, or [providers.anthropic]; did you mean `claude-sonnet-4-5`? else configure the provider
    ");
    insta::assert_snapshot!(missing(openai, "start -> a -> exit\na [model=\"gtp-5\"]").await, @"`a`: neither the catalog nor the settings know the model `gtp-5` (did you mean `gpt-5`?)");
}

/// A run of this workflow, driven until it pauses.
async fn paused(store: &Arc<MemoryStore>, dir: &Path, body: &str, script: &str) -> RunId {
    let workflow = LoadedWorkflow::parse("demo", &format!("digraph {{\n{body}\n}}")).unwrap();
    let spec = RunSpec { settings: scripted(script), ..RunSpec::new(workflow, dir) };
    let run = Run::create(store.clone(), &dir.join("runs"), spec).await.unwrap();
    let id = run.id();
    let result = run.drive(RunServices::default()).await.unwrap();
    assert!(matches!(result, DriveResult::Paused { .. }), "{result:?}");
    id
}

#[tokio::test]
async fn what_is_missing_is_found_before_a_resume() {
    let check = async |body: &str, script: &str, now: &str| {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        let id = Box::pin(paused(&store, dir.path(), body, script)).await;
        let before = fabro_store::Runs::last_seq(&*store, id).await.unwrap();
        let run = Run::open(store.clone(), &dir.path().join("runs"), id).await.unwrap();
        let changes = ResumeOptions { model_script: Some(now.to_owned()), ..Default::default() };
        let mut run = run.with_resume_options(changes).unwrap();
        let result = Box::pin(run.check_resumed()).await;
        assert_eq!(fabro_store::Runs::last_seq(&*store, id).await.unwrap(), before);
        match result {
            Ok(()) => format!("fine {}", run.warnings().join("; ")),
            Err(RunError::Invalid { findings, .. }) => {
                findings.iter().map(|it| it.message.as_str()).collect::<Vec<_>>().join("; ")
            }
            Err(error) => error.to_string(),
        }
    };
    let line = "start -> a -> b -> c -> exit";
    let script = r#"{"a": [{"text": "x"}], "b": [{"error": "auth"}], "c": [{"text": "x"}]}"#;
    // What has completed needs nothing.
    let rest = r#"{"b": [{"error": "auth"}, {"text": "y"}], "c": [{"text": "x"}]}"#;
    insta::assert_snapshot!(check(line, script, rest).await, @"fine ");
    insta::assert_snapshot!(check(line, script, r#"{"b": [{"text": "y"}]}"#).await, @"`c`: the model script has no turns for it");
    let looped = "start -> a -> b -> exit; b -> a [condition=\"outcome=fail\"]";
    insta::assert_snapshot!(check(looped, script, rest).await, @"`a`: the model script has no turns for it");
    let child = "start -> m -> c -> exit\nm [shape=house, stack.child_dot_source=\"digraph { start -> a -> b -> exit }\"]";
    insta::assert_snapshot!(check(child, script, rest).await, @"fine ");
    insta::assert_snapshot!(check(child, script, r#"{"c": [{"text": "y"}]}"#).await, @"`m`: demo: `b`: the model script has no turns for it");
    let branches = "start -> f; f [shape=component]; f -> a -> j; f -> b -> j; j [shape=tripleoctagon]; j -> c -> exit";
    insta::assert_snapshot!(check(branches, script, rest).await, @"fine ");
    insta::assert_snapshot!(check(branches, script, r#"{"a": [{"text": "y"}]}"#).await, @"`b`: the model script has no turns for it; `c`: the model script has no turns for it");
}

/// The ends of stages in the logs of a family, but for start and exit, with what each run ended as.
async fn ends(store: &MemoryStore, id: RunId) -> String {
    let mut ends = Vec::new();
    for member in fabro_store::Runs::family(store, id).await.unwrap() {
        for event in store.read(member, 0, 1000).await.unwrap() {
            let name = event.entry.node_id.as_ref().map(ToString::to_string).unwrap_or_default();
            match event.entry.body {
                EventBody::StageCompleted(_) if !["start", "exit"].contains(&&*name) => {
                    ends.push(name);
                }
                EventBody::RunPaused { .. } => ends.push("(paused)".to_owned()),
                EventBody::RunCompleted { .. } => ends.push("(completed)".to_owned()),
                _ => {}
            }
        }
    }
    ends.join(" ")
}

#[tokio::test]
async fn a_driver_that_ends_while_it_waits_to_ask_again_loses_nothing() {
    let check = async |body: &str| {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        let runs = dir.path().join("runs");
        let script = r#"{"a": [{"text": "x"}], "b": [{"error": "auth"}, {"text": "y"}], "c": [{"text": "z"}]}"#;
        let settings =
            RunSettings { retry_unavailable: Some(Duration::from_hours(1)), ..scripted(script) };
        let workflow = LoadedWorkflow::parse("demo", &format!("digraph {{ {body} }}")).unwrap();
        let spec = RunSpec { settings, ..RunSpec::new(workflow, dir.path()) };
        let run = Run::create(store.clone(), &runs, spec).await.unwrap();
        let id = run.id();
        let (waits, mut is_waiting) = mpsc::unbounded_channel();
        let warn = move |text: &str| {
            if text.contains("the run retries in") {
                waits.send(()).unwrap();
            }
        };
        let services = RunServices { warn: Arc::new(warn), ..RunServices::default() };
        tokio::select! {
            result = run.drive(services) => panic!("{result:?}"),
            _ = is_waiting.recv() => {}
        }
        let run = Run::open(store.clone(), &runs, id).await.unwrap();
        let result = run.drive(RunServices::default()).await.unwrap();
        format!("{result:?}: {}", ends(&store, id).await)
    };
    insta::assert_snapshot!(check("start -> a -> b -> c -> exit").await, @"Succeeded: a (paused) b c (completed)");
    insta::assert_snapshot!(check("start -> f; f [shape=component]; f -> a -> j; f -> b -> j; j [shape=tripleoctagon]; j -> c -> exit").await, @"Succeeded: a (paused) b f j c (completed)");
    insta::assert_snapshot!(check("start -> m -> c -> exit; m [shape=house, stack.child_dot_source=\"digraph { start -> a -> b -> exit }\"]").await, @"Succeeded: (paused) m c (completed) a (paused) b (completed)");
}

#[tokio::test]
async fn a_gate_beside_a_stage_that_cannot_be_asked_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let source = "digraph { start -> f; f [shape=component]; f -> a -> j; f -> g; g [shape=hexagon]; \
        g -> j; j [shape=tripleoctagon]; j -> exit }";
    let workflow = LoadedWorkflow::parse("demo", source).unwrap();
    let settings = scripted(r#"{"a": [{"error": "auth"}]}"#);
    let spec = RunSpec { settings, ..RunSpec::new(workflow, dir.path()) };
    let run = Run::create(store, &dir.path().join("runs"), spec).await.unwrap();
    let result = run.drive(RunServices::default()).await.unwrap();
    let DriveResult::Paused { gates, unavailable, .. } = result else { panic!("{result:?}") };
    assert_eq!(gate_names(&gates), ["g@1"]);
    assert_eq!(unavailable.len(), 1);
}

#[tokio::test]
async fn a_run_that_asks_again_by_itself_continues() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::default());
    let script = r#"{"a": [{"error": "auth"}, {"error": "quota"}, {"text": "x"}]}"#;
    let settings =
        RunSettings { retry_unavailable: Some(Duration::from_millis(1)), ..scripted(script) };
    let workflow = LoadedWorkflow::parse("demo", "digraph { start -> a -> exit }").unwrap();
    let spec = RunSpec { settings, ..RunSpec::new(workflow, dir.path()) };
    let run = Run::create(store.clone(), &dir.path().join("runs"), spec).await.unwrap();
    let warnings = Arc::new(std::sync::Mutex::new(Vec::new()));
    let warned = Arc::clone(&warnings);
    let services = RunServices {
        warn: Arc::new(move |text| warned.lock().unwrap().push(text.to_owned())),
        ..RunServices::default()
    };
    assert_eq!(run.drive(services).await.unwrap(), DriveResult::Succeeded);
    let warnings = warnings.lock().unwrap();
    assert_eq!(warnings[1], "no model or agent is available; the run retries in 1s");
}

#[tokio::test]
async fn a_sub_workflow_pauses_its_parent_and_continues_with_it() {
    let run = async |attrs: &str| {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        let child = "digraph { start -> q -> r -> exit }";
        let source = format!(
            "digraph {{ start -> m -> exit; m [shape=house, stack.child_dot_source=\"{child}\"{attrs}] }}"
        );
        let settings =
            scripted(r#"{"q": [{"text": "x"}], "r": [{"error": "auth"}, {"text": "y"}]}"#);
        let workflow = LoadedWorkflow::parse("demo", &source).unwrap();
        let spec = RunSpec { settings, ..RunSpec::new(workflow, dir.path()) };
        let runs = dir.path().join("runs");
        let run = Run::create(store.clone(), &runs, spec).await.unwrap();
        let id = run.id();
        let first = run.drive(RunServices::default()).await.unwrap();
        let DriveResult::Paused { unavailable, .. } = first else { return format!("{first:?}") };
        let run = Run::open(store.clone(), &runs, id).await.unwrap();
        let second = run.drive(RunServices::default()).await.unwrap();
        let family = fabro_store::Runs::family(&*store, id).await.unwrap();
        format!("{}, then {second:?} with {} runs", unavailable[0], family.len())
    };
    insta::assert_snapshot!(Box::pin(run(", max_retries=2")).await, @"`m` failed: sub-workflow: `r`: the model's provider refused the key: check it, then Succeeded with 2 runs");
    assert!(Box::pin(run(", on_unavailable=fail")).await.starts_with("PartiallySucceeded"));
}

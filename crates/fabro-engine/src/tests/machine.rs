//! The machine without a driver: what it asks for, and what it does in states that cannot be.

use fabro_blob::OFFLOAD_LIMIT;
use fabro_types::BlobRef;
use serde_json::{Value, json};

use super::*;

fn machine(source: &str) -> Machine {
    let mut machine = Bench::new(source, &[]).machine();
    machine.handle(1, Input::Start);
    machine
}

fn ended(outcome: Outcome) -> Input {
    Input::Ended { branch: Arc::from(MAIN), finished: Box::new(outcome.into()) }
}

#[test]
fn a_large_value_of_a_condition_is_read_outside_of_the_machine() {
    let source =
        "digraph { start -> a -> b -> c -> exit; b -> exit [condition=\"big contains yx\"] }";
    let mut machine = machine(source);
    let big = json!("x".repeat(OFFLOAD_LIMIT) + "yx");
    machine.handle(2, ended(Outcome::succeeded().with_update("big", big.clone())));
    // The value of the commit that is being prepared is at hand; afterwards only the store has it.
    assert!(machine.needs().is_empty());
    let blob = machine.take_commit().blobs[0].0;

    machine.handle(3, ended(Outcome::succeeded()));
    assert_eq!(machine.needs().iter().collect::<Vec<_>>(), [&blob]);
    assert_eq!(machine.take_commit().events.len(), 1, "only the end of `b`");
    let values = [(blob, Ok::<Value, String>(big))].into();
    machine.handle(3, Input::Values { values });
    assert!(machine.needs().is_empty());
    assert_eq!(machine.state().status(false), fabro_types::RunStatus::Succeeded);
}

#[test]
fn a_value_that_cannot_be_read_ends_the_run() {
    let mut machine = machine("digraph { start -> a; a -> exit [condition=\"big\"] }");
    let blob = BlobRef::of(b"gone");
    machine.handle(2, ended(Outcome::succeeded().with_update("big", blob.to_value())));
    let values = [(blob, Err("it is gone".to_owned()))].into();
    machine.handle(2, Input::Values { values });
    insta::assert_snapshot!(story(&machine.take_commit().events), @r"
    001 start@1 succeeded  -> a (unconditional)
    002 a@1 succeeded
    run failed: `big` cannot be read: it is gone
    ");
}

#[test]
fn a_state_that_cannot_be_ends_the_run_as_a_bug() {
    let state = machine("digraph { start -> a -> exit }").state().clone();
    let other = Bench::new("digraph { start -> exit }", &[]);
    let mut machine = Machine::new(other.plan, state);
    machine.handle(2, ended(Outcome::succeeded()));
    insta::assert_snapshot!(story(&machine.take_commit().events), @"run failed: this is a bug in fabro: there is no node `a` in the plan; please report it (structural)");
}

#[test]
fn inputs_of_a_stage_that_has_ended_change_nothing() {
    let mut machine = machine("digraph { start -> a -> exit }");
    machine.take_commit();
    let branch: Arc<str> = "gone@1/b".into();
    let finished = Box::new(Outcome::succeeded().into());
    machine.handle(2, Input::Ended { branch: Arc::clone(&branch), finished });
    machine.handle(2, Input::Due { branch: Arc::clone(&branch) });
    machine.handle(2, Input::Overdue { branch, limit: std::time::Duration::ZERO });
    assert!(machine.take_commit().events.is_empty());
}

/// Ends one node at once, and another never.
struct Stubborn(CancellationToken);

#[async_trait]
impl Handler for Stubborn {
    async fn execute(&self, stage: Stage) -> StageEnd {
        match &*stage.at.node {
            "quick" => {
                // The stop arrives while this result is on its way.
                self.0.cancel();
                Outcome::succeeded().into()
            }
            _ => std::future::pending().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_commits_results_and_waits_for_no_handler_for_ever() {
    let source = "digraph { start -> fork -> slow -> join; fork -> quick -> join -> exit
        fork [shape=component]; join [shape=tripleoctagon] }";
    let bench = Bench::new(source, &[]);
    let world = World { handler: Arc::new(Stubborn(CancellationToken::new())), ..bench.world() };
    let world = World { handler: Arc::new(Stubborn(world.stop.clone())), ..world };
    let end = drive(bench.machine(), Input::Start, world).await.unwrap();
    assert_eq!(end, RunEnd::Stopped);
    let quick = |event: &Event| {
        matches!(event.entry.body, EventBody::StageCompleted(_))
            && event.entry.node_id.as_deref() == Some("quick")
    };
    assert!(bench.events().iter().any(quick));
}

/// Reports, once it is canceled, a warning and what it has spent.
struct Spender(CancellationToken);

#[async_trait]
impl Handler for Spender {
    async fn execute(&self, stage: Stage) -> StageEnd {
        self.0.cancel();
        stage.cancel.cancelled().await;
        // What is reported in the moment of the stop is recorded still.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let warning = EventBody::AgentWarning {
            kind: "late".to_owned(),
            message: "too late".to_owned(),
            window: None,
        };
        let refused = stage.reporter.report(warning).await;
        assert!(matches!(refused, Err(ReportError::Ending)));
        let usage = Usage { input_tokens: 7, failed_requests: 1, ..Usage::default() };
        let spent = EventBody::AgentError {
            class: FailureClass::Canceled,
            message: "canceled".to_owned(),
            usage: Some(usage),
            retry_in_ms: None,
        };
        stage.reporter.report(spent).await.unwrap();
        Outcome::failed(Failure::new(FailureClass::Canceled, "canceled")).into()
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_records_what_stages_have_spent_and_nothing_else() {
    let bench = Bench::new("digraph { start -> a -> exit }", &[]);
    let world = bench.world();
    let world = World { handler: Arc::new(Spender(world.stop.clone())), ..world };
    let end = drive(bench.machine(), Input::Start, world).await.unwrap();
    assert_eq!(end, RunEnd::Stopped);
    let events = bench.events();
    let last = events.last().map(|event| &event.entry.body);
    assert!(matches!(last, Some(EventBody::AgentError { .. })), "{last:?}");
    let is_warning = |event: &Event| matches!(event.entry.body, EventBody::AgentWarning { .. });
    assert!(!events.iter().any(is_warning));
}

/// Greets the person whom the context names.
struct Greet;

#[async_trait]
impl Handler for Greet {
    async fn execute(&self, stage: Stage) -> StageEnd {
        stage.reporter.touch();
        Outcome::succeeded()
            .with_update("greeting", format!("hello {}", stage.context.text("name")))
            .into()
    }
}

#[tokio::test]
async fn a_handler_is_tested_with_a_stage_of_its_own() {
    let workflow = Workflow::from_source("t", "digraph { start -> greet -> exit }").unwrap();
    let plan = Arc::new(Plan::compile(workflow).unwrap());
    let stage = Stage::builder(&plan, "greet").context("name", "Ann").build();
    let StageEnd::Finished(finished) = Greet.execute(stage).await else { panic!() };
    assert_eq!(*finished.outcome.context_updates["greeting"], "hello Ann");
}

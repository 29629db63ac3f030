use std::sync::Arc;

use fabro_events::{CompletedStage, CompletedTool, CreatedRun, Entry, ParentStage, Spent};
use fabro_types::{BlobRef, Fidelity, Outcome, Usage};

use super::*;

fn run(random: u128) -> RunId {
    RunId::from_parts(0, random)
}

fn event(run_id: RunId, node: &str, body: EventBody) -> Event {
    let node_id = (!node.is_empty()).then(|| Arc::from(node));
    let entry = Entry { node_id, visit: Some(1), ..Entry::new(body) };
    Event { run_id, seq: 1, ts_ms: 0, entry }
}

fn started(handler: &str) -> EventBody {
    let handler = fabro_types::NodeKind::from_type(handler).unwrap();
    let fidelity = Fidelity::Compact;
    EventBody::StageStarted { rank: 1, handler, fidelity, thread_id: None }
}

fn answer(input_tokens: u64) -> EventBody {
    let usage = Usage { input_tokens, output_tokens: 50, ..Usage::default() };
    let role = "assistant".to_owned();
    let text = "I will".to_owned();
    EventBody::AgentMessage {
        role,
        text,
        message: None,
        usage: Some(usage),
        given: None,
        purpose: None,
    }
}

fn calls(call_id: &str, tool: &str, arguments: &str) -> EventBody {
    EventBody::AgentToolStarted {
        call_id: call_id.into(),
        tool: tool.into(),
        arguments: arguments.into(),
    }
}

fn done(call_id: &str) -> EventBody {
    EventBody::AgentToolCompleted(Box::new(CompletedTool {
        call_id: call_id.into(),
        tool: "t".into(),
        is_error: false,
        output: Arc::new("ok".into()),
        files_read: Vec::new(),
        files_modified: Vec::new(),
        files_seen: BTreeMap::new(),
        duration_ms: 3,
    }))
}

/// The line of the only running stage.
fn shown(state: &State) -> String {
    let running = state.story.running().next().unwrap();
    stage_text(running, '*', 12_000, Paint::new(false))
}

#[test]
fn an_agent_shows_what_it_does() {
    let mut state = State::default();
    let mut tell = |body| {
        state.tell(&event(run(1), "implement", body), Mode::Live, Paint::new(false));
        shown(&state)
    };
    insta::assert_snapshot!(tell(started("agent")), @"* implement       12.0s");
    insta::assert_snapshot!(tell(answer(800)), @"* implement       12.0s · 1 turn · 850 tokens");
    insta::assert_snapshot!(tell(calls("1", "edit_file", r#"{"path":"src/main.rs"}"#)), @"* implement       12.0s · edit_file src/main.rs · 1 turn · 850 tokens");
    insta::assert_snapshot!(tell(calls("2", "shell", r#"{"command":"cargo test"}"#)), @"* implement       12.0s · shell cargo test and 1 more · 1 turn · 850 tokens");
    tell(done("2"));
    insta::assert_snapshot!(tell(done("1")), @"* implement       12.0s · 1 turn · 850 tokens");
    let window =
        EventBody::AgentCompactionStarted { estimated_tokens: 9, context_window_size: None };
    insta::assert_snapshot!(tell(window), @"* implement       12.0s · compacts its conversation · 1 turn · 850 tokens");
    let resumed = event(run(1), "", EventBody::RunResumed { max_cost: None });
    let resumed = Event { ts_ms: 9_000, ..resumed };
    state.tell(&resumed, Mode::Live, Paint::new(false));
    let answered = event(run(1), "implement", answer(31_000));
    state.tell(&answered, Mode::Live, Paint::new(false));
    insta::assert_snapshot!(shown(&state), @"* implement       3.0s · 2 turns · 31k tokens");
}

/// The beginning of a sub-workflow of the stage `sub`.
fn created(parent: RunId) -> EventBody {
    created_by(parent, "sub", None)
}

fn created_by(parent: RunId, node: &str, branch: Option<&str>) -> EventBody {
    EventBody::RunCreated(Arc::new(CreatedRun {
        workflow: "child".into(),
        goal: String::new(),
        inputs: serde_json::Map::new(),
        seed: 1,
        work_dir: "/".into(),
        bundle: BlobRef::of(b"{}"),
        context: fabro_types::ContextPatch::new(),
        max_cost: None,
        parent: Some(ParentStage {
            run_id: parent,
            node_id: node.into(),
            visit: 1,
            branch: branch.map(Arc::from),
            attempt: 1,
        }),
        dry_run: false,
        worktree: None,
        rules: 0,
    }))
}

#[test]
fn the_gate_of_a_sub_workflow_is_shown_after_a_resume_too() {
    let progress = Progress::new(Mode::Live, Paint::new(false), || 0);
    let asked = EventBody::GateAsked {
        question: "Ship it?".into(),
        question_type: fabro_events::QuestionType::YesNo,
        options: Vec::new(),
        freeform: false,
        text_option: None,
        default_choice: None,
        deadline_ms: None,
        item: None,
        show: Vec::new(),
    };
    progress.recall(&[&event(run(1), "", EventBody::RunStarted {})]);
    progress.recall_child(&[
        event(run(2), "", created(run(1))),
        event(run(2), "ask", started("human")),
        event(run(2), "ask", asked),
    ]);
    progress.event(&event(run(2), "", EventBody::RunResumed { max_cost: None }));
    let state = progress.shared.lock();
    assert_eq!(state.lines, [""; 0]);
    let child = &state.children[&run(2)];
    let running = child.story.running().next().unwrap();
    let shown = stage_text(running, '*', 0, Paint::new(false));
    assert_eq!(shown, "  ? ask             0ms  waits for an answer");
}

#[test]
fn stages_of_sub_workflows_are_indented() {
    let ended = || {
        EventBody::StageCompleted(Arc::new(CompletedStage {
            rank: 1,
            attempts: 1,
            outcome: Outcome::succeeded(),
            prompt: None,
            script: None,
            env: std::collections::BTreeMap::new(),
        }))
    };
    let end = || EventBody::RunCompleted {
        status: fabro_types::Status::Succeeded,
        usage: Usage::default(),
        artifact_count: 0,
        unhandled: Vec::new(),
        overridden: Vec::new(),
    };
    let mut state = State { run: Some(run(1)), ..State::default() };
    let mut child = |of, node: &str, body| {
        state.tell_child(&event(run(of), node, body), Mode::Live, Paint::new(false));
    };
    child(2, "", created(run(1)));
    child(2, "part", started("command"));
    child(3, "", created(run(2)));
    child(3, "deep", started("command"));
    child(3, "deep", ended());
    child(3, "", end());
    child(2, "part", ended());
    child(2, "", end());
    insta::assert_snapshot!(state.lines.join("\n"), @r"
      ✓ deep            0ms
    ✓ part            0ms
    ");
    assert_eq!(state.children.len(), 0);
}

#[test]
fn running_stages_of_sub_workflows_are_below_the_stages_that_run_them() {
    // The ids of runs do not tell which was created first.
    let outer = run(9);
    let deep = run(3);
    let branch = run(5);
    let mut state = State { run: Some(run(7)), ..State::default() };
    let paint = Paint::new(false);
    let in_branch = |of, at: &str, node: &str, body| {
        let mut event = event(of, node, body);
        event.entry.branch = Some(at.into());
        event
    };
    state.tell(&event(run(7), "all", started("parallel")), Mode::Live, paint);
    for (name, node) in [("all@1/a", "a"), ("all@1/b", "b")] {
        let began = in_branch(run(7), name, node, started("stack.manager_loop"));
        state.tell(&began, Mode::Live, paint);
    }
    state.tell_child(
        &event(outer, "", created_by(run(7), "a", Some("all@1/a"))),
        Mode::Live,
        paint,
    );
    state.tell_child(&event(outer, "part", started("stack.manager_loop")), Mode::Live, paint);
    state.tell_child(&event(deep, "", created_by(outer, "part", None)), Mode::Live, paint);
    state.tell_child(&event(deep, "deep", started("command")), Mode::Live, paint);
    state.tell_child(
        &event(branch, "", created_by(run(7), "b", Some("all@1/b"))),
        Mode::Live,
        paint,
    );
    state.tell_child(&event(branch, "other", started("command")), Mode::Live, paint);
    insta::assert_snapshot!(state.area_text('*', 0, paint).join("\n"), @r"
    * all             0ms
      * a               0ms
        * a/part          0ms
          * a/deep          0ms
      * b               0ms
        * b/other         0ms
    ");
}

#[test]
fn the_stages_of_a_sub_workflow_are_named_by_the_element_it_runs_for() {
    let paint = Paint::new(false);
    let mut state = State::default();
    let sub = run(2);
    let inner = run(3);
    let created = created_by(run(7), "sub", Some("each@1/sub[2]"));
    state.tell_child(&event(sub, "", created), Mode::Live, paint);
    state.tell_child(&event(sub, "search", started("agent")), Mode::Live, paint);
    state.tell_child(&event(inner, "", created_by(sub, "search", None)), Mode::Live, paint);
    state.tell_child(&event(inner, "look", started("agent")), Mode::Live, paint);
    let shown = state.area_text('*', 0, paint).join("\n");
    assert!(shown.contains("search[2]") && shown.contains("look[2]"), "{shown}");
}

#[test]
fn a_fan_out_counts_its_branches() {
    let mut state = State::default();
    let mut tell = |branch: Option<&str>, node: &str, body| {
        let mut event = event(run(1), node, body);
        event.entry.branch = branch.map(Arc::from);
        state.tell(&event, Mode::Live, Paint::new(false));
        state.area_text('*', 12_000, Paint::new(false)).join("\n")
    };
    let planned = |target: &str| fabro_events::PlannedBranch {
        branch: format!("fork@1/{target}").into(),
        target: target.into(),
        edge: None,
    };
    let ended = |status, canceled| EventBody::BranchCompleted {
        status,
        canceled,
        failure: None,
        candidates: Vec::new(),
    };
    tell(None, "fork", started("parallel"));
    let branches = vec![planned("a"), planned("b"), planned("c")];
    let begun = EventBody::ParallelStarted {
        branches,
        join: None,
        max_parallel: 3,
        for_each: None,
        isolated: false,
    };
    assert_eq!(tell(None, "fork", begun), "* fork            12.0s · 0/3 done");
    tell(Some("fork@1/a"), "a", started("command"));
    let failed = ended(fabro_types::Status::Failed, false);
    assert_eq!(tell(Some("fork@1/a"), "", failed), "* fork            12.0s · 1/3 done, 1 failed");
    tell(Some("fork@1/b"), "", ended(fabro_types::Status::Succeeded, false));
    tell(Some("fork@1/c"), "", ended(fabro_types::Status::Failed, true));
    let status = fabro_types::Status::PartiallySucceeded;
    tell(None, "fork", EventBody::ParallelCompleted { status });
    assert_eq!(state.lines.last().unwrap(), "! fork: 3/3 done, 1 failed, 1 canceled");
}

#[test]
fn a_pause_at_the_cost_limit_says_how_much_was_spent() {
    let mut state = State::default();
    let paused = EventBody::RunPaused {
        reason: PauseReason::Budget,
        message: "spent $0.52 of max_cost $0.50".to_owned(),
        gates: Vec::new(),
        unavailable: Vec::new(),
        failed_turns: BTreeMap::new(),
        used: BTreeMap::new(),
        sub_workflows: Spent::default(),
    };
    state.tell(&event(run(1), "", paused), Mode::Live, Paint::new(false));
    assert_eq!(state.paused.as_deref(), Some("spent $0.52 of max_cost $0.50"));
}

#[test]
fn the_last_output_of_a_running_command_is_below_its_line() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("stdout.log"), "one\ntwo\nthree\nfour\n").unwrap();
    let place = dir.path().to_owned();
    let mut state = State { dirs: Some(Box::new(move |_| place.clone())), ..State::default() };
    state.tell(&event(run(1), "build", started("command")), Mode::Live, Paint::new(false));
    let area = state.area_text('*', 0, Paint::new(false));
    assert_eq!(area[1..], ["  two", "  three", "  four"]);
}

#[test]
fn questions_of_sub_workflows_say_which_one_asks() {
    let paint = Paint::new(false);
    let mut state = State { run: Some(run(7)), ..State::default() };
    let asked = |item: Option<&str>| EventBody::GateAsked {
        question: "Ship it?".into(),
        question_type: fabro_events::QuestionType::YesNo,
        options: Vec::new(),
        freeform: false,
        text_option: None,
        default_choice: None,
        deadline_ms: None,
        item: item.map(str::to_owned),
        show: Vec::new(),
    };
    for (child, branch, item) in [
        (run(2), "each@1/sub[1]", Some("pear")),
        (run(3), "fan@1/a", None),
        (run(4), "fan@1/b", None),
    ] {
        let node = branch.trim_start_matches("fan@1/");
        let node = if item.is_some() { "sub" } else { node };
        let created = created_by(run(7), node, Some(branch));
        state.tell_child(&event(child, "", created), Mode::Plain, paint);
        state.tell_child(&event(child, "ask", started("human")), Mode::Plain, paint);
        state.tell_child(&event(child, "ask", asked(item)), Mode::Plain, paint);
    }
    insta::assert_snapshot!(state.lines.join("\n"), @r"
    ? ask[1] (pear) asks: Ship it?
    ? a/ask asks: Ship it?
    ? b/ask asks: Ship it?
    ");
}

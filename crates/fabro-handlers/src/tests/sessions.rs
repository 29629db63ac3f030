//! Running agents: tools, turns that survive, corrections, memory, steering.

use std::path::Path;

use fabro_config::AgentSettings;
use fabro_llm::ToolSpec;
use fabro_tools::{Call, Output, Tool, ToolSet, WorkflowContext};
use fabro_types::Permissions;

use super::*;
use crate::{Offer, Toolbox};

/// Tools that write, count and remember.
#[derive(Default)]
struct Bench {
    calls: Arc<Mutex<Vec<String>>>,
}

struct Act {
    spec: ToolSpec,
    needs: Permissions,
    calls: Arc<Mutex<Vec<String>>>,
    workflow: Arc<dyn WorkflowContext>,
}

#[async_trait]
impl Tool for Act {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        self.needs
    }

    async fn call(&self, call: Call<'_>) -> Output {
        let text = call.arguments["text"].as_str().unwrap_or_default();
        self.calls
            .lock()
            .unwrap()
            .push(format!("{}({text}) round {}", self.spec.name, call.context.round));
        match self.spec.name.as_str() {
            "append_workflow_context" => {
                self.workflow.append(text).await.unwrap();
                Output::ok("noted")
            }
            "get_workflow_context" => {
                Output::ok(Value::Object(self.workflow.read(&[])).to_string())
            }
            _ => Output {
                files_modified: vec![text.chars().take(6).collect()],
                ..Output::ok(format!("wrote {text}"))
            },
        }
    }
}

#[async_trait]
impl Toolbox for Bench {
    async fn tools(&self, _: &Path, _: Permissions, workflow: Arc<dyn WorkflowContext>) -> Offer {
        let tool = |name: &str, needs| {
            let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}});
            let spec = ToolSpec {
                name: name.into(),
                description: format!("Does {name}."),
                parameters: Arc::new(parameters),
            };
            let calls = Arc::clone(&self.calls);
            let workflow = Arc::clone(&workflow);
            Arc::new(Act { spec, needs, calls, workflow }) as Arc<dyn Tool>
        };
        let tools = [
            ("write", Permissions::ReadWrite),
            ("run", Permissions::Full),
            ("mcp__tick__lookup", Permissions::Full),
            ("get_workflow_context", Permissions::ReadOnly),
            ("append_workflow_context", Permissions::ReadOnly),
        ]
        .into_iter()
        .fold(ToolSet::default(), |set, (name, needs)| set.with(tool(name, needs)));
        Offer { tools, ..Offer::default() }
    }
}

fn agents(toolbox: &Arc<Bench>) -> Agents {
    Agents { toolbox: Arc::clone(toolbox) as _, ..Agents::default() }
}

fn call(name: &str, text: &str) -> Value {
    json!({"text": "", "tool_calls": [{"name": name, "arguments": {"text": text}}]})
}

/// What the agents of a run said, called and were told.
fn talk(scene: &Scene) -> String {
    let mut lines = String::new();
    for event in scene.events() {
        let session = event.entry.session_id.as_deref().unwrap_or_default();
        let line = match &event.entry.body {
            EventBody::AgentMessage { role, text, .. } => {
                format!("{role}: {}", text.lines().last().unwrap_or_default())
            }
            EventBody::AgentToolCompleted(done) => {
                format!(
                    "{} {}: {}",
                    done.tool,
                    if done.is_error { "failed" } else { "gave" },
                    done.output.as_str().unwrap_or_default()
                )
            }
            EventBody::AgentSteered { text, source } => format!("{source} steers: {text}"),
            EventBody::AgentWarning { kind, .. } => format!("warning: {kind}"),
            EventBody::RunPaused { reason, .. } => format!("paused: {reason:?}"),
            EventBody::RunResumed { .. } => "resumed".to_owned(),
            EventBody::StageCompleted(end) | EventBody::StageFailed(end) => format!(
                "{} {} {:?}",
                event.entry.node_id.as_deref().unwrap_or_default(),
                end.outcome
                    .failure
                    .as_ref()
                    .map_or_else(|| end.outcome.reads_as().to_owned(), ToString::to_string),
                end.outcome.files_touched,
            ),
            _ => continue,
        };
        let _ = writeln!(lines, "{session:6} {line}");
    }
    lines
}

const ONE: &str = "digraph { start -> a -> exit; a [prompt=Work] }";

#[test]
fn what_agents_are_given_is_a_blob_for_each_text() {
    let source = "digraph { start -> a -> b -> c -> p -> exit;
        a [label=Work]; b [label=Work, prompt=More]; c [label=Look]; p [shape=tab] }";
    let script = json!({"a": [call("write", "x.rs"), {"text": "done"}], "*": [{"text": "done"}]});
    let toolbox = Arc::default();
    let scene = Scene::new(source).model(&script.to_string()).agents(agents(&toolbox));
    scene.drive().unwrap();
    let mut told = String::new();
    let mut blobs = BTreeSet::new();
    for event in scene.events() {
        let EventBody::AgentMessage { role, given, .. } = &event.entry.body else { continue };
        let session = event.entry.session_id.as_deref().unwrap_or_default();
        let _ = write!(told, "{session} {role}:");
        let values = given.iter().flat_map(|given| [&given.system, &given.tools]).flatten();
        for value in values {
            let blob = BlobRef::from_value(value).unwrap();
            blobs.insert(blob.to_string());
            let _ = match fabro_engine::read_blob(&*scene.store, &blob).unwrap() {
                Value::String(text) => write!(told, " {} …", &text[..16]),
                tools => write!(told, " {} …", tools[0]["name"]),
            };
        }
        if let Some(opening) = given.as_ref().and_then(|given| given.opening.as_ref()) {
            let _ = write!(told, " {}", opening.as_str().unwrap());
        }
        told.push('\n');
    }
    insta::assert_snapshot!(told, @r#"
    a@1 user: You are an agent … "close_agent" … The stage is "Work".
    a@1 assistant:
    a@1 assistant:
    b@1 user: You are an agent … "close_agent" … The stage is "Work".
    b@1 assistant:
    c@1 user: You are an agent … "close_agent" … The stage is "Look".
    c@1 assistant:
    p@1 user:
    p@1 assistant:
    "#);
    assert_eq!(blobs.len(), 2, "the tools once, and the system prompt");
}

#[test]
fn an_agent_works_with_its_tools() {
    let toolbox = Arc::default();
    let model = json!({"a": [call("write", "x.rs"), call("run", "rm"), call("wrote", "y"), {"text": "done"}]});
    let scene = Scene::new(ONE).model(&model.to_string()).agents(agents(&toolbox));
    scene.drive().unwrap();
    insta::assert_snapshot!(talk(&scene), @r#"
           start succeeded []
    a@1    user: Work
    a@1    assistant: 
    a@1    write gave: wrote x.rs
    a@1    assistant: 
    a@1    run failed: `run` is not permitted: it needs permissions "full", and this agent has "read-write". Go on without it, or say in your answer that permissions="full" on the node or in [run.agent] would allow it.
    a@1    warning: permission
    a@1    assistant: 
    a@1    wrote failed: there is no tool `wrote`: did you mean `write`?
    a@1    assistant: done
           a succeeded ["x.rs"]
           exit succeeded []
    "#);
    insta::assert_snapshot!(toolbox.calls.lock().unwrap().join(", "), @"write(x.rs) round 0");
}

#[test]
fn tools_that_are_not_there_are_told() {
    let source = "digraph { start -> a -> exit; a [prompt=Work, tools=\"write\\nnope, mcp__x__y wait lookup tick__lookup\"] }";
    let model = json!({"a": [call("write", "x.rs"), {"text": "done"}]});
    let scene = Scene::new(source).model(&model.to_string()).agents(agents(&Arc::default()));
    scene.drive().unwrap();
    let warnings: Vec<_> = scene
        .events()
        .into_iter()
        .filter_map(|event| match event.entry.body {
            EventBody::AgentWarning { message, .. } => Some(message),
            _ => None,
        })
        .collect();
    insta::assert_snapshot!(warnings.join("\n"), @r"
    the node names `nope`, and there is no such tool
    the node names `lookup`, and there is no such tool: did you mean `mcp__tick__lookup`?
    the node names `tick__lookup`, and there is no such tool: did you mean `mcp__tick__lookup`?
    ");
    assert!(talk(&scene).contains("write gave: wrote x.rs"));
}

#[test]
fn the_last_file_that_an_agent_touched_speaks_for_it() {
    let source = "digraph { start -> a; a -> x [label=go]; a -> exit; x -> exit }";
    let model = json!({"a": [call("write", "x.json"), {"text": "done"}], "x": [{"text": "done"}]});
    let scene = Scene::new(source).model(&model.to_string()).agents(agents(&Arc::default()));
    let scene = scene.agent_writes("x.json", r#"{"preferred_next_label": "go"}"#);
    let story = scene.story();
    assert!(story.contains("a@1 succeeded -> x (preferred_label)"), "{story}");
}

#[test]
fn a_budget_pauses_between_two_turns_and_no_turn_is_asked_again() {
    let toolbox = Arc::default();
    let cost = |text: &str| {
        let mut turn = call("write", text);
        turn["usage"] = json!({"cost_usd": 1.0, "input_tokens": 10});
        turn
    };
    let model = json!({"a": [cost("1"), cost("2"), cost("3"), {"text": "done"}]});
    let source = "digraph { graph [max_cost=1.5]; start -> a -> exit; a [prompt=Work] }";
    let scene = Scene::new(source).model(&model.to_string()).agents(agents(&toolbox));
    scene.drive().unwrap();
    scene.drive_with(Some(9.0)).unwrap();
    insta::assert_snapshot!(talk(&scene), @r#"
           start succeeded []
    a@1    user: Work
    a@1    assistant: 
    a@1    write gave: wrote 1
    a@1    assistant: 
    a@1    write gave: wrote 2
           paused: Budget
           resumed
    a@1    assistant: 
    a@1    write gave: wrote 3
    a@1    assistant: done
           a succeeded ["1", "2", "3"]
           exit succeeded []
    "#);
    insta::assert_snapshot!(scene.asked(), @r"
    a: > Work
    a: > Work <  ? 
    a: > Work <  ?  <  ? 
    a: > Work <  ?  <  ?  <  ?
    ");
}

#[test]
fn a_driver_that_dies_at_any_record_pays_for_no_turn_twice() {
    let model = json!({"a": [call("write", "1"), call("write", "2"), {"text": "done"}], "b": [{"text": "read"}]});
    let source = "digraph { start -> a -> b -> exit; a [prompt=Work]; b [prompt=Look, fidelity=full, thread_id=t]; a [fidelity=full, thread_id=t] }";
    let scene = Scene::new(source).model(&model.to_string()).agents(agents(&Arc::default()));
    scene.drive().unwrap();
    let now = |scene: &Scene| {
        let state = scene.state();
        let main = state.main().unwrap().clone();
        (
            main.context.to_json(),
            main.model_turns().clone(),
            state.usage,
            talk(scene).replace("resumed\n", ""),
        )
    };
    let end = now(&scene);
    for log in scene.beginnings(scene.run_id()) {
        super::now(scene.store.delete(scene.run_id())).unwrap();
        super::now(scene.store.append(scene.run_id(), 0, &Batch::of(&log))).unwrap();
        scene.drive().unwrap();
        let again = now(&scene);
        let cut = log.len();
        assert_eq!(again.0, end.0, "cut after {cut}");
        assert_eq!((again.1, again.2), (end.1.clone(), end.2.clone()), "cut after {cut}");
        let answers = again.3.lines().filter(|line| line.contains("assistant: ")).count();
        assert_eq!(answers, 4, "cut after {cut}: {}", again.3);
    }
}

#[test]
fn an_answer_that_does_not_hold_is_sent_back() {
    let source = r#"digraph { start -> a -> exit; a [shape=tab, prompt=Rate, output_schema="{\"type\":\"object\",\"required\":[\"score\"],\"properties\":{\"score\":{\"type\":\"integer\"}}}"] }"#;
    let model = json!({"a": [{"text": "no idea"}, {"text": "{\"score\": \"high\"}"}, {"text": "So: {\"score\": 7}"}]});
    let scene = Scene::new(source).model(&model.to_string());
    scene.drive().unwrap();
    insta::assert_snapshot!(talk(&scene), @r#"
           start succeeded []
    a@1    user: Rate
    a@1    assistant: no idea
    a@1    warning: output_schema
    a@1    user: Answer with the corrected JSON only.
    a@1    assistant: {"score": "high"}
    a@1    warning: output_schema
    a@1    user: {"type":"object","required":["score"],"properties":{"score":{"type":"integer"}}
    a@1    assistant: So: {"score": 7}
           a succeeded []
           exit succeeded []
    "#);
    assert_eq!(scene.value("output.a"), json!({"score": 7}));
    assert_eq!(scene.value("response.a"), json!("So: {\"score\": 7}"));
    let model = json!({"a": [{"text": "no idea"}]});
    let scene =
        Scene::new(&source.replace("prompt=Rate", "prompt=Rate, output_retries=-1, max_retries=3"))
            .model(&model.to_string());
    scene.drive().unwrap();
    insta::assert_snapshot!(talk(&scene), @r"
           start succeeded []
    a@1    user: Rate
    a@1    assistant: no idea
           a output schema validation failed after 0 repair attempt(s): the answer has no JSON object []
           exit succeeded []
    ");
}

#[test]
fn a_schema_checks_an_answer_that_is_redacted() {
    let source = r#"digraph { start -> a -> exit; a [prompt=Rate, output_schema="{\"properties\":{\"k\":{\"pattern\":\"^AKIA[0-9A-Z]{15}3$\"}}}"] }"#;
    let wrong = r#"{"k": "AKIAIOSFODNN7EXAMPL4"}"#;
    let right = r#"{"k": "AKIAIOSFODNN7EXAMPL3"}"#;
    let model = json!({"a": [{"text": wrong}, {"text": right}]});
    let scene = Scene::new(source).model(&model.to_string());
    scene.drive().unwrap();
    insta::assert_snapshot!(talk(&scene), @r#"
           start succeeded []
    a@1    user: Rate
    a@1    assistant: {"k": "[redacted]"}
    a@1    warning: output_schema
    a@1    user: Answer with the cor
    a@1    assistant: {"k": "[redacted]"}
           a succeeded []
           exit succeeded []
    "#);
    assert_eq!(scene.value("output.a"), json!({"k": "[redacted]"}));
}

#[test]
fn an_empty_answer_is_sent_back_as_well() {
    for schema in [r#""{\"required\":[\"score\"]}""#, "routing"] {
        let source = format!(
            r"digraph {{ start -> a -> exit; a [shape=tab, prompt=Rate, output_schema={schema}, output_retries=1] }}"
        );
        let good = r#"{"score": 7, "outcome": "succeeded"}"#;
        let model = json!({"a": [{"text": ""}, {"text": " "}, {"text": good}]});
        let scene = Scene::new(&source).model(&model.to_string());
        scene.drive().unwrap();
        assert_eq!(scene.value("response.a"), json!(good));
        let model = json!({"a": [{"text": ""}]});
        let scene = Scene::new(&source).model(&model.to_string());
        scene.drive().unwrap();
        let failure = "output schema validation failed after 1 repair attempt(s)";
        assert!(talk(&scene).contains(failure), "{}", talk(&scene));
    }
}

#[test]
fn agents_know_what_was_said() {
    let source = r#"digraph { graph [memory=turns]; node [fidelity=truncate]
        start -> plan -> ask -> build -> exit
        plan [prompt=Plan, context_tool=write]; ask [shape=hexagon]; ask -> build [label="[Y] Yes"]; build [prompt=Build, tools="get_workflow_context"] }"#;
    let model = json!({"plan": [call("append_workflow_context", "Use tabs."), {"text": "Two steps."}], "build": [call("get_workflow_context", ""), call("write", "x"), {"text": "ok"}]});
    let scene = Scene::new(source)
        .model(&model.to_string())
        .answers(r#"{"ask": ["Y"]}"#)
        .agents(agents(&Arc::default()));
    scene.drive().unwrap();
    insta::assert_snapshot!(talk(&scene), @r#"
           start succeeded []
    plan@1 user: Plan
    plan@1 assistant: 
    plan@1 append_workflow_context gave: noted
    plan@1 assistant: Two steps.
           plan succeeded []
           ask succeeded []
    build@1 user: Build
    build@1 assistant: 
    build@1 get_workflow_context gave: {"human.gate.label":"[Y] Yes","human.gate.selected":"Y"}
    build@1 assistant: 
    build@1 write failed: there is no tool `write`: choose from get_workflow_context
    build@1 assistant: ok
           build succeeded []
           exit succeeded []
    "#);
    insta::assert_snapshot!(scene.read("004-build@1/prompt.md"), @r"
    Goal: Ship it
    Run: RUN

    ## Conversation so far (3 turns)

    [1] plan (llm): Use tabs.

    [2] plan (llm): Two steps.

    [3] ask (human): Yes

    Partner just said: Yes

    Build
    ");
}

#[test]
fn steering_reaches_the_agent_before_its_next_turn() {
    let model = json!({"a": [call("write", "1"), {"text": "done"}]});
    let steer = fabro_store::Message::Steer { text: "hurry".into(), node: None };
    let scene = Scene::new(ONE).model(&model.to_string()).agents(agents(&Arc::default()));
    let scene = scene.posts("stage.started", steer);
    scene.drive().unwrap();
    insta::assert_snapshot!(talk(&scene), @r#"
           start succeeded []
    a@1    user: Work
    a@1    inbox steers: hurry
    a@1    assistant: 
    a@1    write gave: wrote 1
    a@1    assistant: done
           a succeeded ["1"]
           exit succeeded []
    "#);
}

#[test]
fn a_long_conversation_is_shortened() {
    let text = " and so on".repeat(100);
    let mut turns: Vec<Value> = (0..60)
        .map(|n| {
            // A summary is a request as any other, and takes a turn of the script.
            let mut turn = call("write", &format!("f{n}.rs{text}"));
            turn["text"] = json!(format!("step {n}"));
            turn
        })
        .collect();
    turns.push(json!({"text": "done"}));
    let settings = AgentSettings { context_window: Some(6_000), ..AgentSettings::default() };
    let scene = Scene::new(ONE).model(&json!({"a": turns}).to_string());
    let scene = scene.agents(Agents { settings, ..agents(&Arc::default()) });
    scene.drive().unwrap();
    let events = scene.events();
    let shortened = events.iter().filter_map(|event| match &event.entry.body {
        EventBody::AgentCompactionCompleted(done) => Some(done),
        _ => None,
    });
    assert!(shortened.clone().count() > 1);
    assert!(
        shortened.clone().all(|done| done.reason == "threshold" && done.tracked_file_count > 0)
    );
    assert_eq!(scene.value("response.a"), "done");
}

#[test]
fn a_model_summarises_what_the_memory_no_longer_keeps() {
    let source = r#"digraph { graph [memory=turns]; start -> p; p [shape=tab, prompt=Go, fidelity=truncate]
        p -> p [condition="internal.node_visit_count < 15"]; p -> exit }"#;
    let mut turns: Vec<Value> = (1..=13).map(|n| json!({"text": format!("said {n}")})).collect();
    for n in 14..=15 {
        // The summary is asked for first.
        turns.push(json!({"text": format!("sum {n}"), "usage": {"input_tokens": 5}}));
        turns.push(json!({"text": format!("said {n}")}));
    }
    let settings =
        AgentSettings { summary_model: Some("small".into()), ..AgentSettings::default() };
    let scene = Scene::new(source)
        .model(&json!({"p": turns}).to_string())
        .agents(Agents { settings, ..Agents::default() });
    scene.drive().unwrap();
    assert_eq!(scene.value("response.p"), "said 15");
    assert_eq!(scene.value("internal.workflow_summary"), json!({"turns": 2, "text": "sum 15"}));
    let prompt = scene.read("016-p@15/prompt.md");
    assert!(prompt.contains("sum 15") && !prompt.contains("said 2\n"), "{prompt}");
    let state = scene.state();
    assert_eq!((state.usage.turns, state.usage.input_tokens), (17, 10));
    // Wherever the driver dies, no summary is asked for twice.
    let end = state.main().unwrap().context.to_json();
    for log in scene.beginnings(scene.run_id()).into_iter().rev().take(8) {
        super::now(scene.store.delete(scene.run_id())).unwrap();
        super::now(scene.store.append(scene.run_id(), 0, &Batch::of(&log))).unwrap();
        scene.drive().unwrap();
        let again = scene.state();
        assert_eq!(again.main().unwrap().context.to_json(), end, "cut after {}", log.len());
        assert_eq!(again.usage.turns, 17, "cut after {}", log.len());
    }
}

#[test]
fn a_summary_that_failed_has_its_cost() {
    let source = r#"digraph { graph [memory=turns]; start -> p; p [shape=tab, prompt=Go, fidelity=truncate]
        p -> p [condition="internal.node_visit_count < 14"]; p -> exit }"#;
    for (failed, turns) in [
        (json!({"text": " ", "usage": {"input_tokens": 5}}), 15),
        (json!({"error": "invalid_request"}), 14),
    ] {
        let mut answers: Vec<Value> =
            (1..=13).map(|n| json!({"text": format!("said {n}")})).collect();
        answers.extend([failed, json!({"text": "said 14"})]);
        let settings =
            AgentSettings { summary_model: Some("small".into()), ..AgentSettings::default() };
        let scene = Scene::new(source)
            .model(&json!({"p": answers}).to_string())
            .agents(Agents { settings, ..Agents::default() });
        scene.drive().unwrap();
        assert_eq!(scene.value("response.p"), "said 14");
        let usage = scene.state().usage;
        assert_eq!((usage.turns, usage.failed_requests), (turns, 15 - turns));
    }
}

/// Tools that are never there, as those of a server that hangs.
struct Never;

#[async_trait]
impl Toolbox for Never {
    async fn tools(&self, _: &Path, _: Permissions, _: Arc<dyn WorkflowContext>) -> Offer {
        std::future::pending().await
    }
}

#[test]
fn tools_that_do_not_come_do_not_outlast_their_stage() {
    let agents = Agents { toolbox: Arc::new(Never), ..Agents::default() };
    let flow = "digraph A { start -> work; work -> exit [condition=\"outcome=success\"]
        work [prompt=\"x\", timeout=1s, max_retries=0] }";
    let scene = Scene::new(flow).model(r#"{"*": [{"text": "never asked"}]}"#).agents(agents);
    scene.drive().unwrap();
    assert!(scene.story().contains("timed out after 1s"), "{}", scene.story());
}

#[test]
fn a_skill_that_cannot_be_read_is_told() {
    let scene = Scene::new(ONE)
        .model(&json!({"a": [{"text": "done"}]}).to_string())
        .agents(agents(&Arc::default()));
    let skill = scene.work_dir().join(".fabro/skills/broken");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "no front matter").unwrap();
    scene.drive().unwrap();
    assert!(talk(&scene).contains("warning: tools"), "{}", talk(&scene));
}

#[test]
fn what_a_stage_gives_holds_no_secrets() {
    let source = "digraph { start -> plan -> exit; plan [prompt=Plan, context_tool=write] }";
    let answer = r#"{"context_updates": {"k": ["\u0068unter-two"]}}"#;
    let note = call("append_workflow_context", "it is hunter-two");
    let model = json!({"plan": [note, {"text": answer}]});
    let redactor = Redactor::new([("PASSWORD", "hunter-two")]);
    let agents = Agents { redactor, ..agents(&Arc::default()) };
    let steer = fabro_store::Message::Steer { text: "as hunter-two".into(), node: None };
    let scene = Scene::new(source).model(&model.to_string()).agents(agents);
    let scene = scene.posts("stage.started", steer);
    scene.drive().unwrap();
    assert!(talk(&scene).contains("inbox steers: as [redacted:PASSWORD]"), "{}", talk(&scene));
    assert_eq!(scene.value("internal.workflow_notes"), json!(["it is [redacted:PASSWORD]"]));
    assert_eq!(scene.value("k"), json!(["[redacted:PASSWORD]"]));
    assert!(!format!("{:?}", scene.events()).contains("hunter-two"));
}

#[test]
fn notes_appended_in_a_large_answer_survive_an_interruption() {
    let note = json!({"name": "append_workflow_context", "arguments": {"text": "Use tabs."}});
    // The answer is so large that it is recorded as a blob, and so dear that the run pauses.
    let answer = json!({
        "text": "x".repeat(120_000),
        "tool_calls": [note],
        "usage": {"cost_usd": 2.0},
    });
    let model = json!({"a": [answer, {"text": "done"}]});
    let source =
        "digraph { graph [max_cost=1.5]; start -> a -> exit; a [prompt=A, context_tool=write] }";
    let scene = Scene::new(source).model(&model.to_string()).agents(agents(&Arc::default()));
    scene.drive().unwrap();
    scene.drive_with(Some(9.0)).unwrap();
    assert_eq!(scene.value("internal.workflow_notes"), json!(["Use tabs."]));
}

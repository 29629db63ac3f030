//! Large values, which preambles and tools name by the paths of files.

use fabro_config::{AgentSettings, PreambleSettings};

use super::*;
use crate::LocalToolbox;

const CHILD: &str =
    r#"digraph { start -> sub -> exit; sub [shape=house, stack.child_workflow="leaf.fabro"] }"#;

const LEAF: &str = "digraph { start -> a -> exit; a [prompt=Read] }";

/// What an agent `a` gets that reads the output of the command `c` where the preamble says it is.
fn check_reads(source: &str) {
    let lines: Vec<_> = (1..=40_000).map(|line| format!("line {line}\n")).collect();
    let lines = lines.concat();
    let scene = Scene::new(source).file("lib/child.fabro", CHILD).file("lib/leaf.fabro", LEAF);
    let scene = scene.prints(&[("run", lines.trim_end())]);
    let json = Value::from(lines.trim_end()).to_string();
    let file = format!("runtime/blobs/{}.json", BlobRef::of(json.as_bytes()).hex());
    let path = scene.run_dir().join(file).to_str().unwrap().to_owned();
    let turn = |name: &str, arguments: Value| json!({"tool_calls": [{"name": name, "arguments": arguments}]});
    let model = json!({"a": [
        turn("read_file", json!({"file_path": path, "offset": 39_999})),
        turn("grep", json!({"path": path, "pattern": "^line 1$"})),
        turn("edit_file", json!({"file_path": path, "old_string": "line 1\n", "new_string": ""})),
        turn("list_dir", json!({"path": scene.run_dir()})),
        turn("read_file", json!({"file_path": scene.run_dir().join("stages/002-c@1/stdout.log")})),
        {"text": "done"},
    ]});
    let toolbox = LocalToolbox::new(Arc::new(FakeExec::new()), Vec::new(), Redactor::default());
    let agents = Agents { toolbox: Arc::new(toolbox), ..Agents::default() };
    let scene = scene.model(&model.to_string()).agents(agents);
    scene.drive().unwrap();
    let runs: Vec<_> = now(scene.store.list()).unwrap().into_iter().map(|run| run.id).collect();
    let events = runs.iter().flat_map(|run| now(scene.store.read(*run, 0, usize::MAX)).unwrap());
    let told: Vec<_> = events
        .filter_map(|event| match event.entry.body {
            EventBody::AgentToolCompleted(done) => Some(done.output.as_str()?.to_owned()),
            _ => None,
        })
        .collect();
    let told = told.join("\n").replace(&path, "PATH");
    let run_dir = scene.run_dir();
    insta::allow_duplicates! {
        insta::assert_snapshot!(told.replace(run_dir.to_str().unwrap(), "RUN_DIR"), @r"
         39999	line 39999
         40000	line 40000

        PATH
        1:line 1
        PATH controls git, fabro or later agents: it can be read, but not changed here
        RUN_DIR is outside of the working directory: use a path inside of it
        RUN_DIR/stages/002-c@1/stdout.log is outside of the working directory: use a path inside of it
        ");
    }
}

#[test]
fn what_a_preamble_points_at_can_be_read_and_nothing_else() {
    check_reads(
        "digraph { start -> c -> a -> exit; c [shape=parallelogram, script=run]; a [prompt=Read] }",
    );
}

#[test]
fn what_the_preambles_of_the_runs_above_point_at_can_be_read_too() {
    check_reads(
        r#"digraph { start -> c -> sub -> exit; c [shape=parallelogram, script=run]
            sub [shape=house, stack.child_workflow="lib/child.fabro"] }"#,
    );
}

/// The prompt of `next`, after a command with a line of 3.5 KB and a value of 60 KB.
fn prompt_after_large_values(shape: &str, settings: AgentSettings) -> (Scene, String) {
    let source = format!(
        "digraph {{ start -> c -> p -> next -> exit; c [shape=parallelogram, script=run]
            p [shape=tab, prompt=Value]; next [shape={shape}, prompt=Read] }}"
    );
    let value = format!("begin {} end", "large value ".repeat(5_000));
    let directive = json!({"context_updates": {"report": value}}).to_string();
    let model = json!({"p": [{"text": directive}], "next": [{"text": "done"}]});
    let line = json!({"rows": vec![json!({"id": 7, "name": "row"}); 140]}).to_string();
    let scene = Scene::new(&source)
        .prints(&[("run", &line)])
        .model(&model.to_string())
        .agents(Agents { settings, ..Agents::default() });
    scene.drive().unwrap();
    let prompt = scene.read("004-next@1/prompt.md");
    assert!(prompt.contains(&line), "the line is whole: {prompt}");
    (scene, prompt)
}

#[test]
fn a_value_that_is_cut_is_in_a_file_for_an_agent() {
    let (scene, prompt) = prompt_after_large_values("box", AgentSettings::default());
    let (shown, path) = prompt.split_once(" See: DIR/").unwrap();
    assert!(shown.contains("- report: begin large value") && shown.ends_with("omitted)"));
    let path = scene.dir.path().join(path.lines().next().unwrap());
    let path = path.to_str().unwrap().replace("RUN", &scene.run_id.to_string());
    let value: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(value, scene.value("report"));
    let files = std::fs::read_dir(scene.run_dir().join("runtime/blobs")).unwrap().count();
    assert_eq!(files, 1, "a file is made for what is cut, and for nothing else");
}

#[test]
fn a_prompt_stage_is_told_the_size_of_what_is_cut() {
    let (scene, prompt) = prompt_after_large_values("tab", AgentSettings::default());
    assert!(prompt.contains("characters omitted)\n\nRead") && !prompt.contains("See:"), "{prompt}");
    assert!(!scene.run_dir().join("runtime/blobs").exists());
}

#[test]
fn the_ceilings_of_the_settings_hold() {
    let preamble = PreambleSettings { compact_tokens: Some(20_000), high_tokens: None };
    let settings = AgentSettings { preamble, ..AgentSettings::default() };
    let (_, prompt) = prompt_after_large_values("tab", settings);
    assert!(prompt.contains("large value  end\n") && !prompt.contains("omitted"), "{prompt}");
    let preamble = PreambleSettings { compact_tokens: Some(5_000), high_tokens: None };
    let settings = AgentSettings { preamble, ..AgentSettings::default() };
    let (_, prompt) = prompt_after_large_values("tab", settings);
    let tokens = fabro_tokens::CountTokens::count(&fabro_tokens::O200k, &prompt);
    assert!((4_500..5_050).contains(&tokens), "{tokens}");
}

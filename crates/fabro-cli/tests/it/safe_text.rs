//! What a run, a workflow or a file name holds does not control the terminal.

use serde_json::json;

use crate::project::Project;

/// Erases the screen, writes the clipboard, turns the direction of writing, and hides and colors text; letters,
/// fillers, tags and selectors that show nothing.
const FOREIGN: &str = "\u{1b}[31mQ\u{1b}[8mA\u{1b}[2J\u{1b}]52;c;aGk=\u{7}B\u{9b}2J\u{7f}\u{202e}C\u{2066}\u{200b}D\u{200f}\u{feff}d\u{200d}E\u{34f}\u{17b4}\u{180e}\u{115f}\u{1160}\u{3164}\u{ffa0}F\u{fe0f}\u{e0041}\u{e0101}";

/// How the foreign text begins: no command passes a color that is not its own.
const FOREIGN_COLOR: &str = "\u{1b}[31mQ";

/// Whether a character of the foreign text is printed as it is.
fn is_harmful(c: char) -> bool {
    let is_hidden = FOREIGN.contains(c) && !c.is_ascii();
    is_hidden || (c.is_control() && c != '\n' && c != '\t')
}

/// The output without colors.
fn without_colors(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        match end.strip_prefix('m') {
            Some(rest) => plain.push_str(rest),
            None => plain.extend(["\u{1b}[", part]),
        }
    }
    plain
}

#[track_caller]
fn check(project: &Project, args: &[&str]) -> String {
    let output = project.output(args);
    let mut all = String::new();
    for bytes in [&output.stdout, &output.stderr] {
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(!text.contains(FOREIGN_COLOR), "{args:?}: {text:?}");
        let plain = without_colors(&text);
        assert!(!plain.contains(is_harmful), "{args:?}: {plain:?}");
        all.push_str(&plain);
    }
    all
}

/// A workflow with the foreign text in all of its parts, which waits at a gate.
fn workflow() -> String {
    format!(
        r#"digraph "{FOREIGN}" {{
    graph [goal="goal {FOREIGN}"]
    start -> work
    work [label="{FOREIGN}", prompt="ask {FOREIGN}"]
    work -> shell [label="edge {FOREIGN}", condition="context.x!={FOREIGN}"]
    work -> shell
    shell [shape=parallelogram, label="{FOREIGN}", script="cat text; cat text >&2"]
    shell -> broken
    broken [shape=parallelogram, script="cat text >&2; exit 3"]
    broken -> gate
    broken -> gate [condition="outcome=fail", label="{FOREIGN}"]
    gate [shape=hexagon, label="question {FOREIGN}"]
    gate -> exit [label="[Y] yes {FOREIGN}"]
    gate -> work [label="[N] no {FOREIGN}", condition="context.n={FOREIGN}"]
}}
"#
    )
}

#[test]
fn foreign_text_does_not_control_the_terminal() {
    let workflow = workflow();
    let answer = json!({
        "preferred_next_label": FOREIGN, "notes": FOREIGN,
        "context_updates": {FOREIGN: FOREIGN, "key": FOREIGN},
    });
    let turn = json!({"text": format!("{FOREIGN}\n{answer}"), "tool_calls": []});
    let script = json!({"work": [turn]}).to_string();
    let file = format!("w{}.fabro", FOREIGN.replace('/', ""));
    let project = Project::with(&[(&file, &workflow), ("m.json", &script), ("text", FOREIGN)]);
    let failing = r#"digraph { graph [on_failure=stop]; start -> shell -> exit
        shell [shape=parallelogram, script="cat text >&2; exit 3"] }"#;
    project.write("failing.fabro", failing.as_bytes());
    let key = serde_json::to_string(FOREIGN).unwrap().replace('\u{7f}', "\\u007f");
    let settings = format!("_version = 1\n{key} = 1\n[workflow]\ngraph = \"failing.fabro\"\n");
    project.write("run.toml", settings.as_bytes());
    let store = format!("s{FOREIGN}");
    let input = format!("x={FOREIGN}");
    let option = format!("--{FOREIGN}");
    for color in ["never", "always"] {
        let check = |args: &[&str]| check(&project, &[args, &["--color", color]].concat());
        check(&["validate", &file]);
        let shown = check(&["run", "failing.fabro"]);
        assert!(shown.contains("failed at shell@1: exit code 3"), "{shown}");
        check(&["run", &file, "--dry-run", "-I", &input]);
        let shown = check(&["run", &file, "--model-script", "m.json", "-I", &input]);
        assert!(shown.contains("is paused"), "{shown}");
        assert!(shown.contains(r"\u{202e}"), "{shown}");
        for args in [
            &["ps"][..],
            &["ps", "--all"],
            &["inspect"],
            &["inspect", "latest", "work"],
            &["inspect", "latest", "shell"],
            &["inspect", "latest", "broken"],
            &["inspect", "latest", "gate"],
            &["inspect", "latest", FOREIGN],
            &["events", "latest"],
            &["logs", "latest"],
            &["logs", "latest", "shell"],
            &["context", "latest"],
            &["context", "latest", "--resolve"],
            &["context", "latest", "--diff", "work", "shell"],
            &["explain", "latest", "work"],
            &["explain", "latest", "broken"],
            &["explain", "latest", FOREIGN],
            &["answer", "--no-resume", "latest", FOREIGN],
            &["answer", "--no-resume", "latest", "y"],
            &["steer", "latest", FOREIGN],
            &["wait", "latest"],
            &["compact", "latest", "--no-summary", "--keep-recent", "0"],
            &["fork", "latest", "work", "--set", &input],
            &["resume", "latest"],
            &["explain", "latest", "gate"],
            &["replay", "latest"],
            &["model", "list"],
            &["verify", "latest"],
            &["doctor"],
            &["run", "run.toml", "--dry-run"],
            &["run", "failing.fabro", "--dry-run", "--store", &store],
            &["doctor", "--store", &store],
            &["verify", "--store", &store],
            &["validate", FOREIGN],
            &["run", FOREIGN],
            &["graph", FOREIGN],
            &["fmt", "--check", &file],
            &["inspect", FOREIGN],
            &["rm", FOREIGN],
            &["cancel", FOREIGN],
            &["cost", "latest"],
            &["cost", FOREIGN],
            &["du", "latest"],
            &["du", FOREIGN],
            &["prune", "--older-than", "0s"],
            &["prune", "--status", FOREIGN],
            &["prune", "--workflow", FOREIGN],
            &["wait", FOREIGN],
            &["verify", FOREIGN],
            &["rewind", "latest", FOREIGN],
            &["init", FOREIGN],
            &["completion", FOREIGN],
            // What the parser of arguments refuses.
            &[FOREIGN],
            &["run", &option],
            &["run", &file, "--seed", FOREIGN],
            &["run", &file, "--max-cost", FOREIGN],
            &["run", &file, "-I", FOREIGN],
            &["run", &file, "--answers", FOREIGN],
            &["validate", &file, "--format", FOREIGN],
            &["ps", FOREIGN],
            &["logs", "latest", FOREIGN],
            &["rm", "latest"],
        ] {
            check(args);
        }
    }
}

#[test]
fn json_in_a_pipe_has_no_raw_control_characters() {
    let workflow = format!(
        r#"digraph {{ graph [goal="{FOREIGN}"]; start -> shell -> exit
        shell [shape=parallelogram, label="{FOREIGN}", script="cat text; cat text >&2"] }}"#
    );
    let project = Project::with(&[("w.fabro", &workflow), ("text", FOREIGN)]);
    for args in [
        &["run", "w.fabro", "--json"][..],
        &["events", "latest", "--json"],
        &["ps", "--json"],
        &["inspect", "latest", "--json"],
        &["inspect", "latest", "shell", "--json"],
        &["context", "latest", "--json"],
        &["explain", "latest", "shell", "--json"],
        &["logs", "latest", "--json"],
        &["verify", "latest", "--json"],
        &["trace", "latest", "--content"],
        &["validate", "w.fabro", "--format", "json"],
        &["validate", FOREIGN, "--format", "json"],
    ] {
        let output = project.output(args);
        let text = String::from_utf8(output.stdout).unwrap();
        let raw = text.contains(|c: char| c.is_control() && c != '\n');
        assert!(!text.is_empty() && !raw, "{args:?}: {text:?}");
        for line in text.lines().filter(|line| line.starts_with('{') && line.ends_with('}')) {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(value.is_object(), "{args:?}");
        }
    }
    let run = project.output(&["inspect", "latest", "--json"]).stdout;
    let run: serde_json::Value = serde_json::from_slice(&run).unwrap();
    assert_eq!(run["goal"], FOREIGN);
}

#[test]
fn pictures_of_a_workflow_hide_nothing() {
    let project = Project::with(&[("w.fabro", &workflow())]);
    for format in ["outline", "svg"] {
        let shown = check(&project, &["graph", "w.fabro", "--format", format]);
        assert!(shown.contains(r"\u{202e}") && shown.contains(r"\u{3164}"), "{shown}");
    }
}

//! What is secret is found nowhere: not in the store, the files of a run, or what is printed.

use std::path::Path;
use std::process::Output;

use crate::project::Project;

const TOKEN: &str = "planted-in-the-environment-1";
const SANDBOX: &str = "planted-in-a-run-toml-2";

const RUN_TOML: &str = r#"_version = 1
[workflow]
graph = "flow.fabro"
[run.sandbox.env]
SANDBOX_TOKEN = "planted-in-a-run-toml-2"
[run.agent]
permissions = "full"
[run.agent.mcp.dead]
command = "sh"
args = ["-c", "echo \"no entry with $DEAD_TOKEN\" >&2; exit 3"]
env = { DEAD_TOKEN = "$MY_TOKEN" }
"#;

fn run(project: &Project, args: &[&str], env: &[(&str, &str)]) -> Output {
    project.command(args).envs(env.iter().copied()).output().unwrap()
}

/// Nothing secret below the project's store, and nothing in what was printed.
#[track_caller]
fn check(project: &Project, output: &Output) {
    let printed = [&output.stdout[..], &output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    let found = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        [TOKEN, SANDBOX].iter().any(|secret| text.contains(secret))
    };
    assert!(!found(printed.as_bytes()), "{printed}");
    let mut dirs = vec![project.path().join(".fabro/state")];
    while let Some(dir) = dirs.pop() {
        // Before the first run there is none.
        for entry in std::fs::read_dir(&dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let name = Path::display(&path);
                assert!(!found(&std::fs::read(&path).unwrap()), "a secret is in {name}");
            }
        }
    }
}

fn project(flow: &str, script: &str) -> Project {
    let documents = format!("the key of the door is {TOKEN}\n");
    Project::with(&[
        ("run.toml", RUN_TOML),
        ("flow.fabro", flow),
        ("script.json", script),
        ("docs/door.md", &documents),
        ("AGENTS.md", &documents),
        (".fabro/config.toml", "_version = 1\n"),
    ])
}

#[test]
fn secrets_are_recorded_nowhere() {
    let status = r#"printf '{"outcome":"failed","failure_reason":"it is %s"}' "$(cut -c24- docs/door.md)" > status.json"#;
    let script = serde_json::json!({"work": [
        {"text": "", "tool_calls": [
            {"name": "shell", "arguments": {"command": "echo $SANDBOX_TOKEN"}},
            {"name": "shell", "arguments": {"command": status}},
            {"name": "read_file", "arguments": {"file_path": "docs/door.md"}},
        ]},
        {"text": "done"},
    ]});
    let flow = "digraph Door { start -> work -> exit
        work [prompt=\"the key of the door\", rag=\"docs/*.md\", max_retries=0] }";
    let project = project(flow, &script.to_string());
    let args = ["run", "run.toml", "--model-script", "script.json", "--json"];
    let output = run(&project, &args, &[("MY_TOKEN", TOKEN)]);
    check(&project, &output);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("no entry with [redacted:"), "{printed}");
    assert!(printed.contains("it is [redacted:MY_TOKEN]"), "{printed}");
    assert!(printed.contains("[redacted:SANDBOX_TOKEN]"), "{printed}");
}

/// An agent's shell, a command and a server of tools look for the key in all processes that started
/// them, as the user of the test and as any administrator in a container.
#[cfg(target_os = "linux")]
#[test]
fn the_environment_of_the_program_is_out_of_reach() {
    // `$1` names the one that looks. Our own processes are those above it that are called fabro; the
    // environment of a script has the key by right.
    // A command that root writes may read the environment of any process, as root may.
    let look = r#"files="environ mem"; test "$(id -u) $1" != "0 command" || files=mem
    pid=$PPID; ours=0; while [ "$pid" -gt 1 ]; do
        if [ "$(cat /proc/$pid/comm)" = fabro ]; then
            ours=$((ours + 1))
            for file in $files; do cat /proc/$pid/$file >/dev/null 2>&1 && echo $1 reads $file >> found; done
        fi
        pid=$(cut -d' ' -f4 /proc/$pid/stat)
    done; test "$ours" -gt 0 && echo $1 >> looked"#;
    let run_toml = "_version = 1\n[workflow]\ngraph = \"flow.fabro\"\n[run.agent]\npermissions = \"full\"\n[run.agent.mcp.spy]\ncommand = \"sh\"\nargs = [\"look.sh\", \"server\"]\n";
    let script = serde_json::json!({"work": [
        {"text": "", "tool_calls": [{"name": "shell", "arguments": {"command": "sh look.sh shell"}}]},
        {"text": "done"},
    ]});
    let flow = "digraph Door { start -> cmd -> work -> exit
        cmd [shape=parallelogram, script=\"sh look.sh command\"]; work [prompt=\"Work.\"] }";
    let project = Project::with(&[
        ("run.toml", run_toml),
        ("flow.fabro", flow),
        ("look.sh", look),
        ("script.json", &script.to_string()),
        (".fabro/config.toml", "_version = 1\n"),
    ]);
    let args = ["run", "run.toml", "--model-script", "script.json"];
    let output = run(&project, &args, &[("ANTHROPIC_API_KEY", TOKEN)]);
    let read = |name: &str| std::fs::read_to_string(project.path().join(name)).unwrap_or_default();
    let looked: std::collections::BTreeSet<String> =
        read("looked").lines().map(str::to_owned).collect();
    assert_eq!(
        looked.into_iter().collect::<Vec<_>>(),
        ["command", "server", "shell"],
        "{output:?}"
    );
    assert_eq!(read("found"), "");
}

#[test]
fn a_resume_takes_secrets_of_the_run_from_the_environment() {
    let flow = "digraph Gate { start -> ask -> work -> exit
        ask [shape=hexagon, label=\"Go on?\"]
        ask -> work [label=\"Yes\"]
        work [shape=parallelogram, script=\"test $SANDBOX_TOKEN != ${SANDBOX_TOKEN#planted-in-a-run}\"] }";
    let project = project(flow, "{}");
    let env = [("MY_TOKEN", TOKEN)];
    let output = run(&project, &["run", "run.toml", "--model-script", "script.json"], &env);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    check(&project, &output);
    assert_eq!(
        run(&project, &["answer", "--no-resume", "latest", "Yes"], &env).status.code(),
        Some(0)
    );
    let output = run(&project, &["resume", "latest"], &env);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(shown.contains("`SANDBOX_TOKEN` is not set"), "{shown}");
    let env = [("MY_TOKEN", TOKEN), ("SANDBOX_TOKEN", SANDBOX)];
    let output = run(&project, &["resume", "latest"], &env);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    check(&project, &output);
}

#[test]
fn what_people_give_is_refused_where_it_holds_a_secret() {
    let flow = "digraph Gate { start -> ask -> work -> exit
        ask [shape=hexagon, label=\"Go on?\"]
        ask -> work [freeform=true]
        work [prompt=\"Work.\"] }";
    let project = project(flow, r#"{"work": [{"text": "done"}]}"#);
    let word = format!("the word is {TOKEN}");
    let answers = serde_json::json!({ "ask": [word.as_str()] }).to_string();
    std::fs::write(project.path().join("answers.json"), answers).unwrap();
    let set = format!("word={TOKEN}");
    let refused = |args: &[&str]| {
        let output = run(&project, args, &[("MY_TOKEN", TOKEN), ("SANDBOX_TOKEN", SANDBOX)]);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        check(&project, &output);
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        shown.lines().next().unwrap_or_default().to_owned()
    };
    let start = ["run", "run.toml", "--model-script", "script.json"];
    let mut shown = vec![
        refused(&[&start[..], &["--answers", "answers.json"]].concat()),
        refused(&[&start[..], &["-I", &set]].concat()),
    ];
    let paused = run(&project, &start, &[("MY_TOKEN", TOKEN)]);
    assert_eq!(paused.status.code(), Some(3), "{paused:?}");
    shown.extend([
        refused(&["answer", "--no-resume", "latest", &word]),
        refused(&["resume", "latest", "--answers", "answers.json"]),
        refused(&["steer", "latest", &word]),
        refused(&["fork", "latest", "start", "--set", &set]),
        refused(&["rewind", "latest", "start", "--set", &format!("at={SANDBOX}")]),
    ]);
    insta::assert_snapshot!(shown.join("\n"), @r"
    error: the file of answers holds the value of the secret `MY_TOKEN`, and would be stored with the run
    error: `word` of the inputs holds the value of the secret `MY_TOKEN`, and would be stored with the run
    error: the answer holds the value of the secret `MY_TOKEN`, and would be stored with the run
    error: the file of answers holds the value of the secret `MY_TOKEN`, and would be stored with the run
    error: the text holds the value of the secret `MY_TOKEN`, and would be stored with the run
    error: `word` of the values to set holds the value of the secret `MY_TOKEN`, and would be stored with the run
    error: `at` of the values to set holds the value of the secret `SANDBOX_TOKEN`, and would be stored with the run
    ");
}

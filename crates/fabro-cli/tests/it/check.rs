//! `validate`, `fmt` and `graph`: files in, findings out.

use std::fmt::Write as _;

use insta::assert_snapshot;

use crate::project::Project;

const GOOD: &str = "digraph good {\n    start -> exit\n}\n";
const BAD: &str = "digraph bad {\n    start -> work -> exit\n    work [retry_target=wrok, prompt=\"Do it\"]\n    exit -> work\n}\n";

#[test]
fn findings_are_drawn_with_their_lines() {
    let project = Project::with(&[("bad.fabro", BAD)]);
    assert_snapshot!(project.run(&["validate", "bad.fabro"]), @r#"
    exit 2
    ── stdout
    error[target-node]: `retry_target` names `wrok`, but there is no such node
     --> bad.fabro:3:24
      |
    3 |     work [retry_target=wrok, prompt="Do it"]
      |                        ^^^^
      |
      = help: did you mean `work`?

    error[exit-outgoing]: an edge leads out of the exit node `exit`
     --> bad.fabro:4:5
      |
    4 |     exit -> work
      |     ^^^^^^^^^^^^
      |
      = help: remove it, or let it begin at the stage before the exit

    1 file checked: 2 errors
    "#);
}

#[test]
fn inputs_that_a_run_needs_are_named() {
    let asks = "digraph asks {\n    start -> a -> exit\n    a [prompt=\"{{ inputs.repo }} {{ inputs.topic }} {{ inputs.style | default('plain') }}\"]\n}\n";
    let project = Project::with(&[
        ("asks.fabro", asks),
        (
            "run.toml",
            "_version = 1\n[workflow]\ngraph = \"asks.fabro\"\n[run.inputs]\nrepo = \"x\"\ntopic = \"y\"\n",
        ),
    ]);
    assert_snapshot!(project.run(&["validate", "asks.fabro"]), @r"
    exit 0
    ── stdout
    1 file checked, no findings
    asks.fabro needs inputs: repo, topic. Give them by -I repo=… or under [run.inputs] of a run.toml.
    ");
    assert_snapshot!(project.run(&["validate", "--json", "asks.fabro"]), @r#"
    exit 0
    ── stdout
    {
      "files": [
        {
          "file": "asks.fabro",
          "valid": true,
          "findings": [],
          "needed_inputs": [
            "repo",
            "topic"
          ]
        }
      ]
    }
    "#);
    assert_snapshot!(project.run(&["validate", "asks.fabro", "-I", "repo=x"]), @r#"
    exit 2
    ── stdout
    error[undefined-input]: the input `topic` is not given
     --> asks.fabro:3:37
      |
    3 |     a [prompt="{{ inputs.repo }} {{ inputs.topic }} {{ inputs.style | default('plain') }}"]
      |                                     ^^^^^^^^^^^^
      |
      = help: set it under [run.inputs], or give it with -I topic=…

    1 file checked: 1 error
    "#);
    assert_snapshot!(project.run(&["validate", "asks.fabro", "-I", "repo=x", "--input", "topic=y"]), @r"
    exit 0
    ── stdout
    1 file checked, no findings
    ");
    assert_snapshot!(project.run(&["validate", "run.toml"]), @r"
    exit 0
    ── stdout
    1 file checked, no findings
    ");
    assert_snapshot!(project.run(&["validate", "."]), @r"
    exit 0
    ── stdout
    1 file checked, no findings
    ");
}

#[test]
fn directories_are_looked_through() {
    let project = Project::with(&[
        ("a/good.fabro", GOOD),
        (".fabro/workflows/deep.fabro", GOOD),
        ("a/notes.txt", "no workflow"),
        ("target/old.fabro", BAD),
        (".gitignore", "target\n"),
    ]);
    assert_snapshot!(project.run(&["validate", "--format", "json"]), @r#"
    exit 0
    ── stdout
    {
      "files": [
        {
          "file": ".fabro/workflows/deep.fabro",
          "valid": true,
          "findings": [],
          "needed_inputs": []
        },
        {
          "file": "a/good.fabro",
          "valid": true,
          "findings": [],
          "needed_inputs": []
        }
      ]
    }
    "#);
    assert_snapshot!(project.run(&["validate", "target"]), @r#"
    exit 2
    ── stdout
    error[target-node]: `retry_target` names `wrok`, but there is no such node
     --> target/old.fabro:3:24
      |
    3 |     work [retry_target=wrok, prompt="Do it"]
      |                        ^^^^
      |
      = help: did you mean `work`?

    error[exit-outgoing]: an edge leads out of the exit node `exit`
     --> target/old.fabro:4:5
      |
    4 |     exit -> work
      |     ^^^^^^^^^^^^
      |
      = help: remove it, or let it begin at the stage before the exit

    1 file checked: 2 errors
    "#);
}

#[test]
fn json_has_every_field() {
    let project = Project::with(&[("bad.fabro", BAD)]);
    let output = project.output(&["validate", "--json", "bad.fabro"]);
    assert_eq!(output.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["files"][0]["valid"], false);
    assert_snapshot!(report["files"][0]["findings"][0], @r#"{"rule":"target-node","severity":"error","message":"`retry_target` names `wrok`, but there is no such node","line":3,"column":24,"end_line":3,"end_column":28,"fix":"did you mean `work`?"}"#);
}

#[test]
fn files_that_cannot_be_read_are_findings() {
    let project = Project::with(&[("good.fabro", GOOD), ("empty.fabro", "")]);
    project.write("binary.fabro", &[0xff, 0xfe, 0, 1]);
    std::fs::create_dir(project.path().join("folder.fabro")).unwrap();
    assert_snapshot!(project.run(&["validate", "good.fabro", "empty.fabro", "binary.fabro"]), @r"
    exit 2
    ── stdout
    error[not-a-digraph]: expected `digraph`, found the end
    --> empty.fabro
     = help: a workflow is written as digraph Name { … }

    error[unreadable]: it is not text: byte 0 is not UTF-8
    --> binary.fabro
     = help: name a text file that can be read

    3 files checked: 2 errors
    ");
    assert_snapshot!(project.run(&["validate", "nothing.fabro"]), @r"
    exit 2
    ── stdout
    error[unreadable]: there is no file DIR/nothing.fabro
    --> nothing.fabro
     = help: check the name, or make a first workflow with `fabro init`

    1 file checked: 1 error
    ");
    assert_snapshot!(project.run(&["validate", "folder.fabro"]), @r"
    exit 2
    ── stdout
    error[unreadable]: there is no workflow file in folder.fabro
    --> folder.fabro
     = help: name one (.fabro, .dot, .gv), or make a first one with `fabro init`

    1 file checked: 1 error
    ");
}

#[test]
fn a_file_beyond_the_limit_is_refused_without_being_read() {
    let project = Project::new();
    let file = std::fs::File::create(project.path().join("huge.fabro")).unwrap();
    file.set_len(100 << 20).unwrap();
    assert_snapshot!(project.run(&["validate", "huge.fabro"]), @r"
    exit 2
    ── stdout
    error[file-too-large]: it is larger than 16 MB
    --> huge.fabro
     = help: move long prompts into files and name them with @path

    1 file checked: 1 error
    ");
    assert_snapshot!(project.run(&["fmt", "huge.fabro"]), @r"
    exit 2
    ── stderr
    error: huge.fabro cannot be read: it is larger than 16 MB
      help: name a .fabro file that can be read
    ");
    assert_snapshot!(project.run(&["run", "huge.fabro"]), @r"
    exit 2
    ── stderr
    error: DIR/huge.fabro cannot be read: it is larger than 16 MB
      help: name a .fabro file that can be read
    ");
}

#[test]
fn thousands_of_findings_on_one_line_take_no_time() {
    let mut source = "digraph long { start -> exit; ".to_owned();
    for node in 0..5_000 {
        let _ = write!(source, "n{node} [promt=x]; ");
    }
    source.push('}');
    let project = Project::with(&[("long.fabro", &source)]);
    let output = project.output(&["validate", "--json", "long.fabro"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["files"][0]["findings"].as_array().unwrap();
    assert!(findings.len() >= 5_000);
    let text = project.run(&["validate", "long.fabro"]);
    assert!(text.contains("--> long.fabro:1:"), "{}", &text[..500]);
}

#[test]
fn fmt_prints_or_changes_files_in_place() {
    let project = Project::with(&[
        ("messy.fabro", "digraph messy {start->exit;// go\n}"),
        ("good.fabro", GOOD),
        ("broken.fabro", "digraph broken { start -- exit }"),
    ]);
    assert_snapshot!(project.run(&["fmt", "--check", "messy.fabro", "good.fabro"]), @r"
    exit 1
    ── stdout
    messy.fabro
    ");
    assert_snapshot!(project.run(&["fmt", "messy.fabro"]), @r"
    exit 0
    ── stdout
    digraph messy {
        start -> exit // go
    }
    ");
    assert_eq!(project.exit(&["fmt", "--check", "messy.fabro"]), 1);
    assert_snapshot!(project.run(&["fmt", "--write", "messy.fabro", "good.fabro"]), @"exit 0");
    assert_snapshot!(project.read("messy.fabro"), @r"
    digraph messy {
        start -> exit // go
    }
    ");
    assert_snapshot!(project.run(&["fmt", "--check", "messy.fabro"]), @"exit 0");
    assert_snapshot!(project.run(&["fmt", "broken.fabro"]), @r"
    exit 2
    ── stderr
    error[undirected-edge]: `--` is an undirected edge
     --> broken.fabro:1:24
      |
    1 | digraph broken { start -- exit }
      |                        ^^
      |
      = help: write `->`
    ");
    assert_eq!(project.read("broken.fabro"), "digraph broken { start -- exit }");
}

#[cfg(unix)]
#[test]
fn fmt_keeps_links_and_permissions() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let project = Project::with(&[("real.fabro", "digraph{start->exit}")]);
    let real = project.path().join("real.fabro");
    let link = project.path().join("link.fabro");
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&real, &link).unwrap();
    assert_eq!(project.exit(&["fmt", "--write", "link.fabro"]), 0);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(project.read("real.fabro"), "digraph {\n    start -> exit\n}\n");
}

#[test]
fn fmt_takes_stdin() {
    let project = Project::new();
    assert_snapshot!(project.run_with(&["fmt", "-"], "digraph x{start->exit}"), @r"
    exit 0
    ── stdout
    digraph x {
        start -> exit
    }
    ");
    assert_snapshot!(project.run_with(&["fmt", "-"], "digraph x{"), @r"
    exit 2
    ── stderr
    error[syntax]: expected a node or edge or `}`, found the end
     --> stdin:1:11
      |
    1 | digraph x{
      |           ^
      |
      = help: add the missing `}`
    ");
}

#[test]
fn graph_prints_dot() {
    let project = Project::with(&[("good.fabro", GOOD), ("bad.fabro", "digraph {")]);
    assert_snapshot!(project.run(&["graph", "good.fabro", "--dot"]), @r#"
    exit 0
    ── stdout
    digraph "good" {
        "start" [shape=Mdiamond]
        "exit" [shape=Msquare]
        "start" -> "exit"
    }
    "#);
    assert_snapshot!(project.run(&["graph", "good.fabro", "--dot", "-o", "good.dot"]), @"exit 0");
    assert!(project.read("good.dot").starts_with("digraph"));
    assert_snapshot!(project.run(&["graph", "bad.fabro", "--dot"]), @r"
    exit 2
    ── stderr
    error[syntax]: expected a node or edge or `}`, found the end
     --> bad.fabro:1:10
      |
    1 | digraph {
      |          ^
      |
      = help: add the missing `}`

    error: bad.fabro is not valid
      help: fix the errors shown above
    ");
    let plain = project.run(&["graph", "good.fabro"]);
    assert_eq!(plain, project.run(&["graph", "good.fabro", "--dot"]));
}

#[test]
fn one_bad_path_does_not_hide_the_others() {
    let project = Project::with(&[
        ("good.fabro", GOOD),
        ("odd.toml", "[workflow]\ngraph = \"good.fabro\"\n"),
        ("bad.toml", "_version = 1\n[run]\ngoal = 3\n"),
    ]);
    let paths = ["validate", "empty.fabro", "odd.toml", "bad.toml", "good.fabro"];
    assert_snapshot!(project.run(&paths), @r"
    exit 2
    ── stdout
    error[unreadable]: there is no file DIR/empty.fabro
    --> empty.fabro
     = help: check the name, or make a first workflow with `fabro init`

    warning[settings-version]: `_version` is missing: the file is read as version 1
     --> odd.toml:1:1
      |
    1 | [workflow]
      | ^
      |
      = help: put `_version = 1` on the first line

    error[setting-value]: `run.goal` is an integer, but a string is expected
     --> bad.toml:3:8
      |
    3 | goal = 3
      |        ^
      |
      = help: write it in quotes

    5 files checked: 2 errors, 1 warning
    ");
}

#[test]
fn what_cannot_be_written_is_said() {
    let project = Project::with(&[("good.fabro", GOOD)]);
    let to_full = |args: &[&str]| {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = project.command(args).stdout(full).output().unwrap();
        format!("exit {:?}: {}", output.status.code(), String::from_utf8_lossy(&output.stderr))
    };
    assert_snapshot!(to_full(&["fmt", "good.fabro"]), @r"
    exit Some(4): error: stdout cannot be written: No space left on device (os error 28)
      help: make room there, or write to another place
    ");
    for args in [&["validate", "."][..], &["ps", "--json"], &["graph", "good.fabro"]] {
        assert_eq!(to_full(args), to_full(&["fmt", "good.fabro"]), "{args:?}");
    }
    assert_snapshot!(project.run(&["init", "good.fabro"]), @r"
    exit 2
    ── stderr
    error: good.fabro/.fabro/workflows/hello cannot be created: Not a directory (os error 20)
      help: choose another directory
    ");
    assert_snapshot!(project.run(&["graph", "good.fabro", "-o", "none/good.dot"]), @r"
    exit 2
    ── stderr
    error: none/good.dot cannot be written: No such file or directory (os error 2)
      help: name another file
    ");
    assert_snapshot!(project.run(&["graph", "good.fabro", "-o", "/dev/full"]), @r"
    exit 4
    ── stderr
    error: /dev/full cannot be written: No space left on device (os error 28)
      help: name another file
    ");
}

#[test]
fn attributes_have_a_reference() {
    let project = Project::new();
    assert_snapshot!(project.run(&["explain-attribute", "timeout"]), @r#"
    exit 0
    ── stdout
    timeout

    How long the stage may take.

    on       nodes
    value    a duration: 250ms, 30s, 15m, 2h, 1d; a number alone is in seconds
    default  none
    example  test [shape=parallelogram, script="cargo test", timeout=15m]
    "#);
    assert_snapshot!(project.run(&["help", "attribute", "default_max_retry"]), @r"
    exit 0
    ── stdout
    default_max_retries
    `default_max_retry` is an older name of it, and means the same.

    Extra attempts of every node without its own, after transient failures only.

    on       the graph
    value    a whole number from 0
    default  0
    older    default_max_retry
    example  graph [default_max_retries=2]
    ");
    assert_snapshot!(project.run(&["attribute", "fidelity"]), @r#"
    exit 0
    ── stdout
    fidelity

    How much of the earlier stages the prompt tells.

    on       nodes, edges
    value    one of full, compact, summary:high, summary:medium, summary:low, truncate
    default  none
    example  review [prompt="Review it", fidelity=full, thread_id=main]
    "#);
    assert_snapshot!(project.run(&["explain-attribute", "inputs.repo", "--json"]), @r#"
    exit 0
    ── stdout
    {
      "name": "inputs.KEY",
      "on": [
        "node"
      ],
      "value": "a text",
      "allowed": null,
      "default": null,
      "file": false,
      "meaning": "an input of a sub-workflow, which then has no others",
      "example": "child [shape=house, stack.child_workflow=\"audit.fabro\", inputs.repo=\"{{ inputs.repo }}\"]",
      "older_names": []
    }
    "#);
    for (name, help) in [
        ("promt", "did you mean `prompt`?"),
        ("cmd", "use `script`"),
        ("color", "it is an attribute of Graphviz: drawings use it, and runs ignore it"),
        (
            "zzz",
            "`fabro explain-attribute` lists all; others are kept in a file, and have no effect",
        ),
    ] {
        let expected =
            format!("exit 2\n── stderr\nerror: there is no attribute `{name}`\n  help: {help}\n");
        assert_eq!(project.run(&["explain-attribute", name]), expected);
    }
    let all = project.run(&["explain-attribute"]);
    assert_eq!(all.lines().count(), 2 + fabro_graph::schema::ATTRIBUTES.len());
}

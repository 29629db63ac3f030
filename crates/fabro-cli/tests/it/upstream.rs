//! Projects of upstream Fabro: what is understood, and what is named as lost.

use insta::assert_snapshot;

use crate::project::Project;

const PROJECT: &str = r#"_version = 1
[project]
name = "demo"
directory = "flows"
[run]
goal = "Ship {{ inputs.what }}"
[run.inputs]
what = "it"
[run.sandbox.env]
FROM = "{{ env.HOME }}"
[[run.prepare.steps]]
script = "echo prepared > prepared"
"#;
const LOST: &str = "[run.pull_request]\nenabled = true\n[[run.hooks]]\nevent = \"sandbox_cleanup\"\nscript = \"./tell.sh\"\n";
const WORKFLOW: &str = "digraph W { start -> a -> exit [condition=\"outcome=success\"]; a [shape=parallelogram, script=\"(echo {{ goal }} $FROM; cat prepared) > out\"] }";

#[test]
fn a_project_file_sets_what_its_runs_start_with() {
    let project = Project::with(&[
        (".fabro/project.toml", PROJECT),
        ("flows/workflows/ship/workflow.toml", "_version = 1\n[run.inputs]\nwhat = \"that\"\n"),
        ("flows/workflows/ship/workflow.fabro", WORKFLOW),
    ]);
    assert_eq!(project.exit(&["run", "ship"]), 0);
    let expected = format!("Ship that {}\nprepared\n", project.path().display());
    assert_eq!(project.read("out"), expected);
    assert_snapshot!(project.run(&["validate", "ship"]), @r"
    exit 0
    ── stdout
    1 file checked, no findings
    ");
    assert_snapshot!(project.run(&["doctor", "--from-upstream"]), @r"
    exit 0
    ── stdout
    .fabro/project.toml
      ✓ understood: project.directory, run.goal, run.inputs, run.sandbox.env, run.prepare.steps.script, run.prepare.steps
      · 3:1 project.name: it describes, and no run depends on it
    flows/workflows/ship/workflow.fabro
      ✓ understood
    flows/workflows/ship/workflow.toml
      ✓ understood: run.inputs
    3 files: nothing is lost
    ");
}

#[test]
fn what_is_lost_is_named_by_run_validate_and_doctor() {
    let project = Project::with(&[
        (".fabro/project.toml", &format!("{PROJECT}{LOST}")),
        ("w.fabro", WORKFLOW),
    ]);
    assert_snapshot!(project.run(&["validate", "w.fabro"]), @r"
    exit 0
    ── stdout
    warning[upstream-setting]: `run.pull_request` has no effect: no pull request is opened
      --> .fabro/project.toml:13:6
       |
    13 | [run.pull_request]
       |      ^^^^^^^^^^^^
       |
       = help: open one in a command stage before the exit, with `gh pr create`

    warning[upstream-setting]: the hook of `run.hooks` has no effect: nothing happens at `sandbox_cleanup`
      --> .fabro/project.toml:15:1
       |
    15 | [[run.hooks]]
       | ^^^^^^^^^^^^^
       |
       = help: use `run_complete` and `run_failed`

    2 files checked: 2 warnings
    ");
    let run = project.run(&["run", "w.fabro", "--quiet"]);
    assert_snapshot!(run.replace(&project.path().display().to_string(), "DIR"), @r"
    exit 0
    ── stderr
    DIR/.fabro/project.toml:13:6: warning: `run.pull_request` has no effect: no pull request is opened (open one in a command stage before the exit, with `gh pr create`)
    DIR/.fabro/project.toml:15:1: warning: the hook of `run.hooks` has no effect: nothing happens at `sandbox_cleanup` (use `run_complete` and `run_failed`)
    ");
    assert_snapshot!(project.run(&["doctor", "--from-upstream", "."]), @r"
    exit 1
    ── stdout
    .fabro/project.toml
      ✓ understood: project.directory, run.goal, run.inputs, run.sandbox.env, run.prepare.steps.script, run.prepare.steps, run.hooks.event, run.hooks.script, run.hooks
      · 3:1 project.name: it describes, and no run depends on it
      ! 13:6 `run.pull_request` has no effect: no pull request is opened
          help: open one in a command stage before the exit, with `gh pr create`
      ! 15:1 the hook of `run.hooks` has no effect: nothing happens at `sandbox_cleanup`
          help: use `run_complete` and `run_failed`
    w.fabro
      ✓ understood
    2 files: 2 losses
    ");
    let output = project.output(&["doctor", "--from-upstream", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["lost"], 2);
    assert_snapshot!(report["files"][0]["lost"][0], @r#"{"rule":"upstream-setting","severity":"warning","message":"`run.pull_request` has no effect: no pull request is opened","line":13,"column":6,"end_line":13,"end_column":18,"fix":"open one in a command stage before the exit, with `gh pr create`"}"#);
    assert_snapshot!(report["files"][0]["without_effect"][0], @r#"{"name":"project.name","line":3,"reason":"it describes, and no run depends on it"}"#);
}

#[test]
fn nothing_runs_without_the_isolation_it_asks_for() {
    for provider in ["docker", "daytona"] {
        let sandbox = format!("[run.sandbox]\nprovider = \"{provider}\"\n");
        for (file, text) in [
            (".fabro/project.toml", format!("_version = 1\n{sandbox}")),
            ("fabro.toml", format!("version = 1\n{}", sandbox.replace("run.", ""))),
            ("run.toml", format!("_version = 1\nworkflow.graph = \"w.fabro\"\n{sandbox}")),
        ] {
            let touch =
                "digraph W { start -> a -> exit; a [shape=parallelogram, script=\"touch ran\"] }";
            let project = Project::with(&[(file, &text), ("w.fabro", touch)]);
            let wanted = if file == "run.toml" { file } else { "w.fabro" };
            // It needs an image, which these files do not name.
            assert_eq!(project.exit(&["run", wanted]), 2, "{file} {provider}");
            if provider == "daytona" {
                assert_eq!(project.exit(&["validate", wanted]), 0, "{file} {provider}");
                assert_eq!(project.exit(&["doctor", "--from-upstream"]), 1, "{file} {provider}");
                assert_eq!(project.exit(&["run", wanted, "--dry-run"]), 0, "{file} {provider}");
            }
            assert!(!project.path().join("ran").exists(), "{file} {provider}");
        }
    }
}

#[test]
fn a_directory_without_a_project_is_refused() {
    let project = Project::with(&[("notes.toml", "a = 1\n")]);
    assert_snapshot!(project.run(&["doctor", "--from-upstream"]), @r"
    exit 2
    ── stderr
    error: there are no files of fabro in .
      help: name the directory of a project: it has .fabro, workflow.toml, run.toml or *.fabro
    ");
    assert_snapshot!(project.run(&["doctor", "--from-upstream", "notes.toml"]), @r"
    exit 2
    ── stderr
    error: notes.toml is not a directory
      help: name the directory of a project
    ");
}

#[test]
fn conditions_and_labels_read_inputs() {
    let workflow = r#"digraph W {
        start -> t
        t [shape=parallelogram, label="Try {{ inputs.cap }} times", script="echo x >> tries; test $(wc -l < tries) -ge 9"]
        t -> t [condition="outcome=failed && internal.node_visit_count < {{ inputs.cap }}", label="again, of {{ inputs.cap }}", weight=2]
        t -> exit [condition="outcome=failed"]
        exit [status=succeeded]
    }"#;
    let project = Project::with(&[("w.fabro", workflow)]);
    assert_eq!(project.exit(&["run", "w.fabro", "-I", "cap=3"]), 0);
    assert_eq!(project.read("tries"), "x\nx\nx\n");
    assert!(project.run(&["explain", "latest", "t@2"]).contains("internal.node_visit_count < 3"));
    assert_snapshot!(project.run(&["run", "w.fabro"]), @r#"
    exit 2
    ── stderr
    error[undefined-input]: the input `cap` is not given
     --> w.fabro:3:47
      |
    3 |         t [shape=parallelogram, label="Try {{ inputs.cap }} times", script="echo x >> tries; test $(wc -l < tries) -ge 9"]
      |                                               ^^^^^^^^^^
      |
      = help: set it under [run.inputs], or give it with -I cap=…

    error[undefined-input]: the input `cap` is not given
     --> w.fabro:4:77
      |
    4 | ...   t -> t [condition="outcome=failed && internal.node_visit_count < {{ inputs.cap }}", label="again, of {{ inputs.cap }}", weight=2]
      |                                                                           ^^^^^^^^^^
      |
      = help: set it under [run.inputs], or give it with -I cap=…

    error[undefined-input]: the input `cap` is not given
     --> w.fabro:4:113
      |
    4 | ...   t -> t [condition="outcome=failed && internal.node_visit_count < {{ inputs.cap }}", label="again, of {{ inputs.cap }}", weight=2]
      |                                                                                                               ^^^^^^^^^^
      |
      = help: set it under [run.inputs], or give it with -I cap=…

    error: w.fabro is not valid
      help: fix the errors shown above
    "#);
}

#[test]
fn a_path_below_fabro_is_in_the_project_s_directory() {
    let child =
        "digraph C { start -> a -> exit; a [shape=parallelogram, script=\"echo child > out\"] }";
    let parent = "digraph P { start -> c -> exit; c [shape=house, stack.child_workflow=\"fabro/workflows/c/workflow.fabro\"] }";
    let project = Project::with(&[
        (".fabro/workflows/c/workflow.fabro", child),
        (".fabro/workflows/p/workflow.fabro", parent),
    ]);
    assert_eq!(project.exit(&["run", "p"]), 0);
    assert_eq!(project.read("out"), "child\n");
    // A file of that very name comes first.
    project.write(
        ".fabro/workflows/p/fabro/workflows/c/workflow.fabro",
        child.replace("echo child", "echo own").as_bytes(),
    );
    assert_eq!(project.exit(&["run", "p"]), 0);
    assert_eq!(project.read("out"), "own\n");
}

#[test]
fn an_environment_of_upstream_is_a_sandbox() {
    let environment = |provider: &str| {
        format!(
            "_version = 1\n[run.environment]\nid = \"ci\"\n[environments.ci]\nprovider = \"{provider}\"\nimage.docker = \"debian:12\"\nresources = {{ cpu = 2, memory = \"4GB\" }}\n[environments.ci.env]\nWHERE = \"ci\"\n"
        )
    };
    let workflow =
        "digraph W { start -> a -> exit; a [shape=parallelogram, script=\"echo $WHERE > out\"] }";
    let project = |provider: &str| {
        Project::with(&[(".fabro/project.toml", &*environment(provider)), ("w.fabro", workflow)])
    };
    let local = project("local");
    assert_eq!(local.exit(&["run", "w.fabro"]), 0);
    assert_eq!(local.read("out"), "ci\n");
    let settings = project("docker").run(&["settings", "--json"]);
    for part in ["\"docker\"", "\"debian:12\"", "4294967296"] {
        assert!(settings.contains(part), "{part}: {settings}");
    }
    // It is refused, unless the user chooses a sandbox or nothing runs.
    let daytona = project("daytona");
    assert_snapshot!(daytona.run(&["run", "w.fabro"]), @r"
    exit 2
    ── stderr
    error: DIR/.fabro/project.toml:2:6: `run.environment` is not supported: scripts would run on this machine, without the isolation it asks for (choose a sandbox by `--sandbox`, or set `run.sandbox`; environments with the providers `local` and `docker` in the same file are read)
    ");
    assert_eq!(daytona.exit(&["run", "w.fabro", "--dry-run"]), 0);
    assert_eq!(daytona.exit(&["run", "w.fabro", "--sandbox", "local"]), 0);
    assert_eq!(daytona.read("out"), "\n");
    assert_eq!(daytona.exit(&["doctor", "--from-upstream"]), 1);
}

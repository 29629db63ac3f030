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
    assert_snapshot!(project.run(&["doctor", "--from-upstream"]), @r#"
    exit 0
    ── stdout
    .fabro/project.toml
      ✓ understood: project.directory, run.goal, run.inputs, run.sandbox.env, run.prepare.steps.script, run.prepare.steps
      · 3:1 project.name: it describes, and no run depends on it
    flows/workflows/ship/workflow.fabro
      ✓ understood
      ~ 1:22 a: no timeout here; upstream ends a command after 600 s
          help: set `[run] command_timeout = "10m"` in .fabro/config.toml, or `timeout` on the node
    flows/workflows/ship/workflow.toml
      ✓ understood: run.inputs
    3 files: nothing is lost, 1 difference (~)
    "#);
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
    assert_snapshot!(project.run(&["doctor", "--from-upstream", "."]), @r#"
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
      ~ 1:22 a: no timeout here; upstream ends a command after 600 s
          help: set `[run] command_timeout = "10m"` in .fabro/config.toml, or `timeout` on the node
    2 files: 2 losses, 1 difference (~)
    "#);
    let output = project.output(&["doctor", "--from-upstream", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["lost"], 2);
    assert_snapshot!(report["files"][0]["lost"][0], @r#"{"rule":"upstream-setting","severity":"warning","message":"`run.pull_request` has no effect: no pull request is opened","line":13,"column":6,"end_line":13,"end_column":18,"fix":"open one in a command stage before the exit, with `gh pr create`"}"#);
    assert_snapshot!(report["files"][0]["without_effect"][0], @r#"{"name":"project.name","line":3,"reason":"it describes, and no run depends on it"}"#);
}

#[test]
fn doctor_names_what_means_something_else() {
    let workflow = r#"digraph W {
    start -> build -> test -> lint -> report -> exit
    build  [script="make", max_retries=2]
    test   [script="make test", max_retries=2, timeout=10m]
    test   -> build [condition="outcome=failed"]
    lint   [script="lint", timeout=1m]
    lint   -> build [condition="command.output contains error"]
    report [shape=tab, prompt="Report {{ context.command.output }} to {{ vars.team }}."]
}"#;
    let project = Project::with(&[("w.fabro", workflow)]);
    assert_snapshot!(project.run(&["doctor", "--from-upstream"]), @r#"
    exit 1
    ── stdout
    w.fabro
      ~ 2:14 build: no timeout here; upstream ends a command after 600 s
          help: set `[run] command_timeout = "10m"` in .fabro/config.toml, or `timeout` on the node
      ~ 2:14 build: `max_retries` also repeats a command that fails by its exit code; upstream does not
          help: route its failure by an edge with condition="outcome=failed", or remove `max_retries`
      ~ 2:31 lint, report: `command.output` has no stderr here, and these nodes or their edges read it
          help: set merge_stderr=true on the command, or read `command.stderr`
      ! 8:74 `{{ vars.team }}` is no template: it stays as it is
          help: did you mean `inputs.team`?
    1 file: 1 loss, 3 differences (~)
    "#);
    let output = project.output(&["doctor", "--from-upstream", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_snapshot!(report["files"][0]["changes"][0], @r#"{"name":"command-timeout","line":2,"nodes":["build"],"message":"no timeout here; upstream ends a command after 600 s","fix":"set `[run] command_timeout = \"10m\"` in .fabro/config.toml, or `timeout` on the node"}"#);
}

#[test]
fn doctor_finds_the_files_of_workflows_in_another_directory() {
    let workflow = "digraph W { start -> a -> exit; a [prompt=\"@prompts/a.md\"] }";
    let project = Project::with(&[("x/w.fabro", workflow), ("x/prompts/a.md", "Do it.")]);
    assert_eq!(project.exit(&["doctor", "--from-upstream", "x"]), 0);
    assert_eq!(project.exit(&["doctor", "--from-upstream", "./x/"]), 0);
    assert_eq!(project.exit(&["doctor", "--from-upstream"]), 0);
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

/// A deliberate difference from upstream.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    name: String,
    upstream: String,
    here: String,
    why: String,
    ends_when: String,
    /// A body of a workflow that shows it.
    workflow: Option<String>,
    exit: Option<i32>,
    /// The stages in the order in which they ended.
    stages: Option<String>,
}

#[derive(serde::Deserialize)]
struct Differences {
    difference: Vec<Difference>,
}

fn differences() -> Vec<Difference> {
    let text = include_str!("../../../../docs/upstream-differences.toml");
    toml::from_str::<Differences>(text).unwrap().difference
}

#[test]
fn each_deliberate_difference_is_as_its_record_says() {
    for Difference { name, workflow, exit, stages, .. } in differences() {
        let (Some(workflow), Some(exit), Some(stages)) = (workflow, exit, stages) else { continue };
        let project = Project::with(&[("w.fabro", &format!("digraph W {{ {workflow} }}"))]);
        let names = "names=[\"x\", \"y\"]";
        let mut run = vec!["run", "w.fabro", "--quiet"];
        if workflow.contains("inputs.names") {
            run.extend(["-I", names]);
        }
        let output = project.output(&run);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{name}: {error}");
        let events = project.output(&["events", "latest", "--json"]).stdout;
        let ended = String::from_utf8(events).unwrap();
        let ended =
            ended.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let ended = ended.filter(|event| {
            ["stage.completed", "stage.failed"].contains(&event["event"].as_str().unwrap())
        });
        let ended: Vec<_> =
            ended.map(|event| event["node_id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(ended.join(" "), stages, "{name}");
    }
}

#[test]
fn the_table_of_differences_is_made_from_their_records() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/migration.md");
    let page = std::fs::read_to_string(path).unwrap();
    let head = "| | upstream 0.254 | here | why |\n| --- | --- | --- | --- |\n";
    let (before, rest) = page.split_once(head).unwrap();
    let (table, after) = rest.split_once("\n\n").unwrap();
    let rows: Vec<_> = differences()
        .into_iter()
        .map(|it| {
            let said = [&it.name, &it.upstream, &it.here, &it.why, &it.ends_when];
            assert!(said.iter().all(|text| !text.trim().is_empty()), "{}", it.name);
            format!("| {} | {} | {} | {} |", it.name, it.upstream, it.here, it.why)
        })
        .collect();
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(path, format!("{before}{head}{}\n\n{after}", rows.join("\n"))).unwrap();
        return;
    }
    assert_eq!(table.lines().collect::<Vec<_>>(), rows, "UPDATE_PAGES=1 writes it into the page");
}

//! What stages leave in the working directory is kept.

use super::*;
use crate::LocalToolbox;

/// The artifacts as the log has them, and what each stage that has some is said to have.
fn kept(scene: &Scene) -> String {
    let mut text = String::new();
    for event in scene.events() {
        let node = event.entry.node_id.as_deref().unwrap_or_default();
        match &event.entry.body {
            EventBody::ArtifactCaptured(artifact) => {
                let bytes = std::fs::read(scene.run_dir().join(&*artifact.file)).unwrap();
                assert_eq!(bytes.len() as u64, artifact.size);
                let file = &artifact.file;
                let _ = writeln!(text, "{node} #{} {} in {file}", artifact.attempt, artifact.path);
            }
            EventBody::AgentWarning { kind, message, .. } => {
                let _ = writeln!(text, "{node} warns ({kind}) {message}");
            }
            EventBody::StageCompleted(end) | EventBody::StageFailed(end)
                if !end.outcome.artifacts.is_empty() =>
            {
                let _ = writeln!(text, "{node} ends with {}", end.outcome.artifacts.join(" "));
            }
            _ => {}
        }
    }
    text
}

#[test]
fn every_attempt_of_a_command_is_searched() {
    let source = r#"digraph { start -> c -> d -> exit
        c [shape=parallelogram, max_retries=1, retry_policy=linear, script="mkdir -p test-results; \
            if test -e again; then echo two > test-results/two.txt; exit 0; fi; touch again; \
            echo one > test-results/one.txt; exit 75", retry_on="any"]
        d [shape=parallelogram, script="ls test-results"]
    }"#;
    let scene = Scene::new(source).local().keeping(&[]);
    scene.drive().unwrap();
    insta::assert_snapshot!(kept(&scene), @r"
    c #1 test-results/one.txt in cache/artifacts/files/c/retry_1/test-results/one.txt
    c #2 test-results/two.txt in cache/artifacts/files/c/retry_2/test-results/two.txt
    c ends with cache/artifacts/files/c/retry_1/test-results/one.txt cache/artifacts/files/c/retry_2/test-results/two.txt
    ");
}

#[test]
fn branches_and_visits_have_directories_of_their_own() {
    let source = r#"digraph { start -> all
        all [shape=component]; all -> a; all -> b; a -> in; b -> in; in [shape=tripleoctagon]
        a [shape=parallelogram, script="mkdir -p a/test-results; date +%N > a/test-results/out"]
        b [shape=parallelogram, script="touch report-b.html"]
        in -> again; again [shape=parallelogram, script="echo x >> junit.xml; wc -l < junit.xml | tr -d ' \\n'"]
        again -> again [condition="context.command.output = 1"]; again -> exit
    }"#;
    let scene = Scene::new(source).local().keeping(&["report-*.html"]);
    scene.drive().unwrap();
    let lines = kept(&scene);
    // Branches run side by side: either may see the other's files.
    for line in ["a #1 a/test-results/out in cache/artifacts/files/", "b #1 report-b.html in "] {
        assert!(lines.contains(line), "{lines}");
    }
    let again: Vec<_> = lines.lines().filter(|line| line.starts_with("again")).collect();
    insta::assert_snapshot!(again.join("\n"), @r"
    again #1 junit.xml in cache/artifacts/files/again/retry_1/junit.xml
    again ends with cache/artifacts/files/again/retry_1/junit.xml
    again #1 junit.xml in cache/artifacts/files/again-visit_2/retry_1/junit.xml
    again ends with cache/artifacts/files/again-visit_2/retry_1/junit.xml
    ");
}

#[test]
fn what_is_not_kept_is_a_warning_of_the_stage() {
    let source = r#"digraph { start -> c -> exit; c [shape=parallelogram,
        script="mkdir test-results; ln -s /etc test-results/link; truncate -s 10485761 test-results/big; \
                truncate -s 10485760 test-results/limit"] }"#;
    let scene = Scene::new(source).local().keeping(&[]);
    scene.drive().unwrap();
    insta::assert_snapshot!(kept(&scene), @r"
    c #1 test-results/limit in cache/artifacts/files/c/retry_1/test-results/limit
    c warns (artifacts) artifact not kept: test-results/big: it has 10485761 bytes, and an artifact at most 10485760
    c warns (artifacts) artifact not kept: test-results/link: a symbolic link, which is not followed
    c ends with cache/artifacts/files/c/retry_1/test-results/limit
    ");
}

#[test]
fn every_file_that_is_not_kept_is_named() {
    let source = r#"digraph { start -> c -> exit; c [shape=parallelogram,
        script="mkdir test-results; for i in 10 11 12 13 14 15 16 17 18 19 20 21; do mkfifo test-results/$i; done"] }"#;
    let scene = Scene::new(source).local().keeping(&[]);
    scene.drive().unwrap();
    let lines = kept(&scene);
    assert_eq!(lines.lines().count(), 11);
    insta::assert_snapshot!(lines.lines().last().unwrap(), @"c warns (artifacts) 2 more artifacts not kept: test-results/20: a FIFO, not a regular file; test-results/21: a FIFO, not a regular file");
}

#[test]
fn files_of_an_agents_tools_are_kept_and_named_to_the_next_agent() {
    let source = r#"digraph { start -> work -> look -> exit
        work [prompt="Test it"]; look [prompt="Look at it", shape=tab, fidelity=compact] }"#;
    let scene =
        Scene::new(source).keeping(&[]).model(r#"{"*": [{"text": "done"}, {"text": "seen"}]}"#);
    let scene = scene.agent_writes("junit.xml", "<testsuites/>");
    scene.drive().unwrap();
    insta::assert_snapshot!(kept(&scene), @r"
    work #1 junit.xml in cache/artifacts/files/work/retry_1/junit.xml
    work ends with cache/artifacts/files/work/retry_1/junit.xml
    ");
    insta::assert_snapshot!(scene.read("003-look@1/prompt.md"), @r"
    Goal: Ship it

    ## Completed stages
    - **work**: success
      - Model: scripted, 0 tokens in / 0 out
      - Artifacts: DIR/runs/RUN/cache/artifacts/files/work/retry_1/junit.xml

    Look at it
    ");
}

#[test]
fn artifacts_of_branches_and_sub_workflows_are_named_and_can_be_read() {
    let source = r#"digraph { start -> f; f [shape=component, max_parallel=1]; f -> x; f -> y; x -> j; y -> j
        j [shape=tripleoctagon]; j -> sub -> ask; ask [shape=hexagon]; ask -> look [label=Go]; look -> exit
        x [shape=parallelogram, script="mkdir -p x/test-results; echo of a branch > x/test-results/o"]
        y [shape=parallelogram, script="true"]
        sub [shape=house, stack.child_workflow="middle.fabro"]; look [prompt="Look", fidelity=compact] }"#;
    let middle = r#"digraph { start -> inner -> exit; inner [shape=house, stack.child_workflow="leaf.fabro"] }"#;
    let leaf = r#"digraph { start -> c -> exit; c [shape=parallelogram, script="echo of a sub-workflow > junit.xml"] }"#;
    let scene = Scene::new(source).file("middle.fabro", middle).file("leaf.fabro", leaf);
    let scene = scene.local().keeping(&[]);
    scene.drive().unwrap();
    let mut files =
        vec![scene.run_dir().join("cache/artifacts/files/f@1.x.x/retry_1/x/test-results/o")];
    let runs = now(scene.store.list()).unwrap();
    let junit = |run: RunId| {
        let dir = scene.run_dir().with_file_name(run.to_string());
        dir.join("cache/artifacts/files/c/retry_1/junit.xml")
    };
    files.extend(runs.iter().map(|run| junit(run.id)).filter(|file| file.exists()));
    assert_eq!(files.len(), 2);
    let call = |path: &PathBuf| json!({"name": "read_file", "arguments": {"file_path": path}});
    let calls: Vec<Value> = files.iter().map(call).collect();
    let model = json!({"look": [{"tool_calls": calls}, {"text": "done"}]});
    let toolbox = LocalToolbox::new(Arc::new(FakeExec::new()), Vec::new(), Redactor::default());
    let agents = Agents { toolbox: Arc::new(toolbox), ..Agents::default() };
    let scene = scene.model(&model.to_string()).agents(agents).answers(r#"{"ask": ["Go"]}"#);
    scene.drive().unwrap();
    let read = scene.events().into_iter().filter_map(|event| match event.entry.body {
        EventBody::AgentToolCompleted(done) => done.output.as_str().map(str::to_owned),
        _ => None,
    });
    let read: Vec<String> = read.collect();
    assert!(read[0].contains("of a branch") && read[1].contains("of a sub-workflow"), "{read:?}");
    let dirs = std::fs::read_dir(scene.run_dir().join("stages")).unwrap();
    let mut names = dirs.map(|dir| dir.unwrap().file_name().into_string().unwrap());
    let look = names.find(|name| name.ends_with("-look@1")).unwrap();
    let prompt = scene.read(&format!("{look}/prompt.md"));
    let shown: Vec<&str> = prompt.lines().filter(|line| line.contains("Artifacts:")).collect();
    assert_eq!(shown.len(), 2, "{prompt}");
    let branch = "/cache/artifacts/files/f@1.x.x/retry_1/x/test-results/o";
    assert!(shown[0].ends_with(branch), "{shown:?}");
    assert!(shown[1].ends_with("/cache/artifacts/files/c/retry_1/junit.xml"), "{shown:?}");
}

#[test]
fn a_dry_run_keeps_nothing() {
    let source =
        r#"digraph { start -> c -> exit; c [shape=parallelogram, script="touch junit.xml"] }"#;
    let scene = Scene::new(source).dry().keeping(&[]);
    scene.drive().unwrap();
    assert_eq!(kept(&scene), "");
}

#[test]
fn the_store_is_not_searched() {
    let source = r#"digraph { start -> c -> d -> exit
        c [shape=parallelogram, script="mkdir test-results; echo one > test-results/one"]
        d [shape=parallelogram, script="echo two > test-results/two"]
    }"#;
    let mut scene = Scene::new(source).local().keeping(&[]);
    std::fs::create_dir(scene.work_dir()).unwrap();
    let link = scene.dir.path().join("link");
    std::os::unix::fs::symlink(scene.work_dir(), &link).unwrap();
    // The store is in the working directory, but named by another path.
    scene.run_dir = Some(link.join("store/runs"));
    scene.drive().unwrap();
    insta::assert_snapshot!(kept(&scene), @r"
    c #1 test-results/one in cache/artifacts/files/c/retry_1/test-results/one
    c ends with cache/artifacts/files/c/retry_1/test-results/one
    d #1 test-results/two in cache/artifacts/files/d/retry_1/test-results/two
    d ends with cache/artifacts/files/d/retry_1/test-results/two
    ");
}

use super::*;

#[track_caller]
fn rendered(prompt: &str, expect: &str) {
    let source = format!(
        r#"digraph {{ start -> c -> p -> exit; c [shape=parallelogram, script=run]; p [shape=tab, fidelity=full, prompt="{}"] }}"#,
        prompt.replace('\\', "\\\\").replace('"', "\\\"")
    );
    let scene = Scene::new(&source)
        .model(r#"{"*": [{"text": "ok"}]}"#)
        .inputs(json!({"repo": "demo", "n": 3}))
        .prints(&[("run", "it's 5 o'clock")]);
    scene.drive().unwrap();
    let state = scene.state();
    let failure = match &state.main().unwrap().history[1].end.outcome.failure {
        Some(failure) => failure.message.clone(),
        None => scene.read("003-p@1/prompt.md"),
    };
    assert!(failure.starts_with(expect), "{prompt}: {failure}");
}

#[test]
fn prompts_are_rendered() {
    rendered("Do {{ goal }} in {{ inputs.repo }}", "Do Ship it in demo");
    rendered("$goal: {{ inputs.n + 1 }}", "Ship it: 4");
    rendered("Said {{ context.command.output }}", "Said it's 5 o'clock");
    rendered("Code {{ context.command.exit_code }}", "Code 0");
    rendered("{{ context.none | default('-') }}", "-");
    rendered("docker ps --format '{{.Names}}'", "docker ps --format '{{.Names}}'");
    rendered("{{ context.audit.score }}", "the context has no key `audit.score`");
    rendered("{{ inputs.branch }}", "there is no input `branch`");
}

#[test]
fn values_in_scripts_are_quoted() {
    let source = r#"digraph {
        start; exit; node [shape=parallelogram]
        start -> a -> b -> c -> d -> exit
        a [script="run"]
        b [script="printf '%s|' {{ inputs.text }}"]
        c [script="printf '%s|' {{ inputs.text | raw }}"]
        d [language=python, script="print({{ inputs.text | tojson }})"]
    }"#;
    let scene = Scene::new(source).inputs(json!({"text": "it's; rm -rf $HOME\n`x`"}));
    scene.drive().unwrap();
    insta::assert_snapshot!(scene.ran().join("\n---\n"), @r#"
    run
    ---
    printf '%s|' 'it'\''s; rm -rf $HOME
    `x`'
    ---
    printf '%s|' it's; rm -rf $HOME
    `x`
    ---
    print("it\u0027s; rm -rf $HOME\n`x`")
    "#);
    let state = scene.state();
    let scripts: Vec<_> =
        state.main().unwrap().history.iter().map(|record| record.end.script.is_some()).collect();
    // Only a script that differs from what the node says is recorded with the stage.
    assert_eq!(scripts, [false, true, true, true]);
}

#[test]
fn a_missing_key_fails_the_stage_and_its_edges_count() {
    let source = r#"digraph {
        start -> c; c [shape=parallelogram, script="echo {{ context.audit }}"]
        c -> fix [condition="outcome=failed"]; c -> exit
        fix [shape=tab, prompt="Fix {{ context.failure_class }}"]
        fix -> exit
    }"#;
    let scene = check(
        source,
        r#"{"fix": [{"text": "ok"}]}"#,
        &["002 c@1 failed: the context has no key `audit`", "-> fix (condition)"],
    );
    assert!(scene.ran().is_empty());
    assert!(scene.read("003-fix@1/prompt.md").ends_with("Fix deterministic"));
}

#[test]
fn a_template_that_cannot_be_rendered_is_not_retried() {
    let source = r#"digraph {
        start -> c -> exit
        c [shape=parallelogram, script="echo {{ context.tset.output }}", max_retries=3]
    }"#;
    check(source, "{}", &["002 c@1 failed: the context has no key `tset.output`"]);
}

#[test]
fn template_files_are_jinja_all_through() {
    let source = r#"digraph {
        start -> p -> fork; fork [shape=component]
        fork -> {a; b} -> join; join [shape=tripleoctagon, prompt="@choose.j2"]
        join -> exit
        p [shape=tab, fidelity=full, prompt="@ask.j2"]
        a [shape=tab, prompt="@@home"]
        b [shape=tab, prompt="@plain.md"]
    }"#;
    let scene = Scene::new(source)
        .model(r#"{"join": [{"text": "b"}], "*": [{"text": "ok"}]}"#)
        .file("ask.j2", "{% if inputs.deep %}Dig {{ goal }}{% endif %}")
        .file("plain.md", "{% of %} {{ goal }}")
        .file("choose.j2", "{% for r in [1, 2] %}{{ r }}{% endfor %}")
        .inputs(json!({"deep": true}));
    scene.drive().unwrap();
    assert_eq!(scene.read("002-p@1/prompt.md"), "Dig Ship it");
    assert!(scene.read("004-a@1/prompt.md").ends_with("\n\n@home"));
    assert!(scene.read("005-b@1/prompt.md").ends_with("\n\n{% of %} Ship it"));
    assert!(scene.read("006-join@1/prompt.md").contains("\n\n12\n\n## Branches"));
}

//! Questions, options and shown texts of gates.

use fabro_events::ShownText;

use super::*;

/// The question, options, element and shown texts of each asked gate.
fn asked(scene: &Scene) -> String {
    scene.drive().unwrap();
    let mut text = String::new();
    for event in scene.events() {
        let EventBody::GateAsked { question, item, show, options, .. } = &event.entry.body else {
            continue;
        };
        let labels: Vec<_> = options.iter().map(|option| &*option.label).collect();
        let _ = writeln!(text, "{question} {labels:?} {item:?}");
        for ShownText { stage, key, text: shown, omitted, .. } in show {
            let name = stage.as_ref().or(key.as_ref());
            let shown: String = shown.chars().take(60).collect();
            let _ = writeln!(text, "  {name:?} {shown:?} +{omitted}");
        }
    }
    text
}

fn of(source: &str, prints: &[(&str, &str)]) -> String {
    asked(&Scene::new(source).prints(prints).answers(r#"{"ask": ["1", "1", "1"]}"#))
}

#[test]
fn questions_and_options_are_templates() {
    let source = r#"digraph { goal="Ship it"; start; exit; plan [shape=parallelogram, script=run]
        start -> plan -> ask; ask [shape=hexagon, label="{{ goal }} after {{ context.command.output }}?"]
        ask -> exit [label="[Y] Yes, {{ context.command.output | upper }}"]; ask -> plan [label="No"] }"#;
    insta::assert_snapshot!(of(source, &[("run", "tests")]), @r#"
    Ship it after tests? ["Yes, TESTS", "No"] None
      Some("plan@1") "tests" +0
    "#);
}

#[test]
fn shows_named_values_or_the_last_output() {
    let show = |show: &str| {
        let source = format!(
            r#"digraph {{ start; exit; node [shape=parallelogram]
                start -> one -> two -> quiet -> ask; one [script=one]; two [script=two]; quiet [script=quiet]
                ask [shape=hexagon, show="{show}"]; ask -> exit [label="[Y] Yes"] }}"#
        );
        of(&source, &[("one", "first"), ("two", "second"), ("quiet", "")])
    };
    insta::assert_snapshot!(show(""), @r#"
    ask ["Yes"] None
      Some("two@1") "second" +0
    "#);
    insta::assert_snapshot!(show("last, command.exit_code nothing"), @r#"
    ask ["Yes"] None
      Some("two@1") "second" +0
      Some("command.exit_code") "0" +0
      Some("nothing") "(no value)" +0
    "#);
    insta::assert_snapshot!(show("code {{ context.command.exit_code }}"), @r#"
    ask ["Yes"] None
      None "code 0" +0
    "#);
}

#[test]
fn options_have_descriptions_and_previews() {
    let source = r#"digraph { start; exit; plan [shape=parallelogram, script=run]; start -> plan -> ask
        ask [shape=hexagon]; ask -> exit [label="[Y] Yes", human.description="Ships {{ context.command.output }}.", human.preview="+1 -1"]
        ask -> plan [label="No", human.preview="nothing"] }"#;
    insta::assert_snapshot!(of(source, &[("run", "tests")]), @r#"
    ask ["Yes", "No"] None
      Some("plan@1") "tests" +0
      None "[Y] Yes: Ships tests.\n+1 -1" +0
      None "[N] No: nothing" +0
    "#);
}

#[test]
fn a_review_target_is_a_link_that_was_checked() {
    let source = r#"digraph { start; exit; plan [shape=parallelogram, script=run, output_schema=routing]; start -> plan -> ask
        ask [shape=hexagon, review_target=true, show="{{ goal }}"]; ask -> exit [label="[Y] Yes"] }"#;
    let with = |target: &str| {
        let output = format!(r#"{{"context_updates": {{"review_target": {target}}}}}"#);
        let scene = Scene::new(source).prints(&[("run", &output)]).answers(r#"{"ask": ["1"]}"#);
        let asked = asked(&scene);
        let failure = scene.events().into_iter().find_map(|event| match event.entry.body {
            EventBody::StageFailed(end) => Some(end.outcome.failure.as_ref()?.message.clone()),
            _ => None,
        });
        failure.map_or(asked.clone(), |failure| format!("{asked}{failure}"))
    };
    insta::assert_snapshot!(with(r#"{"label": "Audit", "url": "https://example.org/a?b=c#d"}"#), @r#"
    ask ["Yes"] None
      None "Review the Audit document, then choose the next action.\nhttp" +0
      None "Ship it" +0
    "#);
    insta::assert_snapshot!(with(r#"{"label": "PR 7", "url": "http://example.org", "kind": "pull request"}"#), @r#"
    ask ["Yes"] None
      None "Review the PR 7 pull request, then choose the next action.\nh" +0
      None "Ship it" +0
    "#);
    insta::assert_snapshot!(with("null"), @"the context key `review_target` is not an object with the texts `label` and `url`; the gate was not asked");
    insta::assert_snapshot!(with(r#"{"label": "a\nb", "url": "https://example.org"}"#), @"the context key `review_target` has a `label` or `kind` that is not one line of 1 to 200 characters; the gate was not asked");
    for url in [
        "javascript:alert(1)",
        "https://me:secret@example.org",
        "https://",
        "https:// a",
        "file:///etc/passwd",
        &format!("https://h/{}", "x".repeat(2048)),
    ] {
        let said = with(&format!(r#"{{"label": "x", "url": "{url}"}}"#));
        assert!(said.starts_with("the context key `review_target` has a `url`"), "{said}");
        assert!(!said.contains(url), "{said}");
    }
}

#[test]
fn shown_texts_are_truncated() {
    let source = r#"digraph { start; exit; plan [shape=parallelogram, script=run]; start -> plan -> ask
        ask [shape=hexagon]; ask -> exit [label="[Y] Yes"] }"#;
    let long = "x".repeat(300_000);
    insta::assert_snapshot!(of(source, &[("run", &long)]), @r#"
    ask ["Yes"] None
      Some("plan@1") "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" +284000
    "#);
}

#[test]
fn a_gate_of_an_element_shows_no_other_elements() {
    let source = r#"digraph { start; exit; node [shape=parallelogram]; start -> make -> each; make [script=list]
        each [shape=component, for_each="command.output"]; each -> ask
        ask [shape=hexagon, label="Keep {{ context.item.id }}?"]; ask -> join [label="[Y] Yes"]
        join [shape=tripleoctagon]; join -> exit }"#;
    let list = r#"[{"id": 7, "secret": "a"}, {"id": 8, "secret": "b"}]"#;
    insta::assert_snapshot!(of(source, &[("list", list)]), @r#"
    Keep 7? ["Yes"] Some("7")
    Keep 8? ["Yes"] Some("8")
    "#);
}

#[test]
fn a_gate_in_a_sub_workflow_names_the_element_it_runs_for() {
    let source = r#"digraph { start -> make -> each -> sub -> join -> exit
        make [script=list]; each [shape=component, for_each="command.output", as=fruit]
        sub [shape=house, stack.child_dot_source="digraph { start -> deep -> exit; deep [shape=house, stack.child_dot_source=\"digraph { start -> ask -> exit; ask [shape=hexagon] }\"] }"]
        join [shape=tripleoctagon] }"#;
    let scene = Scene::new(source).prints(&[("list", r#"[{"name": "apple"}, "pear"]"#)]);
    scene.drive().unwrap();
    let mut items = Vec::new();
    for run in now(scene.store.family(scene.run_id())).unwrap() {
        for event in now(fabro_engine::read_all(&*scene.store, run)).unwrap() {
            if let EventBody::GateAsked { item, .. } = &event.entry.body {
                items.push(item.clone().unwrap_or_default());
            }
        }
    }
    items.sort_unstable();
    assert_eq!(items, ["apple", "pear"]);
}

use std::collections::BTreeMap;

use fabro_graph::{MemorySources, Workflow, resolve_files};

#[test]
fn files_take_the_place_of_their_names() {
    let source = r#"digraph {
        graph [goal="@goal.md"]
        node [prompt="@shared.md"]
        a; b [prompt="@@home"]; c [prompt="@ missing.md "]; d [prompt="a@b", script="@kept"]
        e [stack.child_workflow="child.fabro", output_schema="@s.json", prompt=""]
        f [stack.child_workflow="@child.fabro", output_schema=routing, prompt="@missing.md"]
    }"#;
    let files = [
        ("goal.md", "GOAL"),
        ("shared.md", "@SHARED"),
        ("child.fabro", "digraph {}"),
        ("s.json", "{}"),
    ];
    let files: BTreeMap<_, _> = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    let mut workflow = Workflow::from_source("x", source).unwrap();
    assert_eq!(workflow.findings(), []);
    let unresolved: Vec<_> = workflow.unresolved_files().map(|attr| attr.value.as_text()).collect();
    insta::assert_snapshot!(unresolved.join("\n"), @r"
    @goal.md
    @shared.md
    @@home
    @ missing.md 
    @kept
    child.fabro
    @s.json
    @child.fabro
    @missing.md
    ");
    resolve_files(&mut workflow, &MemorySources(files));
    assert_eq!(workflow.unresolved_files().count(), 0);
    insta::assert_snapshot!(crate::findings(source, workflow.findings()), @r#"
    missing-file at 119..134 "\"@ missing.md \"": `prompt` names the file `missing.md`: no such file; create the file, correct the path, which is relative to this workflow, or write @@ for a text that begins with @
    missing-file at 161..168 "\"@kept\"": `script` names the file `kept`: no such file; create the file, correct the path, which is relative to this workflow, or write @@ for a text that begins with @
    "#);
    insta::assert_snapshot!(crate::outline(&workflow), @r#"
    x goal="GOAL"
    a: agent *prompt="@SHARED"
    b: agent prompt="@home"
    c: agent prompt="@ missing.md "
    d: command prompt="a@b" script="@kept"
    e: agent output_schema="{}" prompt="" stack.child_workflow="digraph {}"
    f: agent output_schema=routing prompt="@missing.md" stack.child_workflow="digraph {}"
    "#);
    let attrs = &workflow.node(workflow.find("e").unwrap()).attrs;
    assert_eq!(attrs.get("stack.child_workflow").unwrap().file.as_deref(), Some("child.fabro"));
    assert_eq!(attrs.get("prompt").unwrap().file, None);
    let resolved = crate::outline(&workflow);
    resolve_files(&mut workflow, &MemorySources::default());
    assert_eq!(crate::outline(&workflow), resolved);
    assert!(workflow.to_dot().contains(r#""goal"="@goal.md""#));
}

#[test]
fn a_script_may_be_a_file() {
    let source = r#"digraph x {
  a [script="@go.sh"]
  b [script="@cache\ndef f(): pass", language=python]
  c [script="@@cache"]
  d [tool_command="@ go.sh "]
}"#;
    let mut workflow = Workflow::from_source("x", source).unwrap();
    let files = [("go.sh".to_owned(), "@not/a/file\nls {{ goal }}\n".to_owned())];
    resolve_files(&mut workflow, &MemorySources(files.into()));
    assert_eq!(crate::findings(source, workflow.findings()), "");
    let text = |id: &str| {
        let attrs = &workflow.node(workflow.find(id).unwrap()).attrs;
        attrs.text("script").unwrap_or_default().to_owned()
    };
    assert_eq!(text("a"), "@not/a/file\nls {{ goal }}\n");
    assert_eq!(text("b"), "@cache\ndef f(): pass");
    assert_eq!(text("c"), "@cache");
    let script = workflow.node(workflow.find("d").unwrap()).attrs.get("script").unwrap();
    assert_eq!(script.file.as_deref(), Some("go.sh"));
}

#[test]
fn a_missing_sub_workflow_has_a_suggestion() {
    let files = [
        "review.fabro",
        "review.md",
        "flows/deploy.dot",
        ".fabro/workflows/release.fabro",
        "../.fabro/workflows/cleanup.fabro",
    ];
    let files: BTreeMap<_, _> = files.map(|path| (path.to_owned(), String::new())).into();
    let fix = |path: &str| {
        let source = format!("digraph {{ a [shape=house, stack.child_workflow=\"{path}\"] }}");
        let mut workflow = Workflow::from_source("x", &source).unwrap();
        resolve_files(&mut workflow, &MemorySources(files.clone()));
        workflow.findings()[0].fix.clone().unwrap()
    };
    insta::assert_snapshot!(fix("reviw.fabro"), @"did you mean `review.fabro`?");
    insta::assert_snapshot!(fix("review"), @"did you mean `review.fabro`?");
    insta::assert_snapshot!(fix("flows/deplyo.dot"), @"did you mean `flows/deploy.dot`?");
    insta::assert_snapshot!(fix("flows/release.fabro"), @"did you mean `.fabro/workflows/release.fabro`?");
    insta::assert_snapshot!(fix("clean-up.fabro"), @"did you mean `../.fabro/workflows/cleanup.fabro`?");
    insta::assert_snapshot!(fix("other.fabro"), @"create the file, or correct the path, which is relative to this workflow");
}

//! Files in the place of nodes.

use std::fmt::Write as _;

use proptest::prelude::*;

use crate::properties::document;
use fabro_graph::{MemorySources, Workflow, expand_imports, resolve_files};

fn sources(files: &[(&str, &str)]) -> MemorySources {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    MemorySources(files.collect())
}

fn read(source: &str, files: &[(&str, &str)]) -> Workflow {
    let mut workflow = Workflow::from_source("t", source).unwrap();
    let files = sources(files);
    expand_imports(&mut workflow, &files);
    resolve_files(&mut workflow, &files);
    workflow
}

#[track_caller]
fn outline(source: &str, files: &[(&str, &str)]) -> String {
    let workflow = read(source, files);
    assert_eq!(workflow.findings(), [], "{source}");
    crate::outline(&workflow)
}

/// The findings as they are shown: line, column, rule, message and fix.
fn wrong(source: &str, files: &[(&str, &str)]) -> String {
    let workflow = read(source, files);
    let mut findings = workflow.findings().to_vec();
    workflow.place(&mut findings);
    let mut text = String::new();
    for finding in findings {
        let at = &source[finding.span.start..finding.span.end];
        let fix = finding.fix.unwrap_or_default();
        writeln!(text, "{} at {at}: {}; {fix}", finding.rule, finding.message).unwrap();
    }
    text
}

const CHECK: &str = r#"digraph Check {
    node [timeout=5m]
    start -> lint -> fix -> test -> exit
    lint [prompt="@ask/lint.md"]
    fix  [shape=parallelogram, script="fix {{ context.response.lint }} {{ context.response.other }}", retry_target=lint, class=quick, max_retries=1]
    test [shape=hexagon, human.default_choice=lint]
    subgraph c { label="In there"; fix }
    test -> lint [condition="output.lint.score < 3 && context.internal.retry_count.fix > 0"]
}"#;

#[test]
fn a_file_stands_in_the_place_of_its_node() {
    insta::assert_snapshot!(outline(
        r#"digraph { node [shape=box]; start -> v -> exit [label=done]; plan -> v [condition="x"];
           start -> plan; v [import="./parts/check.fabro", class="a b", model=m, max_retries=3, acp.command=c];
           plan [retry_target=v, prompt="p"]; graph [retry_target=v] }"#,
        &[("parts/check.fabro", CHECK), ("parts/ask/lint.md", "Look at {{ context.output.lint.x }}, not response.lint.")],
    ), @r#"
    t retry_target="v.lint"
    start: start *shape=box
    v.lint: agent .v .a .b *acp.command=c *max_retries=3 *model=m prompt="Look at {{ context.output.v.lint.x }}, not response.lint." *timeout=5m
    v.fix: command .quick .in-there .v .a .b *acp.command=c class=quick max_retries=1 *model=m retry_target="v.lint" script="fix {{ context.response.v.lint }} {{ context.response.other }}" shape=parallelogram *timeout=5m
    v.test: human .v .a .b *acp.command=c human.default_choice="v.lint" *max_retries=3 *model=m shape=hexagon *timeout=5m
    exit: exit *shape=box
    plan: agent prompt="p" retry_target="v.lint" *shape=box
    v.lint -> v.fix
    v.fix -> v.test
    v.test -> v.lint condition="output.v.lint.score < 3 && context.internal.retry_count.v.fix > 0"
    start -> v.lint label=done
    v.test -> exit label=done
    plan -> v.lint condition="x"
    start -> plan
    "#);
}

#[test]
fn one_file_many_times_and_files_in_files() {
    let outer = r#"digraph { start -> x -> exit; x [import="../inner.fabro", model=m] }"#;
    let inner = r#"digraph { start -> a -> exit; a [prompt="{{ context.response.a }}"] }"#;
    let files = [("sub/outer.fabro", outer), ("inner.fabro", inner)];
    insta::assert_snapshot!(outline(
        r#"digraph { start -> a -> b -> c -> exit; a [import="inner.fabro"] b [import="sub/outer.fabro", provider=p] c [import="./sub/../inner.fabro"] }"#,
        &files,
    ), @r#"
    t
    start: start
    a.a: agent .a prompt="{{ context.response.a.a }}"
    b.x.a: agent .x .b *model=m prompt="{{ context.response.b.x.a }}" *provider=p
    c.a: agent .c prompt="{{ context.response.c.a }}"
    exit: exit
    start -> a.a
    a.a -> b.x.a
    b.x.a -> c.a
    c.a -> exit
    "#);
    let drawn = read(
        r#"digraph { start -> b -> exit; subgraph s { label=S; b [import="sub/outer.fabro"] } }"#,
        &files,
    );
    insta::assert_snapshot!(drawn.to_dot(), @r#"
    digraph "t" {
        "start" [shape=Mdiamond]
        "exit" [shape=Msquare]
        subgraph "s" {
            label="S"
            subgraph "cluster_b" {
                label="b"
                "b.x.a" ["model"="m", "prompt"="{{ context.response.b.x.a }}", shape=box]
                subgraph "cluster_b.cluster_x" {
                    label="x"
                    "b.x.a"
                }
            }
        }
        "start" -> "b.x.a"
        "b.x.a" -> "exit"
    }
    "#);
}

#[test]
fn a_gate_may_have_the_exit_as_its_default() {
    let file = "digraph { start -> g -> exit; g [shape=hexagon, human.default_choice=exit] g -> g [label=again] }";
    let main = r#"digraph { start -> v -> w -> exit; v [import="x"] w [import="x"] }"#;
    let workflow = read(main, &[("x", file)]);
    let default =
        |id| workflow.node(workflow.find(id).unwrap()).attrs.text("human.default_choice").unwrap();
    assert_eq!([default("v.g"), default("w.g")], ["w.g", "exit"]);
}

#[test]
fn what_is_wrong_is_told_with_file_line_and_column() {
    let main = r#"digraph { start -> v -> exit; v [import="x.fabro"] }"#;
    let of = |text: &str| wrong(main, &[("x.fabro", text)]);
    insta::assert_snapshot!(wrong(main, &[]), @r#"missing-file at "x.fabro": `import` names the file `x.fabro`: no such file; create the file, or correct the path, which is relative to the file that it stands in"#);
    insta::assert_snapshot!(of("digraph {\n  start -> a -> \n}"), @r#"syntax at "x.fabro": x.fabro:3:1: expected a name, a quoted string or `{`, found `}`; write the id of a node"#);
    insta::assert_snapshot!(of("digraph {\n  start -> a -> exit\n  a [prompt=\"@gone.md\", timeout=abc] }"), @r#"
    attribute-value at "x.fabro": x.fabro:3:33: `timeout` is a duration, not `abc`; write a whole number and ms, s, m, h or d, such as timeout=30s
    missing-file at "x.fabro": x.fabro:3:13: `prompt` names the file `gone.md`: no such file; create the file, correct the path, which is relative to this workflow, or write @@ for a text that begins with @
    "#);
    insta::assert_snapshot!(of("digraph { start -> a; start -> b; a -> exit; b -> exit }"), @r#"import at "x.fabro": `x.fabro` cannot be imported: it needs one edge out of its start and one into its exit, both without attributes; lead its ways together in one node before the exit, and its beginnings behind one node after the start"#);
    insta::assert_snapshot!(of("digraph { start -> a -> exit [label=x] }"), @r#"import at "x.fabro": `x.fabro` cannot be imported: it needs one edge out of its start and one into its exit, both without attributes; lead its ways together in one node before the exit, and its beginnings behind one node after the start"#);
    insta::assert_snapshot!(of("digraph { a -> exit }"), @r#"import at "x.fabro": `x.fabro` has not exactly one start and one exit; give it one start node and one exit node"#);
    insta::assert_snapshot!(of("digraph { start -> exit }"), @r#"import at "x.fabro": `x.fabro` cannot be imported: no stage is between its start and its exit, or edges lead into its start or out of its exit; correct the file: `start -> first … last -> exit`"#);
    insta::assert_snapshot!(of("digraph { start -> a -> exit; default_model=m; goal=g }"), @r#"import at "x.fabro": x.fabro:1:31: `default_model` has no effect in an imported file; write it in the graph of the importing workflow"#);
    insta::assert_snapshot!(of(main), @r#"import at "x.fabro": x.fabro:1:41: imports go round: x.fabro -> x.fabro; take one of these imports out"#);
    insta::assert_snapshot!(wrong(r#"digraph { start -> v -> exit; v [import="x.fabro", prompt=p, label=L, color=red, inputs.a=1] }"#, &[("x.fabro", CHECK)]), @r"
    import at inputs.a: `inputs.a` cannot stand on `v`, which imports a file; write it in the file; here may stand class, acp.command, acp.config, backend, fidelity, max_retries, model, provider, reasoning_effort, speed, thread_id
    import at label: `label` cannot stand on `v`, which imports a file; write it in the file; here may stand class, acp.command, acp.config, backend, fidelity, max_retries, model, provider, reasoning_effort, speed, thread_id
    import at prompt: `prompt` cannot stand on `v`, which imports a file; write it in the file; here may stand class, acp.command, acp.config, backend, fidelity, max_retries, model, provider, reasoning_effort, speed, thread_id
    ");
}

proptest! {
    #[test]
    fn any_file_can_be_tried(inner in document(), outer in document()) {
        let main = r#"digraph { start -> v -> w -> exit; v [import="outer"] w [import="inner"] }"#;
        let outer = outer.replacen('{', "{ start -> a -> exit; a [import=inner] ", 1);
        let workflow = read(main, &[("inner", &inner), ("outer", &outer)]);
        let mut findings = workflow.findings().to_vec();
        workflow.place(&mut findings);
        for finding in findings {
            prop_assert!(main.get(finding.span.start..finding.span.end).is_some(), "{finding:?}");
        }
        prop_assert_eq!(workflow.own_source(), main);
        for (ix, node) in workflow.node_indices().zip(workflow.nodes()) {
            prop_assert_eq!(workflow.find(&node.id), Some(ix));
        }
    }
}

#[test]
fn imports_end() {
    let nested = |depth: usize| {
        let text = |at: usize| {
            let import =
                if at < depth { format!(" [import=\"{}\"]", at + 1) } else { String::new() };
            format!("digraph {{ start -> a -> exit; a{import} }}")
        };
        let files: Vec<(String, String)> =
            (1..=depth).map(|at| (at.to_string(), text(at))).collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(name, text)| (&**name, &**text)).collect();
        wrong(&text(0), &files)
    };
    assert_eq!(nested(16), "");
    assert!(nested(17).contains("nested more than 16 deep"), "{}", nested(17));
    // Each file imports the next one twice.
    let text = |at: usize| {
        format!(
            "digraph {{ start -> a -> b -> c -> d -> exit; node [import=\"{}\"]; a; b; c; d }}",
            at + 1
        )
        .replace("start -> a -> b -> c -> d -> exit; node", "node")
        .replace(
            "]; a; b; c; d",
            "]; a; b; c; d; node [import=\"\"]; start -> a -> b -> c -> d -> exit",
        )
    };
    let files: Vec<(String, String)> = (1..16).map(|at| (at.to_string(), text(at))).collect();
    let mut files: Vec<(&str, &str)> =
        files.iter().map(|(name, text)| (&**name, &**text)).collect();
    files.push(("16", "digraph { start -> a -> exit }"));
    let report = wrong(&text(0), &files);
    assert!(report.contains("imports make more than 200000"), "{report}");
}

#[test]
fn a_node_is_found_in_the_text_that_defines_it() {
    let main =
        "digraph { start -> a -> v -> exit\na [\nprompt=x]\nv [import=\"p.fabro\", model=m] }";
    let part = "digraph { start -> b -> c -> exit\n\nb [prompt=y]\n}";
    let workflow = read(main, &[("p.fabro", part)]);
    let texts = workflow.texts();
    assert_eq!(texts, [("", main), ("p.fabro", part)]);
    let check = |id: &str, file: usize, at: &str| {
        let node = workflow.node(workflow.find(id).unwrap());
        let (found, offset) = workflow.place_of(node);
        assert_eq!(found, file, "{id}");
        assert!(texts[file].1[offset..].starts_with(at), "{id}: {}", &texts[file].1[offset..]);
    };
    check("a", 0, "a [\nprompt=x");
    check("start", 0, "start -> a");
    check("v.b", 1, "b [prompt=y");
    // The model that it is given is written in the other text.
    check("v.c", 1, "c -> exit");
}

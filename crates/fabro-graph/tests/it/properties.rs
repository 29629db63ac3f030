use std::collections::{BTreeMap, BTreeSet};

use fabro_graph::ast::{Attribute, AttributeList, Body, Comment, Document, End, StatementKind};
use fabro_graph::{Node, NodeKind, Workflow, format, parse};
use proptest::prelude::*;

fn comment() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => Just(" ".to_owned()),
        4 => Just("\n".to_owned()),
        1 => Just("\n\n\n".to_owned()),
        1 => "[ a-z{}\"\\\\]{0,6}".prop_map(|text| format!(" //{text}\n")),
        1 => "[ a-z{}\"\\n]{0,6}".prop_map(|text| format!(" /*{text}*/ ")),
        1 => "[ a-z{}\"]{0,6}".prop_map(|text| format!("\r\n\t#{text}\r\n")),
    ]
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "\"([a-z \\[\\]{};=#<>/*-]|\\\\[\"\\\\nt\ndl]|\r?\n|é|\t){0,8}\"",
        "\"[a-z]{0,3}\" *\\+ *\"[a-z\\\\\\\\]{0,3}\""
            .prop_filter("whole escapes", |text| { !text.replace("\\\\", "").contains('\\') }),
        "[a-zé][a-z0-9.:/-]{0,6}[a-z0-9]".prop_filter("no comment", |text| !text.contains("//")),
        "-?[0-9]{1,4}(ms|s|m|h|d)?",
        "-?[0-9]{0,2}\\.[0-9]{1,2}",
        prop_oneof!["true", "false", "node", "Edge"],
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[a-d]",
        1 => "\"[a-d]\"",
        1 => "[a-z][a-z0-9.-]{0,3}[a-z0-9]".prop_filter("no keyword", |text| {
            !["node", "edge"].contains(&text.as_str()) && !text.contains("--")
        }),
        1 => "\"(\\\\\"|[a-z \\n-]){0,4}\"",
        1 => Just("\"node\"".to_owned()),
    ]
}

fn list() -> impl Strategy<Value = String> {
    let attribute = (comment(), name(), comment(), value(), prop_oneof![",", ";", " "], comment())
        .prop_map(|(a, key, b, value, end, c)| format!("{a}{key}{b}={b}{value}{c}{end}"));
    prop::collection::vec(attribute, 0..4).prop_map(|items| format!("[{}]", items.concat()))
}

fn statements() -> impl Strategy<Value = String> {
    let lists = || prop::collection::vec(list(), 0..3).prop_map(|lists| lists.concat());
    let leaf = prop_oneof![
        (name(), lists()).prop_map(|(name, list)| format!("{name} {list}")),
        (prop_oneof!["node", "edge", "GRAPH"], comment(), list())
            .prop_map(|(word, gap, list)| format!("{word}{gap}{list}")),
        (name(), comment(), value()).prop_map(|(key, gap, value)| format!("{key}{gap}={value}")),
    ];
    let end = |of| prop_oneof![";", "\n", " ; ;\n"].prop_map(move |end| format!("{of}{end}"));
    leaf.prop_recursive(3, 24, 4, move |inner| {
        let block = (prop::collection::vec((inner, comment()), 0..4), comment()).prop_map(
            |(statements, last)| {
                let joined: String =
                    statements.iter().map(|(text, gap)| format!("{gap}{text};{gap}")).collect();
                format!("{{{joined}{last}}}")
            },
        );
        let group = (prop_oneof!["", "subgraph ", "subgraph x ", "subgraph \"a b\" "], block)
            .prop_map(|(head, block)| format!("{head}{block}"))
            .boxed();
        let port = name().prop_map(|name| format!("{name}:s : w"));
        let chain_end = prop_oneof![3 => name(), 1 => port, 1 => group.clone()];
        prop_oneof![
            group,
            (prop::collection::vec((chain_end, comment()), 2..4), lists()).prop_map(
                |(ends, list)| {
                    let ends: Vec<_> =
                        ends.iter().map(|(text, gap)| format!("{text}{gap}")).collect();
                    format!("{} {list}", ends.join("->"))
                }
            ),
        ]
    })
    .prop_flat_map(end)
}

pub(crate) fn document() -> impl Strategy<Value = String> {
    (comment(), prop::collection::vec((statements(), comment()), 0..6), comment()).prop_map(
        |(head, body, tail)| {
            let body: String = body.iter().map(|(text, gap)| format!("{text}{gap}")).collect();
            format!("{head}strict {head}digraph{head}G{head}{{{body}{tail}}}{tail}")
        },
    )
}

/// Everything that was written, without places, quotes and empty lines.
fn shape(document: &Document<'_>) -> String {
    fn body(of: &Body<'_>, out: &mut String) {
        for statement in &of.statements {
            match &statement.kind {
                StatementKind::Assignment(item) => {
                    out.push_str(&format!("{}={};", item.key.text, value(item)));
                }
                StatementKind::Defaults(of, list) => {
                    out.push_str(&format!("{of:?}"));
                    items(list, out);
                }
                StatementKind::Chain(ends, list) => {
                    for end in ends {
                        match end {
                            End::Node(name, ports) => {
                                out.push_str(&format!("->{:?}", name.text));
                                for port in ports {
                                    out.push_str(&format!(":{}", port.text));
                                }
                            }
                            End::Group(group) => {
                                let name = group.name.as_ref().map(|name| &name.text);
                                out.push_str(&format!("->{name:?}{{"));
                                body(&group.body, out);
                                out.push('}');
                            }
                        }
                    }
                    items(list, out);
                }
            }
        }
    }
    fn value(item: &Attribute<'_>) -> String {
        item.value.source().trim_matches('"').to_owned()
    }
    fn items(list: &AttributeList<'_>, out: &mut String) {
        for item in &list.items {
            out.push_str(&format!("[{}={}]", item.key.text, value(item)));
        }
        out.push(';');
    }
    let mut out = String::new();
    body(&document.body, &mut out);
    out
}

/// The texts of all comments; their order may change where one moves out of an edge.
fn comments(document: &Document<'_>) -> Vec<String> {
    fn body(of: &Body<'_>, out: &mut Vec<Comment>) {
        for statement in &of.statements {
            out.extend(statement.leading.iter().chain(statement.trailing.as_deref()).cloned());
            let list = match &statement.kind {
                StatementKind::Assignment(item) => {
                    out.extend(item.leading.iter().chain(item.trailing.as_deref()).cloned());
                    continue;
                }
                StatementKind::Defaults(_, list) => list,
                StatementKind::Chain(ends, list) => {
                    for end in ends {
                        if let End::Group(group) = end {
                            body(&group.body, out);
                        }
                    }
                    list
                }
            };
            for item in &list.items {
                out.extend(item.leading.iter().chain(item.trailing.as_deref()).cloned());
            }
            out.extend(list.dangling.iter().cloned());
        }
        out.extend(of.dangling.iter().cloned());
    }
    let mut all = document.head.clone();
    body(&document.body, &mut all);
    all.extend(document.tail.iter().cloned());
    let mut texts: Vec<String> = all.into_iter().map(|comment| comment.text).collect();
    texts.sort();
    texts
}

/// What a node is, by id; its classes in any order.
fn nodes<'a>(workflow: &'a Workflow) -> BTreeMap<&'a str, (NodeKind, BTreeSet<&'a str>)> {
    let what = |node: &'a Node| {
        let classes = node.classes.iter().map(String::as_str).collect();
        (&*node.id, (node.kind, classes))
    };
    workflow.nodes().map(what).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn printing_and_parsing_is_the_identity(source in document()) {
        let document = parse(&source).unwrap_or_else(|error| panic!("{}: {source}", error.message));
        let text = format(&document);
        let again = parse(&text).unwrap_or_else(|error| panic!("{}: {text}", error.message));
        prop_assert_eq!(shape(&again), shape(&document));
        prop_assert_eq!(comments(&again), comments(&document));
        prop_assert_eq!(format(&again), text);
    }

    #[test]
    fn dot_reads_back(source in document()) {
        let workflow = Workflow::from_source("x", &source).unwrap();
        let again = Workflow::from_source("x", &workflow.to_dot()).unwrap();
        prop_assert_eq!(nodes(&again), nodes(&workflow));
        prop_assert_eq!(again.edges().len(), workflow.edges().len());
    }

    #[test]
    fn nothing_panics(source in "(digraph \\{)?([a-c]|->|--|[\\[\\]{}=;,\"\\\\/*#<:+ \n-]|node|é|\u{feff}){0,60}") {
        match Workflow::from_source("x", &source) {
            Ok(workflow) => {
                let spans = workflow.findings().iter().map(|finding| finding.span);
                for span in spans.chain(workflow.nodes().map(|node| node.span)) {
                    prop_assert!(source.get(span.start..span.end).is_some());
                }
                let text = format(&parse(&source).unwrap());
                prop_assert_eq!(format(&parse(&text).unwrap()), text);
            }
            Err(error) => prop_assert!(source.get(error.span.start..error.span.end).is_some()),
        }
    }
}

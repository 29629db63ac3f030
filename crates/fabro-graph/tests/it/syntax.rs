use fabro_graph::parse;

/// The error of a source that does not parse.
#[track_caller]
fn refuse(source: &str) -> String {
    let error = parse(source).expect_err("this is refused");
    crate::findings(source, &[error])
}

#[test]
fn each_refusal_has_its_own_rule() {
    insta::assert_snapshot!(refuse("digraph { a -- b }"), @r#"undirected-edge at 12..14 "--": `--` is an undirected edge; write `->`"#);
    insta::assert_snapshot!(refuse("graph { a -- b }"), @r#"not-a-digraph at 0..5 "graph": a `graph` has undirected edges; a workflow is written as digraph Name { … }"#);
    insta::assert_snapshot!(refuse("digraph { a [label=<b>x</b>] }"), @r#"html-label at 19..20 "<": HTML-like labels are not part of the language; write the label in double quotes"#);
    insta::assert_snapshot!(refuse("strict graph { a -> b }"), @r#"not-a-digraph at 0..6 "strict": this is no `strict digraph`; a workflow is written as digraph Name { … }"#);
    insta::assert_snapshot!(refuse("digraph { {a}:n -> b }"), @r#"port at 13..15 ":n": a port stands behind a node only; remove the colon and what follows it"#);
    insta::assert_snapshot!(refuse("digraph { a [x=1]:n }"), @r#"port at 17..19 ":n": a port stands behind a node only; remove the colon and what follows it"#);
    insta::assert_snapshot!(refuse("digraph A { a } digraph B { b }"), @r#"second-graph at 16..23 "digraph": a file holds one graph only; move this graph into a file of its own"#);
    insta::assert_snapshot!(refuse("digraph A { a } Strict graph B { b }"), @r#"second-graph at 16..22 "Strict": a file holds one graph only; move this graph into a file of its own"#);
    insta::assert_snapshot!(refuse(""), @r#"not-a-digraph at 0..0 "": expected `digraph`, found the end; a workflow is written as digraph Name { … }"#);
    insta::assert_snapshot!(refuse("// only this\n"), @r#"not-a-digraph at 13..13 "": expected `digraph`, found the end; a workflow is written as digraph Name { … }"#);
    insta::assert_snapshot!(refuse("workflow { a -> b }"), @r#"not-a-digraph at 0..8 "workflow": expected `digraph`, found `workflow`; a workflow is written as digraph Name { … }"#);
    insta::assert_snapshot!(refuse("\u{0}\u{1}"), @r#"not-a-digraph at 0..1 "\0": expected `digraph`, found \u{0}; a workflow is written as digraph Name { … }"#);
    insta::assert_snapshot!(refuse("digraph { node -> a }"), @r#"node-id at 10..14 "node": `node` is a keyword, not a node id; write node [key=value] for defaults, or choose another id; "node" in quotes is a node"#);
    insta::assert_snapshot!(refuse("digraph { a -> Edge }"), @r#"node-id at 15..19 "Edge": `Edge` is a keyword, not a node id; write Edge [key=value] for defaults, or choose another id; "Edge" in quotes is a node"#);
    insta::assert_snapshot!(refuse("digraph { subgraph x }"), @r#"syntax at 10..18 "subgraph": a subgraph without its braces; write subgraph name { … }"#);
}

#[test]
fn syntax_errors_say_what_is_expected() {
    insta::assert_snapshot!(refuse("digraph { a"), @r#"syntax at 11..11 "": expected a node or edge, `->`, `=`, `[` or `}`, found the end; add the missing `}`"#);
    insta::assert_snapshot!(refuse("digraph { a } }"), @r#"syntax at 14..15 "}": `}` after the end of the graph; remove it, or the closing brace before it"#);
    insta::assert_snapshot!(refuse("digraph { a [label=\"x\" }"), @r#"syntax at 12..13 "[": these attributes have no closing `]`; add `]` after the last of them"#);
    insta::assert_snapshot!(refuse("digraph { a [label \"x\"] }"), @r#"syntax at 19..20 "\"": expected `=`, found a quoted string; write key=value"#);
    insta::assert_snapshot!(refuse("digraph { a [bold] }"), @r#"syntax at 17..18 "]": expected `=`, found `]`; write key=value"#);
    insta::assert_snapshot!(refuse("digraph { a [label=] }"), @r#"syntax at 19..20 "]": expected a quoted string or a value, found `]`; write strings with whitespace or punctuation in double quotes"#);
    insta::assert_snapshot!(refuse("digraph { a [label=“x”] }"), @r#"syntax at 19..22 "“": expected a quoted string or a value, found `“`; use straight double quotes"#);
    insta::assert_snapshot!(refuse("digraph { a [label='x'] }"), @r#"syntax at 19..20 "'": expected a quoted string or a value, found `'`; write strings in double quotes"#);
    insta::assert_snapshot!(refuse("digraph { a [script=echo $HOME] }"), @r#"syntax at 25..26 "$": expected an attribute or `]`, found `$`; put the text in double quotes: script="…""#);
    insta::assert_snapshot!(refuse("digraph { a [color=#ff0000] }"), @r##"syntax at 19..20 "#": a `#` begins a comment only at the start of a line; write `//` for a comment, or put the value with the `#` in quotes"##);
    insta::assert_snapshot!(refuse("digraph { a -> }"), @r#"syntax at 15..16 "}": expected a name, a quoted string or `{`, found `}`; write the id of a node"#);
    insta::assert_snapshot!(refuse("digraph { a > b }"), @r#"syntax at 12..13 ">": expected a node or edge, `->`, `=`, `[` or `}`, found `>`; write `->` for an edge"#);
    insta::assert_snapshot!(refuse("digraph { {a b} [x=1] }"), @r#"syntax at 20..21 "]": a subgraph takes its attributes inside its braces; write them inside as key=value, or as node [..] for the nodes in it"#);
    insta::assert_snapshot!(refuse("digraph { a [x=1] -> b }"), @r#"syntax at 18..20 "->": an edge cannot begin at attributes; write the attributes after the last node of the edge"#);
    insta::assert_snapshot!(refuse("digraph { a [x=\"1\" + ] }"), @r#"syntax at 21..22 "]": expected a quoted string, found `]`; -"#);
    insta::assert_snapshot!(refuse("digraph two words { }"), @r#"syntax at 12..17 "words": expected `{`, found `words`; put a name of several words in quotes"#);
    insta::assert_snapshot!(refuse("digraph { goal= }"), @r#"syntax at 16..17 "}": expected a quoted string or a value, found `}`; write strings with whitespace or punctuation in double quotes"#);
}

#[test]
fn usual_mistakes_are_named() {
    insta::assert_snapshot!(refuse("digraph { a [prompt=Write the code, max_visits=3] }"), @r#"syntax at 30..34 "code": expected `=`, found `code`; put the text in double quotes: prompt="…""#);
    insta::assert_snapshot!(refuse("digraph { a [max_visits=3, label=Hello world, prompt=x] }"), @r#"syntax at 44..45 ",": expected `=`, found `,`; put the text in double quotes: label="…""#);
    insta::assert_snapshot!(refuse("digraph { a -> b [condition=outcome=success] }"), @r#"syntax at 35..36 "=": expected an attribute or `]`, found `=`; put the text in double quotes: condition="…""#);
    insta::assert_snapshot!(refuse("digraph { a [prompt=\"say \"hello\" now\"] }"), @r#"syntax at 31..32 "\"": expected `=`, found a quoted string; write \" for a quote inside a string, and a comma between attributes"#);
    insta::assert_snapshot!(refuse("digraph {\n  a [prompt=\"x\"\n  b [prompt=\"y\"]\n}"), @r#"syntax at 14..15 "[": these attributes have no closing `]`; add `]` after the last of them"#);
    insta::assert_snapshot!(refuse("digraph {\n  a [prompt=x,\n  b -> c\n}"), @r#"syntax at 14..15 "[": these attributes have no closing `]`; add `]` after the last of them"#);
    insta::assert_snapshot!(refuse("digraph {\n  a [prompt=\"]\"\n"), @r#"syntax at 14..15 "[": these attributes have no closing `]`; add `]` after the last of them"#);
    insta::assert_snapshot!(refuse("digraph { a => b }"), @r#"syntax at 13..14 ">": expected a quoted string or a value, found `>`; write `->` for an edge"#);
    insta::assert_snapshot!(refuse("digraph { a --> b }"), @r#"syntax at 14..15 ">": expected a name, a quoted string or `{`, found `>`; write `->` for an edge"#);
}

#[test]
fn what_is_never_closed_is_reported_where_it_opens() {
    let source = "digraph {\n  a [x=\"1\", prompt=\"hello]\n  b [prompt=\"there\"]\n}";
    assert_eq!(refuse(&source.replace("there\"", "there")), refuse(source));
    assert_eq!(refuse(&source.replace("there", "# x <b>")), refuse(source));
    insta::assert_snapshot!(refuse(source), @r#"syntax at 29..30 "\"": this string is never closed; end it with " and write \" for a quote inside it"#);
    insta::assert_snapshot!(refuse("digraph {\n  a [prompt=\"x]\n  b -> c\n}\n"), @r#"syntax at 22..23 "\"": this string is never closed; end it with " and write \" for a quote inside it"#);
    insta::assert_snapshot!(refuse("digraph { a /* b }"), @r#"syntax at 12..14 "/*": this comment is never closed; end it with */"#);
    insta::assert_snapshot!(refuse("digraph { a [x=\"\\\"] }"), @r#"syntax at 15..16 "\"": this string is never closed; end it with " and write \" for a quote inside it"#);
}

#[test]
fn keywords_and_names_take_any_case_and_quotes() {
    for source in [
        "digraph{}",
        "DiGraph \"two words\" { NODE [shape=box] SubGraph x { a } }",
        "\u{feff}digraph {\r\n\ta -> b;\r\n}\r\n",
        "#!/usr/bin/env fabro\n# top\ndigraph /* a */ x // b\n{\n  # c\n}\n// d",
        "digraph { digraphs; nodes; \"node\" -> \"edge\"; node=1; é -> b }",
        "digraph my-flow.v2 { a->b->c;;; ; d e f; {} {g} }",
        "digraph { a [] [x=1][y=2;z=3 w=4,] }",
        "digraph { a [x=\"// no /* comment # {{{ <b>\", y=/a/b.c:d] // } \n }",
        "digraph { a [x=-5, y=-.5, z=5., w=.5] b -> c [x=a-b]->d }",
    ] {
        if let Err(error) = parse(source) {
            assert!(source.ends_with("->d }"), "{source}: {}", error.message);
        }
    }
}

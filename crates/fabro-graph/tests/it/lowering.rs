use fabro_graph::{EdgeIx, NodeKind, Origin, Value, Workflow, schema};

/// The workflow and what is wrong with it.
#[track_caller]
fn lower(source: &str) -> String {
    let workflow = Workflow::from_source("file", source).unwrap();
    format!("{}{}", crate::outline(&workflow), crate::findings(source, workflow.findings()))
}

#[test]
fn nodes_come_in_the_order_of_their_first_mention() {
    insta::assert_snapshot!(lower("digraph { a -> b -> c; d; b -> a [weight=2] a [x=1] a [x=2, y=z] }"), @r#"
    file
    a: agent x=2 y=z
    b: agent
    c: agent
    d: agent
    a -> b
    b -> c
    b -> a weight=2
    "#);
}

#[test]
fn the_name_comes_from_the_graph_or_the_file() {
    insta::assert_snapshot!(lower("digraph \"Two words\" {}"), @"Two words");
    insta::assert_snapshot!(lower("digraph {}"), @"file");
    insta::assert_snapshot!(lower("digraph \"\" {}"), @"file");
}

#[test]
fn defaults_hold_for_what_comes_after_them_in_their_scope() {
    insta::assert_snapshot!(lower(r"digraph {
        a
        node [timeout=1s, fidelity=compact]
        edge [weight=1]
        b -> a
        subgraph { node [fidelity=full] edge [weight=2] c -> d [weight=3]; b }
        e -> c
        node [timeout=2s]
        f [timeout=3s]
        a [x=y]
    }"), @r#"
    file
    a: agent x=y
    b: agent *fidelity="compact" *timeout=1s
    c: agent *fidelity="full" *timeout=1s
    d: agent *fidelity="full" *timeout=1s
    e: agent *fidelity="compact" *timeout=1s
    f: agent timeout=3s *fidelity="compact"
    b -> a *weight=1
    c -> d weight=3
    e -> c *weight=1
    late-default at 128..136 "fidelity": the default `fidelity` does not reach `b`: first mentioned before it, in line 5; move the defaults before the first mention of `b`, or write fidelity on the node
    "#);
}

#[test]
fn chains_and_groups_multiply() {
    insta::assert_snapshot!(lower("digraph { a -> {b; c} -> {d e} [label=x] {f -> g} -> h -> h }"), @r#"
    file
    a: agent
    b: agent
    c: agent
    d: agent
    e: agent
    f: agent
    g: agent
    h: agent
    a -> b label=x
    a -> c label=x
    b -> d label=x
    b -> e label=x
    c -> d label=x
    c -> e label=x
    f -> g
    f -> h
    g -> h
    h -> h
    "#);
}

#[test]
fn a_subgraphs_label_is_a_class_of_its_nodes() {
    insta::assert_snapshot!(lower(r#"digraph {
        z
        subgraph cluster_1 {
            label = "Loop A"
            a [class="x, y x"]
            subgraph { graph [label="  Über-Prüfung (2)! "] b -> z }
            b
        }
        subgraph { label="***" c }
        subgraph { label="loop a" a }
        a -> c
    }"#), @r#"
    file
    z: agent .über-prüfung-2 .loop-a
    a: agent .x .y .loop-a class="x, y x"
    b: agent .über-prüfung-2 .loop-a
    c: agent
    b -> z
    a -> c
    "#);
}

#[test]
fn the_handler_comes_from_type_then_shape_then_id() {
    insta::assert_snapshot!(lower(r#"digraph {
        start [shape=circle]
        Start [shape=hexagon]
        exit [type=command]
        End
        end [node_type="codergen"]
        Exit [node_type="whatever"]
        a [shape=house, type="wait.human"]
        b [shape=unknown]
        c [shape=insulator, type=tool]
        d
    }"#), @r#"
    file
    start: start shape=circle
    Start: human shape=hexagon
    exit: command type="command"
    End: exit
    end: agent type="codergen"
    Exit: exit node_type="whatever"
    a: human shape=house type="wait.human"
    b: agent shape=unknown
    c: command shape=insulator type="tool"
    d: agent
    "#);
    insta::assert_snapshot!(lower("digraph { node [shape=tab] start -> a -> exit }"), @r#"
    file
    start: start *shape=tab
    a: prompt *shape=tab
    exit: exit *shape=tab
    start -> a
    a -> exit
    "#);
    for kind in NodeKind::ALL {
        let source = format!("digraph {{ a [shape={}]; b [type={kind}] }}", kind.shape());
        let workflow = Workflow::from_source("x", &source).unwrap();
        assert!(workflow.nodes().all(|node| node.kind == *kind), "{kind}");
        assert_eq!(workflow.findings(), []);
    }
}

#[test]
fn older_names_are_kept_under_the_names_of_today() {
    insta::assert_snapshot!(lower(r#"digraph {
        graph [default_max_retry=2, context_fidelity_default="full", context_thread_default=t]
        node [llm_model=old, llm_provider=openai]
        a [llm_prompt="older", max_agent_turns="9"]
        a [prompt="newer", model=m]
        b [prompt="newer", llm_prompt="older", tool_command="ls"]
        a -> b [llm_model=kept]
    }"#), @r#"
    file default_fidelity="full" default_max_retries=2 default_thread=t
    a: agent max_turns=9 model=m prompt="newer" *provider=openai
    b: command prompt="newer" script="ls" *model=old *provider=openai
    a -> b llm_model=kept
    duplicate-node at 218..224 "prompt": `a` has another `llm_prompt` in line 4; give one of the two nodes another id, or remove one `prompt`
    "#);
}

#[test]
fn values_get_the_type_of_their_attribute() {
    insta::assert_snapshot!(lower(r#"digraph {
        graph [max_cost=".5", stall_timeout=0, goal=12, max_node_visits="3"]
        a [timeout="15m", duration=2, max_retries="2", goal_gate="TRUE", label=007, prompt=true]
        b [model=gpt-5.2-codex, fidelity=summary:high, backend=" api ", timeout=1.5, x="3", y=3, z=2h]
        a -> b [weight="-2", freeform=true, condition=false, loop_restart="false"]
    }"#), @r#"
    file goal="12" max_cost=0.5 max_node_visits=3 stall_timeout=0
    a: agent duration=2 goal_gate=true label="007" max_retries=2 prompt="true" timeout=15m
    b: agent backend="api" fidelity="summary:high" model=gpt-5.2-codex timeout=1.5 x="3" y=3 z=2h
    a -> b condition="false" freeform=true loop_restart=false weight=-2
    "#);
}

#[test]
fn values_of_another_type_are_errors() {
    insta::assert_snapshot!(lower(r#"digraph {
        graph [max_cost=-1, stall_timeout=soon, loop_restart_signature_limit=0]
        a [timeout=1.5h, max_retries=many, goal_gate=yes, fidelity=all, max_parallel=0]
        b [timeout="-3", max_retries=99999999999999999999, duration=99999999999999999d, type=robot]
        a -> b [weight=1.5]
    }"#), @r#"
    file loop_restart_signature_limit=0 max_cost=-1 stall_timeout=soon
    a: agent fidelity=all goal_gate=yes max_parallel=0 max_retries=many timeout=1.5h
    b: agent duration=99999999999999999d max_retries=1e20 timeout="-3" type=robot
    a -> b weight=1.5
    attribute-value at 34..36 "-1": `max_cost` is a number from 0, not `-1`; write a number, such as max_cost=2.5
    attribute-value at 52..56 "soon": `stall_timeout` is a duration, not `soon`; write a whole number and ms, s, m, h or d, such as stall_timeout=30s
    attribute-value at 87..88 "0": `loop_restart_signature_limit` is a whole number from 1, not `0`; write a whole number, such as loop_restart_signature_limit=3
    attribute-value at 109..113 "1.5h": `timeout` is a duration, not `1.5h`; write a whole number and ms, s, m, h or d, such as timeout=30s
    attribute-value at 127..131 "many": `max_retries` is a whole number from 0, not `many`; write a whole number, such as max_retries=3
    attribute-value at 143..146 "yes": `goal_gate` is true or false, not `yes`; write goal_gate=true or goal_gate=false
    attribute-value at 157..160 "all": `fidelity` is full, compact, summary:high, summary:medium, summary:low or truncate, not `all`; use one of full, compact, summary:high, summary:medium, summary:low, truncate
    attribute-value at 175..176 "0": `max_parallel` is a whole number from 1, not `0`; write a whole number, such as max_parallel=3
    attribute-value at 197..201 "\"-3\"": `timeout` is a duration, not `"-3"`; write a whole number and ms, s, m, h or d, such as timeout=30s
    attribute-value at 215..235 "99999999999999999999": `max_retries` is a whole number from 0, not `99999999999999999999`; write a whole number, such as max_retries=3
    attribute-value at 246..264 "99999999999999999d": `duration` is a duration, not `99999999999999999d`; write a whole number and ms, s, m, h or d, such as duration=30s
    unknown-type at 271..276 "robot": no handler is called `robot`, so the shape decides; use one of start, exit, agent, prompt, command, human, conditional, parallel, parallel.fan_in, wait, stack.manager_loop
    "#);
}

#[test]
fn node_ids_are_plain() {
    insta::assert_snapshot!(lower(r#"digraph { "a" -> a; "b c" -> b-c -> 1x -> "" -> é; "node" -> "quote\"d" }"#), @r#"
    file
    a: agent
    b c: agent
    b-c: agent
    1x: agent
    : agent
    é: agent
    node: agent
    quote"d: agent
    a -> a
    b c -> b-c
    b-c -> 1x
    1x -> 
     -> é
    node -> quote"d
    node-id at 20..25 "\"b c\"": "b c" is not a node id; use letters, digits and `_`, not a digit first, such as `b_c`, and put the text into its label
    node-id at 29..32 "b-c": "b-c" is not a node id; use letters, digits and `_`, not a digit first, such as `b_c`, and put the text into its label
    node-id at 36..38 "1x": "1x" is not a node id; use letters, digits and `_`, not a digit first, such as `n1x`, and put the text into its label
    node-id at 42..44 "\"\"": "" is not a node id; use letters, digits and `_`, not a digit first, such as `n`, and put the text into its label
    node-id at 48..50 "é": "é" is not a node id; use letters, digits and `_`, not a digit first, such as `n`, and put the text into its label
    node-id at 62..72 "\"quote\\\"d\"": "quote\"d" is not a node id; use letters, digits and `_`, not a digit first, such as `quote_d`, and put the text into its label
    "#);
    let id = "x".repeat(128);
    assert_eq!(Workflow::from_source("x", &format!("digraph {{ {id} }}")).unwrap().findings(), []);
    let workflow = Workflow::from_source("x", &format!("digraph {{ {id}x }}")).unwrap();
    assert_eq!(workflow.findings()[0].message, "this node id has 129 characters, the limit is 128");
}

#[test]
fn escapes() {
    let source = r#"digraph { a [prompt="q\" b\\ n\n t\t r\d+ \l join\
ed
raw" + ' + ']}"#;
    assert!(Workflow::from_source("x", source).is_err());
    let source = "digraph { a [prompt=\"q\\\" b\\\\n n\\n t\\t r\\d+ join\\\ned\r\nraw \\\r\n!\" +\n \"more\"]}";
    let workflow = Workflow::from_source("x", source).unwrap();
    let prompt = workflow.nodes().next().unwrap().attrs.text("prompt").unwrap();
    assert_eq!(prompt, "q\" b\\n n\n t\t r\\d+ joined\nraw !more");
}

#[test]
fn words() {
    let check = |word: &str, value: Value| {
        assert_eq!(Value::from_word(word), value, "{word}");
        assert_eq!(value.to_string(), word);
    };
    check("12", Value::Int(12));
    check("-12", Value::Int(-12));
    check("1.5", Value::Float(1.5));
    check("true", Value::Bool(true));
    for bare in ["True", "-", ".", "1.2.3", "1e5", "30x", "s", "ms", "a-b", "gpt-5.2", "inf", "NaN"]
    {
        check(bare, Value::Bare(bare.into()));
    }
    assert_eq!(Value::from_word(".5"), Value::Float(0.5));
    assert_eq!(Value::from_word("5."), Value::Float(5.0));
    for (word, milliseconds) in
        [("250ms", 250), ("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("1d", 86_400_000)]
    {
        let value = Value::from_word(word);
        assert_eq!(value.to_string(), word);
        assert_eq!(value.to_duration().unwrap().as_millis(), milliseconds);
        assert_eq!(Value::from(word).to_duration(), value.to_duration());
    }
    assert_eq!(Value::from_word("18446744073709551615d").to_duration(), None);
    assert_eq!(Value::Int(-1).to_duration(), None);
    assert_eq!(Value::Int(i64::MAX).to_duration(), None);
}

#[test]
fn neighbours_are_in_file_order() {
    let workflow =
        Workflow::from_source("x", "digraph { a -> c; a -> b; d -> b; a -> b }").unwrap();
    let a = workflow.find("a").unwrap();
    let b = workflow.find("b").unwrap();
    let targets = workflow.outgoing(a).map(|edge| &*workflow.node(workflow.edge(edge).to).id);
    assert_eq!(targets.collect::<Vec<_>>(), ["c", "b", "b"]);
    assert_eq!(workflow.incoming(b).map(EdgeIx::index).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(workflow.find("e"), None);
    assert_eq!(workflow.start(), None);
}

#[test]
fn a_stylesheet_sets_only_what_is_not_written() {
    let source = "digraph { node [model=scoped] a [provider=own]; start; exit; }";
    let mut workflow = Workflow::from_source("x", source).unwrap();
    let a = workflow.find("a").unwrap();
    for name in ["model", "provider", "speed"] {
        workflow.set_default(a, name, Value::from("sheet"), Origin::Stylesheet);
    }
    let attrs = &workflow.node(a).attrs;
    assert_eq!(
        ["model", "provider", "speed"].map(|name| attrs.text(name).unwrap()),
        ["scoped", "own", "sheet"]
    );
    assert_eq!(attrs.get("speed").unwrap().origin, Origin::Stylesheet);
    assert_eq!(workflow.exits().count(), 1);
    assert_eq!(&*workflow.node(workflow.start().unwrap()).id, "start");
}

#[test]
fn written_attributes_are_listed_once() {
    let source = "digraph { promt=1 node [modle=x] a b c [tpye=y] a -> b -> c [wieght=1] }";
    let workflow = Workflow::from_source("x", source).unwrap();
    let written =
        workflow.written_attrs().map(|(place, attr)| format!("{} {}", place.as_str(), attr.name));
    assert_eq!(
        written.collect::<Vec<_>>(),
        ["graph promt", "node modle", "node tpye", "edge wieght"]
    );
}

#[test]
fn the_schema_is_in_order_and_agrees_with_itself() {
    assert!(schema::ATTRIBUTES.is_sorted_by(|a, b| a.name < b.name));
    assert!(schema::GRAPHVIZ.is_sorted_by(|a, b| a < b));
    for older in schema::OLDER_NAMES {
        assert!(schema::find(older.place, older.name).is_some(), "{}", older.older);
    }
    for attribute in schema::ATTRIBUTES.iter().filter(|attribute| !attribute.default.is_empty()) {
        let place = attribute.places[0];
        let pair = format!("{}=\"{}\"", attribute.name, attribute.default);
        let source = match place {
            schema::Place::Graph => format!("digraph {{ graph [{pair}] }}"),
            schema::Place::Node => format!("digraph {{ a [{pair}] }}"),
            schema::Place::Edge => format!("digraph {{ a -> a [{pair}] }}"),
        };
        let workflow = Workflow::from_source("x", &source).unwrap();
        assert_eq!(workflow.findings(), [], "{}", attribute.name);
    }
}

#[test]
fn empty_values_mean_no_value() {
    insta::assert_snapshot!(lower("digraph { a [type=\"\", shape=\"\", fidelity=\"\", max_visits=\"\", goal_gate=\"\", timeout=\"\"] a -> b [weight=\"\"] b -> a [weight=0.5] }"), @r#"
    file
    a: agent fidelity="" goal_gate="" max_visits="" shape="" timeout="" type=""
    b: agent
    a -> b weight=""
    b -> a weight=0.5
    attribute-value at 18..20 "\"\"": `type` is empty, so its default counts; take it out, or give it a value
    attribute-value at 41..43 "\"\"": `fidelity` is empty, so its default counts; take it out, or give it a value
    attribute-value at 56..58 "\"\"": `max_visits` is empty, so its default counts; take it out, or give it a value
    attribute-value at 70..72 "\"\"": `goal_gate` is empty, so its default counts; take it out, or give it a value
    attribute-value at 82..84 "\"\"": `timeout` is empty, so its default counts; take it out, or give it a value
    attribute-value at 101..103 "\"\"": `weight` is empty, so its default counts; take it out, or give it a value
    "#);
}

#[test]
fn a_number_is_one_in_quotes_and_out_of_them() {
    let weight = |written: &str| {
        let source = format!("digraph {{ a -> b [weight={written}] }}");
        let workflow = Workflow::from_source("w", &source).unwrap();
        assert_eq!(workflow.findings(), [], "{written}");
        workflow.edges().next().unwrap().attrs.float("weight")
    };
    for (word, number) in [("1e3", 1e3), ("5e-1", 0.5), (".5e1", 5.0), ("1.e3", 1e3), ("1E3", 1e3)]
    {
        assert_eq!(weight(word), Some(number), "{word}");
        assert_eq!(weight(&format!("\"{word}\"")), Some(number), "in quotes: {word}");
        let document = format!("digraph {{ a -> b [weight={word}] }}");
        let formatted = fabro_graph::format(&fabro_graph::parse(&document).unwrap());
        assert!(formatted.contains(&format!("weight={word}")), "{formatted}");
    }
    for word in ["1e", "e3", "1e999", "inf", "nan", "0x10"] {
        let source = format!("digraph {{ a -> b [weight={word}] }}");
        let workflow = Workflow::from_source("w", &source).unwrap();
        assert_eq!(workflow.findings().len(), 1, "{word}");
    }
}

#[track_caller]
fn warned(source: &str) -> String {
    let workflow = Workflow::from_source("t", source).unwrap();
    crate::findings(source, workflow.findings())
}

#[test]
fn syntax_without_meaning_is_a_warning() {
    insta::assert_snapshot!(warned("Strict digraph { a -> b }"), @r#"strict-graph at 0..6 "Strict": `strict` means nothing here: several edges between two nodes are allowed; remove `strict`"#);
    insta::assert_snapshot!(warned("digraph { a:n -> b; a -> {c:x:s d}; \"a\":\"p q\" [x=1]; a : w -> b }"), @r#"port at 11..13 ":n": ports mean nothing here: edges lead to nodes (4 ports in this file); remove the colon and what follows it"#);
    insta::assert_snapshot!(warned("digraph { a -> b:s:w }"), @r#"port at 16..18 ":s": ports mean nothing here: the edge leads to the node; remove the colon and what follows it"#);
    let plain = Workflow::from_source("t", "digraph { a -> b; a [x=1] }").unwrap();
    let ports = Workflow::from_source("t", "strict digraph { a:n -> b:s:w; a:e [x=1] }").unwrap();
    assert_eq!(crate::outline(&ports), crate::outline(&plain));
}

#[test]
fn quoted_ids_and_keys_are_the_same() {
    let source =
        r#"digraph { "a" -> b; a ["prompt"="x", "human.default_choice"=b, "tool_command"=y] }"#;
    let quoted = Workflow::from_source("t", source).unwrap();
    let plain =
        Workflow::from_source("t", &source.replace('"', "").replace("=x", "=\"x\"")).unwrap();
    assert_eq!(crate::outline(&quoted).replace('"', ""), crate::outline(&plain).replace('"', ""));
    assert_eq!(quoted.find("a"), plain.find("a"));
    assert!(quoted.findings().is_empty());
    insta::assert_snapshot!(warned("digraph { 1 -> \"b c\" }"), @r#"
    node-id at 10..11 "1": "1" is not a node id; use letters, digits and `_`, not a digit first, such as `n1`, and put the text into its label
    node-id at 15..20 "\"b c\"": "b c" is not a node id; use letters, digits and `_`, not a digit first, such as `b_c`, and put the text into its label
    "#);
}

#[test]
fn attributes_of_a_subgraph_are_reported() {
    insta::assert_snapshot!(warned("digraph { subgraph c { label=L; style=dashed; model=x; llm_model=y; graph [goal=g, timeout=3]; condition=z; a } }"), @r#"
    subgraph-attribute at 46..51 "model": `model` of a subgraph reaches none of its nodes; write node [model=…] in the subgraph, before its nodes
    subgraph-attribute at 55..64 "llm_model": `llm_model` of a subgraph reaches none of its nodes; write node [llm_model=…] in the subgraph, before its nodes
    subgraph-attribute at 75..79 "goal": `goal` has no effect in a subgraph; write it outside of the subgraph: it is an attribute of the graph
    subgraph-attribute at 83..90 "timeout": `timeout` of a subgraph reaches none of its nodes; write node [timeout=…] in the subgraph, before its nodes
    subgraph-attribute at 95..104 "condition": `condition` of a subgraph reaches none of its edges; write edge [condition=…] in the subgraph, before its edges
    "#);
    insta::assert_snapshot!(warned("digraph { subgraph c { node [model=x]; rankdir=LR; a; own=1 } model=x }"), @"");
}

#[test]
fn handlers_of_others_are_named_once() {
    insta::assert_snapshot!(warned("digraph { a [type=\"stack.observe\"] b [node_type=\"stack.observe\"] c [type=stack.steer] d [type=robot] }"), @r#"
    unknown-type at 18..33 "\"stack.observe\"": no handler is called `stack.observe`, so the shape decides: nothing observes a running sub-workflow here; run the sub-workflow with type=stack.manager_loop, and end it by manager.stop_condition
    unknown-type at 73..84 "stack.steer": no handler is called `stack.steer`, so the shape decides: nothing steers a running sub-workflow here; run the sub-workflow with type=stack.manager_loop, and end it by manager.stop_condition
    unknown-type at 94..99 "robot": no handler is called `robot`, so the shape decides; use one of start, exit, agent, prompt, command, human, conditional, parallel, parallel.fan_in, wait, stack.manager_loop
    "#);
}

#[test]
fn a_node_with_a_script_is_a_command_unless_it_has_a_shape_or_type() {
    let source = r#"digraph x {
  node [shape=box]
  own [script=make]
  boxed [shape=box, script=make]
  typed [type=agent, script=make]
  empty [script=" "]
  start [script=make]
  subgraph { node [script=make]; inherits }
  subgraph { node [shape=hexagon]; asks [tool_command=make] }
}
"#;
    let kind = |source: &str, id: &str| {
        let workflow = Workflow::from_source("x", source).unwrap();
        workflow.node(workflow.find(id).unwrap()).kind
    };
    for (id, expected) in [
        ("own", NodeKind::Command),
        ("boxed", NodeKind::Agent),
        ("typed", NodeKind::Agent),
        ("empty", NodeKind::Agent),
        ("start", NodeKind::Start),
        ("inherits", NodeKind::Agent),
        ("asks", NodeKind::Command),
    ] {
        assert_eq!(kind(source, id), expected, "{id}");
    }
    assert_eq!(kind("digraph { node [script=make]; a }", "a"), NodeKind::Command);
}

#[test]
fn statements_of_a_node_must_agree_on_script_and_prompt() {
    let of = |body: &str| {
        let source = format!("digraph x {{\n{body}\n}}\n");
        let workflow = Workflow::from_source("x", &source).unwrap();
        crate::findings(&source, workflow.findings())
    };
    let texts = of("a [prompt=x]\na [label=A]\na [llm_prompt=y]\na [prompt=z]");
    assert_eq!(texts.matches("duplicate-node").count(), 2, "{texts}");
    assert_eq!(texts.matches("`a` has another `prompt` in line 2").count(), 2, "{texts}");
    let scripts = of("a -> b\na [label=A]\na [script=x]\na [script=y, label=B]");
    assert_eq!(scripts.matches("`a` has another `script` in line 4").count(), 1, "{scripts}");
    for agreed in [
        "a [prompt=x]; a [prompt=x]",
        "a [prompt=x, prompt=y]",
        "node [prompt=x]; a [prompt=y]",
        "a [label=x]; a [label=y]",
    ] {
        assert_eq!(of(agreed), "", "{agreed}");
    }
}

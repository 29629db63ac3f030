use fabro_graph::{Workflow, format, parse};

/// The canonical text, after checking that it is its own canonical text and means the same.
#[track_caller]
fn canonical(source: &str) -> String {
    let document = parse(source).unwrap();
    let text = format(&document);
    let again = parse(&text).unwrap_or_else(|error| panic!("{}\n{text}", error.message));
    assert_eq!(format(&again), text);
    let outline = |source: &str| crate::outline(&Workflow::from_source("x", source).unwrap());
    assert_eq!(outline(&text).replace('"', ""), outline(source).replace('"', ""));
    text
}

#[test]
fn one_statement_a_line() {
    insta::assert_snapshot!(canonical("digraph A{graph[goal=\"x\",rankdir=LR]node[shape=box];a->b->c[label=\"L\" weight=2];a[];{x;y}->z;d->{e f};subgraph s{label=\"S\";a}{q}rankdir=LR}"), @r#"
    digraph A {
        graph [goal="x", rankdir=LR]
        node [shape=box]
        a -> b -> c [label="L", weight=2]
        a
        { x; y } -> z
        d -> { e; f }
        subgraph s {
            label="S"
            a
        }
        {
            q
        }
        rankdir=LR
    }
    "#);
    insta::assert_snapshot!(canonical("digraph{}"), @"digraph {}");
}

#[test]
fn bare_words_stay_bare() {
    insta::assert_snapshot!(canonical("digraph my-flow { a [model=claude-sonnet-4-5, timeout=30s, human.default_choice=b, x=.5, y=-3, z=true, w=LR, v=node, u=a.b, t=\"q\", \"inputs.a\"=1d, \"my key\"=x:/y-, \"1\"=2] \"node\" -> \"b\" }"), @r#"
    digraph my-flow {
        a [
            model=claude-sonnet-4-5,
            timeout=30s,
            human.default_choice=b,
            x=.5,
            y=-3,
            z=true,
            w=LR,
            v=node,
            u=a.b,
            t="q",
            inputs.a=1d,
            "my key"=x:/y-,
            "1"=2
        ]
        "node" -> b
    }
    "#);
}

#[test]
fn long_lists_take_a_line_an_attribute() {
    insta::assert_snapshot!(canonical(r#"digraph {
        plan [label="Plan the work", prompt="Read the goal and write down what has to be done, step by step", max_visits=3]
        ask [prompt="One
two", label=x]
    }"#), @r#"
    digraph {
        plan [
            label="Plan the work",
            prompt="Read the goal and write down what has to be done, step by step",
            max_visits=3
        ]
        ask [
            prompt="One
    two",
            label=x
        ]
    }
    "#);
}

#[test]
fn what_stands_in_quotes_is_kept() {
    insta::assert_snapshot!(canonical("digraph { a [x=\"tab\\t \\d \\\"q\\\" join\\\r\n  ed\" + \"two\", y=\"\\n\"] }"), @r#"
    digraph {
        a [
            x="tab\t \d \"q\" join\
      ed" + "two",
            y="\n"
        ]
    }
    "#);
}

#[test]
fn comments_stay() {
    insta::assert_snapshot!(canonical("#!/usr/bin/env fabro
# about
digraph X { // first


  // section
  a -> b // why


  /* block
     of two */ c [ // in list
    x=1, // one
    # hash
    y=2 /* two */, z=3
    // last
  ] // behind c
  d /* odd */ -> /* odder */ e;
  f [/* empty */]
  // end
} // after
// tail
"), @r#"
    #!/usr/bin/env fabro
    // about
    digraph X {
        // first

        // section
        a -> b // why

        /* block
         of two */
        c [
            // in list
            x=1, // one
            // hash
            y=2,
            /* two */
            z=3
            // last
        ] // behind c
        /* odd */
        /* odder */
        d -> e
        f [
            /* empty */
        ]
        // end
    }
    // after
    // tail
    "#);
    insta::assert_snapshot!(canonical("digraph { // nothing\n }"), @r#"
    digraph {
        // nothing
    }
    "#);
    insta::assert_snapshot!(canonical("digraph { a -> { b // in group\n c } }"), @r#"
    digraph {
        a -> {
            b // in group
            c
        }
    }
    "#);
}

#[test]
fn dot_is_quoted_throughout() {
    let source = r#"digraph X {
        graph [goal="say \"hi\""]
        start -> ask
        subgraph cluster_a { label="Loop A" ask [type=human, human.default_choice=exit] { b [shape=circle] } }
        ask -> exit [label="[Y] Yes"]
    }"#;
    let workflow = Workflow::from_source("x", source).unwrap();
    insta::assert_snapshot!(workflow.to_dot(), @r#"
    digraph "X" {
        graph ["goal"="say \"hi\""]
        "start" [shape=Mdiamond]
        "exit" [shape=Msquare]
        subgraph "cluster_a" {
            label="Loop A"
            "ask" ["human.default_choice"="exit", "type"="human", shape=hexagon]
            "b" ["shape"="circle"]
        }
        "start" -> "ask"
        "ask" -> "exit" ["label"="[Y] Yes"]
    }
    "#);
}

#[test]
fn dot_keeps_subgraphs_and_kinds() {
    let source = r#"digraph X {
        node [shape=box]
        start -> a -> b -> exit
        subgraph cluster_a { label="Loop A" a -> b }
        subgraph cluster_b { label="Loop B" b }
    }"#;
    let workflow = Workflow::from_source("x", source).unwrap();
    insta::assert_snapshot!(workflow.to_dot(), @r#"
    digraph "X" {
        "start" [shape=Mdiamond]
        "exit" [shape=Msquare]
        subgraph "cluster_a" {
            label="Loop A"
            "a" ["shape"="box"]
            "b" ["shape"="box"]
        }
        subgraph "cluster_b" {
            label="Loop B"
            "b"
        }
        "start" -> "a"
        "a" -> "b"
        "b" -> "exit"
        "a" -> "b"
    }
    "#);
}

#[test]
fn what_means_nothing_stays() {
    insta::assert_snapshot!(canonical("strict digraph { a:n->{b:x:s;c}; \"a\":\"p q\" [x=1] }"), @r#"
    strict digraph {
        a:n -> { b:x:s; c }
        a:"p q" [x=1]
    }
    "#);
}

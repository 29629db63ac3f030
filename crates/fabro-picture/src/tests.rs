use fabro_graph::Workflow;

use super::*;

fn workflow(source: &str) -> Workflow {
    Workflow::from_source("test", source).unwrap()
}

const RELEASE: &str = r#"digraph Release {
    start -> build -> test
    build [shape=parallelogram, script="make"]
    test  [shape=parallelogram, script="make test", retry_target=build]
    test -> ask [condition="outcome=success"]
    test -> fix [condition="outcome=fail"]
    fix -> test
    ask [shape=hexagon, label="Release it?"]
    ask -> exit [label="[Y] Yes"]
    ask -> fix [label="[N] No"]
}"#;

fn marks() -> Marks {
    let mark = |result, visits, duration_ms| NodeMark { result, visits, duration_ms };
    let nodes = [
        ("start", mark(NodeResult::Succeeded, 1, 0)),
        ("build", mark(NodeResult::Succeeded, 1, 61_000)),
        ("test", mark(NodeResult::Failed, 3, 4_200)),
        ("fix", mark(NodeResult::Running, 2, 812)),
    ];
    let edge = |from: &str, to: &str| (from.to_owned(), to.to_owned(), None);
    let edges = [(edge("start", "build"), 1), (edge("build", "test"), 1), (edge("test", "fix"), 2)];
    Marks { nodes: nodes.map(|(id, mark)| (id.to_owned(), mark)).into(), edges: edges.into() }
}

#[test]
fn an_outline_reads_from_the_start() {
    insta::assert_snapshot!(outline(&workflow(RELEASE), None, 60), @r#"
    ● start  start
      └ → build
    ▱ build  command
      └ → test
    ▱ test   command
      ├ → ask  [outcome=success]
      └ → fix  [outcome=fail]
      · after a failure: build
    ⬡ ask    human    Release it?
      ├ → exit  "[Y] Yes"
      └ → fix  "[N] No"
    □ fix    agent
      └ → test ↑
    ◉ exit   exit
    "#);
    insta::assert_snapshot!(outline(&workflow(RELEASE), Some(&marks()), 44), @r#"
    ● start  ✓ 0ms        start
      └ → build  (1×)
    ▱ build  ✓ 1m         command
      └ → test  (1×)
    ▱ test   ✗ 3× 4s      command
      ├ → ask  [outcome=success]
      └ → fix  (2×)  [outcome=fail]
      · after a failure: build
    ⬡ ask                 human    Release it?
      ├ → exit  "[Y] Yes"
      └ → fix  "[N] No"
    □ fix    ▶ 2× 812ms   agent
      └ → test ↑
    ◉ exit                exit
    "#);
}

#[test]
fn a_picture_is_always_the_same() {
    let first = svg(&workflow(RELEASE), Some(&marks())).unwrap();
    for _ in 0..5 {
        assert_eq!(svg(&workflow(RELEASE), Some(&marks())).unwrap(), first);
    }
    let body = first.split_once("</style>\n").unwrap().1;
    insta::assert_snapshot!(body, @r#"
    <rect class="paper" width="100%" height="100%"/>
    <marker id="fabro-arrow" class="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 1 L10 5 L0 9 z"/></marker>
    <marker id="fabro-arrow-taken" class="head taken" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 1 L10 5 L0 9 z"/></marker>
    <path class="edge taken" marker-end="url(#fabro-arrow-taken)" d="M79.7 66.0 Q79.7 88.0 79.7 110.0"/>
    <path class="edge taken" marker-end="url(#fabro-arrow-taken)" d="M88.3 160.0 Q98.9 191.0 88.3 222.0"/>
    <path class="edge untaken" marker-end="url(#fabro-arrow)" d="M116.3 261.8 Q217.9 303.0 217.9 334.0"/>
    <path class="edge taken" marker-end="url(#fabro-arrow-taken)" d="M81.2 272.0 Q83.1 303.0 83.1 331.0 Q83.1 359.0 83.1 387.0 Q83.1 415.0 83.1 446.0"/>
    <path class="edge untaken" marker-end="url(#fabro-arrow)" d="M56.2 446.0 Q22.9 415.0 22.9 387.0 Q22.9 359.0 22.9 331.0 Q22.9 303.0 54.3 272.0"/>
    <path class="edge untaken" marker-end="url(#fabro-arrow)" d="M233.1 384.0 Q252.0 415.0 252.0 454.0"/>
    <path class="edge untaken" marker-end="url(#fabro-arrow)" d="M197.1 384.0 Q171.3 415.0 115.1 450.7"/>
    <path class="edge jump untaken" marker-end="url(#fabro-arrow)" d="M71.1 222.0 Q60.4 191.0 71.1 160.0"/>
    <g class="node kind-start succeeded" data-node="start"><title>start (start): succeeded, 1 visits</title><rect class="shape" x="47.7" y="32.0" width="64.0" height="34.0" rx="17.0"/><text class="label" x="79.7" y="54.0">start</text><g class="badge"><rect x="80.7" y="23.0" width="41.0" height="16" rx="8"/><text x="101.2" y="35.0">✓ 0ms</text></g></g>
    <g class="node kind-command succeeded" data-node="build"><title>build (command): succeeded, 1 visits</title><polygon class="shape" points="46.0,110.0 127.4,110.0 113.4,160.0 32.0,160.0"/><text class="label" x="79.7" y="132.0">build</text><text class="kind" x="79.7" y="146.9">command</text><g class="badge"><rect x="102.6" y="101.0" width="34.8" height="16" rx="8"/><text x="120.0" y="113.0">✓ 1m</text></g></g>
    <g class="node kind-command failed" data-node="test"><title>test (command): failed, 3 visits</title><polygon class="shape" points="46.0,222.0 127.4,222.0 113.4,272.0 32.0,272.0"/><text class="label" x="79.7" y="244.0">test</text><text class="kind" x="79.7" y="258.9">command</text><g class="badge"><rect x="84.0" y="213.0" width="53.4" height="16" rx="8"/><text x="110.7" y="225.0">✗ 3× 4s</text></g></g>
    <g class="node kind-human unreached" data-node="ask"><title>Release it? (human): unreached</title><polygon class="shape" points="166.3,334.0 269.5,334.0 283.5,359.0 269.5,384.0 166.3,384.0 152.3,359.0"/><text class="label" x="217.9" y="356.0">Release it?</text><text class="kind" x="217.9" y="370.9">ask · human</text></g>
    <g class="node kind-agent running" data-node="fix"><title>fix (agent): running, 2 visits</title><rect class="shape" x="51.1" y="446.0" width="64.0" height="50.0" rx="8.0"/><text class="label" x="83.1" y="468.0">fix</text><text class="kind" x="83.1" y="482.9">agent</text><g class="badge"><rect x="53.1" y="437.0" width="72.0" height="16" rx="8"/><text x="89.1" y="449.0">▶ 2× 812ms</text></g></g>
    <g class="node kind-exit unreached" data-node="exit"><title>exit (exit): unreached</title><rect class="shape" x="220.0" y="454.0" width="64.0" height="34.0" rx="17.0"/><rect class="shape" x="223.5" y="457.5" width="57.0" height="27.0" rx="13.5"/><text class="label" x="252.0" y="476.0">exit</text></g>
    <g class="edge-label"><rect x="166.4" y="294.0" width="103.0" height="18.0" rx="3"/><text class="condition" x="217.9" y="306.0">outcome=success</text></g>
    <g class="edge-label"><rect x="40.9" y="350.0" width="84.4" height="18.0" rx="3"/><text class="condition" x="83.1" y="362.0">outcome=fail</text></g>
    <g class="edge-label"><rect x="225.3" y="406.0" width="53.4" height="18.0" rx="3"/><text class="name" x="252.0" y="418.0">[Y] Yes</text></g>
    <g class="edge-label"><rect x="147.7" y="406.0" width="47.2" height="18.0" rx="3"/><text class="name" x="171.3" y="418.0">[N] No</text></g>
    <g class="edge-label"><rect x="39.9" y="182.0" width="41.0" height="18.0" rx="3"/><text class="name" x="60.4" y="194.0">retry</text></g>
    <g class="legend"><g class="node succeeded"><rect class="shape" x="16.0" y="518.0" width="14" height="12" rx="3"/><text x="36.0" y="528.5">succeeded</text></g><g class="node failed"><rect class="shape" x="113.0" y="518.0" width="14" height="12" rx="3"/><text x="133.0" y="528.5">failed</text></g><g class="node running"><rect class="shape" x="189.0" y="518.0" width="14" height="12" rx="3"/><text x="209.0" y="528.5">running</text></g><g class="node unreached"><rect class="shape" x="272.0" y="518.0" width="14" height="12" rx="3"/><text x="292.0" y="528.5">not reached</text></g></g>
    </svg>
    "#);
}

#[test]
fn foreign_texts_stay_texts() {
    let source = "digraph { start -> a -> exit; a [label=\"<script>alert(1)</script>\u{202e}\u{1b}[31m\\\" onload=\\\"x\"]
        a -> exit [label=\"</svg><a href='javascript:x'>\", condition=\"outcome=\\\"<b>&\\\"\"] }";
    for picture in [
        svg(&workflow(source), None).unwrap(),
        svg_fragment(&workflow(source), None, &|_| None).unwrap(),
    ] {
        for text in ["<script", "<a ", "\u{202e}", "\u{1b}", "\" onload"] {
            assert!(!picture.contains(text), "{text:?} in {picture}");
        }
        assert_eq!(picture.matches("</svg>").count(), 1);
    }
    let lines = outline(&workflow(source), None, 80);
    assert!(!lines.contains(['\u{202e}', '\u{1b}']), "{lines:?}");
}

#[test]
fn arrows_end_at_the_outlines() {
    let diamond = shape::Place { x: 0.0, y: 0.0 };
    let corners = shape::corners(fabro_types::NodeKind::Conditional, diamond, 100.0, 60.0);
    let crossing = |x, y| {
        let place = shape::crossing(&corners, diamond, shape::Place { x, y });
        format!("{:.0} {:.0}", place.x, place.y)
    };
    assert_eq!(crossing(0.0, -200.0), "0 -30");
    assert_eq!(crossing(200.0, 0.0), "50 0");
    assert_eq!(crossing(100.0, 60.0), "25 15");
}

#[test]
fn every_kind_direction_and_loop_is_drawn() {
    let source = r#"digraph {
        rankdir=LR; start -> a -> b -> c -> d -> e -> f -> g -> h -> exit
        a [shape=tab]; b [shape=diamond]; c [shape=component]; d [shape=tripleoctagon]; e [shape=insulator]
        f [shape=house]; g [shape=hexagon]; h [shape=parallelogram]; h -> h [label="again", loop_restart=true]
        subgraph cluster_x { label="Inner <x>"; subgraph cluster_y { c; d } a; b }
    }"#;
    let picture = svg(&workflow(source), None).unwrap();
    for node in ["start", "a", "b", "c", "d", "e", "f", "g", "h", "exit"] {
        assert!(picture.contains(&format!("data-node=\"{node}\"")), "{node}");
    }
    assert_eq!(picture.matches("class=\"cluster\"").count(), 2);
    assert!(picture.contains("Inner &lt;x&gt;") && picture.contains("edge restart"));
    assert!(!picture.contains("NaN") && !picture.contains("inf"));
}

#[test]
fn what_is_too_large_is_refused() {
    let nodes: Vec<String> = (0..=MAX_NODES).map(|n| format!("n{n}")).collect();
    let error = svg(&workflow(&format!("digraph {{ {} }}", nodes.join("; "))), None).unwrap_err();
    insta::assert_snapshot!(error, @"a picture has at most 1000 nodes and 3000 edges, and this workflow has 1001 and 0");
}

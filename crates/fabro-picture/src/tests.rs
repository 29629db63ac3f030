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
    <path class="edge taken" marker-end="url(#fabro-arrow-taken)" d="M236.3 66.0 Q236.3 88.0 236.3 110.0"/>
    <path class="edge taken" marker-end="url(#fabro-arrow-taken)" d="M227.8 160.0 Q217.1 191.0 227.8 222.0"/>
    <path class="edge untaken" marker-end="url(#fabro-arrow)" d="M190.4 265.6 Q98.2 303.0 98.2 334.0"/>
    <path class="edge taken" marker-end="url(#fabro-arrow-taken)" d="M234.8 272.0 Q233.0 303.0 233.0 331.0 Q233.0 359.0 233.0 387.0 Q233.0 415.0 233.0 446.0"/>
    <path class="edge untaken" marker-end="url(#fabro-arrow)" d="M259.8 446.0 Q293.1 415.0 293.1 387.0 Q293.1 359.0 293.1 331.0 Q293.1 303.0 261.7 272.0"/>
    <path class="edge untaken" marker-end="url(#fabro-arrow)" d="M82.9 384.0 Q64.0 415.0 64.0 454.0"/>
    <path class="edge untaken" marker-end="url(#fabro-arrow)" d="M119.0 384.0 Q144.8 415.0 201.0 450.7"/>
    <path class="edge jump untaken" marker-end="url(#fabro-arrow)" d="M244.9 222.0 Q255.6 191.0 244.9 160.0"/>
    <g class="node kind-start succeeded" data-node="start"><title>start (start): succeeded, 1 visit</title><rect class="shape" x="204.3" y="32.0" width="64.0" height="34.0" rx="17.0"/><text class="label" x="236.3" y="54.0">start</text><g class="badge"><rect x="237.4" y="23.0" width="41.0" height="16" rx="8"/><text x="257.9" y="35.0">✓ 0ms</text></g></g>
    <g class="node kind-command succeeded" data-node="build"><title>build (command): succeeded, 1 visit</title><polygon class="shape" points="202.6,110.0 284.1,110.0 270.1,160.0 188.6,160.0"/><text class="label" x="236.3" y="132.0">build</text><text class="kind" x="236.3" y="146.9">command</text><g class="badge"><rect x="259.2" y="101.0" width="34.8" height="16" rx="8"/><text x="276.6" y="113.0">✓ 1m</text></g></g>
    <g class="node kind-command failed" data-node="test"><title>test (command): failed, 3 visits</title><polygon class="shape" points="202.6,222.0 284.1,222.0 270.1,272.0 188.6,272.0"/><text class="label" x="236.3" y="244.0">test</text><text class="kind" x="236.3" y="258.9">command</text><g class="badge"><rect x="240.7" y="213.0" width="53.4" height="16" rx="8"/><text x="267.4" y="225.0">✗ 3× 4s</text></g></g>
    <g class="node kind-human unreached" data-node="ask"><title>Release it? (human): unreached</title><polygon class="shape" points="46.6,334.0 149.8,334.0 163.8,359.0 149.8,384.0 46.6,384.0 32.6,359.0"/><text class="label" x="98.2" y="356.0">Release it?</text><text class="kind" x="98.2" y="370.9">ask · human</text></g>
    <g class="node kind-agent running" data-node="fix"><title>fix (agent): running, 2 visits</title><rect class="shape" x="201.0" y="446.0" width="64.0" height="50.0" rx="8.0"/><text class="label" x="233.0" y="468.0">fix</text><text class="kind" x="233.0" y="482.9">agent</text><g class="badge"><rect x="203.0" y="437.0" width="72.0" height="16" rx="8"/><text x="239.0" y="449.0">▶ 2× 812ms</text></g></g>
    <g class="node kind-exit unreached" data-node="exit"><title>exit (exit): unreached</title><rect class="shape" x="32.0" y="454.0" width="64.0" height="34.0" rx="17.0"/><rect class="shape" x="35.5" y="457.5" width="57.0" height="27.0" rx="13.5"/><text class="label" x="64.0" y="476.0">exit</text></g>
    <g class="edge-label"><rect x="46.7" y="294.0" width="103.0" height="18.0" rx="3"/><text class="condition" x="98.2" y="306.0">outcome=success</text></g>
    <g class="edge-label"><rect x="190.8" y="350.0" width="84.4" height="18.0" rx="3"/><text class="condition" x="233.0" y="362.0">outcome=fail</text></g>
    <g class="edge-label"><rect x="37.3" y="406.0" width="53.4" height="18.0" rx="3"/><text class="name" x="64.0" y="418.0">[Y] Yes</text></g>
    <g class="edge-label"><rect x="121.2" y="406.0" width="47.2" height="18.0" rx="3"/><text class="name" x="144.8" y="418.0">[N] No</text></g>
    <g class="edge-label"><rect x="235.1" y="182.0" width="41.0" height="18.0" rx="3"/><text class="name" x="255.6" y="194.0">retry</text></g>
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
        Picture::new(&workflow(source)).unwrap().fragment(None, &|_| None),
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

/// The order of branches from left to right, in a picture.
fn order(source: &str, prefix: &str) -> Vec<usize> {
    let workflow = workflow(source);
    let layout = crate::layout::layout(&workflow);
    let mut placed: Vec<(f64, usize)> = Vec::new();
    for place in &layout.nodes {
        let id = &workflow.node(place.node).id;
        if let Some(number) = id.strip_prefix(prefix).and_then(|rest| rest.parse().ok()) {
            placed.push((place.center.x, number));
        }
    }
    placed.sort_by(|one, other| one.0.total_cmp(&other.0));
    placed.into_iter().map(|(_, number)| number).collect()
}

#[test]
fn branches_are_in_the_order_of_the_file() {
    for count in [2, 3, 12, 50] {
        let all: Vec<usize> = (0..count).collect();
        let each =
            |text: fn(usize) -> String| all.iter().map(|at| text(*at)).collect::<Vec<_>>().concat();
        let branches = each(|at| format!("fan -> w{at} -> join; "));
        let graph = "digraph { start -> fan; fan [shape=component]; join [shape=tripleoctagon]";
        assert_eq!(order(&format!("{graph}; {branches} join -> exit }}"), "w"), all);
        // Branches of several stages, with a failed one that comes back.
        let longer = each(|at| {
            format!("fan -> w{at} -> x{at} -> join; x{at} -> w{at} [condition=\"outcome=fail\"]; ")
        });
        let source = format!("{graph}; {longer} join -> exit }}");
        assert_eq!(order(&source, "w"), all);
        assert_eq!(order(&source, "x"), all);
        // One fan-out after another.
        let second = each(|at| format!("fan2 -> y{at} -> join2; "));
        let source = format!(
            "{graph}; {branches} join -> fan2; fan2 [shape=component]; join2 [shape=tripleoctagon]; {second} join2 -> exit }}"
        );
        assert_eq!(order(&source, "w"), all);
        assert_eq!(order(&source, "y"), all);
    }
}

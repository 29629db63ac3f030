//! How long a file takes to become a typed graph: `cargo bench -p fabro-graph`.

use std::fmt::Write as _;

use divan::counter::BytesCount;
use fabro_graph::{Workflow, parse};

fn main() {
    divan::main();
}

const SIZES: [usize; 2] = [4_096, 1_000_000];

/// A workflow of about this many bytes: nodes, edges, comments and a labelled subgraph now and
/// then.
fn workflow(bytes: usize) -> String {
    let mut source = String::from("digraph Bench {\n    node [timeout=15m]\n");
    let mut at = 0;
    while source.len() < bytes {
        let _ = write!(
            source,
            "    n{at} [label=\"Node {at}\", shape=box, prompt=\"Do part {at}.\\nThen stop.\"]\n    \
             n{at} -> n{} [condition=\"outcome=succeeded\", weight={}]\n",
            at + 1,
            at % 9
        );
        if at % 10 == 0 {
            let _ = writeln!(
                source,
                "    // part {at}\n    subgraph s{at} {{ label=\"Loop {at}\"; n{at} }}"
            );
        }
        at += 1;
    }
    source + "}\n"
}

#[divan::bench(args = SIZES)]
fn syntax_tree(bencher: divan::Bencher<'_, '_>, bytes: usize) {
    let source = workflow(bytes);
    bencher.counter(BytesCount::of_str(&source)).bench(|| parse(&source));
}

#[divan::bench(args = SIZES)]
fn typed_graph(bencher: divan::Bencher<'_, '_>, bytes: usize) {
    let source = workflow(bytes);
    bencher.counter(BytesCount::of_str(&source)).bench(|| Workflow::from_source("bench", &source));
}

#[divan::bench]
fn chain_of_1000(bencher: divan::Bencher<'_, '_>) {
    let mut source = String::from("digraph Chain {\n    start -> n0\n    n999 -> exit\n");
    for at in 0..1_000 {
        let _ = writeln!(source, "    n{at} [shape=parallelogram, script=\"true\"]");
        if at > 0 {
            let _ = writeln!(source, "    n{} -> n{at}", at - 1);
        }
    }
    source.push('}');
    bencher.counter(BytesCount::of_str(&source)).bench(|| Workflow::from_source("bench", &source));
}

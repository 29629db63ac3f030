//! Prints the nodes and edges of a workflow: `cargo run -p fabro-graph --example outline`.

#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use fabro_graph::{Diagnostic, Workflow};

const SOURCE: &str = r#"
digraph Review {
    graph [goal="Review the change"]
    subgraph cluster_loop {
        label="Fix loop"
        implement [prompt="Make the tests pass."]
        test [shape=parallelogram, script="cargo test"]
    }
    start -> implement -> test
    test -> implement [condition="outcome=failed"]
    test -> exit
}
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let message = |error: Diagnostic| format!("{}: {}", error.rule, error.message);
    let workflow = Workflow::from_source("review", SOURCE).map_err(message)?;
    for finding in workflow.findings() {
        println!("{}: {}", finding.rule, finding.message);
    }
    println!("{}: {}", workflow.name(), workflow.attrs().text("goal").unwrap_or("no goal"));
    for node in workflow.nodes() {
        println!("  {} is {} {:?}", node.id, node.kind, node.classes);
    }
    for edge in workflow.edges() {
        let [from, to] = [edge.from, edge.to].map(|end| &workflow.node(end).id);
        println!("  {from} -> {to} {}", edge.condition().unwrap_or_default());
    }
    Ok(())
}

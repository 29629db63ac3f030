//! Draws a workflow: `cargo run -p fabro-picture --example draw FILE > FILE.svg`.

use std::io::Write as _;

use fabro_graph::Workflow;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name a file")?;
    let source = std::fs::read_to_string(&path)?;
    let workflow = Workflow::from_source("workflow", &source)?;
    std::io::stdout().write_all(fabro_picture::svg(&workflow, None)?.as_bytes())?;
    Ok(())
}

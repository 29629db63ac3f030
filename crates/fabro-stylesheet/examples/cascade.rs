//! Shows what a stylesheet sets on three nodes.

#![expect(clippy::print_stdout, reason = "the point of the example is what it prints")]

use fabro_stylesheet::{Stylesheet, Subject, SyntaxError};

fn main() -> Result<(), SyntaxError> {
    let sheet = Stylesheet::parse(
        "
        *       { model: claude-sonnet-4-5; provider: anthropic; }
        box     { reasoning_effort: low; }
        .hard   { reasoning_effort: high; }   /* whatever the shape */
        #review { model: gpt-5.2; provider: openai; }
        ",
    )?;
    let hard = ["hard".to_owned()];
    for (id, classes) in [("plan", [].as_slice()), ("build", &hard), ("review", &[])] {
        println!("{id}: {:?}", sheet.properties(&Subject { id, shape: "box", classes }));
    }
    Ok(())
}

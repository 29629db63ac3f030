//! Renders one text as a prompt and one as a shell script, and tells what they read.

#![expect(clippy::print_stdout, reason = "the point of the example is what it prints")]

use std::error::Error;
use std::sync::Arc;

use fabro_template::{Mode, Template, Values};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let values = Arc::new(Values {
        goal: "Ship $(it) \"now\"".to_owned(),
        inputs: [("repo".to_owned(), json!("demo"))].into(),
        context: [("review".to_owned(), Arc::new(json!({"score": 91, "notes": ["fine"]})))].into(),
    });
    for (text, mode) in [
        ("$goal: review {{ inputs.repo }}, last score {{ context.review.score }}.", Mode::Prompt),
        (
            "git -C {{ inputs.repo }} commit -m \"{{ goal }}: {{ context.review.notes }}\"",
            Mode::Shell,
        ),
    ] {
        let template = Template::parse(text)?;
        println!("{}", template.render(values.clone(), mode)?);
        for read in template.reads() {
            println!("  reads {:?} at byte {}", read.target, read.span.start);
        }
    }
    Ok(())
}

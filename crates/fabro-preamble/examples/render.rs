//! Prints the preamble of a small run at every fidelity: `cargo run -p fabro-preamble --example render`.
#![allow(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::sync::Arc;

use fabro_preamble::{Detail, Input, Limits, Output, Shown, Stage, render};
use fabro_tokens::CharsPerFour;
use fabro_types::{Fidelity, Status};

fn main() {
    let plan = Stage {
        detail: Detail::Llm {
            model: "claude-sonnet-4-5".into(),
            input_tokens: 12_400,
            output_tokens: 3_200,
            response: Output::Text("1. Add the route.\n2. Test it.".into()),
        },
        files: vec!["docs/plan.md".into()],
        ..Stage::new("plan", Status::Succeeded)
    };
    let test = Stage {
        detail: Detail::Command {
            script: "cargo test".into(),
            stdout: Output::Text("41 passed, 1 failed\n".into()),
            stderr: Output::None,
            exit_code: Some(101),
        },
        failure: Some("exit code 101".into()),
        ..Stage::new("test", Status::Failed)
    };
    let passed = ("tests_passed".to_owned(), Shown::Value(Arc::new(false.into())));
    for fidelity in Fidelity::ALL {
        let input = Input {
            goal: "Add a /health endpoint to the API server",
            run_id: "01HF7YAT00000000000000001A",
            total_stages: 2,
            // The newest stage comes first.
            stages: &mut [test.clone(), plan.clone()].into_iter(),
            context: &mut std::iter::once(passed.clone()),
            parent: None,
        };
        let preamble = render(input, fidelity, &Limits::default(), &CharsPerFour);
        println!("=== {fidelity}\n{}\n", preamble.text);
    }
}

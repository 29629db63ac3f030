//! Prints the preamble of a small run at every fidelity: `cargo run -p fabro-preamble --example render`.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use fabro_preamble::{Detail, Preamble, Stage};
use fabro_tokens::CharsPerFour;
use fabro_types::{Fidelity, Status};

fn main() {
    let plan = Stage {
        detail: Detail::llm("claude-sonnet-4-5", 12_400, 3_200, "1. Add the route.\n2. Test it."),
        files: vec!["docs/plan.md".into()],
        ..Stage::new("plan", Status::Succeeded)
    };
    let test = Stage {
        detail: Detail::command("cargo test", "41 passed, 1 failed\n", "", 101),
        failure: Some("exit code 101".into()),
        ..Stage::new("test", Status::Failed)
    };
    for &fidelity in Fidelity::ALL {
        let preamble = Preamble::new("Add a /health endpoint to the API server")
            .run_id("01HF7YAT00000000000000001A")
            .stage(plan.clone())
            .stage(test.clone())
            .context("tests_passed", false)
            .fidelity(fidelity)
            .render(&CharsPerFour);
        println!("=== {fidelity}\n{preamble}\n");
    }
}

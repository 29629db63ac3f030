//! A preamble after 1,000 stages with outputs of 25 lines.

use divan::Bencher;
use fabro_preamble::{Detail, Input, Limits, Output, Stage, render};
use fabro_tokens::{CharsPerFour, CountTokens, O200k};
use fabro_types::{Fidelity, Status};

fn main() {
    divan::main();
}

#[divan::bench(args = ["compact", "summary:high", "summary:medium", "summary:low"])]
fn o200k(bencher: Bencher<'_, '_>, fidelity: &str) {
    O200k.count("loads the vocabulary");
    thousand_stages(bencher, fidelity, &O200k);
}

#[divan::bench(args = ["compact", "summary:high", "summary:medium", "summary:low"])]
fn chars_per_four(bencher: Bencher<'_, '_>, fidelity: &str) {
    thousand_stages(bencher, fidelity, &CharsPerFour);
}

fn thousand_stages(bencher: Bencher<'_, '_>, fidelity: &str, count: &dyn CountTokens) {
    let fidelity: Fidelity = fidelity.parse().unwrap_or_default();
    let line = "test health::answers_with_status_200 ... ok (0.03 s)\n";
    let stage = Stage {
        detail: Detail::Command {
            script: "cargo test".into(),
            stdout: Output::Text(line.repeat(25)),
            stderr: Output::None,
            exit_code: Some(0),
        },
        ..Stage::new("test", Status::Succeeded)
    };
    bencher.bench_local(|| {
        let input = Input {
            goal: "Add a /health endpoint to the API server",
            run_id: "01HF7YAT00000000000000001A",
            total_stages: 1_000,
            stages: &mut std::iter::repeat_n(&stage, 1_000).cloned(),
            context: &mut std::iter::empty(),
            parent: None,
        };
        render(input, fidelity, &Limits::default(), count)
    });
}

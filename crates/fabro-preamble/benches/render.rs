//! A preamble after 1,000 stages with outputs of 25 lines.

use divan::Bencher;
use fabro_preamble::{Detail, Output, Preamble, Stage};
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
    let detail = Detail::command("cargo test", line.repeat(25).as_str(), Output::None, 0);
    let stage = Stage { detail, ..Stage::new("test", Status::Succeeded) };
    bencher.bench_local(|| {
        Preamble::new("Add a /health endpoint to the API server")
            .earlier_stages(1_000, std::iter::repeat_n(&stage, 1_000).cloned())
            .fidelity(fidelity)
            .render(count)
    });
}

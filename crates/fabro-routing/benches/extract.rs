//! Directive extraction on 10 MB of prose and of what is worst for a scanner.

use divan::Bencher;
use divan::counter::BytesCount;

const PROSE: &str = "The endpoint answers with status 200 and the body the issue asks for; I moved \
the handler's checks into a function of their own, because \"health\" and \"ready\" need them both.\n";

fn main() {
    divan::main();
}

#[divan::bench(args = ["prose", "{", "{\"a\":", "\"", "{}", "\\"], sample_count = 5, sample_size = 1)]
fn ten_megabytes(bencher: Bencher<'_, '_>, piece: &str) {
    let piece = if piece == "prose" { PROSE } else { piece };
    let text = piece.repeat(10_000_000 / piece.len());
    bencher.counter(BytesCount::new(text.len())).bench_local(|| fabro_routing::extract(&text));
}

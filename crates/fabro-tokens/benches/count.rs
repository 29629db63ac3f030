//! Counting the tokens of a megabyte of what agents read: code, output of tests, prose.
//! `cargo bench -p fabro-tokens --features o200k`.

use divan::Bencher;
use divan::counter::BytesCount;
use fabro_tokens::{CharsPerFour, CountTokens};

fn main() {
    divan::main();
}

const TEXT: &str = "fn health() -> StatusCode { StatusCode::OK }\n\
    test health::answers_with_status_200 ... ok (0.03 s)\n\
    The endpoint answers before the database is connected, so that a load balancer sees it.\n";

fn megabyte() -> String {
    TEXT.repeat(1_000_000 / TEXT.len())
}

#[divan::bench]
fn chars_per_four(bencher: Bencher<'_, '_>) {
    count(bencher, &CharsPerFour);
}

#[cfg(feature = "o200k")]
#[divan::bench]
fn o200k(bencher: Bencher<'_, '_>) {
    fabro_tokens::O200k.count("loads the vocabulary");
    count(bencher, &fabro_tokens::O200k);
}

/// A limit of a preamble beside a text that is far longer.
#[cfg(feature = "o200k")]
#[divan::bench]
fn o200k_fits(bencher: Bencher<'_, '_>) {
    fabro_tokens::O200k.count("loads the vocabulary");
    let text = megabyte();
    let bencher = bencher.counter(BytesCount::of_str(&text));
    bencher.bench_local(|| fabro_tokens::O200k.fits(divan::black_box(&text), 8_000));
}

fn count(bencher: Bencher<'_, '_>, counter: &dyn CountTokens) {
    let text = megabyte();
    let bencher = bencher.counter(BytesCount::of_str(&text));
    bencher.bench_local(|| counter.count(divan::black_box(&text)));
}

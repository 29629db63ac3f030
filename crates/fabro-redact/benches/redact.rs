//! A megabyte of prose without a secret, with twenty values known; and what is hardest.

use divan::Bencher;
use divan::counter::BytesCount;
use fabro_redact::Redactor;

fn main() {
    divan::main();
}

fn redactor() -> Redactor {
    let value = |n: u32| format!("{:x}-{n}-Tr0ub4dor&3", n.wrapping_mul(2_654_435_761));
    Redactor::new((0..20).map(|n| (format!("SECRET_{n}"), value(n))))
}

fn bench(bencher: Bencher<'_, '_>, redactor: &Redactor, unit: &str) {
    let text = unit.repeat(1_000_000 / unit.len());
    bencher.counter(BytesCount::of_str(&text)).bench_local(|| redactor.redact(&text).len());
}

const PROSE: &str = "It was a bright cold day in April; the tests passed, and 41 of them were new. \
    See `crates/fabro-redact/src/lib.rs:12` for more.\n";

#[divan::bench]
fn prose(bencher: Bencher<'_, '_>) {
    bench(bencher, &redactor(), PROSE);
}

#[divan::bench]
fn prose_without_values(bencher: Bencher<'_, '_>) {
    bench(bencher, &Redactor::default(), PROSE);
}

#[divan::bench(args = ["sk-", "Bearer ", "0123456789abcdef", "-----BEGIN PRIVATE KEY-----"])]
fn repeated(bencher: Bencher<'_, '_>, unit: &str) {
    bench(bencher, &redactor(), unit);
}

#[divan::bench]
fn new_with_twenty_values() -> Redactor {
    redactor()
}

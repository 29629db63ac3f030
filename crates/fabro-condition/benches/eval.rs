//! What reading and evaluating a usual condition of an edge costs.

use std::collections::BTreeMap;

use divan::{Bencher, black_box};
use fabro_condition::Condition;
use serde_json::{Value, json};

const USUAL: &str = "context.score >= 80 && outcome = success";

fn main() {
    divan::main();
}

fn context() -> BTreeMap<String, Value> {
    let mut context = BTreeMap::from([
        ("outcome".to_owned(), json!("succeeded")),
        ("score".to_owned(), json!(85)),
    ]);
    context.extend((0..50).map(|at| (format!("key_{at}"), json!(at))));
    context
}

#[divan::bench]
fn parse(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| Condition::parse(black_box(USUAL)));
}

#[divan::bench]
fn holds(bencher: Bencher<'_, '_>) {
    let context = context();
    let condition = Condition::parse(USUAL).ok();
    bencher
        .bench_local(|| condition.as_ref().map(|condition| condition.holds(black_box(&context))));
}

#[divan::bench]
fn explain(bencher: Bencher<'_, '_>) {
    let context = context();
    let condition = Condition::parse(USUAL).ok();
    bencher
        .bench_local(|| condition.as_ref().map(|condition| condition.explain(black_box(&context))));
}

//! Forking a context of 10 and of 100,000 keys: the two must cost the same.

use fabro_context::Context;
use serde_json::json;

fn main() {
    divan::main();
}

#[divan::bench(args = [10, 100_000])]
fn fork(bencher: divan::Bencher<'_, '_>, keys: usize) {
    let context: Context =
        (0..keys).map(|key| (format!("key.{key}"), std::sync::Arc::new(json!(key)))).collect();
    bencher.bench(|| context.clone());
}

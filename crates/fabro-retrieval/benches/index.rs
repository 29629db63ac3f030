//! 2,000 chunks of 850 bytes.

use std::fmt::Write as _;

use divan::Bencher;
use fabro_retrieval::Index;

fn main() {
    divan::main();
}

fn directory() -> std::io::Result<tempfile::TempDir> {
    let root = tempfile::tempdir()?;
    let mut seed = 1_u64;
    for file in 0..100 {
        let mut text = String::new();
        for section in 0..20 {
            let _ = write!(text, "# Section {section}\n\n");
            for _ in 0..120 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Few words are common, many are rare.
                let word = (seed >> 33) % (1 << (1 + (seed >> 60)));
                let _ = write!(text, "word{word:x} ");
            }
            text.push_str("\n\n");
        }
        std::fs::write(root.path().join(format!("{file}.md")), text)?;
    }
    Ok(root)
}

#[divan::bench]
fn build(bencher: Bencher<'_, '_>) {
    let Ok(root) = directory() else { return };
    bencher.bench_local(|| Index::build(root.path(), &["**/*.md"]).map(|index| index.report()));
}

#[divan::bench(args = [3, 30, 300])]
fn search(bencher: Bencher<'_, '_>, words: usize) {
    let Ok(root) = directory() else { return };
    let Ok(index) = Index::build(root.path(), &["**/*.md"]) else { return };
    let query: Vec<_> = (0..words).map(|word| format!("word{word:x}")).collect();
    let query = query.join(" ");
    bencher.bench_local(|| index.search(&query, 8));
}

//! What a stage without artifacts pays for them: a scan before it and one after it.

use std::fs;
use std::path::Path;

use divan::Bencher;
use fabro_artifacts::{Limits, Rules, Watcher};
use tempfile::TempDir;

fn main() {
    divan::main();
}

/// A tree with so many files, ten in each directory, that has not changed for a while.
#[expect(clippy::expect_used, reason = "without its tree there is nothing to measure")]
fn tree(files: usize) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory for the benchmark");
    for index in 0..files / 10 {
        let below = dir.path().join(format!("a{}/b{}/c{index}", index % 10, index % 100));
        fs::create_dir_all(&below).expect("a directory of the benchmark");
        for file in 0..10 {
            fs::write(below.join(format!("file{file}.rs")), "").expect("a file of the benchmark");
        }
    }
    std::thread::sleep(std::time::Duration::from_secs(3));
    dir
}

fn watcher(root: &Path) -> Watcher {
    Watcher::new(root, Rules::default(), Limits::default())
}

/// The two scans of a stage in a tree that an earlier stage has scanned.
#[divan::bench(args = [10, 10_000, 200_000])]
fn stage(bencher: Bencher<'_, '_>, files: usize) {
    let dir = tree(files);
    let watcher = watcher(dir.path());
    watcher.baseline();
    bencher.bench_local(|| {
        let baseline = watcher.baseline();
        watcher.changes(&baseline)
    });
}

/// The two scans of the first stage of a run.
#[divan::bench(args = [10, 10_000, 200_000])]
fn first_stage(bencher: Bencher<'_, '_>, files: usize) {
    let dir = tree(files);
    bencher.bench_local(|| {
        let watcher = watcher(dir.path());
        let baseline = watcher.baseline();
        watcher.changes(&baseline)
    });
}

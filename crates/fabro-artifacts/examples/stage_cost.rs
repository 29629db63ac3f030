//! What a stage that leaves no artifact pays for the search, in a tree of 10,000 files: a nanosecond figure a
//! line, that of the first stage of a run, then of later ones. `cargo xtask bench scan` uses it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use fabro_artifacts::{Limits, Rules, Watcher};

const DIRS: usize = 100;
const FILES: usize = 100;
const STAGES: usize = 20;

fn main() -> io::Result<()> {
    let dir = tempfile::tempdir()?;
    for number in 0..DIRS {
        let dir = dir.path().join(format!("module-{number}/src"));
        fs::create_dir_all(&dir)?;
        for file in 0..FILES {
            File::create(dir.join(format!("file-{file}.rs")))?;
        }
    }
    // A directory that has just changed is read again: those of a project changed long before.
    thread::sleep(Duration::from_millis(200));
    let watcher = Watcher::new(dir.path(), Rules::default(), Limits::default());
    let mut out = io::stdout().lock();
    for stage in 0..STAGES {
        let began = Instant::now();
        let baseline = watcher.baseline();
        let before = began.elapsed();
        // What a stage does most often: it changes a file, and none of those that are looked for.
        fs::write(dir.path().join(format!("module-{stage}/src/file-0.rs")), "changed")?;
        let began = Instant::now();
        let changes = watcher.changes(&baseline);
        let cost = before + began.elapsed();
        assert!(changes.is_empty(), "no artifact was left");
        writeln!(out, "{}", cost.as_nanos())?;
    }
    Ok(())
}

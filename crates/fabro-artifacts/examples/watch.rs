//! Keeps the artifacts of a command: `cargo run --example watch -- COMMAND ARG…`.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use fabro_artifacts::{Destination, Limits, Rules, Watcher};

#[expect(clippy::print_stdout, reason = "an example shows its result")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let program = args.next().unwrap_or_else(|| "true".into());
    let watcher = Watcher::new(std::env::current_dir()?, Rules::default(), Limits::default());
    let baseline = watcher.baseline();
    Command::new(program).args(args).status()?;
    let changes = watcher.changes(&baseline);
    let to = Destination {
        files: Path::new("target/kept/files"),
        pool: Path::new("target/kept/pool"),
        name: &|path| path.to_owned(),
    };
    let collection = watcher.keep(&changes, &to);
    for file in &collection.kept {
        println!("{} {} {}", file.sha256, file.size, file.path);
    }
    for file in &collection.left_out {
        println!("not kept: {file}");
    }
    Ok(())
}

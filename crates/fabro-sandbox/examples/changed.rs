//! Runs a command and says which files it changed:
//! `cargo run -p fabro-sandbox --example changed -- touch new.txt`.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

use std::error::Error;
use std::path::Path;
use std::process::Command;

use fabro_sandbox::git::{Snapshot, changed};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().ok_or("which command?")?;
    let dir = Path::new(".");
    let before = Snapshot::take(dir).await?.ok_or("this is no git work tree")?;
    let status = Command::new(program).args(arguments).status()?;
    let after = Snapshot::take(dir).await?.ok_or("the work tree is gone")?;
    println!("{status}");
    for path in changed(&before, &after).await? {
        println!("{path:?}");
    }
    Ok(())
}

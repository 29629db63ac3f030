//! Searches files: `cargo run -p fabro-retrieval --example search -- 'docs/**/*.md' 'how do gates work?'`.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

use std::path::Path;

use fabro_retrieval::{Index, RetrievalError, block};
use fabro_tokens::CharsPerFour;

fn main() -> Result<(), RetrievalError> {
    let mut arguments = std::env::args().skip(1);
    let globs = arguments.next().unwrap_or_else(|| "**/*.md".to_owned());
    let query = arguments.next().unwrap_or_else(|| "how do I use it?".to_owned());
    let index = Index::build(Path::new("."), &[globs])?;
    let hits = index.search(&query, 5)?;
    println!("{}", block(&hits, &CharsPerFour, 2_000));
    println!("--- {} of {} chunks", hits.len(), index.report().chunks);
    Ok(())
}

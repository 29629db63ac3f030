//! Prints a page with the changes of a patch: `git diff | cargo run -p fabro-page --example changes > changes.html`.

use std::error::Error;
use std::io::{self, Read as _, Write as _};

fn main() -> Result<(), Box<dyn Error>> {
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes)?;
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Changes</title><style>{}</style><main>{}</main>",
        fabro_page::style(),
        fabro_page::patch(&bytes)
    );
    writeln!(io::stdout(), "{page}")?;
    Ok(())
}

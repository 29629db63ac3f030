//! Prints the directives of what comes in:
//! `echo 'Done. {"outcome": "failed"}' | cargo run -p fabro-routing --example extract`.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

fn main() -> std::io::Result<()> {
    let text = std::io::read_to_string(std::io::stdin())?;
    match fabro_routing::extract(&text) {
        Some(found) => println!("{:#?}\nin {}", found.directives, &text[found.span]),
        None => println!("no directives"),
    }
    Ok(())
}

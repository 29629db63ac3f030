//! Counts the tokens of the arguments: `cargo run -p fabro-tokens --example count -- some words`.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

use fabro_tokens::{CharsPerFour, CountTokens};

fn main() {
    let text = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    println!("about {} tokens", CharsPerFour.count(&text));
    #[cfg(feature = "o200k")]
    println!("{} tokens in o200k_base", fabro_tokens::O200k.count(&text));
}

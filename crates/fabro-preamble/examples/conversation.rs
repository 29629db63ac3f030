//! Two stages talk to each other; prints what the second one is asked at the end:
//! `cargo run -p fabro-preamble --example conversation`.
#![allow(clippy::print_stdout, reason = "an example prints to the terminal")]

use fabro_preamble::memory::{Blocks, MEMORY_TOKENS, Memory, Speaker, ToolContext, Turn, assemble};
use fabro_tokens::CharsPerFour;

fn main() {
    let mut memory = Memory::default();
    for round in 1..=14 {
        let node = if round % 2 == 0 { "critic" } else { "writer" };
        let text = format!("Draft {round} is ready. Please look at the second paragraph.");
        memory.push(Turn::new(node, Speaker::Llm, text));
    }
    let blocks = Blocks {
        preamble: "Goal: A page about crabs",
        memory: &memory.block(&CharsPerFour, MEMORY_TOKENS),
        partner: memory.partner().unwrap_or_default(),
        prompt: "Improve the draft.",
        ..Blocks::default()
    };
    println!("{}", assemble(&blocks, &CharsPerFour));
    println!("--- a tool sees {} turns in full", ToolContext::from(&memory).recent_turns.len());
}

//! The `fabro` command.
fn main() {}

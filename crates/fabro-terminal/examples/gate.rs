//! Asks at the terminal, or approves where there is none: `cargo run -p fabro-terminal --example gate`.

use std::io::Write;

use fabro_gate::{AutoApprove, Chain, Interviewer, Question, Reply, options};
use fabro_terminal::TerminalInterviewer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let question = Question {
        node: "review".into(),
        visit: 1,
        text: "Ship it?".to_owned(),
        options: options([("[A] Approve", "ship"), ("[R] Revise", "plan"), ("Stop", "exit")]),
        freeform: std::env::args().any(|argument| argument == "--freeform"),
        ..Question::default()
    };
    let mut out = std::io::stdout();
    match Chain(TerminalInterviewer::new(), AutoApprove).ask(&question).await? {
        Reply::Unavailable => writeln!(out, "no terminal")?,
        Reply::Answer { text, source } => {
            let answer = question.read(&text)?;
            writeln!(out, "{answer:?} from {source}")?;
        }
    }
    Ok(())
}

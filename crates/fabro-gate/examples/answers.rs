//! Answers a gate from canned answers, or approves: `cargo run -p fabro-gate --example answers -- R`.
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use fabro_gate::{AutoApprove, Chain, Interviewer, Question, QueueInterviewer, Reply, options};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let answers: Vec<_> = std::env::args().skip(1).collect();
    let canned = serde_json::json!({ "review": answers }).to_string();
    let interviewer = Chain(QueueInterviewer::from_json(&canned)?, AutoApprove);
    let question = Question {
        node: "review".into(),
        text: "Ship it?".to_owned(),
        options: options([("[A] Approve", "ship"), ("[R] Revise", "plan")]),
        ..Question::default()
    };
    if let Reply::Answer { text, source } = interviewer.ask(&question).await? {
        let answer = question.read(&text)?;
        println!("{answer:?} from {source}");
    }
    Ok(())
}

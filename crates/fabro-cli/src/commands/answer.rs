//! `fabro answer`.

use std::fmt::Write as _;

use fabro_run::{is_driven, root};

use crate::cli::AnswerArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;

/// Answers a gate, of the run or of one of its sub-workflows.
pub async fn answer(args: &AnswerArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_change(&args.run).await?;
    let (name, choice) = match args.words.as_slice() {
        [gate, choice] => (Some(gate.as_str()), choice),
        [choice] => (None, choice),
        _ => return Err(error::usage("the answer is missing", "write RUN [GATE] CHOICE")),
    };
    let gate = fabro_run::answer(&store, run, name, choice, "cli")
        .await
        .map_err(|error| error::run(error, global))?;
    let mut text = format!("answered {}\n", gate.node);
    if !is_driven(&store, run).await? {
        let resume = global.command(&format!("resume {}", root(&store, run).await?));
        let _ = writeln!(text, "continue with: {resume}");
    }
    output::stdout(&text)?;
    Ok(exit::SUCCEEDED)
}

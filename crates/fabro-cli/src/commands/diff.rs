//! `fabro diff`.

use clap_complete::ArgValueCandidates;
use fabro_inspect::{PatchError, RunPatch, run_patch};
use fabro_sandbox::git::PatchStyle;
use fabro_terminal::{Paint, clean};

use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;

/// Show the files that a run or a stage changed
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro diff latest\n  fabro diff latest fix@2 --stat\n  fabro diff 01K3 | git apply\n\nA run records what its stages change in a git work tree, unless diff = false is set in [run.git]; with `fabro run --worktree`, or worktree = true, as commits of a branch."
)]
pub struct DiffArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// A stage, instead of all together
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]", add = ArgValueCandidates::new(complete::stages))]
    pub stage: Option<String>,

    /// Show only the files, and how many lines of each differ
    #[arg(long)]
    pub stat: bool,
}

/// Prints the changes of a run or a stage as a patch.
pub async fn diff(args: &DiffArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let style = if args.stat { PatchStyle::Stat } else { PatchStyle::Patch };
    let made = run_patch(&store, &store.runs_dir(), run, args.stage.as_deref(), style).await;
    let Some(made) = made.map_err(unread)? else {
        output::stderr("no file was changed\n");
        return Ok(Exit::SUCCEEDED);
    };
    global.warn(remarks(&made));
    let RunPatch { patch, damage, .. } = made;
    match global.paint_stdout() {
        paint if paint.is_on() => output::stdout(&painted(&patch, paint))?,
        // Byte for byte, so that it can be applied.
        _ => output::bytes(&patch)?,
    }
    match damage {
        Some(damage) => Err(error::damaged(&damage)),
        None => Ok(Exit::SUCCEEDED),
    }
}

/// What is to be known about a patch.
fn remarks(made: &RunPatch) -> Vec<String> {
    let mut remarks = Vec::new();
    if made.shared {
        remarks.push(
            "other stages ran at the same time in this directory: what they changed is in the patch too"
                .to_owned(),
        );
    }
    if let Some(reason) = &made.incomplete {
        remarks.push(format!("the changes of some stages were not recorded: {}", clean(reason)));
    }
    if !made.left_out.is_empty() {
        remarks.push(format!("not in the patch: {}", clean(&made.left_out.join("; "))));
    }
    remarks
}

/// A patch for people: its lines in colors, without control characters.
fn painted(patch: &[u8], paint: Paint) -> String {
    let mut text = String::new();
    for line in String::from_utf8_lossy(patch).lines() {
        let line = clean(line);
        let shown = match line.as_bytes() {
            [b'd', b'i', b'f', b'f', b' ', ..] => paint.bold(&line),
            [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] | [b'@', b'@', ..] => paint.dim(&line),
            [b'+', ..] => paint.good(&line),
            [b'-', ..] => paint.bad(&line),
            _ => line.into_owned(),
        };
        text.push_str(&shown);
        text.push('\n');
    }
    text
}

fn unread(failed: PatchError) -> anyhow::Error {
    let message = clean(&failed.to_string()).into_owned();
    match failed {
        PatchError::NotRecorded { .. } => error::usage(
            message,
            "start runs in a git work tree (`git init` makes one), or with --worktree; `fabro inspect RUN STAGE` lists the files that a stage changed",
        ),
        PatchError::Report(error) => error.into(),
        PatchError::Damaged { .. } => error::damaged(&message),
        _ => error::usage(message, "bring the repository and its branch back"),
    }
}

//! The command line: every command, its arguments and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde_json::Value;

use crate::global::Global;

/// Runs AI workflows written as graphs.
///
/// A workflow is a `.fabro` file: stages as nodes, the ways between them as edges. A run is
/// recorded as it goes, so it can be killed at any moment and resumed.
#[derive(Debug, Parser)]
#[command(name = "fabro", version, propagate_version = true, disable_help_subcommand = true)]
#[command(
    after_help = "Start with:\n  fabro init          a working project in this directory\n  fabro run hello     run its workflow\n\nExit codes: 0 succeeded, 1 the run failed, 2 usage or invalid workflow, 3 paused,\n4 the store cannot be read or written, 130 interrupted"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Box<RunArgs>),
    Resume(ResumeArgs),
}

/// Run a workflow
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro run hello\n  fabro run deploy.fabro -I target=staging --goal 'Ship it'\n  fabro run run.toml --json | jq .event\n  fabro run review.fabro --dry-run\n\nEverything but --json goes to stderr. Ctrl-C stops cleanly; `fabro resume` goes on."
)]
pub struct RunArgs {
    /// A workflow file, a run.toml, or the NAME of a workflow in .fabro/workflows
    pub workflow: String,

    /// The goal, over the one in the workflow
    #[arg(long, value_name = "TEXT", conflicts_with = "goal_file")]
    pub goal: Option<String>,

    /// The file that holds the goal
    #[arg(long, value_name = "FILE")]
    pub goal_file: Option<PathBuf>,

    /// An input; JSON if the value reads as such, else text. Repeatable
    #[arg(short = 'I', long = "input", value_name = "KEY=VALUE", value_parser = key_value)]
    pub inputs: Vec<KeyValue>,

    /// Execute nothing: models are simulated and scripts are skipped
    #[arg(long)]
    pub dry_run: bool,

    /// Answer every gate with its default, else with its first option
    #[arg(long)]
    pub auto_approve: bool,

    /// Answers to gates: {"NODE": ["A", "free text"]}
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,

    /// The model of stages that name none
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,

    /// Ready answers instead of a model: {"NODE": [{"text": "…"}], "*": […]}
    #[arg(long, value_name = "FILE")]
    pub model_script: Option<PathBuf>,

    /// Decides every random choice [default: a hash of workflow and inputs]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Print the run's id and go on in the background
    #[arg(long)]
    pub detach: bool,

    /// Print every event to stdout as it is committed, one JSON object a line
    #[arg(long)]
    pub json: bool,

    /// Pause when the run has cost this much
    #[arg(long, value_name = "USD", value_parser = amount)]
    pub max_cost: Option<f64>,

    /// Say nothing but errors and what a person has to do
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
}

/// Go on with a run that was paused, interrupted or killed
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro resume latest\n  fabro resume 01K3 --max-cost 20\n\nCommitted stages never run again; stages that were at work start over."
)]
pub struct ResumeArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// A new spending limit
    #[arg(long, value_name = "USD", value_parser = amount)]
    pub max_cost: Option<f64>,

    /// Answers to gates: {"NODE": ["A", "free text"]}
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,

    /// Ready answers instead of a model: {"NODE": [{"text": "…"}], "*": […]}
    #[arg(long, value_name = "FILE")]
    pub model_script: Option<PathBuf>,

    /// Answer every gate with its default, else with its first option
    #[arg(long)]
    pub auto_approve: bool,

    /// Print every event to stdout as it is committed, one JSON object a line
    #[arg(long)]
    pub json: bool,

    /// Print the run's id and go on in the background
    #[arg(long)]
    pub detach: bool,
}

/// A `key=value` of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
}

/// Reads `key=value`. The value is JSON when it reads as JSON, else text. A number that JSON would
/// write in another way (`1.10`, `1e3`) stays text, so nothing of it is lost.
fn key_value(text: &str) -> Result<KeyValue, String> {
    let Some((key, value)) = text.split_once('=') else {
        return Err("write KEY=VALUE".to_owned());
    };
    if key.trim().is_empty() {
        return Err("there is no key before the `=`".to_owned());
    }
    let value = match serde_json::from_str::<Value>(value) {
        Ok(number @ Value::Number(_)) if number.to_string() != value => Value::from(value),
        Ok(json) => json,
        Err(_) => Value::from(value),
    };
    Ok(KeyValue { key: key.trim().to_owned(), value })
}

/// Reads an amount of US dollars: more than nothing.
fn amount(text: &str) -> Result<f64, String> {
    let number = text.strip_prefix('$').unwrap_or(text).parse::<f64>();
    match number {
        Ok(amount) if amount.is_finite() && amount > 0.0 => Ok(amount),
        _ => Err("write an amount in US dollars above 0, such as 2.50".to_owned()),
    }
}

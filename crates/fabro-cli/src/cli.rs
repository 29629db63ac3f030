//! The command line: every command, its arguments and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::global::Global;
use crate::values::{KeyValue, amount, key_value};

/// Runs AI workflows written as graphs.
///
/// A workflow is a `.fabro` file: stages are nodes, transitions are edges. A run is
/// recorded while it runs, so it can be killed at any moment and resumed.
#[derive(Debug, Parser)]
#[command(name = "fabro", version, propagate_version = true)]
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
    Validate(ValidateArgs),
    Fmt(FmtArgs),
    Graph(GraphArgs),
    Ps(PsArgs),
    Inspect(InspectArgs),
    Events(EventsArgs),
    Context(ContextArgs),
    Explain(ExplainArgs),
    Compact(CompactArgs),
    Replay(ReplayArgs),
    Answer(AnswerArgs),
    Steer(SteerArgs),
    Cancel(CancelArgs),
    /// Copy a run up to the end of a stage
    #[command(
        after_help = "Examples:\n  fabro fork latest plan\n  fabro fork latest test@2 --set tries=0\n\nThe edge after the stage is selected again when the copy is resumed."
    )]
    Fork(ForkArgs),
    /// Take a run back to the end of a stage
    #[command(
        after_help = "Examples:\n  fabro rewind latest plan\n  fabro rewind latest test@2 --set tries=0\n\nLater events stay in the log but are ignored. Files are not changed."
    )]
    Rewind(ForkArgs),
    Rm(RmArgs),
    Model(ModelArgs),
    Init(InitArgs),
    Completion(CompletionArgs),
    Doctor(DoctorArgs),
}

/// Run a workflow
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro run hello\n  fabro run deploy.fabro -I target=staging --goal 'Ship it'\n  fabro run run.toml --json | jq .event\n  fabro run review.fabro --dry-run\n\nOnly --json writes to stdout. Ctrl-C shuts down cleanly; `fabro resume` continues."
)]
pub struct RunArgs {
    /// A workflow file, a run.toml, or the NAME of a workflow in .fabro/workflows
    pub workflow: String,

    /// The goal; overrides the one in the workflow
    #[arg(long, value_name = "TEXT", conflicts_with = "goal_file")]
    pub goal: Option<String>,

    /// The file that holds the goal
    #[arg(long, value_name = "FILE")]
    pub goal_file: Option<PathBuf>,

    /// An input; JSON if the value is valid JSON, else text. Repeatable
    #[arg(short = 'I', long = "input", value_name = "KEY=VALUE", value_parser = key_value)]
    pub inputs: Vec<KeyValue>,

    /// Execute nothing: models are simulated and scripts are skipped
    #[arg(long)]
    pub dry_run: bool,

    /// Answer every gate with its default, else with its first option
    #[arg(long)]
    pub auto_approve: bool,

    /// Answers to gates, as JSON: for each node a list
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,

    /// The model of stages that name none
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,

    /// Canned responses instead of a model, as JSON: for each node a list of turns
    #[arg(long, value_name = "FILE")]
    pub model_script: Option<PathBuf>,

    /// Seed of all random choices [default: a hash of workflow and inputs]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Print the run's id and continue in the background
    #[arg(long)]
    pub detach: bool,

    /// What is printed while the run is driven.
    #[command(flatten)]
    pub shown: ShownArgs,

    /// Pause when the run has cost this much
    #[arg(long, value_name = "USD", value_parser = amount, allow_negative_numbers = true)]
    pub max_cost: Option<f64>,
}

/// What a command that drives a run shows.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ShownArgs {
    /// Print every event to stdout as it is committed, one JSON object a line
    #[arg(long)]
    pub json: bool,

    /// Print only errors and what a person has to do
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
}

/// Resume a run that was paused, interrupted or killed
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro resume latest\n  fabro resume 01K3 --max-cost 20\n\nCommitted stages never run again; interrupted stages start over."
)]
pub struct ResumeArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// A new spending limit
    #[arg(long, value_name = "USD", value_parser = amount, allow_negative_numbers = true)]
    pub max_cost: Option<f64>,

    /// Answers to gates, as JSON: for each node a list
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,

    /// Canned responses instead of a model, as JSON: for each node a list of turns
    #[arg(long, value_name = "FILE")]
    pub model_script: Option<PathBuf>,

    /// Answer every gate with its default, else with its first option
    #[arg(long)]
    pub auto_approve: bool,

    /// What is printed while the run is driven.
    #[command(flatten)]
    pub shown: ShownArgs,

    /// Print the run's id and continue in the background
    #[arg(long)]
    pub detach: bool,
}

/// Check workflows without running them
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro validate\n  fabro validate flows/ review.fabro\n  fabro validate --format json . | jq '.files[].findings'\n\nExits with 2 if a workflow has an error, with 0 if there are only warnings."
)]
pub struct ValidateArgs {
    /// Workflow files, run.toml files, names, or directories to search
    #[arg(default_value = ".", value_name = "PATH")]
    pub paths: Vec<String>,

    /// How findings are printed
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
}

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// Print workflows in their canonical form
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro fmt review.fabro | less\n  fabro fmt --write flows/*.fabro\n  fabro fmt --check .\n  fabro fmt - < review.fabro\n\nComments are kept."
)]
pub struct FmtArgs {
    /// Workflow files or directories to print formatted; `-` is stdin
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<String>,

    /// Format the files in place instead of printing them
    #[arg(short, long, conflicts_with = "check")]
    pub write: bool,

    /// List files that are not formatted, and exit with 1 if there are any
    #[arg(long)]
    pub check: bool,
}

/// Print a workflow as DOT
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  fabro graph review.fabro --dot | dot -Tsvg > review.svg")]
pub struct GraphArgs {
    /// A workflow file, a run.toml, or the NAME of a workflow
    pub workflow: String,

    /// Print DOT for Graphviz; this is the default
    #[arg(long)]
    pub dot: bool,

    /// Write to a file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// List runs, newest first
#[derive(Args, Clone, Debug)]
pub struct PsArgs {
    /// Show the runs of sub-workflows too
    #[arg(short, long)]
    pub all: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show a run or one of its stages
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro inspect latest\n  fabro inspect latest plan\n  fabro inspect 01K3 test@2 --json"
)]
pub struct InspectArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// A stage, for its prompt, response and outcome
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]")]
    pub stage: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show the events of a run
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro events latest\n  fabro events latest -f\n  fabro events latest --json | jq 'select(.event == \"edge.selected\")'"
)]
pub struct EventsArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// Follow the run until it ends or pauses
    #[arg(short, long)]
    pub follow: bool,

    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

/// Show the context of a run
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro context latest\n  fabro context latest --at plan --json\n  fabro context latest --diff plan test@2"
)]
pub struct ContextArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// The context after this stage instead of the current one
    #[arg(long, value_name = "[BRANCH/]NODE[@VISIT]", conflicts_with = "diff")]
    pub at: Option<String>,

    /// Changes between the ends of two stages
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    pub diff: Option<Vec<String>>,

    /// Print large values instead of references to them
    #[arg(long)]
    pub resolve: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show why a run took an edge after a stage
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  fabro explain latest test@2")]
pub struct ExplainArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// The stage
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]")]
    pub stage: String,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Preview the compaction of an agent's conversation
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro compact latest\n  fabro compact latest implement@2 --keep-recent 10\n  fabro compact latest --no-summary --json | jq -r .summary\n\nNothing is changed: agents compact their conversations automatically."
)]
pub struct CompactArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// The stage [default: the last one that used a model]
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]")]
    pub stage: Option<String>,

    /// How many of the last messages stay [default: as in the run's settings]
    #[arg(long, value_name = "N")]
    pub keep_recent: Option<usize>,

    /// Make the summary without a model
    #[arg(long)]
    pub no_summary: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Replay a run without executing anything, and show differences
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro replay latest\n  fabro replay latest --workflow review.fabro\n  fabro replay 01K3 --workflow review --json | jq '.differences[].stage'\n\nAnswers of models and people, results of tools and outcomes of scripts are the recorded ones.\nExits with 1 if there is a difference."
)]
pub struct ReplayArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// Another workflow, to see the effect of a change [default: the one stored with the run]
    #[arg(long, value_name = "FILE")]
    pub workflow: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Answer a gate that waits for a person
#[derive(Args, Clone, Debug)]
#[command(
    override_usage = "fabro answer [OPTIONS] <RUN> [GATE] <CHOICE>",
    after_help = "Examples:\n  fabro answer latest y\n  fabro answer latest review 'Use the other API'\n\nGATE is needed only if several gates wait. `fabro resume` continues a paused run."
)]
pub struct AnswerArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// The gate (NODE or NODE@VISIT) if several wait, and an option's key or label, or free text
    #[arg(num_args = 1..=2, required = true, value_names = ["GATE", "CHOICE"])]
    pub words: Vec<String>,
}

/// Send a message to the running agents of a run
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro steer latest 'Leave the tests as they are'\n  fabro steer 01K3 'Use the new API' --node implement\n\nIt reaches them before their next request to the model. If none is running, it is queued for the next one."
)]
pub struct SteerArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// The message
    pub text: String,

    /// Only agents of this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
}

/// Cancel a run
#[derive(Args, Clone, Debug)]
pub struct CancelArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// The reason, for the log
    #[arg(long, default_value = "canceled by the user", value_name = "TEXT")]
    pub reason: String,
}

/// The stage that a run is copied up to or taken back to.
#[derive(Args, Clone, Debug)]
pub struct ForkArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// The stage to continue after [default: the last one]
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]")]
    pub stage: Option<String>,

    /// Set a context value there; JSON if it is valid JSON, else text. Repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<KeyValue>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Remove runs with all their data
#[derive(Args, Clone, Debug)]
pub struct RmArgs {
    /// The runs: ids, the beginnings of ids, or `latest`
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
}

/// List and test models
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ModelCommand,
}

/// The commands for models.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelCommand {
    List(ModelListArgs),
    Test(ModelTestArgs),
}

/// List the known models with their context windows and prices
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro model list\n  fabro model list --json | jq '.[] | select(.served_by)'\n\nOther models work too. `[models.NAME]` in config.toml describes one."
)]
pub struct ModelListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Send a test question to models
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro model test\n  fabro model test claude-haiku-4-5\n  fabro model test local/llama --json | jq '.[].latency_ms'\n\nExits with 1 if one does not answer. The provider charges for the answers."
)]
pub struct ModelTestArgs {
    /// A model, PROVIDER/MODEL, or a provider [default: every provider that is configured]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Make a project with a workflow that runs at once
#[derive(Args, Clone, Debug)]
pub struct InitArgs {
    /// The project's directory
    #[arg(default_value = ".")]
    pub dir: PathBuf,
}

/// Print the completions of a shell
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  fabro completion bash > ~/.local/share/bash-completion/completions/fabro"
)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Look whether everything is there that runs need
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_fit_together() {
        Cli::command().debug_assert();
    }
}

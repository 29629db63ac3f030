//! The command line: every command, its arguments and its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::global::Global;
use crate::values::{KeyValue, amount, key_value};

/// Runs AI workflows written as graphs.
///
/// A workflow is a `.fabro` file: stages as nodes, the ways between them as edges. A run is
/// recorded as it goes, so it can be killed at any moment and resumed.
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
    /// Copy a run up to where a stage ended
    #[command(
        after_help = "Examples:\n  fabro fork latest plan\n  fabro fork latest test@2 --set tries=0\n\nThe way on from the stage is chosen anew when the copy is resumed."
    )]
    Fork(ForkArgs),
    /// Take a run back to where a stage ended
    #[command(
        after_help = "Examples:\n  fabro rewind latest plan\n  fabro rewind latest test@2 --set tries=0\n\nWhat came after stays in the log but no longer counts. Files are left as they are."
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

    /// Answers to gates, as JSON: for each node a list
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,

    /// The model of stages that name none
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,

    /// Ready answers instead of a model, as JSON: for each node a list of turns
    #[arg(long, value_name = "FILE")]
    pub model_script: Option<PathBuf>,

    /// Decides every random choice [default: a hash of workflow and inputs]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Print the run's id and go on in the background
    #[arg(long)]
    pub detach: bool,

    /// What is shown meanwhile.
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
    #[arg(long, value_name = "USD", value_parser = amount, allow_negative_numbers = true)]
    pub max_cost: Option<f64>,

    /// Answers to gates, as JSON: for each node a list
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,

    /// Ready answers instead of a model, as JSON: for each node a list of turns
    #[arg(long, value_name = "FILE")]
    pub model_script: Option<PathBuf>,

    /// Answer every gate with its default, else with its first option
    #[arg(long)]
    pub auto_approve: bool,

    /// What is shown meanwhile.
    #[command(flatten)]
    pub shown: ShownArgs,

    /// Print the run's id and go on in the background
    #[arg(long)]
    pub detach: bool,
}

/// Check workflows without running them
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro validate\n  fabro validate flows/ review.fabro\n  fabro validate --format json . | jq '.files[].findings'\n\nExits with 2 when a workflow has an error; warnings alone are no error."
)]
pub struct ValidateArgs {
    /// Workflow files, run.toml files, names, or directories to look through
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

    /// Print nothing but what is not formatted, and exit with 1 if anything is
    #[arg(long)]
    pub check: bool,
}

/// Print a workflow for drawing
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  fabro graph review.fabro --dot | dot -Tsvg > review.svg")]
pub struct GraphArgs {
    /// A workflow file, a run.toml, or the NAME of a workflow
    pub workflow: String,

    /// Print DOT that Graphviz reads; this is what it does anyway
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

/// Show what a run, or one of its stages, did
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

    /// Go on until the run ends or pauses
    #[arg(short, long)]
    pub follow: bool,

    /// Print JSON, one object a line
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

    /// As it was when this stage had ended, not as it is now
    #[arg(long, value_name = "[BRANCH/]NODE[@VISIT]", conflicts_with = "diff")]
    pub at: Option<String>,

    /// What changed between the ends of two stages
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    pub diff: Option<Vec<String>>,

    /// Print large values themselves, not references to them
    #[arg(long)]
    pub resolve: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Show why a run went on as it did after a stage
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

/// Show what an agent's conversation would be shortened to
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro compact latest\n  fabro compact latest implement@2 --keep-recent 10\n  fabro compact latest --no-summary --json | jq -r .summary\n\nNothing is changed: agents shorten their conversations by themselves."
)]
pub struct CompactArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// The stage [default: the one that talked with a model last]
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]")]
    pub stage: Option<String>,

    /// How many of the last messages stay as they are [default: as in the run's settings]
    #[arg(long, value_name = "N")]
    pub keep_recent: Option<usize>,

    /// Make the summary without a model
    #[arg(long)]
    pub no_summary: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Replay a run without executing anything, and show what comes out differently
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro replay latest\n  fabro replay latest --workflow review.fabro\n  fabro replay 01K3 --workflow review --json | jq '.differences[].stage'\n\nAnswers of models and people, results of tools and outcomes of scripts are those of the record.\nExits with 1 when something else comes out."
)]
pub struct ReplayArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// Another workflow, to see what it would have changed [default: the one kept with the run]
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
    after_help = "Examples:\n  fabro answer latest y\n  fabro answer latest review 'Use the other API'\n\nGATE is needed only when several gates wait. A paused run goes on with `fabro resume`."
)]
pub struct AnswerArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// The gate (NODE or NODE@VISIT) if several wait, and an option's key or label, or free text
    #[arg(num_args = 1..=2, required = true, value_names = ["GATE", "CHOICE"])]
    pub words: Vec<String>,
}

/// Tell the agents of a run something while they are at work
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro steer latest 'Leave the tests as they are'\n  fabro steer 01K3 'Use the new API' --node implement\n\nIt reaches them before their next question to the model. When none is at work, the next one is told."
)]
pub struct SteerArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// What they should know
    pub text: String,

    /// Only agents of this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
}

/// End a run
#[derive(Args, Clone, Debug)]
pub struct CancelArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// Why; it stands in the log
    #[arg(long, default_value = "canceled by the user", value_name = "TEXT")]
    pub reason: String,
}

/// Where a run is copied or taken back to.
#[derive(Args, Clone, Debug)]
pub struct ForkArgs {
    /// The run: its id, the beginning of it, or `latest`
    pub run: String,

    /// The stage after which to go on [default: the last one]
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]")]
    pub stage: Option<String>,

    /// Change the context there; JSON if the value reads as such, else text. Repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub set: Vec<KeyValue>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Remove runs with everything they left behind
#[derive(Args, Clone, Debug)]
pub struct RmArgs {
    /// The runs: ids, the beginnings of ids, or `latest`
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<String>,
}

/// Show which models there are, and try them
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ModelCommand,
}

/// What can be done with models.
#[derive(Clone, Debug, Subcommand)]
pub enum ModelCommand {
    List(ModelListArgs),
    Test(ModelTestArgs),
}

/// List the models that are known, with their windows and prices
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro model list\n  fabro model list --json | jq '.[] | select(.served_by)'\n\nOther models work too. `[models.NAME]` in config.toml says more of one."
)]
pub struct ModelListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Ask models a question of one word
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro model test\n  fabro model test claude-haiku-4-5\n  fabro model test local/llama --json | jq '.[].latency_ms'\n\nExits with 1 when one does not answer. An answer costs what the provider asks for it."
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

//! The command line: the list of commands, and what each of them calls.

use clap::{Parser, Subcommand};
use fabro_server::Role;

use crate::agent;
use crate::commands::{
    answer, artifact, cancel, compact, compare, completion, context, cost, diff, doctor, du, dump,
    events, explain, explain_attribute, fmt, fork, gates, graph, init, inspect, logs, mcp, model,
    prune, ps, replay, report, resume, rm, run, sandbox, serve, settings, steer, trace, validate,
    verify, wait,
};
use crate::exit::Exit;
use crate::global::{Global, block_on};

/// Runs AI workflows written as graphs; records them, and resumes them.
#[derive(Debug, Parser)]
#[command(name = "fabro", version, propagate_version = true)]
#[command(
    after_help = "Start with:\n  fabro init          a working project in this directory\n  fabro run hello     run its workflow\n\nExit codes: 0 succeeded, 1 the run failed, 2 usage or invalid workflow, 3 paused, 4 the store cannot be read or written, 124 timeout of `wait`, 130 interrupted"
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
    #[command(visible_alias = "start")]
    Run(Box<run::RunArgs>),
    #[command(visible_alias = "continue")]
    Resume(resume::ResumeArgs),
    /// Run again what failed in a run, and continue it
    #[command(
        after_help = "Examples:\n  fabro retry latest\n  fabro retry 01K3 --max-cost 20\n\nFailed stages, failed elements of a list and failed or canceled branches run again, in sub-workflows too, and then what follows them. Finished stages are not rerun. The run keeps its workflow and settings: after a change of these, start a new run. `fabro rewind RUN STAGE` goes back further. A run that has not ended is resumed, and repeats no failure."
    )]
    Retry(resume::ResumeArgs),
    #[command(visible_aliases = ["check", "lint"])]
    Validate(validate::ValidateArgs),
    #[command(visible_alias = "format")]
    Fmt(fmt::FmtArgs),
    Graph(graph::GraphArgs),
    #[command(visible_aliases = ["ls", "list"])]
    Ps(ps::PsArgs),
    #[command(visible_aliases = ["show", "status", "describe"])]
    Inspect(inspect::InspectArgs),
    Events(events::EventsArgs),
    #[command(visible_alias = "log")]
    Logs(logs::LogsArgs),
    Context(context::ContextArgs),
    #[command(visible_alias = "why")]
    Explain(explain::ExplainArgs),
    #[command(visible_aliases = ["attribute", "attributes"])]
    ExplainAttribute(explain_attribute::ExplainAttributeArgs),
    Compact(compact::CompactArgs),
    Compare(compare::CompareArgs),
    Replay(replay::ReplayArgs),
    #[command(visible_alias = "costs")]
    Cost(cost::CostArgs),
    Trace(trace::TraceArgs),
    Diff(diff::DiffArgs),
    Report(report::ReportArgs),
    #[command(visible_alias = "export")]
    Dump(dump::DumpArgs),
    /// List, copy and open the artifacts of a run
    #[command(subcommand, visible_alias = "artifacts")]
    Artifact(artifact::ArtifactCommand),
    /// Open a shell in the sandbox of a run, copy files
    #[command(subcommand)]
    Sandbox(sandbox::SandboxCommand),
    Wait(wait::WaitArgs),
    Answer(answer::AnswerArgs),
    #[command(visible_alias = "inbox")]
    Gates(gates::GatesArgs),
    Steer(steer::SteerArgs),
    Cancel(cancel::CancelArgs),
    Fork(fork::ForkArgs),
    Rewind(fork::RewindArgs),
    #[command(visible_aliases = ["remove", "delete"])]
    Rm(rm::RmArgs),
    Prune(prune::PruneArgs),
    Du(du::DuArgs),
    Verify(verify::VerifyArgs),
    Backup(verify::BackupArgs),
    /// List and test models
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// List MCP servers, log in, serve runs to clients
    #[command(subcommand)]
    Mcp(mcp::McpCommand),
    Serve(serve::ServeArgs),
    #[command(visible_alias = "config")]
    Settings(settings::SettingsArgs),
    #[command(visible_alias = "new")]
    Init(init::InitArgs),
    #[command(visible_alias = "completions")]
    Completion(completion::CompletionArgs),
    Doctor(doctor::DoctorArgs),
}

impl Command {
    /// Whether the command changes existing runs, or lets others change them.
    fn changes_runs(&self) -> bool {
        match self {
            Self::Resume(_)
            | Self::Retry(_)
            | Self::Answer(_)
            | Self::Steer(_)
            | Self::Cancel(_)
            | Self::Fork(_)
            | Self::Rewind(_)
            | Self::Rm(_)
            | Self::Prune(_)
            | Self::Serve(_)
            | Self::Sandbox(_) => true,
            Self::Compact(args) => args.apply,
            Self::Verify(args) => args.accept_loss,
            Self::Mcp(mcp::McpCommand::Serve(args)) => args.role.role() > Role::Read,
            _ => false,
        }
    }

    /// Executes the command.
    pub fn execute(self, global: &Global) -> anyhow::Result<Exit> {
        if self.changes_runs() {
            agent::refuse()?;
        }
        match self {
            Self::Run(args) => block_on(run::run(*args, global)),
            Self::Resume(args) => block_on(resume::resume(args, global)),
            Self::Retry(args) => block_on(resume::retry(args, global)),
            Self::Validate(args) => block_on(validate::validate(&args, global)),
            Self::Fmt(args) => fmt::fmt(&args, global),
            Self::Graph(args) => block_on(graph::graph(&args, global)),
            Self::Ps(args) => block_on(ps::ps(&args, global)),
            Self::Inspect(args) => block_on(inspect::inspect(&args, global)),
            Self::Events(args) => block_on(events::events(&args, global)),
            Self::Logs(args) => block_on(logs::logs(&args, global)),
            Self::Context(args) => block_on(context::context(&args, global)),
            Self::Compact(args) => block_on(compact::compact(args, global)),
            Self::Compare(args) => block_on(compare::compare(&args, global)),
            Self::Replay(args) => block_on(replay::replay(args, global)),
            Self::ExplainAttribute(args) => explain_attribute::explain_attribute(&args, global),
            Self::Explain(args) => block_on(explain::explain(&args, global)),
            Self::Cost(args) => block_on(cost::cost(&args, global)),
            Self::Trace(args) => block_on(trace::trace(&args, global)),
            Self::Diff(args) => block_on(diff::diff(&args, global)),
            Self::Report(args) => block_on(report::report(&args, global)),
            Self::Dump(args) => block_on(dump::dump(&args, global)),
            Self::Artifact(command) => block_on(artifact::artifact(command, global)),
            Self::Sandbox(command) => block_on(sandbox::sandbox(command, global)),
            Self::Wait(args) => block_on(wait::wait(&args, global)),
            Self::Answer(args) => block_on(answer::answer(&args, global)),
            Self::Gates(args) => block_on(gates::gates(&args, global)),
            Self::Steer(args) => block_on(steer::steer(&args, global)),
            Self::Cancel(args) => block_on(cancel::cancel(&args, global)),
            Self::Fork(args) => block_on(fork::fork(args, global)),
            Self::Rewind(args) => block_on(fork::rewind(args, global)),
            Self::Model(command) => block_on(model::model(command, global)),
            Self::Mcp(command) => block_on(mcp::mcp(command, global)),
            Self::Rm(args) => block_on(rm::rm(&args, global)),
            Self::Prune(args) => block_on(prune::prune(&args, global)),
            Self::Du(args) => block_on(du::du(&args, global)),
            Self::Verify(args) => block_on(verify::verify(&args, global)),
            Self::Backup(args) => block_on(verify::backup(&args, global)),
            Self::Serve(args) => serve::serve(&args, global),
            Self::Settings(args) => settings::settings(&args, global),
            Self::Init(args) => init::init(&args, global),
            Self::Completion(args) => completion::completion(&args),
            Self::Doctor(args) => block_on(doctor::doctor(&args, global)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_fit_together() {
        crate::help::command().debug_assert();
    }

    /// Written where `FABRO_MAN_PAGES` says, for `cargo xtask dist`.
    #[test]
    fn man_pages() {
        let temporary = tempfile::tempdir().unwrap();
        let given = std::env::var_os("FABRO_MAN_PAGES").map(std::path::PathBuf::from);
        let dir = given.as_deref().unwrap_or(temporary.path());
        clap_mangen::generate_to(Cli::command(), dir).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert!(read("fabro.1").contains("fabro\\-resume(1)"));
        for command in Cli::command().get_subcommands().filter(|it| !it.is_hide_set()) {
            let page = read(&format!("fabro-{}.1", command.get_name()));
            assert!(page.contains(".SH SYNOPSIS"), "{page}");
        }
    }

    #[test]
    fn the_documentation_lists_every_command() {
        let docs = include_str!("../../../docs/command-line.md");
        let table = docs.split("\n\n").find(|part| part.starts_with("| command |")).unwrap();
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(table.contains(&format!("[`{name}`](#")), "{name}");
        }
    }
}

//! One file a command.

mod answer;
mod cancel;
mod compact;
mod completion;
mod context;
mod doctor;
mod events;
mod explain;
mod fmt;
mod fork;
mod graph;
mod init;
mod inspect;
mod model;
mod model_test;
mod ps;
mod replay;
mod resume;
mod rm;
mod run;
mod steer;
mod validate;
mod walk;

pub use walk::shown;

use crate::cli::Command;
use crate::exit::Exit;
use crate::global::Global;

/// Does what the command line asks for.
pub fn dispatch(command: Command, global: &Global) -> anyhow::Result<Exit> {
    match command {
        Command::Run(args) => block_on(run::run(*args, global)),
        Command::Resume(args) => block_on(resume::resume(args, global)),
        Command::Validate(args) => validate::validate(&args, global),
        Command::Fmt(args) => fmt::fmt(&args, global),
        Command::Graph(args) => graph::graph(&args, global),
        Command::Ps(args) => block_on(ps::ps(&args, global)),
        Command::Inspect(args) => block_on(inspect::inspect(&args, global)),
        Command::Events(args) => block_on(events::events(&args, global)),
        Command::Context(args) => block_on(context::context(&args, global)),
        Command::Compact(args) => block_on(compact::compact(args, global)),
        Command::Replay(args) => block_on(replay::replay(args, global)),
        Command::Explain(args) => block_on(explain::explain(&args, global)),
        Command::Answer(args) => block_on(answer::answer(&args, global)),
        Command::Steer(args) => block_on(steer::steer(&args, global)),
        Command::Cancel(args) => block_on(cancel::cancel(&args, global)),
        Command::Fork(args) => block_on(fork::fork(args, global)),
        Command::Rewind(args) => block_on(fork::rewind(args, global)),
        Command::Model(args) => block_on(model::model(args, global)),
        Command::Rm(args) => block_on(rm::rm(&args, global)),
        Command::Init(args) => init::init(&args),
        Command::Completion(args) => completion::completion(&args),
        Command::Doctor(args) => doctor::doctor(&args, global),
    }
}

/// Runs a future to its end on this thread.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    // A prompt that still waits for a key must not hold the process.
    runtime.shutdown_background();
    result
}

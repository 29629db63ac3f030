//! The workspace's own commands: `cargo xtask ci`, `tidy`, `fixtures`, `crash`, `bench`,
//! `book`, `dist`, `publish` and `live`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod api;
mod bench;
mod book;
mod cargo;
mod ci;
mod corpus;
mod crash;
mod dist;
mod editors;
mod fixtures;
mod fuzz;
mod http_api;
mod live;
mod publish;
mod readme;
mod scripts;
mod tidy;
mod workspace;

/// The workspace's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything a change must pass: formatting, lints, tests, docs, tidy, fuzz targets, corpus
    Ci(ci::Args),
    /// The rules no compiler checks: layers, purity, budgets, docs (seconds)
    Tidy,
    /// Files made from other files: the README of each crate, highlighting for editors, lists of public items
    Fixtures(fixtures::Args),
    /// Kill drivers at random instants, and let the disk fill up: nothing may be lost
    Crash(crash::Args),
    /// Feed every parser with inputs that grow from a corpus, each with a limit of time and memory
    Fuzz(fuzz::Args),
    /// Figures of whole runs beside their limits, as a table in Markdown
    Bench(bench::Args),
    /// The documentation as one folder of HTML: searchable, without a server or a network
    Book(book::Args),
    /// Archives of a release, with checksums, completions and man pages
    Dist(dist::Args),
    /// What a registry would get, in the order of dependencies
    Publish(publish::Args),
    /// Workflows that ask a real, small model on this machine
    Live(live::Args),
    /// Requests made from docs/openapi.json to a real server, by `schemathesis` where it is installed
    HttpApi(http_api::Args),
}

fn main() -> ExitCode {
    let root = root();
    let done = match Args::parse().command {
        Command::Ci(args) => ci::run(&root, &args),
        Command::Tidy => tidy::run(&root),
        Command::Fixtures(args) => fixtures::run(&root, &args),
        Command::Crash(args) => crash::run(&root, &args),
        Command::Fuzz(args) => fuzz::run(&root, &args),
        Command::Bench(args) => bench::run(&root, &args),
        Command::Book(args) => book::run(&root, &args),
        Command::Dist(args) => dist::run(&root, &args),
        Command::Publish(args) => publish::run(&root, &args),
        Command::Live(args) => live::run(&root, &args),
        Command::HttpApi(args) => http_api::run(&root, &args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The workspace: the folder above this package.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

#[expect(clippy::print_stdout, reason = "the one place that prints results")]
fn say(line: &str) {
    println!("{line}");
}

#[expect(clippy::print_stderr, reason = "the one place that prints errors")]
fn complain(line: &str) {
    eprintln!("{line}");
}

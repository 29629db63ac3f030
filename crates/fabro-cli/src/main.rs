//! The `fabro` command: arguments in, exit code out.

#![expect(unreachable_pub, reason = "nothing of a program is reachable from outside")]

mod cli;
mod commands;
mod drive;
mod error;
mod exit;
mod files;
mod global;
mod output;
mod wiring;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    output::trace(cli.global.verbose);
    let exit = match commands::dispatch(cli.command, &cli.global) {
        Ok(exit) => exit,
        Err(error) => error::report(&error, cli.global.paint_stderr()),
    };
    exit.into()
}

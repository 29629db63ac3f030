//! The `fabro` command: arguments in, exit code out.
//!
//! `cli` lists the commands, and `commands` has a file for each: its arguments, what it does, what it
//! prints. Runs are created, driven and changed by `fabro-run`; `drive` adds progress, signals and the
//! exit code. Reports are computed in `fabro-inspect`, and drawn by `fabro-terminal`. Hints about
//! commands and options are in `report`: libraries do not know them.
//!
//! Results go to stdout; progress, warnings and errors to stderr. With `--json` stdout has nothing
//! but JSON. Every error says what to do next, and the exit code is one of these:
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | succeeded |
//! | 1 | the run failed or was canceled; `fmt --check` found something; `doctor` or `model test` did; `replay` found a difference |
//! | 2 | wrong arguments, or a workflow that is not valid |
//! | 3 | the run is paused: it waits for a person or for a larger budget |
//! | 4 | the store cannot be read or written, or an output file cannot be written |
//! | 124 | `wait`: the timeout has passed |
//! | 130 | interrupted; the run can be resumed |

#![expect(unreachable_pub, reason = "nothing of a program is reachable from outside")]

mod agent;
mod cli;
mod commands;
mod complete;
mod drive;
mod error;
mod exit;
mod global;
mod help;
mod hints;
mod output;
mod private;
mod report;
mod signals;
mod values;
mod width;
mod workflow_files;

use std::borrow::Cow;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches as _;
use fabro_terminal::clean;

fn main() -> ExitCode {
    private::close();
    signals::unblock();
    fabro_sandbox::raise_descriptor_limit();
    match complete::answer_shell(help::command) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return refused(&error),
    }
    let mut command = help::command();
    let parsed = command.try_get_matches_from_mut(arguments());
    let parsed = parsed.and_then(|matches| cli::Cli::from_arg_matches(&matches));
    let cli = match parsed.map_err(|error| error.format(&mut command)) {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    output::trace(cli.global.verbose);
    let result = cli.command.execute(&cli.global);
    result.unwrap_or_else(|error| report::report(error, &cli.global)).into()
}

/// The arguments of the process. `help attribute NAME` shows the attribute, as `help COMMAND` does a
/// command.
fn arguments() -> Vec<OsString> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let is_of_attribute = args.len() > 3 && args[1] == "help" && args[2] == "attribute";
    if is_of_attribute {
        args.remove(1);
    }
    args
}

/// Reports arguments that cannot be used, or prints the help that they ask for.
fn refused(error: &clap::Error) -> ExitCode {
    let args: Vec<String> =
        std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    if let Some(error) = hints::explain(error, &args) {
        return report::report(error, &global::Global::default()).into();
    }
    let global = global::Global::default();
    let paint = if error.use_stderr() { global.paint_stderr() } else { global.paint_stdout() };
    let text = error.render();
    // clap's styles are trusted, but arguments may contain escape sequences.
    let is_plain = args.iter().all(|arg| matches!(clean(arg), Cow::Borrowed(_)));
    let text = if paint.is_on() && is_plain {
        text.ansi().to_string()
    } else {
        clean(&text.to_string()).into_owned()
    };
    if error.use_stderr() {
        fabro_terminal::stderr(&text);
    } else if let Err(error) = output::trusted(&text) {
        return report::report(error, &global).into();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

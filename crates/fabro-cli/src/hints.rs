//! What people type for commands that are named otherwise. True synonyms are aliases of the commands;
//! for the others there is an error that names the right command with the arguments that were typed.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::error::usage;
use crate::global::{cwd, home};

/// A word that is not a command, what to type instead, and what that does. `{}` is replaced by the
/// arguments that were typed; in `{RUN}` and `{FILE}` a missing one is left for people to fill in.
struct Hint {
    words: &'static [&'static str],
    command: &'static str,
    does: &'static str,
}

const HINTS: [Hint; 22] = [
    hint(
        &["stop", "kill", "abort", "end"],
        "cancel {RUN}",
        "ends a run for good; Ctrl-C in its terminal only interrupts it",
    ),
    hint(
        &["pause", "suspend"],
        "cancel {RUN}",
        "ends a run for good; to continue it later, press Ctrl-C in its terminal instead, then `fabro resume`",
    ),
    hint(
        &["attach", "follow", "watch", "tail"],
        "events -f {RUN}",
        "shows what happens in a run until it ends",
    ),
    hint(
        &["restart", "rerun"],
        "retry {RUN}",
        "runs again what failed; `fabro rewind RUN STAGE` goes back to a stage, `fabro run` starts another run",
    ),
    hint(&["exec", "execute", "launch"], "run {FILE}", "runs a workflow"),
    hint(
        &["approve", "accept", "reject", "deny", "respond"],
        "answer {RUN} CHOICE",
        "answers a gate; `fabro inspect RUN` shows the choices",
    ),
    hint(&["create", "scaffold", "setup"], "init {}", "creates a project with a first workflow"),
    hint(
        &["history", "runs", "jobs", "top"],
        "ps",
        "lists all runs, and `fabro events RUN` what happened in one",
    ),
    hint(
        &["clean", "gc", "purge"],
        "prune",
        "removes runs by age, number, status or size; `fabro rm RUN` removes one",
    ),
    hint(&["size", "usage", "disk"], "du", "shows the space that runs take"),
    hint(
        &["view", "get", "info", "output", "result"],
        "inspect {RUN}",
        "shows a run, and with a stage its prompt, response and output",
    ),
    hint(
        &["undo", "reset", "back", "goto"],
        "rewind {RUN}",
        "takes a run back to the end of a stage",
    ),
    hint(&["copy", "clone", "branch"], "fork {RUN}", "copies a run up to the end of a stage"),
    hint(&["changes", "patch"], "diff {RUN}", "shows what a run changed"),
    hint(
        &["send", "say", "tell", "message"],
        "steer {RUN} TEXT",
        "sends a message to the running agents",
    ),
    hint(
        &["simulate", "dry-run", "plan"],
        "run {FILE} --dry-run",
        "walks through a workflow without executing anything",
    ),
    hint(
        &["draw", "dot", "render", "visualize", "viz"],
        "graph {FILE}",
        "prints a workflow as DOT",
    ),
    hint(
        &["ui", "web", "open", "server", "dashboard", "gui"],
        "serve",
        "shows all runs in a browser; `fabro report RUN` writes one as a file of HTML",
    ),
    hint(
        &["test"],
        "validate {FILE}",
        "checks a workflow; `fabro run FILE --dry-run` walks through it",
    ),
    hint(&["models", "providers"], "model list", "lists the models and who serves them"),
    hint(
        &["secrets", "secret", "keys", "env", "vault"],
        "settings",
        "shows the settings in force; secrets are environment variables of the shell that starts a run",
    ),
    hint(
        &["login", "auth", "version"],
        "doctor",
        "checks the setup; keys are environment variables, `fabro --version` shows the version",
    ),
];

const fn hint(words: &'static [&'static str], command: &'static str, does: &'static str) -> Hint {
    Hint { words, command, does }
}

/// The error for a word that is not a command, if it is known what was meant; and for a `run` without a
/// workflow, which names those that there are.
pub fn explain(error: &clap::Error, args: &[String]) -> Option<anyhow::Error> {
    if error.kind() == ErrorKind::MissingRequiredArgument {
        let is_run = args.get(1).is_some_and(|word| word == "run" || word == "start");
        return if is_run { no_workflow() } else { no_run(error, args) };
    }
    if error.kind() == ErrorKind::UnknownArgument {
        return unknown_option(error, args);
    }
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let at = args.iter().position(|arg| arg == word)?;
    let rest = &args[at + 1..];
    match args.get(at.wrapping_sub(1)).map(String::as_str) {
        Some("artifact" | "artifacts") => {
            let command = filled("artifact list {RUN}", &args[at..]);
            let next = format!("list the artifacts of a run with `fabro {command}`");
            return Some(usage(format!("`artifact` has no command `{word}`"), next));
        }
        // What follows is a command of this one, and none of those below.
        Some("model" | "mcp" | "sandbox") => return None,
        _ => {}
    }
    let message = format!("there is no command `{word}`");
    let lower = word.to_lowercase();
    if let Some(hint) = HINTS.iter().find(|hint| hint.words.contains(&lower.as_str())) {
        let command = filled(hint.command, rest);
        return Some(usage(message, format!("`fabro {command}` {}", hint.does)));
    }
    is_workflow(word).then(|| {
        let command = filled("run {FILE}", &args[at..]);
        usage(message, format!("run the workflow with `fabro {command}`"))
    })
}

/// What people write for the inputs of a run.
const INPUT_OPTIONS: [&str; 8] =
    ["--set", "--var", "--vars", "--param", "--arg", "--define", "--variable", "--inputs"];

/// What people write for a run that does not ask them.
const APPROVE_OPTIONS: [&str; 7] =
    ["-y", "--yes", "--approve", "--auto", "--no-input", "--non-interactive", "--batch"];

/// What people write before the workflow.
const WORKFLOW_OPTIONS: [&str; 4] = ["-f", "--file", "--workflow", "-w"];

/// The error for an option that `run` has by another name, and for an input without one.
fn unknown_option(error: &clap::Error, args: &[String]) -> Option<anyhow::Error> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if !args.iter().any(|word| word == "run" || word == "start") {
        return None;
    }
    let name = option.split('=').next().unwrap_or_default();
    let next = if INPUT_OPTIONS.contains(&name) {
        let at = args.iter().position(|arg| arg.starts_with(name));
        let rest = at.and_then(|at| args.get(at + 1)).filter(|rest| rest.contains('='));
        let pair = rest.map_or_else(|| "KEY=VALUE".to_owned(), |rest| quoted(rest));
        format!("give the workflow an input with `--input {pair}`, or `-I`")
    } else if APPROVE_OPTIONS.contains(&name) {
        "`--auto-approve` answers every gate; `--answers FILE` has answers for each".to_owned()
    } else if WORKFLOW_OPTIONS.contains(&name) {
        "the workflow stands alone: `fabro run FILE`".to_owned()
    } else if !name.starts_with('-') && option.contains('=') {
        let message = format!("`run` takes one workflow, and `{option}` is one more");
        let pair = quoted(option);
        return Some(usage(
            message,
            format!("give the workflow an input with `--input {pair}`, or `-I`"),
        ));
    } else {
        return None;
    };
    Some(usage(format!("`run` has no option `{name}`"), next))
}

/// The error for a command that needs a run and has none: the same command with the newest.
fn no_run(error: &clap::Error, args: &[String]) -> Option<anyhow::Error> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let (first, others) = missing.split_first()?;
    if !matches!(first.as_str(), "<RUN>" | "<RUN>...") {
        return None;
    }
    let typed = args[1..].iter().map(|arg| quoted(arg));
    let others = others.iter().map(|name| name.trim_matches(['<', '>', '.']).to_owned());
    let words: Vec<String> = typed.chain(["latest".to_owned()]).chain(others).collect();
    let next =
        format!("`fabro {}` takes the newest run; `fabro ps` lists them all", words.join(" "));
    Some(usage("no run is named", next))
}

fn no_workflow() -> Option<anyhow::Error> {
    let names = fabro_config::workflow_names(&cwd().ok()?);
    let next = match names.iter().next() {
        Some(first) => {
            let all = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            format!(
                "the workflows here are {all}: run one with `fabro run {first}`, or name a file"
            )
        }
        None => "name a file, or make a first workflow with `fabro init`".to_owned(),
    };
    Some(usage("no workflow is named", next))
}

/// A command with the arguments that were typed: those before what the command needs besides.
fn filled(command: &str, typed: &[String]) -> String {
    let typed: Vec<String> = typed.iter().map(|arg| quoted(arg)).collect();
    let arguments = |missing: &str| match typed.first() {
        Some(_) => typed.join(" "),
        None => missing.to_owned(),
    };
    let text = command.replace("{RUN}", &arguments("RUN")).replace("{FILE}", &arguments("FILE"));
    text.replace("{}", &arguments("")).trim_end().to_owned()
}

fn quoted(arg: &str) -> String {
    crate::global::quoted(std::path::Path::new(arg))
}

/// Whether a word names a workflow: a file of a workflow, or one of the project's.
fn is_workflow(word: &str) -> bool {
    let has_extension = [".fabro", ".toml", ".dot", ".gv"].iter().any(|it| word.ends_with(it));
    let located = || {
        let cwd = cwd().ok()?;
        fabro_config::locate(word, &cwd, home().as_deref()).ok()
    };
    has_extension || located().is_some()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use insta::assert_snapshot;

    use super::*;
    use crate::cli::Cli;
    use crate::error::CliError;

    #[test]
    fn every_hint_names_a_command_and_no_word_is_one() {
        let root = Cli::command();
        let names: Vec<&str> = root
            .get_subcommands()
            .flat_map(|it| std::iter::once(it.get_name()).chain(it.get_all_aliases()))
            .collect();
        for hint in &HINTS {
            let name = hint.command.split(' ').next().unwrap();
            assert!(names.contains(&name), "{}", hint.command);
            for word in hint.words {
                assert!(!names.contains(word), "{word}");
            }
        }
    }

    fn check(line: &str) -> String {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = Cli::try_parse_from(&args).unwrap_err();
        match explain(&error, &args) {
            Some(error) => format!("{error}: {}", error.downcast_ref::<CliError>().unwrap().next),
            None => "no hint".to_owned(),
        }
    }

    #[test]
    fn hints_repeat_what_was_typed() {
        assert_snapshot!(check("fabro stop 01K3"), @"there is no command `stop`: `fabro cancel 01K3` ends a run for good; Ctrl-C in its terminal only interrupts it");
        assert_snapshot!(check("fabro --store x approve latest"), @"there is no command `approve`: `fabro answer latest CHOICE` answers a gate; `fabro inspect RUN` shows the choices");
        assert_snapshot!(check("fabro exec"), @"there is no command `exec`: `fabro run FILE` runs a workflow");
        assert_snapshot!(check("fabro simulate a.fabro -I a=b"), @"there is no command `simulate`: `fabro run a.fabro -I a=b --dry-run` walks through a workflow without executing anything");
        assert_snapshot!(check("fabro flow.fabro --dry-run"), @"there is no command `flow.fabro`: run the workflow with `fabro run flow.fabro --dry-run`");
        assert_snapshot!(check("fabro run a.fabro --set k=v"), @"`run` has no option `--set`: give the workflow an input with `--input k=v`, or `-I`");
        assert_snapshot!(check("fabro run a.fabro --var"), @"`run` has no option `--var`: give the workflow an input with `--input KEY=VALUE`, or `-I`");
        assert_snapshot!(check("fabro run a.fabro k=v"), @"`run` takes one workflow, and `k=v` is one more: give the workflow an input with `--input k=v`, or `-I`");
        assert_snapshot!(check("fabro run a.fabro -y"), @"`run` has no option `-y`: `--auto-approve` answers every gate; `--answers FILE` has answers for each");
        assert_snapshot!(check("fabro run --file a.fabro"), @"`run` has no option `--file`: the workflow stands alone: `fabro run FILE`");
        assert_snapshot!(check("fabro run a.fabro --frobnicate"), @"no hint");
        assert_snapshot!(check("fabro ui"), @"there is no command `ui`: `fabro serve` shows all runs in a browser; `fabro report RUN` writes one as a file of HTML");
        assert_snapshot!(check("fabro resume"), @"no run is named: `fabro resume latest` takes the newest run; `fabro ps` lists them all");
        assert_snapshot!(check("fabro --store x replay --json"), @"no run is named: `fabro --store x replay --json latest` takes the newest run; `fabro ps` lists them all");
        assert_snapshot!(check("fabro steer"), @"no run is named: `fabro steer latest TEXT` takes the newest run; `fabro ps` lists them all");
        assert_snapshot!(check("fabro backup"), @"no hint");
        assert_snapshot!(check("fabro ps --set k=v"), @"no hint");
        assert_snapshot!(check("fabro artifact latest *.png"), @"`artifact` has no command `latest`: list the artifacts of a run with `fabro artifact list latest '*.png'`");
        assert_snapshot!(check("fabro model info"), @"no hint");
        assert_snapshot!(check("fabro sandbox stop"), @"no hint");
        assert_snapshot!(check("fabro frobnicate"), @"no hint");
        assert_snapshot!(check("fabro inspect x y z"), @"no hint");
    }
}

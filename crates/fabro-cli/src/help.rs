//! The help of `fabro` itself: the commands in groups. `-h` shows the common ones on one screen, `--help`
//! all of them.

use std::fmt::Write as _;

use clap::builder::Styles;
use clap::builder::styling::Style;
use clap::{Arg, Command, CommandFactory as _};

use crate::cli::Cli;

/// Commands that belong together.
struct Group {
    title: &'static str,
    /// Commands that `-h` shows too.
    common: &'static [&'static str],
    /// Commands that only `--help` shows.
    rare: &'static [&'static str],
}

const GROUPS: [Group; 8] = [
    group("Start", &["run", "resume", "init"], &[]),
    group("Watch", &["ps", "inspect", "logs"], &["events", "wait"]),
    group("Answer", &["gates", "answer", "cancel"], &["steer", "compact"]),
    group(
        "Understand",
        &["explain", "cost"],
        &["diff", "context", "compare", "graph", "trace", "replay"],
    ),
    group("Go back", &["retry", "rewind"], &["fork"]),
    group("Keep", &["report"], &["artifact", "dump", "rm", "prune", "du", "verify", "backup"]),
    group("Check", &["validate", "doctor"], &["settings", "fmt", "explain-attribute", "model"]),
    group("Serve", &["serve"], &["mcp", "sandbox", "completion"]),
];

const fn group(
    title: &'static str,
    common: &'static [&'static str],
    rare: &'static [&'static str],
) -> Group {
    Group { title, common, rare }
}

/// The width of the titles of groups.
const TITLE: usize = 11;

/// The width of the names of commands.
const NAME: usize = 19;

/// The width of options with their values.
const OPTION: usize = 21;

const SHORT_END: &str =
    "New here? `fabro init`, then `fabro run hello`. All commands: `fabro --help`.";

const EXIT_CODES: &str = "\
Exit codes: 0 succeeded, 1 the run failed, 2 usage or invalid workflow,
3 paused, 4 the store cannot be read or written, 124 timeout of `wait`,
130 interrupted";

/// The command line, with the help of `fabro` itself.
pub fn command() -> Command {
    let root = Cli::command();
    let short = format!("{}\n{SHORT_END}", commands(&root, false));
    let long = format!("{}\n{}\n{EXIT_CODES}", commands(&root, true), options(&root));
    root.help_template("{about-with-newline}\n{usage-heading} {usage}{after-help}")
        .after_help(short)
        .after_long_help(long)
}

/// A line for each command, with the group titles in the first column.
fn commands(root: &Command, is_long: bool) -> String {
    let styles = Styles::styled();
    let mut text = String::new();
    for Group { title, common, rare } in &GROUPS {
        let rare = if is_long { *rare } else { &[] };
        for (row, name) in common.iter().chain(rare).enumerate() {
            // clap wraps a line wrongly if it begins with a style.
            text.push_str("  ");
            match row {
                0 => column(&mut text, styles.get_header(), title, TITLE),
                _ => text.push_str(&" ".repeat(TITLE)),
            }
            column(&mut text, styles.get_literal(), name, NAME);
            let about = root.find_subcommand(name).and_then(Command::get_about);
            let _ = writeln!(text, "{}", about.cloned().unwrap_or_default());
        }
    }
    text
}

/// A styled text. The padding is not styled, since the style may underline.
fn column(line: &mut String, style: &Style, text: &str, width: usize) {
    let _ = write!(line, "{style}{text}{style:#}{}", " ".repeat(width.saturating_sub(text.len())));
}

/// A line for each option of every command.
fn options(root: &Command) -> String {
    let styles = Styles::styled();
    let bold = styles.get_header();
    let mut text = format!("{bold}Options of every command:{bold:#}\n");
    let mut line = |name: &str, help: &str| {
        text.push_str("  ");
        column(&mut text, styles.get_literal(), name, OPTION);
        let _ = writeln!(text, "{help}");
    };
    for option in root.get_arguments() {
        let help = option.get_help().cloned().unwrap_or_default();
        line(&signature(option), &help.to_string());
    }
    line("-h, --help", "Print help; -h only common commands");
    line("-V, --version", "Print version");
    text
}

/// `-v, --verbose`, `    --store <DIR>`.
fn signature(option: &Arg) -> String {
    let short = option.get_short().map_or("    ".to_owned(), |short| format!("-{short}, "));
    let long = option.get_long().unwrap_or_default();
    let value = option.get_value_names().filter(|_| option.get_action().takes_values());
    let value = value.and_then(<[_]>::first).map(|name| format!(" <{name}>")).unwrap_or_default();
    format!("{short}--{long}{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let root = Cli::command();
        let mut grouped: Vec<&str> =
            GROUPS.iter().flat_map(|it| it.common.iter().chain(it.rare).copied()).collect();
        let mut known: Vec<&str> =
            root.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name).collect();
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn the_short_help_fits_on_one_screen() {
        let short = command().render_help().to_string();
        assert!(short.lines().count() < 24, "{short}");
        for text in [short, command().render_long_help().to_string()] {
            let wide = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None);
        }
    }

    /// clap wraps texts to the width of the terminal: lines that are broken here already get broken twice,
    /// and an example that is too long is no longer one line.
    #[test]
    fn texts_after_the_options_are_not_wrapped_twice() {
        fn check(command: &Command) {
            for text in [command.get_after_help(), command.get_after_long_help()] {
                let text = text.map(ToString::to_string).unwrap_or_default();
                let wide = text.lines().find(|it| it.starts_with(' ') && it.chars().count() > 80);
                assert_eq!(wide, None, "{}", command.get_name());
                for paragraph in text.split("\n\n").filter(|it| !it.contains("\n  ")) {
                    assert!(!paragraph.contains('\n'), "{}: {paragraph}", command.get_name());
                }
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}

//! The pages of `docs` that are for doing: each of their files is written, each command is run, and what
//! it prints is compared.
//!
//! - A block `dot file=fix.fabro` (of any language) is a file. A `dot` file must be valid, unless `findings` is
//!   behind its name.
//! - A block `console` has commands after `$ ` and what they print. A line `…` there stands for any lines, and
//!   `…` at the end of a line for its rest. Ids, times, durations, sizes and widths of columns are not compared,
//!   and in a block `console unordered` neither is the order of lines.
//! - With `UPDATE_PAGES=1` the pages are written anew.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use regex::Regex;

use super::project::{FILTERS, Project};
use super::sandboxes;

/// A block of code of a page: its lines, without the fences.
struct Block {
    /// What is behind the opening fence, as `dot file=fix.fabro`.
    info: String,
    first: usize,
    lines: Vec<String>,
}

impl Block {
    fn file(&self) -> Option<&str> {
        self.info.split(' ').find_map(|word| word.strip_prefix("file="))
    }

    fn language(&self) -> &str {
        self.info.split(' ').next().unwrap_or_default()
    }

    /// The commands, each with what the page says that it prints.
    fn commands(&self) -> Vec<(&str, Vec<&str>)> {
        let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
        for line in &self.lines {
            if let Some(command) = line.strip_prefix("$ ") {
                commands.push((command, Vec::new()));
            } else {
                commands.last_mut().unwrap().1.push(line);
            }
        }
        commands
    }
}

fn path(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page)
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (open.take(), line.strip_prefix("```")) {
            (None, Some(info)) => {
                open = Some(Block { info: info.to_owned(), first: number + 1, lines: vec![] });
            }
            (Some(block), Some("")) => blocks.push(block),
            (Some(mut block), _) => {
                block.lines.push(line.to_owned());
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end");
    blocks
}

/// What a command prints on both streams, in the order in which it does.
fn output(project: &Project, command: &str) -> String {
    let fabro = Path::new(env!("CARGO_BIN_EXE_fabro")).parent().unwrap();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([fabro.into()].into_iter().chain(env::split_paths(&path))).unwrap();
    let mut bash = shell(project, path);
    let output = bash.args(["-c", &format!("exec 2>&1\n{command}")]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text.replace(&project.path().display().to_string(), "~/project");
    // What bash says of a process that a signal ended; on a terminal it is the word alone.
    Regex::new(r"(?m)^bash: line \d+: +\d+ Killed.*$").unwrap().replace_all(&text, "Killed").into()
}

fn shell(project: &Project, path: OsString) -> Command {
    let mut bash = project.program("bash");
    bash.env("PATH", path).env("GIT_CONFIG_SYSTEM", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        bash.env(format!("GIT_{who}_NAME"), "Ada");
        bash.env(format!("GIT_{who}_EMAIL"), "ada@example.org");
    }
    bash
}

/// The same for two runs, lines without whitespace at their ends.
fn normalized(text: &str) -> Vec<String> {
    let mut text = text.to_owned();
    // Python's unittest prints seconds with three decimals.
    let others =
        [(r"\b\d+(\.\d+)? [kMG]?B\b", "[SIZE]"), (r"(\S) +", "$1 "), (r"\b\d+\.\d{3}s\b", "[T]")];
    for (pattern, replacement) in FILTERS.into_iter().chain(others) {
        text = Regex::new(pattern).unwrap().replace_all(&text, replacement).into_owned();
    }
    text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Whether lines are as a page says.
fn is_as_said(said: &[String], printed: &[String]) -> bool {
    match said {
        [] => printed.is_empty(),
        [line, rest @ ..] if line == "…" => {
            (0..=printed.len()).any(|skipped| is_as_said(rest, &printed[skipped..]))
        }
        [line, rest @ ..] => {
            let is_same = |printed: &String| match line.strip_suffix('…') {
                Some(start) => printed.starts_with(start),
                None => printed == line,
            };
            printed.first().is_some_and(is_same) && is_as_said(rest, &printed[1..])
        }
    }
}

/// Writes the files of some blocks and runs their commands. Says which blocks print something else, each with
/// the lines that it should have.
fn differences(blocks: &[Block]) -> Vec<(usize, usize, Vec<String>)> {
    let project = Project::new();
    let mut found = Vec::new();
    for block in blocks {
        if let Some(file) = block.file() {
            project.write(file, (block.lines.join("\n") + "\n").as_bytes());
            if block.language() == "dot" && !block.info.ends_with(" findings") {
                let checked = project.run(&["validate", file]);
                // Readers decide themselves about agents with full permissions next to scripts.
                let told = checked.contains("keys-in-reach")
                    && checked.contains("1 file checked: 1 warning\n");
                let clean = checked.contains("1 file checked, no findings\n");
                assert!(clean || told, "{file}: {checked}");
            }
        }
        if block.language() != "console" || !can_run(block) {
            continue;
        }
        let mut lines = Vec::new();
        let mut is_same = true;
        for (command, said) in block.commands() {
            let printed = output(&project, command);
            lines.push(format!("$ {command}"));
            let mut expected = normalized(&said.join("\n"));
            let mut found = normalized(&printed);
            if block.info.contains("unordered") {
                expected.sort();
                found.sort();
            }
            if is_as_said(&expected, &found) {
                lines.extend(said.into_iter().map(str::to_owned));
            } else {
                is_same = false;
                lines.extend(printed.lines().map(|line| line.trim_end().to_owned()));
            }
        }
        if !is_same {
            found.push((block.first, block.lines.len(), lines));
        }
    }
    found
}

/// Whether this machine has what the block needs.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn can_run(block: &Block) -> bool {
    let is_possible = !block.info.contains("needs=bwrap") || sandboxes::bubblewrap_works();
    if !is_possible {
        eprintln!("skipped: line {} needs bubblewrap, which does not work here", block.first);
    }
    is_possible
}

/// Checks a page, or writes it anew.
fn check(page: &str, projects: &[Vec<Block>]) {
    let found = std::thread::scope(|scope| {
        let workers: Vec<_> =
            projects.iter().map(|blocks| scope.spawn(|| differences(blocks))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    if env::var_os("UPDATE_PAGES").is_some() {
        let text = fs::read_to_string(path(page)).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        for (first, count, new) in found.into_iter().rev() {
            lines.splice(first..first + count, new);
        }
        fs::write(path(page), lines.join("\n") + "\n").unwrap();
        return;
    }
    let found = found.into_iter().map(|(first, _, lines)| {
        format!("docs/{page}:{}: this is printed instead\n{}\n", first + 1, lines.join("\n"))
    });
    let found: String = found.collect();
    assert!(found.is_empty(), "{found}\nUPDATE_PAGES=1 writes it into the page");
}

#[test]
fn the_tutorial_is_as_it_says() {
    let text = fs::read_to_string(path("tutorial.md")).unwrap();
    check("tutorial.md", &[blocks(&text)]);
}

#[test]
fn the_operations_are_as_they_say() {
    let text = fs::read_to_string(path("operations.md")).unwrap();
    check("operations.md", &[blocks(&text)]);
}

#[test]
fn the_migrations_are_as_they_say() {
    let text = fs::read_to_string(path("migration.md")).unwrap();
    check("migration.md", &sections(&text));
}

#[test]
fn the_cookbook_is_as_it_says() {
    let text = fs::read_to_string(path("cookbook.md")).unwrap();
    let sections = sections(&text);
    assert!(sections.len() >= 20);
    check("cookbook.md", &sections);
}

/// The blocks of each section of second level, which is a project of its own.
fn sections(text: &str) -> Vec<Vec<Block>> {
    let headings = text.lines().enumerate().filter(|(_, line)| line.starts_with("## "));
    let starts: Vec<_> = headings.map(|(number, _)| number).collect();
    let mut sections: Vec<Vec<Block>> = Vec::new();
    for block in blocks(text) {
        let section = starts.iter().filter(|start| **start < block.first).count();
        sections.resize_with(section.max(sections.len()), Vec::new);
        sections[section - 1].push(block);
    }
    sections
}

#[test]
fn lines_are_compared() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let same = |said: &str, printed: &str| is_as_said(&lines(said), &lines(printed));
    assert!(same("a\n…\nc", "a\nb\nb\nc") && same("a\n…\nc", "a\nc") && same("a b…", "a bc"));
    assert!(!same("a\n…\nc", "a\nb") && !same("a", "a\nb") && !same("a\nb", "a") && !same("", "a"));
    assert_eq!(normalized("ran 12ms  → b  \n"), normalized("ran   3.1s  → b"));
    assert_eq!(normalized("a  1.2 kB\n"), normalized("a 100 B"));
}

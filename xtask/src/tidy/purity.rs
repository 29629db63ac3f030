//! Pure crates: no I/O, no clock, no randomness, no async runtime.

use super::source::{Token, sources, starts};
use super::{Problem, layers};
use crate::workspace::{Kind, Package, Workspace};

const MODULES: [&str; 5] = ["env", "fs", "net", "process", "thread"];
const CLOCKS: [&str; 2] = ["Instant", "SystemTime"];
const RUNTIMES: [&str; 9] = [
    "async-std",
    "fastrand",
    "futures-executor",
    "getrandom",
    "rand",
    "rustix",
    "smol",
    "tempfile",
    "tokio",
];

/// Their production code names no part of the standard library that reaches outside.
pub(super) fn pure_crates_use_no_system(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in pure(workspace) {
        for source in sources(workspace, package) {
            problems.extend(system_uses(&source.tokens).into_iter().map(|(what, line)| {
                let message = format!("`{}` is pure: no `{what}`", package.name);
                Problem::new(source.path, line, message)
            }));
        }
    }
    problems
}

/// They depend on no runtime, clock or source of randomness.
pub(super) fn pure_crates_have_no_runtime(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in pure(workspace) {
        let dependencies = package.dependencies().into_iter();
        let effects = dependencies.filter(|it| it.kind != Kind::Development);
        problems.extend(effects.filter(|it| RUNTIMES.contains(&it.name)).map(|it| {
            let message = format!("`{}` is pure: no `{}`", package.name, it.name);
            Problem::in_manifest(package, message)
        }));
    }
    problems
}

/// Where git is started, without the hooks, filters and monitors of a repository.
const GIT: &str = "crates/fabro-sandbox/src/git/run.rs";

/// Git is started in one place.
pub(super) fn git_in_one_place(workspace: &Workspace) -> Vec<Problem> {
    let crates = workspace.packages.iter().filter(|package| package.dir.starts_with("crates/"));
    let mut problems = Vec::new();
    for source in crates.flat_map(|package| sources(workspace, package)) {
        let starts_git = |at: &usize| {
            starts(&source.tokens, *at, &["Command", ":", ":", "new", "(", "\"git\"", ")"])
        };
        if source.path != GIT {
            problems.extend((0..source.tokens.len()).filter(starts_git).map(|at| {
                let message = format!("git is started by `git` in {GIT} only");
                Problem::new(source.path, source.tokens[at].line, message)
            }));
        }
    }
    problems
}

fn pure(workspace: &Workspace) -> impl Iterator<Item = &Package> {
    let is_pure = |name: &str| layers::find(name).is_some_and(|member| member.pure);
    workspace.packages.iter().filter(move |package| is_pure(&package.name))
}

/// The parts of the outside world that code names, with the line.
fn system_uses(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if CLOCKS.contains(&token.text.as_str()) {
            found.push((token.text.clone(), token.line));
        } else if starts(tokens, at, &[":", ":", "now", "("]) {
            found.push(("now()".to_owned(), token.line));
        } else if starts(tokens, at, &["std", ":", ":"]) {
            let modules = named_after(&tokens[at + 3..]).into_iter();
            let outside = modules.filter(|module| MODULES.contains(&module.text.as_str()));
            found.extend(outside.map(|module| (format!("std::{}", module.text), module.line)));
        }
    }
    found
}

/// The modules named after `std::`: one, or those of a `{…}` group.
fn named_after(tokens: &[Token]) -> Vec<&Token> {
    let is_group = tokens.first().is_some_and(|token| token.text == "{");
    if !is_group {
        return tokens.first().into_iter().collect();
    }
    let mut named = Vec::new();
    let mut depth = 0_usize;
    for (token, next) in tokens.iter().zip(&tokens[1..]) {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && matches!(token.text.as_str(), "{" | ",") {
            named.push(next);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::found;
    use crate::tidy::source::tokens;

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        let found = system_uses(&tokens(text));
        assert_eq!(found.into_iter().map(|(what, _)| what).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn git_is_started_in_one_place() {
        let package = ("crates/fabro-sandbox/Cargo.toml", "[package]\nname = 'fabro-sandbox'");
        let git = "fn f() { std::process::Command::new(\"git\"); }";
        let other = "crates/fabro-sandbox/src/a.rs";
        let found = |path| found(git_in_one_place, &[package, (path, git)]);
        assert_snapshot!(found(other), @"crates/fabro-sandbox/src/a.rs:1: git is started by `git` in crates/fabro-sandbox/src/git/run.rs only");
        assert_eq!(found(GIT), "");
    }

    #[test]
    fn every_spelling_of_a_system_module_is_found() {
        check("use std::fs;", &["std::fs"]);
        check("use std::{fmt, env::{self, var}, net};", &["std::env", "std::net"]);
        check("use std::{collections::{fs, net}, sync::Arc};", &[]);
        check("fn f() { let x = vec![std::process::id()]; }", &["std::process"]);
        check("use std::time::{Duration, SystemTime};", &["SystemTime"]);
        check("fn f() { Timestamp::now(); x.now(); }", &["now()"]);
        check("#[cfg(test)] mod tests { use std::fs; }", &[]);
        check("//! std::fs\nconst A: &str = \"std::fs\";", &[]);
    }

    #[test]
    fn only_pure_crates_are_checked() {
        let source = |path| (path, "use std::collections::BTreeMap;\nuse std::{fs};");
        let files = [
            ("crates/p/Cargo.toml", "[package]\nname = 'fabro-types'\n[dependencies]\ntokio = '1'"),
            source("crates/p/src/lib.rs"),
            ("crates/i/Cargo.toml", "[package]\nname = 'fabro-store'\n[dependencies]\ntokio = '1'"),
            source("crates/i/src/lib.rs"),
        ];
        assert_snapshot!(found(pure_crates_use_no_system, &files), @"crates/p/src/lib.rs:2: `fabro-types` is pure: no `std::fs`");
        assert_snapshot!(found(pure_crates_have_no_runtime, &files), @"crates/p/Cargo.toml: `fabro-types` is pure: no `tokio`");
    }
}

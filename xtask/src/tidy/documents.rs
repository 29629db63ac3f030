//! Rules for documents: crate docs, README, example.

use super::{Problem, layers};
use crate::book::page;
use crate::workspace::Workspace;
use crate::{fixtures, readme};

/// Every package has crate docs, and every library has a doctest.
pub(super) fn crate_docs(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in &workspace.packages {
        let Some((path, source)) = package.root_file(workspace) else {
            let message = "has neither `src/lib.rs` nor `src/main.rs`";
            problems.push(Problem::new(package.dir.clone(), 0, message));
            continue;
        };
        if readme::crate_docs(source).is_empty() {
            problems.push(Problem::new(path.clone(), 1, "open it with crate docs (`//!`)"));
        } else if path.ends_with("lib.rs") && !readme::has_doctest(source) {
            problems.push(Problem::new(path.clone(), 1, "show its use in a doctest that runs"));
        }
        let hidden = readme::hidden_definitions(source).into_iter();
        problems.extend(hidden.map(|line| {
            Problem::new(
                path.clone(),
                1,
                format!("show `{line}` in the example: the README needs it"),
            )
        }));
    }
    problems
}

/// The README of a crate is its crate docs.
pub(super) fn readmes(workspace: &Workspace) -> Vec<Problem> {
    let stale = fixtures::stale(workspace).into_iter();
    let message = "differs from the crate docs: run `cargo xtask fixtures --bless`";
    stale.map(|(path, _)| Problem::new(path, 0, message)).collect()
}

/// An entry point for other projects has an example.
pub(super) fn examples(workspace: &Workspace) -> Vec<Problem> {
    let entry_points = workspace
        .packages
        .iter()
        .filter(|package| layers::find(&package.name).is_some_and(|member| member.entry_point));
    let lacking = entry_points.filter(|package| {
        let prefix = format!("{}/examples/", package.dir);
        !workspace.sources(package).any(|(path, _)| path.starts_with(&prefix))
    });
    let message = "show its use in a file below `examples/`";
    lacking.map(|package| Problem::new(package.dir.clone(), 0, message)).collect()
}

/// A link to a heading of a page leads to one.
pub(super) fn links(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in workspace.pages() {
        for (line, target) in link_targets(text) {
            let Some((file, anchor)) = target.split_once('#') else { continue };
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let page = if file.is_empty() { path.to_owned() } else { page::joined(folder, file) };
            // Other files are not read here.
            let Some(page) = workspace.file(&page) else { continue };
            if !headings(page).any(|heading| heading == anchor) {
                let message = format!("no heading has the anchor `{target}`");
                problems.push(Problem::new(path.to_owned(), line, message));
            }
        }
    }
    problems
}

/// The targets of links, with the numbers of their lines.
fn link_targets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().zip(1..).flat_map(|(line, number)| {
        let after = line.split("](").skip(1);
        after.filter_map(move |rest| Some((number, rest.split_once(')')?.0)))
    })
}

/// The anchors of a page's headings.
fn headings(page: &str) -> impl Iterator<Item = String> {
    let mut is_code = false;
    let lines = page.lines().filter(move |line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    });
    lines.map(|line| page::slug(line.trim_start_matches('#')))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::found;

    const LIBRARY: (&str, &str) = ("crates/a/Cargo.toml", "[package]\nname = 'fabro-graph'");

    #[test]
    fn missing_docs_are_found() {
        let check = |file: &str, text: &str| {
            found(crate_docs, &[LIBRARY, (&format!("crates/a/src/{file}"), text)])
        };
        assert_snapshot!(check("lib.rs", "mod a;"), @"crates/a/src/lib.rs:1: open it with crate docs (`//!`)");
        assert_snapshot!(check("lib.rs", "//! A.\n"), @"crates/a/src/lib.rs:1: show its use in a doctest that runs");
        assert_snapshot!(check("other.rs", "//! A.\n"), @"crates/a: has neither `src/lib.rs` nor `src/main.rs`");
        assert_eq!(check("main.rs", "//! A.\n"), "");
        assert_eq!(check("lib.rs", "//! A.\n//! ```\n//! ```\n"), "");
        let hidden = check("lib.rs", "//! A.\n//! ```\n//! # let a = 1;\n//! f(a);\n//! ```\n");
        assert_snapshot!(hidden, @"crates/a/src/lib.rs:1: show `let a = 1;` in the example: the README needs it");
    }

    #[test]
    fn a_link_to_no_heading_is_found() {
        let pages = [
            (
                "README.md",
                "See [it](docs/a.md#the-run-file), [this](docs/a.md#gone), [that](#gone).",
            ),
            (
                "docs/a.md",
                "# A\n## The `run` file\n[up](../README.md#x) [code](#b)\n```\n# B\n```\n",
            ),
        ];
        assert_snapshot!(found(links, &pages), @r"
        README.md:1: no heading has the anchor `docs/a.md#gone`
        README.md:1: no heading has the anchor `#gone`
        docs/a.md:3: no heading has the anchor `../README.md#x`
        docs/a.md:3: no heading has the anchor `#b`
        ");
    }

    #[test]
    fn a_readme_of_its_own_is_found() {
        let source = ("crates/a/src/lib.rs", "//! A.\n");
        let readme = ("crates/a/README.md", "# fabro-graph\n\nB.\n");
        assert_snapshot!(found(readmes, &[LIBRARY, source, readme]), @"crates/a/README.md: differs from the crate docs: run `cargo xtask fixtures --bless`");
    }

    #[test]
    fn a_missing_example_is_found() {
        assert_snapshot!(found(examples, &[LIBRARY]), @"crates/a: show its use in a file below `examples/`");
        assert_eq!(found(examples, &[LIBRARY, ("crates/a/examples/e.rs", "")]), "");
    }
}

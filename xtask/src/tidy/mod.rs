//! `cargo xtask tidy`: the rules of the workspace that neither the compiler nor clippy checks.
//! `cargo test` runs them too. Each rule is one function over a [`Workspace`] in memory, with a test
//! that fails it.

use std::path::Path;

use anyhow::{Result, bail};

use crate::say;
use crate::workspace::{Package, Workspace};

mod attributes;
mod circles;
mod control_files;
mod documents;
pub(crate) mod layers;
mod manifests;
mod modules;
mod purity;
mod size;
mod source;
mod style;

/// One thing that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    path: String,
    /// From 1; 0 for the whole file.
    line: usize,
    message: String,
    /// Reported, without failing the check.
    warning: bool,
}

impl Problem {
    fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into(), warning: false }
    }

    fn warning(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::new(path, line, message) }
    }

    fn in_manifest(package: &Package, message: impl Into<String>) -> Self {
        Self::new(format!("{}/Cargo.toml", package.dir), 0, message)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.warning { "warning: " } else { "" };
        match self.line {
            0 => write!(f, "{}: {kind}{}", self.path, self.message),
            line => write!(f, "{}:{line}: {kind}{}", self.path, self.message),
        }
    }
}

type Check = fn(&Workspace) -> Vec<Problem>;

const CHECKS: &[Check] = &[
    layers::known_members,
    layers::only_lower_layers,
    layers::engine_reaches_no_effects,
    layers::few_dependencies_of_handlers,
    manifests::lints,
    manifests::http_only_where_allowed,
    manifests::schemas_stay_local,
    manifests::package_ceiling,
    purity::pure_crates_use_no_system,
    purity::pure_crates_have_no_runtime,
    purity::git_in_one_place,
    attributes::read_attributes_are_known,
    attributes::documented_attributes_are_known,
    documents::crate_docs,
    documents::readmes,
    documents::examples,
    documents::links,
    circles::import_circles,
    control_files::names_come_from_the_table,
    size::production_lines,
    style::file_lengths,
    style::tuple_lets,
    style::option_advice,
    style::usual_words,
];

pub(crate) fn run(root: &Path) -> Result<()> {
    let workspace = Workspace::load(root)?;
    let problems = problems(&workspace);
    for problem in &problems {
        say(&problem.to_string());
    }
    let errors = problems.iter().filter(|problem| !problem.warning).count();
    if errors > 0 {
        bail!("{errors} rules of the workspace are broken (see CONTRIBUTING.md)");
    }
    let packages = workspace.packages.len();
    let size = size::summary(&workspace);
    say(&format!("tidy: {} rules hold for {packages} packages; {size}", CHECKS.len()));
    Ok(())
}

fn problems(workspace: &Workspace) -> Vec<Problem> {
    CHECKS.iter().flat_map(|check| check(workspace)).collect()
}

/// The problems that a check finds in made-up files, one a line.
#[cfg(test)]
fn found(check: Check, files: &[(&str, &str)]) -> String {
    let problems = check(&crate::workspace::testing::workspace(files));
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo test` fails where `cargo xtask tidy` does.
    #[test]
    fn the_workspace_keeps_its_rules() {
        let workspace = Workspace::load(&crate::root()).unwrap();
        let broken = problems(&workspace).into_iter().filter(|problem| !problem.warning);
        let broken: Vec<_> = broken.map(|problem| problem.to_string()).collect();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }
}

//! What every manifest has.

use toml::{Table, Value};

use super::Problem;
use crate::workspace::Workspace;

/// What a registry shows, of every package that could be published.
pub(super) fn metadata(workspace: &Workspace) -> Vec<Problem> {
    const ASKED: [&str; 9] = [
        "description",
        "version",
        "edition",
        "rust-version",
        "license",
        "repository",
        "readme",
        "keywords",
        "categories",
    ];
    let mut problems = Vec::new();
    for package in &workspace.packages {
        let Some(table) = package.manifest.get("package").and_then(Value::as_table) else {
            continue;
        };
        if table.get("publish").and_then(Value::as_bool) == Some(false) {
            continue;
        }
        let lacks: Vec<_> = ASKED.into_iter().filter(|key| is_blank(table, key)).collect();
        if !lacks.is_empty() {
            let message = format!("`[package]` lacks {}", lacks.join(", "));
            problems.push(Problem::new(format!("{}/Cargo.toml", package.dir), 0, message));
        }
    }
    problems
}

/// The workspace's lints hold everywhere.
pub(super) fn lints(workspace: &Workspace) -> Vec<Problem> {
    let lacking = workspace.packages.iter().filter(|package| {
        let lints = package.manifest.get("lints").and_then(|lints| lints.get("workspace"));
        lints.and_then(Value::as_bool) != Some(true)
    });
    let message = "add `[lints] workspace = true`";
    lacking.map(|it| Problem::new(format!("{}/Cargo.toml", it.dir), 0, message)).collect()
}

fn is_blank(table: &Table, key: &str) -> bool {
    match table.get(key) {
        None => true,
        Some(Value::String(text)) => text.trim().is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::said;

    #[test]
    fn a_thin_manifest_is_seen() {
        let manifest = "[package]\nname = 'a'\ndescription = ' '\nversion.workspace = true\n\
            edition = '2024'\nrust-version = '1'\nlicense = 'MIT'\nrepository = 'x'\nkeywords = []";
        assert_snapshot!(said(metadata, &[("crates/a/Cargo.toml", manifest)]), @"crates/a/Cargo.toml: `[package]` lacks description, readme, keywords, categories");
        let private = "[package]\nname = 'a'\npublish = false";
        assert_eq!(said(metadata, &[("crates/a/Cargo.toml", private)]), "");
    }

    #[test]
    fn own_lints_are_seen() {
        let check = |table: &str| {
            let manifest = format!("[package]\nname = 'a'\n{table}");
            said(lints, &[("crates/a/Cargo.toml", &manifest)])
        };
        assert_snapshot!(check(""), @"crates/a/Cargo.toml: add `[lints] workspace = true`");
        assert_ne!(check("[lints]\nworkspace = false"), "");
        assert_eq!(check("[lints]\nworkspace = true"), "");
    }
}

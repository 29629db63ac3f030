//! `cargo xtask fixtures`: files of the repository that are made from other files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;
use crate::{api, editors, readme, say};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write the files; without it, say which ones are out of date
    #[arg(long)]
    bless: bool,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let workspace = Workspace::load(root)?;
    let mut stale = stale(&workspace);
    let listings = api::listings(&workspace)?;
    stale.extend(
        editors::files()
            .into_iter()
            .chain(listings)
            .filter(|(path, text)| fs::read_to_string(root.join(path)).ok().as_ref() != Some(text)),
    );
    for (path, text) in &stale {
        if args.bless {
            fs::write(root.join(path), text).with_context(|| format!("write {path}"))?;
        }
        say(&format!("{} {path}", if args.bless { "wrote" } else { "out of date:" }));
    }
    if !args.bless && !stale.is_empty() {
        bail!("{} files are out of date: run `cargo xtask fixtures --bless`", stale.len());
    }
    Ok(())
}

/// The files that differ from what they are made from, with the text they should have.
pub(crate) fn stale(workspace: &Workspace) -> Vec<(String, String)> {
    let members = workspace.packages.iter().filter(|package| package.dir.starts_with("crates/"));
    let made = members.filter_map(|package| {
        let (_, source) = package.root_file(workspace)?;
        let path = format!("{}/README.md", package.dir);
        Some((path, readme::render(package, source)?))
    });
    made.filter(|(path, text)| workspace.file(path) != Some(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::testing::workspace;

    #[test]
    fn a_readme_that_differs_is_stale() {
        let manifest = ("crates/a/Cargo.toml", "[package]\nname = 'a'");
        let source = ("crates/a/src/lib.rs", "//! What it is.\n");
        let fresh = "# a\n\nWhat it is.\n\nPart of [Fabro](../../README.md).\n";
        let check = |readme: &str, expect: usize| {
            let workspace = workspace(&[manifest, source, ("crates/a/README.md", readme)]);
            assert_eq!(stale(&workspace).len(), expect);
        };
        check(fresh, 0);
        check("# a\n", 1);
        let missing = stale(&workspace(&[manifest, source]));
        assert_eq!(missing, [("crates/a/README.md".to_owned(), fresh.to_owned())]);
    }
}

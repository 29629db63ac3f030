//! Which workflow files a list of paths means.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use crate::error;

/// What names of workflow files end with.
pub const EXTENSIONS: [&str; 3] = ["fabro", "dot", "gv"];

/// The workflow files below a directory, sorted. What `.gitignore` names is left out, and so is
/// `.git`; `.fabro` is looked into like any other directory.
pub fn workflows_in(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let is_workflow = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|it| EXTENSIONS.contains(&it))
    };
    let files = files_in(dir, is_workflow)?;
    if files.is_empty() {
        return Err(error::usage(
            format!("there is no workflow file in {}", dir.display()),
            "name one (.fabro, .dot, .gv), or make a first one with `fabro init`",
        ));
    }
    Ok(files)
}

/// The files below a directory that are wanted, sorted, without what `.gitignore` names and without
/// `.git`.
pub fn files_in(dir: &Path, is_wanted: impl Fn(&Path) -> bool) -> anyhow::Result<Vec<PathBuf>> {
    let walk = WalkBuilder::new(dir)
        .hidden(false)
        .require_git(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_name(Ord::cmp)
        .build();
    let mut files = Vec::new();
    for entry in walk {
        let entry = entry.map_err(|error| {
            error::usage(
                format!("{} cannot be looked through: {error}", dir.display()),
                "check its permissions, or name the files",
            )
        })?;
        let path = entry.path();
        if path.is_file() && is_wanted(path) {
            files.push(path.to_owned());
        }
    }
    Ok(files)
}

/// The path as people write it: without a leading `./`, and from `cwd` when it is below it.
pub fn shown(path: &Path, cwd: &Path) -> String {
    let path = path.strip_prefix(cwd).unwrap_or(path);
    path.strip_prefix("./").unwrap_or(path).display().to_string()
}

/// The text of a workflow file.
pub fn read_workflow(path: &Path) -> anyhow::Result<String> {
    fabro_run::read_text(path).map_err(|reason| {
        let message = format!("{} cannot be read: {reason}", path.display());
        error::usage(message, "name a .fabro file that can be read")
    })
}

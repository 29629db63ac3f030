//! Where the texts of files come from, and their paths.

use std::collections::BTreeMap;

use fabro_types::control_files::{FABRO_DIR, GRAPH_EXTENSIONS, WORKFLOW_EXTENSION};
use fabro_types::nearest;

/// The source of the texts of `@file`s. A path is passed as it is written; the implementation
/// determines what it is relative to, and what `~` means.
pub trait Sources {
    /// The text of a file, or why it cannot be read (a fragment: `no such file`).
    fn read(&self, path: &str) -> Result<String, String>;

    /// The names of the files in a folder, for suggestions. The folder ends with a slash; `""` is that
    /// of the workflow. Empty where they are not known.
    fn list(&self, _folder: &str) -> Vec<String> {
        Vec::new()
    }
}

/// Files that exist in memory only, by path.
#[derive(Clone, Debug, Default)]
pub struct MemorySources(pub BTreeMap<String, String>);

impl Sources for MemorySources {
    fn read(&self, path: &str) -> Result<String, String> {
        self.0.get(path).cloned().ok_or_else(|| "no such file".to_owned())
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let names = self.0.keys().filter_map(|path| path.strip_prefix(folder));
        names.filter(|name| !name.contains('/')).map(str::to_owned).collect()
    }
}

/// A path as seen from where `folder` is, which ends with a slash or is empty. `.` and `..` are resolved
/// as far as the text of the path allows, so that one file has one path.
pub fn join_path(folder: &str, path: &str) -> String {
    let is_absolute = path.starts_with(['/', '\\', '~']) || path.get(1..2) == Some(":");
    if is_absolute { path.to_owned() } else { tidy(&format!("{folder}{path}")) }
}

/// Without `.` and without `x/..`.
fn tidy(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for (at, part) in path.split('/').enumerate() {
        match part {
            "." => {}
            "" if at > 0 => {}
            ".." => match parts.last() {
                None | Some(&("" | ".." | "~")) => parts.push(part),
                Some(_) => {
                    parts.pop();
                }
            },
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The hint that names a workflow file with a similar name, in the folder that `path` names, beside the
/// workflow, or in `.fabro/workflows` of its project.
pub(crate) fn similar_workflow(sources: &dyn Sources, path: &str) -> Option<String> {
    let (own, name) = path.split_at(path.rfind('/').map_or(0, |slash| slash + 1));
    let above = ["", "../", "../../", "../../../"];
    let project = above.map(|up| format!("{up}{FABRO_DIR}/workflows/"));
    let folders = [own.to_owned(), String::new()].into_iter().chain(project);
    let is_workflow = |name: &str| {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        extension.is_some_and(|it| it == WORKFLOW_EXTENSION || GRAPH_EXTENSIONS.contains(&it))
    };
    let files: Vec<(String, String)> = folders
        .flat_map(|folder| {
            let names = sources.list(&folder).into_iter().filter(|name| is_workflow(name));
            names.map(move |name| (folder.clone(), name)).collect::<Vec<_>>()
        })
        .collect();
    let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned();
    let stems: Vec<String> = files.iter().map(|(_, name)| stem(name)).collect();
    let by_name = nearest(name, files.iter().map(|(_, name)| name.as_str()));
    let by_name = by_name.and_then(|near| files.iter().find(|(_, name)| name == near));
    let by_stem = || {
        let near = nearest(&stem(name), stems.iter().map(String::as_str))?;
        files.iter().find(|(_, name)| stem(name) == near)
    };
    let (folder, name) = by_name.or_else(by_stem)?;
    Some(format!("did you mean `{folder}{name}`?"))
}

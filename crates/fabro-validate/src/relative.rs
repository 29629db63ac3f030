use fabro_graph::{Sources, join_path};

/// The files of a sub-workflow: paths are relative to the file of the sub-workflow, which itself is
/// relative to `sources`.
///
/// ```
/// use fabro_graph::{MemorySources, Sources};
/// use fabro_validate::RelativeSources;
///
/// let files = MemorySources([("flows/prompts/plan.md".to_owned(), "Plan.".to_owned())].into());
/// let beside = RelativeSources::new(&files, "flows/child.fabro");
/// assert_eq!(beside.read("prompts/plan.md").unwrap(), "Plan.");
/// ```
#[derive(Clone, Copy)]
pub struct RelativeSources<'a> {
    /// The outer files.
    pub(crate) sources: &'a dyn Sources,
    /// The folder that paths are relative to, with its last slash.
    pub(crate) folder: &'a str,
}

impl<'a> RelativeSources<'a> {
    /// The files as seen from `file`, a path as written in the workflow that `sources` is for.
    pub fn new(sources: &'a dyn Sources, file: &'a str) -> Self {
        let folder = file.rfind(['/', '\\']).map_or("", |slash| &file[..=slash]);
        Self { sources, folder }
    }

    /// The path as it is handed to the outer sources. `.` and `..` are resolved as far as the text
    /// of the path allows, so that one file has one path.
    pub fn join(&self, path: &str) -> String {
        join_path(self.folder, path)
    }
}

impl Sources for RelativeSources<'_> {
    fn read(&self, path: &str) -> Result<String, String> {
        self.sources.read(&self.join(path))
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let folder = self.join(folder);
        let slash = if folder.is_empty() || folder.ends_with('/') { "" } else { "/" };
        self.sources.list(&format!("{folder}{slash}"))
    }
}

impl std::fmt::Debug for RelativeSources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelativeSources").field("folder", &self.folder).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use fabro_graph::MemorySources;

    use super::*;

    #[test]
    fn paths_join_where_the_file_stands() {
        let files = MemorySources([("flows/prompts/a.md".to_owned(), String::new())].into());
        assert_eq!(RelativeSources::new(&files, "flows/a.fabro").list("prompts/"), ["a.md"]);
        let join = |file, path| RelativeSources::new(&files, file).join(path);
        assert_eq!(join("a.fabro", "p.md"), "p.md");
        assert_eq!(join("flows/a.fabro", "./p.md"), "flows/p.md");
        assert_eq!(join("flows/a.fabro", "../p.md"), "p.md");
        assert_eq!(join("../a.fabro", "../p.md"), "../../p.md");
        assert_eq!(join("/abs/a.fabro", "p//q.md"), "/abs/p/q.md");
        assert_eq!(join("~/a.fabro", "../p.md"), "~/../p.md");
        assert_eq!(join("flows/a.fabro", "/etc/p.md"), "/etc/p.md");
        assert_eq!(join("flows/a.fabro", "~/p.md"), "~/p.md");
    }
}

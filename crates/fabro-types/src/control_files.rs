//! Control files: the files of a project that affect later runs, such as settings, hooks, workflows,
//! skills and agent instructions.
//!
//! This is the only list of their names. Code that reads a control file takes its name from here, so the
//! files that agents may not write are exactly those that are read.

use crate::text::is_invisible;

/// The directory of a project's settings and workflows, and of its store.
pub const FABRO_DIR: &str = ".fabro";

/// The settings of a project, highest precedence first. The last two names come from upstream.
pub const SETTINGS_FILES: [&str; 3] = [".fabro/config.toml", ".fabro/project.toml", "fabro.toml"];

/// The settings and logins of a user, below the home directory.
pub const USER_DIR: &str = ".config/fabro";

/// Files with the settings of a run, next to a workflow.
pub const RUN_FILES: [&str; 2] = ["workflow.toml", "run.toml"];

/// The workflow of a directory.
pub const WORKFLOW_FILE: &str = "workflow.fabro";

/// The extension of workflow files that Fabro discovers.
pub const WORKFLOW_EXTENSION: &str = "fabro";

/// Extensions of workflow files that are passed by path. Graphviz uses them too.
pub const GRAPH_EXTENSIONS: [&str; 2] = ["dot", "gv"];

/// Instructions for agents, in each directory of a project.
pub const DOCUMENTS: [&str; 4] =
    ["AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md"];

/// Directories with skills.
pub const SKILL_DIRS: [&str; 2] = [".fabro/skills", ".claude/skills"];

/// The file of a skill, in its own directory.
pub const SKILL_FILE: &str = "SKILL.md";

/// Settings, hooks, MCP servers and instructions that only the agent programs read.
pub const AGENT_SETTINGS: [&str; 7] = [
    ".agents",
    ".claude",
    ".codex",
    ".gemini",
    ".mcp.json",
    "CLAUDE.local.md",
    "AGENTS.override.md",
];

/// The database of a store. A directory with such a file is a store.
pub const STORE_FILE: &str = "fabro.db";

/// Git's hooks and settings. The second name is the short (8.3) name of the first.
pub const GIT_DIRS: [&str; 2] = [".git", "git~1"];

/// Which program a control file affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlFile {
    /// Git.
    Git,
    /// Fabro, or an agent program that it starts: the name is enough.
    Found,
    /// Fabro, if the file is a workflow: files of other programs may have the same extension.
    Graph,
}

impl ControlFile {
    /// Classifies a path: the file or directory itself, or one that contains it. Ignores what file
    /// systems ignore in names: case in all of Unicode (`AGENTſ.md`, `.conﬁg`), characters without a
    /// width (HFS+, ext4), and trailing dots and spaces (NTFS).
    pub fn of<'p>(path: impl IntoIterator<Item = &'p str>) -> Option<Self> {
        let names: Vec<String> = path.into_iter().map(plain_name).collect();
        let has = |entry: &&str| {
            let parts: Vec<String> = entry.split('/').map(plain_name).collect();
            names.windows(parts.len()).any(|window| window == parts)
        };
        let extension = |name: &String, known: &[&str]| {
            name.rsplit_once('.').is_some_and(|(_, found)| known.contains(&found))
        };
        if GIT_DIRS.iter().any(has) {
            return Some(Self::Git);
        }
        let is_found = found_names().any(|entry| has(&entry))
            || names.iter().any(|name| extension(name, &[WORKFLOW_EXTENSION]));
        let is_graph = || names.last().is_some_and(|name| extension(name, &GRAPH_EXTENSIONS));
        if is_found { Some(Self::Found) } else { is_graph().then_some(Self::Graph) }
    }

    /// The largest number of path components in a control file name.
    pub const LONGEST: usize = 2;
}

/// The names of all files that Fabro discovers.
fn found_names() -> impl Iterator<Item = &'static str> {
    let single = [FABRO_DIR, USER_DIR, WORKFLOW_FILE, SKILL_FILE, STORE_FILE];
    let lists = [&SETTINGS_FILES[..], &RUN_FILES, &DOCUMENTS, &SKILL_DIRS, &AGENT_SETTINGS];
    single.into_iter().chain(lists.into_iter().flatten().copied())
}

/// The names of the table are ASCII. Unicode normalization adds no spelling of them: the only character that it maps to
/// an ASCII letter is the Kelvin sign, which lowercases to `k`.
fn plain_name(name: &str) -> String {
    let name: String = name.chars().filter(|c| !is_invisible(*c)).collect();
    let name = name.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    if name.is_ascii() {
        return name.to_ascii_lowercase();
    }
    // Uppercase first: `ſ` and `ﬁ` have no other lowercase.
    name.to_uppercase().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expect: Option<ControlFile>) {
        assert_eq!(ControlFile::of(path.split('/')), expect, "{path}");
    }

    #[test]
    fn control_files_match_at_any_depth_and_in_any_case() {
        for name in found_names() {
            assert!(name.split('/').count() <= ControlFile::LONGEST, "{name}");
            for path in [name.to_owned(), format!("a/b/{name}"), name.to_uppercase()] {
                check(&path, Some(ControlFile::Found));
                check(&format!("{path}/below"), Some(ControlFile::Found));
            }
        }
    }

    #[test]
    fn names_are_normalized_like_file_systems_do() {
        check("vendor/.GIT/hooks/pre-push", Some(ControlFile::Git));
        check(".git\u{200d}/config", Some(ControlFile::Git));
        check("fabro.toml. ", Some(ControlFile::Found));
        check("fabro.toml:stream", Some(ControlFile::Found));
        check("flows/release.FABRO", Some(ControlFile::Found));
        check("release.gv", Some(ControlFile::Graph));
        check("AGENT\u{17f}.md", Some(ControlFile::Found));
        check("sub/.con\u{fb01}g/fabro/config.toml", Some(ControlFile::Found));
        check("S\u{212a}ILL.md", Some(ControlFile::Found));
        check("fabro.to\u{ad}ml", Some(ControlFile::Found));
    }

    #[test]
    fn other_files_are_not_control_files() {
        for path in
            ["src/main.rs", ".gitignore", ".github/x.yml", ".config/other.toml", "agents.rs"]
        {
            check(path, None);
        }
    }
}

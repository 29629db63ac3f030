//! What an agent announces about a tool call, and whether its permissions cover the call.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agent_client_protocol::v1::schema::{ToolCallContent, ToolCallUpdate, ToolKind};
use fabro_sandbox::{FileError, Files, LocalFiles};
use fabro_types::Permissions;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::acp::files;

/// The maximum length of a path, in bytes.
const LONGEST_PATH: usize = 4096;

/// The keys of a tool's input whose value is a path.
const PATH_KEYS: [&str; 6] = ["path", "file_path", "filePath", "abs_path", "source", "destination"];

/// Glob and control characters that names of new files do not contain.
const GLOB_CHARS: &[char] = &['*', '?', '\n', '\r', '\0'];

/// Glob and shell characters. Names of source files contain some of them (`[id].tsx`), so only
/// deletes and moves are checked for them.
const SHELL_CHARS: &[char] = &['*', '?', '\n', '\r', '\0', '[', '{', '$', '`', '\\'];

/// The key of a tool's input for the working directory, to which the other paths may be relative. The
/// call does not change it.
const WORK_DIR_KEY: &str = "cwd";

/// Limit on path resolutions for one call. A call that exceeds it is not covered.
const MAX_RESOLVED_PATHS: usize = 20_000;

/// What an agent has announced about a call before it asks for permission. Everything announced
/// counts: a later update withdraws nothing.
#[derive(Clone, Default)]
pub(super) struct AnnouncedCall {
    pub(super) title: Option<String>,
    kinds: Vec<ToolKind>,
    /// The files that the call names.
    paths: BTreeSet<PathBuf>,
    /// Other texts of its input and content, each of which may be a path.
    texts: BTreeSet<String>,
    /// Working directories that its input names.
    work_dirs: BTreeSet<PathBuf>,
}

impl AnnouncedCall {
    /// Adds an update; fields that it omits keep their values.
    pub(super) fn add(&mut self, call: &ToolCallUpdate) {
        let fields = &call.fields;
        if let Some(title) = &fields.title {
            self.title = Some(title.clone());
        }
        self.kinds
            .extend(kinds(call).filter(|kind| !self.kinds.contains(kind)).collect::<Vec<_>>());
        for location in fields.locations.iter().flatten() {
            self.add_path(&location.path);
        }
        for content in fields.content.iter().flatten() {
            match content {
                // The other texts of a diff are file contents, not paths.
                ToolCallContent::Diff(diff) => self.add_path(&diff.path),
                content => self.add_texts(&serde_json::to_value(content).unwrap_or_default()),
            }
        }
        if let Some(input) = &fields.raw_input {
            for path in PATH_KEYS.iter().filter_map(|key| input.get(key)?.as_str()) {
                self.add_path(Path::new(path));
            }
            self.add_texts(input);
        }
    }

    /// Adds a path as written, and as the agent's program may interpret it.
    fn add_path(&mut self, path: &Path) {
        self.paths.insert(path.to_owned());
        self.paths.extend(path.to_str().map(|text| plain(text).into_owned().into()));
    }

    /// Adds the keys and strings of a value that are short enough for a path.
    fn add_texts(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Array(values) => values.iter().for_each(|value| self.add_texts(value)),
            Value::Object(fields) => {
                for (key, value) in fields {
                    if key == WORK_DIR_KEY
                        && let Some(dir) = value.as_str()
                    {
                        self.work_dirs.insert(plain(dir).into_owned().into());
                        continue;
                    }
                    self.add_text(key);
                    self.add_texts(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_text(&mut self, text: &str) {
        if !text.is_empty() && text.len() <= LONGEST_PATH {
            self.texts.insert(text.to_owned());
            self.texts.insert(plain(text).into_owned());
        }
    }

    /// Whether the permissions cover everything that was announced. The kind `other` is ignored if
    /// the call has another kind.
    pub(super) fn is_covered_by(&self, permissions: Permissions, files: &LocalFiles) -> bool {
        let mut kinds = self.kinds.iter().filter(|kind| **kind != ToolKind::Other).peekable();
        if kinds.peek().is_none() {
            return self.is_kind_covered(permissions, ToolKind::Other, files);
        }
        kinds.all(|kind| self.is_kind_covered(permissions, *kind, files))
    }

    fn is_kind_covered(
        &self,
        permissions: Permissions,
        kind: ToolKind,
        files: &LocalFiles,
    ) -> bool {
        if permissions == Permissions::Full {
            return true;
        }
        let Some(elsewhere) = self.elsewhere(files) else { return false };
        let may_change = |is_removed: bool| {
            // A change without a path could affect any file.
            permissions == Permissions::ReadWrite
                && !self.paths.is_empty()
                && self.paths.iter().all(|path| files::may_write(files, path))
                && self.paths.iter().all(|path| is_literal(files, path, GLOB_CHARS))
                && self.texts.iter().all(|text| may_be_named(files, text))
                && elsewhere.iter().all(|path| may_be_named(files, path))
                && (!is_removed || self.may_remove(files, &elsewhere))
        };
        match kind {
            ToolKind::Read | ToolKind::Search | ToolKind::Think => {
                let is_inside =
                    |path| files::is_inside(files, path) && is_literal(files, path, &[]);
                self.paths.iter().all(|path| is_inside(path))
                    && self.texts.iter().all(|text| may_be_read(files, text))
                    && elsewhere.iter().all(|path| may_be_read(files, path))
            }
            ToolKind::Edit => may_change(false),
            ToolKind::Delete | ToolKind::Move => may_change(true),
            _ => false,
        }
    }

    /// What the texts of the call mean in other directories than that of the agent: in those that its
    /// input calls the working directory, and in every directory that one of its texts names, because
    /// the agent's program may call it so by any other key. `None` for too many, and for a working directory
    /// that does not exist: the program may read another path from it.
    fn elsewhere(&self, files: &LocalFiles) -> Option<Vec<String>> {
        let names = || {
            let texts = self.texts.iter().map(Path::new);
            let dirs = self.work_dirs.iter().map(PathBuf::as_path);
            self.paths.iter().map(PathBuf::as_path).chain(texts).chain(dirs)
        };
        let is_relative = |dir: &PathBuf| {
            // It may be relative to another working directory of the call.
            self.work_dirs.iter().any(|outer| files.root().join(outer).join(dir).is_dir())
        };
        if !self.work_dirs.iter().all(|dir| files.root().join(dir).is_dir() || is_relative(dir)) {
            return None;
        }
        let mut dirs: Vec<PathBuf> = Vec::new();
        let mut seen: BTreeSet<PathBuf> = files.root().canonicalize().into_iter().collect();
        let mut to_visit = vec![files.root().to_owned()];
        let mut all: Vec<PathBuf> = Vec::new();
        let mut left = MAX_RESOLVED_PATHS;
        while let Some(dir) = to_visit.pop() {
            for name in names() {
                left = left.checked_sub(1)?;
                if let Ok(at) = dir.join(name).canonicalize()
                    && at.is_dir()
                    && seen.insert(at.clone())
                {
                    dirs.push(at.clone());
                    to_visit.push(at);
                }
            }
        }
        for dir in dirs {
            let dir = dir.strip_prefix(files.root()).unwrap_or(&dir);
            left = left.checked_sub(names().count())?;
            all.extend(names().map(|name| dir.join(name)));
            all.push(dir.to_owned());
        }
        Some(all.into_iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }

    /// Whether every path in the call may be deleted, or moved to any other path in the call.
    fn may_remove(&self, files: &LocalFiles, elsewhere: &[String]) -> bool {
        let paths = self.paths.iter().filter_map(|path| path.to_str());
        let texts = self.texts.iter().map(String::as_str).filter(|it| is_path(files, it));
        let elsewhere = elsewhere.iter().map(String::as_str).filter(|it| is_path(files, it));
        let all: Vec<&str> = paths.chain(texts).chain(elsewhere).collect();
        let is_pattern = |path: &str| {
            !path.contains(char::is_whitespace) && !is_literal(files, Path::new(path), SHELL_CHARS)
        };
        all.iter().all(|path| match files.may_move(path, &all) {
            Ok(()) | Err(FileError::Invalid(_)) => !is_pattern(path),
            Err(_) => false,
        })
    }
}

/// The kinds of a call: the one that it states, and those that follow from its content.
fn kinds(call: &ToolCallUpdate) -> impl Iterator<Item = ToolKind> {
    let shown = call.fields.content.iter().flatten().filter_map(|content| match content {
        ToolCallContent::Diff(_) => Some(ToolKind::Edit),
        ToolCallContent::Terminal(_) => Some(ToolKind::Execute),
        _ => None,
    });
    call.fields.kind.into_iter().chain(shown)
}

/// The path that a program may read from a text: without surrounding white space, control
/// characters and quotes, and with a `file:` URI decoded.
fn plain(text: &str) -> Cow<'_, str> {
    let text =
        text.trim_matches(|c: char| c.is_whitespace() || c.is_control() || "\"'`".contains(c));
    let rest = match text.split_at_checked("file:".len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("file:") => rest,
        _ => return text.into(),
    };
    let path = rest.strip_prefix("//").map(|it| it.strip_prefix("localhost").unwrap_or(it));
    let path = path.unwrap_or(rest);
    percent_decode_str(path.split(['#', '?']).next().unwrap_or(path)).decode_utf8_lossy()
}

/// Whether a path can only mean the file with exactly this name: the file exists, or the path has
/// nothing that the agent's program may expand (a leading `~`, or one of the characters
/// `expanded`).
fn is_literal(files: &LocalFiles, path: &Path, expanded: &[char]) -> bool {
    let text = path.to_string_lossy();
    let is_expanded = text.starts_with('~') || text.contains(expanded);
    !is_expanded || files.root().join(path).symlink_metadata().is_ok()
}

/// Whether a text may be the path of a file that exists or could be created. Any single line may be
/// a relative path.
fn is_path(files: &LocalFiles, text: &str) -> bool {
    let path = Path::new(text);
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    let at = files.root().join(path);
    let is_in_directory = || {
        let parent = at.parent().filter(|parent| parent.parent().is_some());
        exists(&at) || parent.is_some_and(exists)
    };
    if path.is_absolute() {
        path.starts_with(files.root()) || is_in_directory()
    } else {
        !text.contains('\n') || is_in_directory()
    }
}

/// Whether a text is not a path, or the path of a file that may be read.
fn may_be_read(files: &LocalFiles, text: &str) -> bool {
    let path = Path::new(text);
    !is_path(files, text) || files::is_inside(files, path) && is_literal(files, path, &[])
}

/// Whether a text is not a path, or the path of a file that may be changed.
fn may_be_named(files: &LocalFiles, text: &str) -> bool {
    if !is_path(files, text) {
        return true;
    }
    let leads_out = |error: FileError| matches!(error, FileError::Outside(_) | FileError::Store(_));
    match files.may_write(text) {
        Ok(()) => !files.info(text).is_err_and(leads_out),
        Err(FileError::Invalid(_)) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    /// A working directory with protected files and others.
    struct Ground {
        _dir: tempfile::TempDir,
        root: PathBuf,
        files: LocalFiles,
    }

    impl Ground {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            for name in ["docs", "plain", "guarded/sub", "store", ".git", "instructions"] {
                fs::create_dir_all(root.join(name)).unwrap();
            }
            for name in [
                "ok.txt",
                "AGENTS.md",
                "docs/guide.md",
                "guarded/sub/CLAUDE.md",
                "plain/x",
                "instructions/copilot-instructions.md",
            ] {
                fs::write(root.join(name), "x").unwrap();
            }
            symlink("guarded", root.join("link")).unwrap();
            let files = LocalFiles::new(&root).unwrap();
            Self { _dir: dir, root, files }
        }

        fn at(&self, name: &str) -> String {
            self.root.join(name).to_str().unwrap().to_owned()
        }

        /// Whether a call of this kind is covered by `read-write`.
        fn covered(&self, kind: &str, fields: &Value) -> bool {
            let mut call = json!({ "toolCallId": "1", "kind": kind });
            call.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let mut known = AnnouncedCall::default();
            known.add(&serde_json::from_value(call).unwrap());
            known.is_covered_by(Permissions::ReadWrite, &self.files)
        }

        fn located(&self, kind: &str, name: &str) -> bool {
            self.covered(kind, &json!({ "locations": [{ "path": self.root.join(name) }] }))
        }

        fn input(&self, kind: &str, input: &Value) -> bool {
            let locations = json!([{ "path": self.at("ok.txt") }]);
            self.covered(kind, &json!({ "locations": locations, "rawInput": input }))
        }
    }

    #[test]
    fn every_path_that_a_call_names_is_checked() {
        let ground = Ground::new();
        for name in ["ok.txt", "docs/guide.md", "docs", "new/x", "plain"] {
            assert!(
                ground.located("edit", name)
                    && ground.located("delete", name)
                    && ground.located("move", name)
            );
        }
        for name in ["", ".", "guarded", "guarded/sub", "link", ".git", "docs/..", ".github/.."] {
            assert!(!ground.located("delete", name) && !ground.located("move", name), "{name}");
        }
        for value in [
            json!({ "from": ground.at("ok.txt"), "to": ground.at("docs/new.txt") }),
            json!({ "edits": [{ "path": "docs/guide.md", "new_string": "See AGENTS.md.\n\nx/.git/y" }] }),
            json!({ "changes": { ground.at("ok.txt"): { "text": "/api/AGENTS.md" } }, "cwd": ground.at("") }),
            json!({ "cwd": ground.at("docs"), "path": "guide.md" }),
            json!({ "text": "x".repeat(400), "long": "y".repeat(LONGEST_PATH + 1) }),
        ] {
            assert!(ground.input("edit", &value) && ground.input("move", &value), "{value}");
        }
        for value in [
            json!({ "from": ground.at("ok.txt"), "to": ground.at("AGENTS.md") }),
            json!({ "from": "ok.txt", "to": "sub/fabro.toml" }),
            json!({ "edits": [{ "path": ground.at("AGENTS.md") }] }),
            json!({ "changes": { ground.at("AGENTS.md"): {} } }),
            json!({ "uri": format!("file://{}", ground.at("AGENTS.md")) }),
            json!({ "cwd": ground.at("guarded/sub"), "path": "CLAUDE.md" }),
            json!({ "cwd": ground.at(".git"), "path": "config" }),
            json!({ "in": { "cwd": ".git" } }),
            json!({ "cwd": "/etc", "path": "ok.txt" }),
            json!({ "cwd": ["AGENTS.md"] }),
            json!({ "workdir": ground.at("guarded/sub"), "path": "CLAUDE.md" }),
            json!({ "Cwd": ["guarded"], "more": { "dir": "sub" }, "path": "CLAUDE.md" }),
            json!({ "base": ".git", "path": "config" }),
            json!({ "to": "../x" }),
            json!({ "to": "/etc/x" }),
            json!({ "to": "link/sub/CLAUDE.md" }),
        ] {
            assert!(!ground.input("edit", &value) && !ground.input("move", &value), "{value}");
        }
        // A name that is protected only in its new directory.
        assert!(ground.input("move", &json!({ "from": "instructions", "to": "other" })));
        assert!(!ground.input("move", &json!({ "from": "instructions", "to": ".github" })));
        assert!(!ground.input("delete", &json!({ "dir": ground.at("") })));
        assert!(!ground.input("delete", &json!({ "cwd": ".", "path": "guarded" })));
        assert!(!ground.input("delete", &json!({ "cwd": "guarded", "path": "sub" })));
        assert!(!ground.input("delete", &json!({ "workdir": "guarded", "path": "sub" })));
        assert!(ground.input("delete", &json!({ "workdir": "docs", "path": "guide.md" })));
        let names: Vec<String> = (0..30_000).map(|name| name.to_string()).collect();
        assert!(!ground.input("edit", &json!({ "dir": "docs", "more": names })), "too many");
        assert!(
            !ground.covered("edit", &json!({ "rawInput": { "to": ground.at("ok.txt") } })),
            "no path"
        );
    }

    #[test]
    fn paths_are_checked_as_an_agent_may_mean_them() {
        let ground = Ground::new();
        let uri = |name: &str| {
            format!("file://localhost{}", ground.at(name).replace("guarded", "gu%61rded"))
        };
        for name in [
            &*uri("guarded"),
            "file:guarded",
            "guarded\n",
            "\"' guarded '\"",
            "file:guarded#L1",
            "guarded\0",
            "\"guarded\"",
            "~/guarded",
            "guarded/*",
            "gu?rded",
            "gu[a]rded",
            "$PWD/guarded",
        ] {
            assert!(
                !ground.covered("delete", &json!({ "locations": [{ "path": name }] })),
                "{name}"
            );
            assert!(!ground.input("delete", &json!({ "path": name })), "{name}");
            assert!(!ground.input("move", &json!({ "text": name })), "{name}");
        }
        for name in ["file:docs/guide.md", "pages/[id].tsx", "routes/$id.tsx"] {
            assert!(ground.covered("edit", &json!({ "locations": [{ "path": name }] })), "{name}");
        }
        for name in ["~/AGENTS.md", "*.md", "file:AGENTS%2Emd", &uri("AGENTS.md")] {
            assert!(!ground.covered("edit", &json!({ "locations": [{ "path": name }] })), "{name}");
        }
        for name in ["~/.netrc", "file:///etc/passwd", "file:..%2fx"] {
            assert!(!ground.covered("read", &json!({ "locations": [{ "path": name }] })), "{name}");
        }
        for value in [
            json!({ "file": "/etc/passwd" }),
            json!({ "paths": ["docs", "/etc"] }),
            json!({ "files": [{ "uri": "file:///etc/passwd" }] }),
            json!({ "file": "../x" }),
        ] {
            assert!(!ground.covered("read", &json!({ "rawInput": value })), "{value}");
        }
        for value in [json!({ "query": "fn main() {\n" }), json!({ "glob": "**/*.rs", "limit": 3 })]
        {
            assert!(ground.covered("search", &json!({ "rawInput": value })), "{value}");
        }
        assert!(ground.covered("search", &json!({ "locations": [{ "path": "docs/*.md" }] })));
        assert!(ground.input("edit", &json!({ "new_string": "Is it *this*?" })));
    }
}

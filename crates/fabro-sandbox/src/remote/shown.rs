//! Files of the record of runs that scripts and agents of the other side may read: values and artifacts. They get them
//! in `.fabro` of their working directory, when they name them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

/// The directories in `.fabro`.
const BLOBS: &str = "blobs/";
const ARTIFACTS: &str = "artifacts/";

/// In how many places of a line the name of a file may end.
const ENDS: usize = 40;

/// The names of artifacts on the other side.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Remembered here, for a conversation that is continued later.
    file: Option<PathBuf>,
    names: Mutex<BTreeMap<String, PathBuf>>,
}

/// A text as the other side has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) text: String,
    /// The files that it names: where they are in `.fabro`, and here.
    pub(super) files: BTreeMap<String, PathBuf>,
}

impl Shown {
    /// Remembers names in a file of this directory.
    pub(super) fn new(dir: &Path) -> Self {
        let file = dir.join("shown.json");
        let text = std::fs::read(&file).unwrap_or_default();
        // Without it, names are given again.
        let names = serde_json::from_slice(&text).unwrap_or_default();
        Self { file: Some(file), names: Mutex::new(names) }
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, PathBuf>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of a file in `.fabro`. Two files have two names.
    fn name(&self, path: &Path) -> String {
        let last = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_value(&last) {
            return format!("{BLOBS}{last}");
        }
        let mut names = self.names();
        let plain = format!("{ARTIFACTS}{last}");
        if names.get(&plain).is_some_and(|known| known == path) {
            return plain;
        }
        let name = if names.contains_key(&plain) {
            let hash = Sha256::digest(path.as_os_str().as_encoded_bytes());
            let hash: Vec<String> = hash[..4].iter().map(|byte| format!("{byte:02x}")).collect();
            let hash = hash.concat();
            match last.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()) {
                Some((stem, ending)) => format!("{ARTIFACTS}{stem}-{hash}.{ending}"),
                None => format!("{plain}-{hash}"),
            }
        } else {
            plain
        };
        if names.insert(name.clone(), path.to_owned()).is_none() {
            self.remember(&names);
        }
        name
    }

    fn remember(&self, names: &BTreeMap<String, PathBuf>) {
        let Some(file) = &self.file else { return };
        let text = serde_json::to_vec(names).unwrap_or_default();
        // Without it, names are given again.
        let _ = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        let _ = std::fs::write(file, text);
    }

    /// The file of this name in `.fabro`; values are in these directories.
    pub(super) fn file(&self, name: &str, dirs: &[PathBuf]) -> Option<PathBuf> {
        if let Some(value) = name.strip_prefix(BLOBS) {
            let all = dirs.iter().filter(|_| is_value(value)).map(|dir| dir.join(value));
            return all.into_iter().find(|path| path.is_file());
        }
        self.names().get(name).cloned()
    }

    /// Puts `remote`, which is `.fabro` on the other side, in the place of the files below these directories that a text
    /// names, and finds those that it names so already. The rest of the text is changed by `between`, and so are names of
    /// files that the other side has itself.
    pub(super) fn text(
        &self,
        text: &str,
        dirs: &[PathBuf],
        remote: &str,
        is_there: impl Fn(&Path) -> bool,
        between: impl Fn(&str) -> String,
    ) -> Text {
        let mut done = Text::default();
        let mut rest = text;
        while let Some((at, path, length)) = first_file(rest, dirs, &is_there) {
            let name = self.name(&path);
            done.text.push_str(&between(&rest[..at]));
            done.text.push_str(remote);
            done.text.push('/');
            done.text.push_str(&name);
            done.files.insert(name, path);
            rest = &rest[at + length..];
        }
        done.text.push_str(&between(rest));
        for name in self.named(text) {
            if let Some(path) = self.file(&name, dirs) {
                done.files.insert(name, path);
            }
        }
        done
    }

    /// The names in `.fabro` that stand in a text.
    fn named(&self, text: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (at, _) in text.match_indices(".fabro/") {
            let rest = &text[at + ".fabro/".len()..];
            let length = BLOBS.len() + 64 + ".json".len();
            if rest.starts_with(BLOBS)
                && let Some(name) = rest.get(..length)
            {
                found.insert(name.to_owned());
            }
            if rest.starts_with(ARTIFACTS) {
                let names = self.names();
                let longest =
                    names.keys().filter(|name| rest.starts_with(*name)).max_by_key(|it| it.len());
                found.extend(longest.cloned());
            }
        }
        found
    }
}

/// Puts a directory in the place of another one, wherever a text names it or something in it.
pub(super) fn with_directory(text: &str, from: &str, to: &str) -> String {
    let is_name = |c: char| c.is_alphanumeric() || "_-".contains(c);
    let mut done = String::with_capacity(text.len());
    let mut start = 0;
    for (at, _) in text.match_indices(from) {
        let (before, after) = (&text[..at], &text[at + from.len()..]);
        let mut next = after.chars();
        let is_whole = match next.next() {
            Some('.') => !next.next().is_some_and(is_name),
            next => !next.is_some_and(is_name),
        };
        let is_inside = before.ends_with(|c| is_name(c) || "./".contains(c));
        if is_whole && (!is_inside || before.ends_with("://")) && at >= start {
            done.push_str(&text[start..at]);
            done.push_str(to);
            start = at + from.len();
        }
    }
    done.push_str(&text[start..]);
    done
}

fn is_value(name: &str) -> bool {
    name.strip_suffix(".json")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The first file below these directories that a text names and the other side does not have: where, which, and how long
/// its name is there.
fn first_file(
    text: &str,
    dirs: &[PathBuf],
    is_there: impl Fn(&Path) -> bool,
) -> Option<(usize, PathBuf, usize)> {
    let starts = dirs.iter().filter_map(|dir| dir.to_str()).flat_map(|dir| {
        let all = text.match_indices(dir).map(|(at, _)| at);
        all.filter(move |at| text[at + dir.len()..].starts_with('/')).map(move |at| (at, dir))
    });
    let mut starts: Vec<(usize, &str)> = starts.collect();
    starts.sort_by_key(|(at, dir)| (*at, usize::MAX - dir.len()));
    starts.into_iter().find_map(|(at, dir)| {
        let line = text[at..].lines().next()?;
        let (path, length) = longest_file(line, dir).filter(|(path, _)| !is_there(path))?;
        Some((at, path, length))
    })
}

/// The longest beginning of a line that is the path of a file in a directory.
fn longest_file(line: &str, dir: &str) -> Option<(PathBuf, usize)> {
    let is_end = |c: char| c.is_whitespace() || "\"'`;|&<>(){}[],*?$\\:".contains(c);
    let ends = line.char_indices().filter(|(_, c)| is_end(*c)).map(|(at, _)| at);
    let mut ends: Vec<usize> = ends.filter(|end| *end > dir.len() + 1).take(ENDS).collect();
    if ends.len() < ENDS {
        ends.push(line.len());
    }
    ends.into_iter().rev().find_map(|end| {
        let name = &line[..end];
        let name = [name, name.trim_end_matches('.')].into_iter().find(|it| is_inside(it, dir))?;
        Some((PathBuf::from(name), name.len()))
    })
}

/// Whether it is a file in the directory, and not by a link out of it.
fn is_inside(path: &str, dir: &str) -> bool {
    let path = Path::new(path);
    let is_plain = !path.components().any(|part| part == std::path::Component::ParentDir);
    is_plain
        && path.is_file()
        && path
            .canonicalize()
            .ok()
            .zip(Path::new(dir).canonicalize().ok())
            .is_some_and(|(path, dir)| path.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_replaced_where_it_is_named() {
        let check = |text: &str, expected: &str| {
            assert_eq!(with_directory(text, "/a/work", "/remote/a/work"), expected);
        };
        check(
            "cd /a/work && ls /a/work/x '/a/work'.",
            "cd /remote/a/work && ls /remote/a/work/x '/remote/a/work'.",
        );
        check("file:///a/work/x", "file:///remote/a/work/x");
        check(
            "/a/works /a/work-2 /a/work.old /b/a/work ./a/work",
            "/a/works /a/work-2 /a/work.old /b/a/work ./a/work",
        );
        check("PATH=/a/work:/a/work", "PATH=/remote/a/work:/remote/a/work");
    }

    #[test]
    fn files_that_a_text_names_are_found_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let value = format!("{}.json", "0a".repeat(32));
        for name in ["blobs", "files/a", "files/b"] {
            std::fs::create_dir_all(path(name)).unwrap();
        }
        for name in
            [&*format!("blobs/{value}"), "files/a/report.xml", "files/b/report.xml", "secret"]
        {
            std::fs::write(path(name), "x").unwrap();
        }
        std::fs::write(path("files/a/my shot.png"), "x").unwrap();
        std::os::unix::fs::symlink(path("secret"), path("files/link")).unwrap();
        let dirs = [path("blobs"), path("files")];
        let shown = Shown::new(&path("state"));
        let check = |text: &str, expected: &str| {
            let text = text.replace("DIR", place.path().to_str().unwrap());
            let found = shown.text(
                &text,
                &dirs,
                "/w/.fabro",
                |path| path.ends_with("b/own"),
                str::to_owned,
            );
            let names: Vec<&str> = found.files.keys().map(String::as_str).collect();
            let line = format!("{} | {}", found.text, names.join(" "));
            let line = line.replace(place.path().to_str().unwrap(), "DIR").replace(&value, "V");
            assert_eq!(line, expected);
        };
        check(
            &format!("jq . 'file://DIR/blobs/{value}'"),
            "jq . 'file:///w/.fabro/blobs/V' | blobs/V",
        );
        check(
            "cat DIR/files/a/report.xml.",
            "cat /w/.fabro/artifacts/report.xml. | artifacts/report.xml",
        );
        check(
            "cat DIR/files/a/my shot.png twice",
            "cat /w/.fabro/artifacts/my shot.png twice | artifacts/my shot.png",
        );
        std::fs::write(path("files/b/own"), "x").unwrap();
        check("echo DIR/files/b/own", "echo DIR/files/b/own | ");
        let hashed = shown.name(&path("files/b/report.xml"));
        assert!(hashed.starts_with("artifacts/report-"), "{hashed}");
        check("DIR/files/b/report.xml", &format!("/w/.fabro/{hashed} | {hashed}"));
        check(
            "cat DIR/secret DIR/files/link DIR/files/../secret DIR/files",
            "cat DIR/secret DIR/files/link DIR/files/../secret DIR/files | ",
        );
        check(
            &format!("cat .fabro/blobs/{value} .fabro/artifacts/report.xml"),
            "cat .fabro/blobs/V .fabro/artifacts/report.xml | artifacts/report.xml blobs/V",
        );
        let again = Shown::new(&path("state"));
        assert_eq!(again.file("artifacts/report.xml", &dirs), Some(path("files/a/report.xml")));
        assert_eq!(again.file("blobs/../secret", &dirs), None);
    }
}

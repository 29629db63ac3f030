//! Changes of files.

use askama::Template;
use fabro_types::clean;

use crate::texts::{counted, render};

/// The most lines of a patch that are shown.
const MAX_LINES: usize = 5_000;

struct Line {
    class: &'static str,
    text: String,
}

struct File {
    name: String,
    added: usize,
    removed: usize,
    is_open: bool,
    lines: Vec<Line>,
}

#[derive(Template)]
#[template(path = "patch.html")]
struct Patch {
    files: Vec<File>,
    left_out: usize,
}

/// `2 files, +14 −3`.
pub(crate) fn summary(patch: &[u8]) -> String {
    let (files, _) = files(patch);
    let added: usize = files.iter().map(|file| file.added).sum();
    let removed: usize = files.iter().map(|file| file.removed).sum();
    format!("{}, +{added} −{removed}", counted(files.len(), "file"))
}

/// The files of a patch in git's format, each with its lines. Of a large one only the first lines.
pub fn patch(patch: &[u8]) -> String {
    let (files, left_out) = files(patch);
    render(&Patch { files, left_out })
}

fn files(patch: &[u8]) -> (Vec<File>, usize) {
    let mut files: Vec<File> = Vec::new();
    let (mut kept, mut left_out) = (0, 0);
    let mut in_head = false;
    for line in String::from_utf8_lossy(patch).lines() {
        if let Some(names) = line.strip_prefix("diff --git ") {
            let name = names.rsplit_once(" b/").map_or(names, |(_, name)| name).to_owned();
            files.push(File { name, added: 0, removed: 0, is_open: true, lines: Vec::new() });
            in_head = true;
            continue;
        }
        let Some(file) = files.last_mut() else { continue };
        in_head &= !line.starts_with("@@");
        let class = match line.as_bytes().first() {
            _ if in_head => "dim",
            Some(b'@') => "hunk",
            Some(b'+') => "good",
            Some(b'-') => "bad",
            _ => "",
        };
        // The names are in the heading.
        let is_name = ["index ", "--- ", "+++ "].iter().any(|start| line.starts_with(start));
        if in_head && is_name {
            continue;
        }
        file.added += usize::from(class == "good");
        file.removed += usize::from(class == "bad");
        if kept == MAX_LINES {
            left_out += 1;
            continue;
        }
        kept += 1;
        file.lines.push(Line { class, text: clean(line).into_owned() });
    }
    for file in &mut files {
        file.is_open = file.lines.len() <= 400;
    }
    (files, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "diff --git a/src/a.rs b/src/a.rs\nindex 1..2 100644\n--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,2 @@\n fn a() {\n---old\n+++new\n }\ndiff --git a/b b/c\nsimilarity index 100%\nrename from b\nrename to c\n";

    #[test]
    fn the_lines_of_a_file_are_told_from_its_head() {
        let (files, left_out) = files(PATCH.as_bytes());
        let shown: Vec<_> =
            files.iter().map(|it| (&*it.name, it.added, it.removed, it.lines.len())).collect();
        assert_eq!(shown, [("src/a.rs", 1, 1, 5), ("c", 0, 0, 3)]);
        assert_eq!(left_out, 0);
        assert_eq!(summary(PATCH.as_bytes()), "2 files, +1 −1");
        let html =
            patch("diff --git a/<x> b/<x>\n@@ -0,0 +1 @@\n+<script>\u{202e}\u{1b}\n".as_bytes());
        assert!(!html.contains("<script") && !html.contains(['\u{202e}', '\u{1b}']), "{html}");
    }

    #[test]
    fn a_large_patch_is_cut() {
        let mut text = "diff --git a/a b/a\n@@ -0,0 +1 @@\n".to_owned();
        text.extend(std::iter::repeat_n("+x\n", MAX_LINES + 10));
        let (files, left_out) = files(text.as_bytes());
        assert_eq!(
            (files[0].added, files[0].lines.len(), left_out),
            (MAX_LINES + 10, MAX_LINES, 11)
        );
    }
}

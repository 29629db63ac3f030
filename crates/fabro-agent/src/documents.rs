//! Files of a project with instructions for agents.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where such files are, in each folder.
const NAMES: [&str; 4] = ["AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md"];

/// The size limit of all of them together, in bytes.
pub const DOCUMENT_BYTES: usize = 32 * 1024;

/// The instructions of a project for agents that work in `dir`: `AGENTS.md`, `CLAUDE.md`, `GEMINI.md` and
/// `.github/copilot-instructions.md` of each folder from the root of the project to `dir`, each
/// under its path, nearest last. Files of the same text appear once.
///
/// The root is the nearest folder with `.git` or `.fabro`, else `dir` itself. What is longer than
/// [`DOCUMENT_BYTES`] in all is cut, the files nearest to `dir` last, with a note. Files that
/// lead out of the project, cannot be read or are not text are skipped.
pub fn project_docs(dir: &Path) -> String {
    let Ok(dir) = dir.canonicalize() else { return String::new() };
    let root = project_root(&dir);
    let mut folders: Vec<_> = dir.ancestors().take_while(|it| it.starts_with(&root)).collect();
    folders.reverse();
    let mut documents: Vec<(String, String)> = Vec::new();
    for folder in folders {
        for name in NAMES {
            let path = folder.join(name);
            let Some(text) = document(&root, &path) else { continue };
            if documents.iter().any(|(_, known)| *known == text) {
                continue;
            }
            let shown = path.strip_prefix(&root).unwrap_or(&path);
            documents.push((shown.display().to_string(), text));
        }
    }
    fit(&documents)
}

/// The nearest folder with `.git` or `.fabro`, else the folder itself.
pub(crate) fn project_root(dir: &Path) -> PathBuf {
    let is_root = |it: &&Path| it.join(".git").exists() || it.join(".fabro").is_dir();
    dir.ancestors().find(is_root).unwrap_or(dir).to_owned()
}

fn document(root: &Path, path: &Path) -> Option<String> {
    let real = path.canonicalize().ok()?;
    let text = real.starts_with(root).then(|| read_start(&real, DOCUMENT_BYTES))?.ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The beginning of a file; a byte more than `max` where it is longer, so that this is seen. Invalid
/// UTF-8 is replaced.
pub(crate) fn read_start(path: &Path, max: usize) -> io::Result<String> {
    // Neither a folder nor something that waits for a writer.
    if !path.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// All documents in one text; those that come last have precedence.
fn fit(documents: &[(String, String)]) -> String {
    let mut room = DOCUMENT_BYTES;
    let mut blocks = Vec::new();
    let mut left_out = 0;
    for (path, text) in documents.iter().rev() {
        let block = format!("## {path}\n\n{text}\n\n");
        if left_out == 0 && block.len() + RESERVE <= room {
            room -= block.len();
            blocks.push(block);
            continue;
        }
        let mark = format!("\n[… the rest of {path} is left out]\n\n");
        let heading = path.len() + "## \n\n".len();
        match room.checked_sub(mark.len() + RESERVE).filter(|keep| *keep > heading) {
            Some(keep) => {
                let end = block.floor_char_boundary(keep);
                blocks.push(format!("{}{mark}", &block[..end]));
                room = 0;
            }
            None => left_out += 1,
        }
    }
    if left_out > 0 {
        blocks.push(format!("[{left_out} more files are left out]\n\n"));
    }
    blocks.reverse();
    let mut all = blocks.concat();
    all.truncate(all.trim_end().len());
    all
}

/// Room for the number of files that are left out, in bytes.
const RESERVE: usize = 64;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn from_the_root_to_the_folder() {
        let dir = folder(&[
            (".git/HEAD", ""),
            ("AGENTS.md", "Use tabs.\n"),
            ("CLAUDE.md", "Use tabs.\n"),
            (".github/copilot-instructions.md", "No emoji."),
            ("a/b/GEMINI.md", "Only here."),
            ("other/AGENTS.md", "Elsewhere."),
        ]);
        insta::assert_snapshot!(project_docs(&dir.path().join("a/b")), @r"
        ## AGENTS.md

        Use tabs.

        ## .github/copilot-instructions.md

        No emoji.

        ## a/b/GEMINI.md

        Only here.
        ");
    }

    #[test]
    fn without_a_root_only_the_folder_counts() {
        let dir = folder(&[("AGENTS.md", "Above."), ("a/AGENTS.md", "Here.")]);
        assert_eq!(project_docs(&dir.path().join("a")), "## AGENTS.md\n\nHere.");
        assert_eq!(project_docs(&dir.path().join("nowhere")), "");
    }

    #[test]
    fn too_much_is_cut_with_a_note() {
        let long = "ä".repeat(30_000);
        let dir = folder(&[
            (".fabro/x", ""),
            ("AGENTS.md", &long),
            ("CLAUDE.md", "left out with the next"),
            ("a/AGENTS.md", &format!("near {long}")),
            ("a/CLAUDE.md", "nearest"),
        ]);
        let text = project_docs(&dir.path().join("a"));
        assert!(text.len() <= DOCUMENT_BYTES, "{}", text.len());
        assert!(text.starts_with("[2 more files are left out]\n\n## a/AGENTS.md\n\nnear ää"));
        assert!(
            text.ends_with("[… the rest of a/AGENTS.md is left out]\n\n## a/CLAUDE.md\n\nnearest")
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_project_and_what_is_no_text_are_passed_over() {
        let outside = folder(&[("secret", "hunter2")]);
        let dir = folder(&[(".git/HEAD", ""), ("CLAUDE.md", "mine"), ("GEMINI.md", "a\0b")]);
        std::os::unix::fs::symlink(outside.path().join("secret"), dir.path().join("AGENTS.md"))
            .unwrap();
        assert_eq!(project_docs(dir.path()), "## CLAUDE.md\n\nmine");
    }
}

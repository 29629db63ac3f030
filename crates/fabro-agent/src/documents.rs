//! Files of a project with instructions for agents.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use fabro_config::{ConfigError, check_owner, project_root};
use fabro_redact::Redactor;
use fabro_types::control_files::DOCUMENTS;

/// The size limit of all of them together, in bytes.
pub const DOCUMENT_BYTES: usize = 32 * 1024;

/// The instructions of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectDocs {
    /// All of them, each under its path.
    pub text: String,
    /// The paths of those that were cut.
    pub cut: Vec<String>,
    /// Why files were refused: see [`check_owner`].
    pub refused: Vec<String>,
}

/// The instructions of a project for agents that work in `dir`: `AGENTS.md`, `CLAUDE.md`, `GEMINI.md` and
/// `.github/copilot-instructions.md` of each folder from the root of the project to `dir`, each
/// under its path, nearest last. Files of the same text appear once.
///
/// The root is the nearest folder with `.git` or `.fabro`, else `dir` itself. When they are longer than
/// [`DOCUMENT_BYTES`] together, the longest are cut to the same length, with a note. Skips files that
/// lead out of the project, cannot be read, are not text, or that [`check_owner`] refuses.
/// Secrets are redacted before the cut, which could leave a part of one.
pub fn project_docs(dir: &Path, redactor: &Redactor) -> ProjectDocs {
    let Ok(dir) = dir.canonicalize() else { return ProjectDocs::default() };
    let root = project_root(&dir);
    let mut folders: Vec<_> = dir.ancestors().take_while(|it| it.starts_with(root)).collect();
    folders.reverse();
    let mut documents: Vec<(String, String)> = Vec::new();
    let mut refused = Vec::new();
    for folder in folders {
        for name in DOCUMENTS {
            let path = folder.join(name);
            let text = document(root, &path).unwrap_or_else(|error| {
                refused.push(error.to_string());
                None
            });
            let Some(text) = text else { continue };
            let text = redactor.redact(&text).into_owned();
            if documents.iter().any(|(_, known)| *known == text) {
                continue;
            }
            let shown = path.strip_prefix(root).unwrap_or(&path);
            documents.push((shown.display().to_string(), text));
        }
    }
    ProjectDocs { refused, ..fit(&documents) }
}

/// The text of a document; `None` if there is nothing to read.
fn document(root: &Path, path: &Path) -> Result<Option<String>, ConfigError> {
    let Ok(real) = path.canonicalize() else { return Ok(None) };
    check_owner(path, root)?;
    if !real.starts_with(root) {
        return Ok(None);
    }
    let Ok(text) = read_start(&real, READ_BYTES) else { return Ok(None) };
    let text = text.trim_start_matches('\u{feff}').trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
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

/// All documents in one text; those that come last have precedence. When they are too long together,
/// the longest are cut to the same length.
fn fit(documents: &[(String, String)]) -> ProjectDocs {
    let left_out = documents.len().saturating_sub(MOST_DOCUMENTS);
    let documents = &documents[left_out..];
    let heading = |path: &str| format!("## {path}\n\n");
    let mark = |path: &str| format!("\n[… the rest of {path} is left out]");
    let frame = |path: &str| heading(path).len() + mark(path).len() + "\n\n".len();
    let frames: usize = documents.iter().map(|(path, _)| frame(path)).sum();
    let lengths: Vec<usize> = documents.iter().map(|(_, text)| text.len()).collect();
    let longest = share(lengths, DOCUMENT_BYTES.saturating_sub(frames + RESERVE));
    let mut docs = ProjectDocs::default();
    if left_out > 0 {
        let _ = write!(docs.text, "[{left_out} more files are left out]\n\n");
        docs.cut.push(format!("{left_out} files far above"));
    }
    for (path, text) in documents {
        docs.text.push_str(&heading(path));
        if text.len() <= longest {
            docs.text.push_str(text);
        } else {
            docs.text.push_str(&text[..text.floor_char_boundary(longest)]);
            docs.text.push_str(&mark(path));
            docs.cut.push(path.clone());
        }
        docs.text.push_str("\n\n");
    }
    docs.text.truncate(docs.text.trim_end().len());
    docs
}

/// The length to which the longest are cut, so that all of them fit.
fn share(mut lengths: Vec<usize>, mut room: usize) -> usize {
    lengths.sort_unstable();
    let count = lengths.len();
    for (index, length) in lengths.into_iter().enumerate() {
        let share = room / (count - index);
        if length > share {
            return share;
        }
        room -= length;
    }
    usize::MAX
}

/// How much is read of a file: what is cut off in the middle of a secret lies far behind what is shown.
const READ_BYTES: usize = DOCUMENT_BYTES * 2;

/// More documents than this are left out, those farthest from the folder first.
const MOST_DOCUMENTS: usize = 64;

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
            ("AGENTS.md", "\u{feff}Use tabs.\n"),
            ("CLAUDE.md", "Use tabs.\n"),
            (".github/copilot-instructions.md", "No emoji."),
            ("a/b/GEMINI.md", "Only here."),
            ("other/AGENTS.md", "Elsewhere."),
        ]);
        insta::assert_snapshot!(project_docs(&dir.path().join("a/b"), &Redactor::default()).text, @r"
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
        assert_eq!(
            project_docs(&dir.path().join("a"), &Redactor::default()).text,
            "## AGENTS.md\n\nHere."
        );
        assert_eq!(project_docs(&dir.path().join("nowhere"), &Redactor::default()).text, "");
    }

    #[test]
    fn a_secret_is_redacted_before_it_is_cut_through() {
        let secret = "a-value-that-is-a-secret";
        let redactor = Redactor::new([("TOKEN", secret.to_owned())]);
        for place in DOCUMENT_BYTES - 300..DOCUMENT_BYTES {
            let text = format!("{}{secret}{}", "x".repeat(place), "y".repeat(999));
            let dir = folder(&[("AGENTS.md", &text)]);
            let docs = project_docs(dir.path(), &redactor);
            assert_eq!(docs.cut, ["AGENTS.md"]);
            assert!(!docs.text.contains("xa-"), "{place}");
        }
    }

    #[test]
    fn too_much_is_cut_fairly_with_a_note() {
        let long = "ä".repeat(30_000);
        let dir = folder(&[
            (".fabro/x", ""),
            ("AGENTS.md", &format!("first {long}")),
            ("CLAUDE.md", "short"),
            ("a/AGENTS.md", &format!("near {long}")),
            ("a/CLAUDE.md", "nearest"),
        ]);
        let docs = project_docs(&dir.path().join("a"), &Redactor::default());
        assert!((DOCUMENT_BYTES - 200..=DOCUMENT_BYTES).contains(&docs.text.len()));
        assert_eq!(docs.cut, ["AGENTS.md", "a/AGENTS.md"]);
        assert!(docs.text.starts_with("## AGENTS.md\n\nfirst ää"));
        for part in [
            "ä\n[… the rest of AGENTS.md is left out]\n\n## CLAUDE.md\n\nshort\n\n## a/AGENTS.md\n\nnear ä",
            "ä\n[… the rest of a/AGENTS.md is left out]\n\n## a/CLAUDE.md\n\nnearest",
        ] {
            assert!(docs.text.contains(part), "{part}");
        }
    }

    #[test]
    fn links_to_files_that_agents_may_write_are_refused() {
        let dir =
            folder(&[(".git/HEAD", ""), ("docs/guide.md", "Mine."), ("GEMINI.md", "Use tabs.")]);
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
        };
        link("docs/guide.md", "AGENTS.md");
        link("GEMINI.md", "CLAUDE.md");
        let docs = project_docs(dir.path(), &Redactor::default());
        assert_eq!(docs.text, "## CLAUDE.md\n\nUse tabs.");
        let refused = docs.refused.concat();
        let refused = refused.replace(dir.path().canonicalize().unwrap().to_str().unwrap(), "DIR");
        assert_eq!(
            refused,
            "DIR/AGENTS.md is a link to DIR/docs/guide.md, which agents may write: replace the link by the file"
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_project_and_what_is_no_text_are_passed_over() {
        let outside = folder(&[("secret", "hunter2")]);
        let dir = folder(&[(".git/HEAD", ""), ("CLAUDE.md", "mine"), ("GEMINI.md", "a\0b")]);
        std::os::unix::fs::symlink(outside.path().join("secret"), dir.path().join("AGENTS.md"))
            .unwrap();
        assert_eq!(project_docs(dir.path(), &Redactor::default()).text, "## CLAUDE.md\n\nmine");
    }
}

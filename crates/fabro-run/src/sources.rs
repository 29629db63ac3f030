//! Workflow files and the files they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fabro_config::{check_named_file, project_root, spelled_as_on_disk};
use fabro_graph::{MAX_FILE_BYTES, Sources};
use fabro_types::control_files::{FABRO_DIR, STORE_FILE};

/// The maximum number of files of a folder that suggestions are made from.
const MAX_LISTED: usize = 10_000;

/// Reads the files that a workflow names, and collects their texts for the bundle.
#[derive(Debug)]
pub struct FileSources {
    workflow: PathBuf,
    home: Option<PathBuf>,
    texts: Mutex<BTreeMap<String, String>>,
    asked: Mutex<BTreeSet<PathBuf>>,
}

impl FileSources {
    /// Paths are relative to the directory of the workflow file; `home` replaces `~`. Files that are less protected than
    /// the workflow file ([`check_named_file`]) are not read.
    pub fn new(workflow: PathBuf, home: Option<PathBuf>) -> Self {
        Self { workflow, home, texts: Mutex::default(), asked: Mutex::default() }
    }

    /// The files that were asked for, also those that could not be read.
    pub fn files(&self) -> BTreeSet<PathBuf> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn full(&self, path: &str) -> PathBuf {
        let dir = self.workflow.with_file_name("");
        let full = match (path.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => dir.join(path),
        };
        let full = spelled_as_on_disk(&full);
        // In workflows of upstream `fabro/` is the directory of settings of the project.
        match path.strip_prefix("fabro/").filter(|_| !full.exists()) {
            Some(rest) => spelled_as_on_disk(&project_root(&dir).join(FABRO_DIR).join(rest)),
            None => full,
        }
    }

    /// The texts that were read, by the path as written in the workflow.
    pub fn into_texts(self) -> BTreeMap<String, String> {
        self.texts.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sources for FileSources {
    fn list(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.full(folder)).into_iter().flatten().flatten();
        let files = entries.take(MAX_LISTED).filter(|entry| entry.path().is_file());
        let mut names: Vec<_> =
            files.filter_map(|file| file.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn read(&self, path: &str) -> Result<String, String> {
        let full = self.full(path);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(full.clone());
        check_named_file(&full, &self.workflow).map_err(|error| error.to_string())?;
        if is_in_store(&full, &self.workflow.with_file_name("")) {
            return Err("it is in the record of runs".to_owned());
        }
        let text = without_mark(read_text(&full)?);
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.insert(path.to_owned(), text.clone());
        Ok(text)
    }
}

/// Whether a file is in a store that the workflow is not in. Agents may not read it, but may write files that
/// include others.
fn is_in_store(file: &Path, workflow_dir: &Path) -> bool {
    let (Ok(file), Ok(dir)) = (file.canonicalize(), workflow_dir.canonicalize()) else {
        return false;
    };
    let mut above = file.ancestors().skip(1).take_while(|above| !dir.starts_with(above));
    above.any(|above| above.join(STORE_FILE).is_file())
}

/// Reads a text file of at most 16 MB; a larger one is refused before it is read. Pipes and devices are
/// refused, because reading one may never end.
///
/// # Errors
/// The reason, for a message.
pub fn read_text(path: &Path) -> Result<String, String> {
    let meta = fs::metadata(path).map_err(|error| reason(&error))?;
    if !meta.is_file() {
        return Err("it is not a file".to_owned());
    }
    read_at_most(path, &meta)
}

/// The same of an open descriptor too, such as a shell's `<(…)`: it is read to its end, at most up to the
/// limit. A named pipe is refused: it may have no writer. A byte order mark is left out.
///
/// # Errors
/// The reason, for a message.
pub fn read_text_or_pipe(path: &Path) -> Result<String, String> {
    let meta = fs::metadata(path).map_err(|error| reason(&error))?;
    let is_descriptor =
        ["/dev/fd", "/proc/self/fd", "/dev/stdin"].iter().any(|it| path.starts_with(it));
    if !meta.is_file() && (meta.is_dir() || !is_descriptor) {
        return Err("it is not a file".to_owned());
    }
    read_at_most(path, &meta).map(without_mark)
}

/// A text without the byte order mark that editors on Windows put before it.
fn without_mark(text: String) -> String {
    text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
}

fn read_at_most(path: &Path, meta: &fs::Metadata) -> Result<String, String> {
    let limit = MAX_FILE_BYTES as u64;
    let too_large = || Err(format!("it is larger than {} MB", limit >> 20));
    if meta.len() > limit {
        return too_large();
    }
    // One byte more, so that reading to the end does not reallocate.
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0) + 1);
    let file = File::open(path).map_err(|error| reason(&error))?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| reason(&error))?;
    // It may have grown since, or be of a file system that does not know lengths.
    if bytes.len() as u64 > limit {
        return too_large();
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("it is not text: byte {at} is not UTF-8")
    })
}

/// Whether the file exceeds the size limit of [`read_text`].
pub fn is_too_large(path: &Path) -> bool {
    let limit = MAX_FILE_BYTES as u64;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > limit)
}

pub(crate) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_user_are_not_read() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files of other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let [workflow, script] = ["w.fabro", "s.sh"].map(|name| dir.path().join(name));
        fs::write(&workflow, "").unwrap();
        fs::write(&script, "true").unwrap();
        let read = || FileSources::new(workflow.clone(), None).read("s.sh");
        assert_eq!(read().unwrap(), "true");
        std::os::unix::fs::chown(&script, Some(12345), None).unwrap();
        assert!(read().unwrap_err().contains("belongs to another user (uid 12345)"));
    }

    #[test]
    fn strips_byte_order_marks_and_finds_files_in_either_unicode_normalization() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("re\u{301}sume\u{301}.md"), "\u{feff}Plan.\n").unwrap();
        let sources = FileSources::new(dir.path().join("w.fabro"), None);
        assert_eq!(sources.read("r\u{e9}sum\u{e9}.md").unwrap(), "Plan.\n");
        assert_eq!(sources.read("other.md").unwrap_err(), "no such file");
        fs::create_dir(dir.path().join("folder.md")).unwrap();
        assert_eq!(sources.list(""), ["re\u{301}sume\u{301}.md"]);
        assert_eq!(sources.list("gone/"), [""; 0]);
        assert_eq!(sources.into_texts()["r\u{e9}sum\u{e9}.md"], "Plan.\n");
    }
}

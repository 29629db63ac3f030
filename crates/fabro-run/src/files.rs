//! Workflow files and the files they name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fabro_graph::{MAX_FILE_BYTES, Sources};

/// Reads the files that a workflow names, and remembers their texts for the run.
#[derive(Debug)]
pub struct Beside {
    dir: PathBuf,
    home: Option<PathBuf>,
    texts: Mutex<BTreeMap<String, String>>,
}

impl Beside {
    /// Those that a workflow in `dir` names. `home` is what `~` stands for.
    pub fn new(dir: PathBuf, home: Option<PathBuf>) -> Self {
        Self { dir, home, texts: Mutex::default() }
    }

    /// The texts that were read, by the path as it is written in the workflow.
    pub fn into_texts(self) -> BTreeMap<String, String> {
        self.texts.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sources for Beside {
    fn read(&self, path: &str) -> Result<String, String> {
        let full = match (path.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => self.dir.join(path),
        };
        let text = read_text(&full)?;
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.insert(path.to_owned(), text.clone());
        Ok(text)
    }
}

/// A whole text file of at most 16 MB. A pipe or a device is refused: reading one may never end.
///
/// # Errors
/// Why it cannot be read, in words.
pub fn read_text(path: &Path) -> Result<String, String> {
    let limit = MAX_FILE_BYTES as u64;
    let meta = fs::metadata(path).map_err(|error| reason(&error))?;
    if !meta.is_file() {
        return Err("it is no file".to_owned());
    }
    // One more, so that the end is found without growing.
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len().min(limit)).unwrap_or(0) + 1);
    let file = File::open(path).map_err(|error| reason(&error))?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| reason(&error))?;
    if bytes.len() as u64 > limit {
        return Err(format!("it is larger than {} MB", limit >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("it is no text: byte {at} is not UTF-8")
    })
}

/// Whether that is why the file cannot be read.
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

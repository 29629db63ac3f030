//! What a running stage has written last, below its line.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fabro_types::{NodeKind, one_line};

use crate::story::{RunningStage, StagePlace};

/// How many lines of a stage are shown.
const LINES: usize = 3;

/// How many running stages at most are shown with their output.
pub(crate) const STAGES: usize = 4;

/// How much of a file is read.
const TAIL: u64 = 4_096;

/// The longest line, in characters; it is cut to the terminal's width.
const WIDTH: usize = 400;

/// Tells where the files of a stage are.
pub type StageDirs = Box<dyn Fn(&StagePlace) -> PathBuf + Send + Sync>;

/// The last lines that a stage has written: those of a command's log files, or of its model's answer.
pub(crate) fn last_lines(stage: &RunningStage, dirs: &StageDirs) -> Vec<String> {
    match stage.handler {
        NodeKind::Command => last_of_files(&dirs(&stage.place)),
        // While an answer arrives it is in this file, and in the log only once it is whole.
        _ => match tail(&dirs(&stage.place).join("live.log")) {
            Ok(text) if !text.trim().is_empty() => last_of(&text),
            _ => last_of(&stage.said),
        },
    }
}

/// Of the two files the one that was written last: a build prints to either.
fn last_of_files(dir: &Path) -> Vec<String> {
    let files = ["stdout.log", "stderr.log"].into_iter().filter_map(|name| {
        let path = dir.join(name);
        let about = path.metadata().ok().filter(|about| about.len() > 0)?;
        Some((about.modified().unwrap_or(SystemTime::UNIX_EPOCH), path))
    });
    // The file of a command that has not printed anything is not there.
    files
        .max()
        .and_then(|(_, path)| tail(&path).ok())
        .map(|text| last_of(&text))
        .unwrap_or_default()
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines with text in them; of a line what is after its last carriage return.
fn last_of(text: &str) -> Vec<String> {
    let last_part = |line: &str| line.trim_end().rsplit('\r').next().map(|it| one_line(it, WIDTH));
    let lines = text.lines().rev().filter_map(last_part).filter(|line| !line.trim().is_empty());
    let mut lines: Vec<String> = lines.take(LINES).collect();
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_the_file_written_last_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(last_of_files(dir.path()), [""; 0]);
        let lines: Vec<String> = (0..2_000).map(|line| format!("line {line}\n\n")).collect();
        let lines = lines.concat();
        std::fs::write(dir.path().join("stdout.log"), lines).unwrap();
        assert_eq!(last_of_files(dir.path()), ["line 1997", "line 1998", "line 1999"]);
        let stderr = File::create(dir.path().join("stderr.log")).unwrap();
        io::Write::write_all(&mut &stderr, b"10%\r50%\r\nbad \x1b[2J\xff").unwrap();
        stderr.set_modified(SystemTime::now() + std::time::Duration::from_secs(9)).unwrap();
        let shown = last_of_files(dir.path());
        assert_eq!(shown[0], "50%");
        assert!(!shown[1].contains('\x1b'), "{shown:?}");
    }
}

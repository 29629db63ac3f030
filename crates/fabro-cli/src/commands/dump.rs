//! `fabro dump`.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap_complete::ArgValueCandidates;
use fabro_inspect::dump::{DumpWriter, Fill};
use fabro_terminal::clean;
use tempfile::{TempDir, TempPath};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::dump_files::Family;
use crate::commands::metadata;
use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;

/// Write all of a run into a directory or zip file
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro dump latest\n  fabro dump 01K3 -o run.zip\n  fabro dump latest -o out --no-blobs\n  fabro dump latest --git\n\nThe directory must be new or empty. Two dumps of the same log are the same, byte for byte; a run that is still running is dumped as far as it got."
)]
pub struct DumpArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// Where to: a directory, or a file that ends with `.zip` [default: a directory named after the run]
    #[arg(short, long, value_name = "DIR|FILE.zip")]
    pub output: Option<PathBuf>,

    /// Keep references to large values instead of the values
    #[arg(long)]
    pub no_blobs: bool,

    /// Keep it as a commit on the branch `fabro/meta/{id}` of the run's git repository, without large values,
    /// events and artifacts
    #[arg(long, conflicts_with = "output")]
    pub git: bool,
}

/// Dumps a run with its sub-workflows.
pub async fn dump(args: &DumpArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    if args.git {
        let (branch, damage) = metadata::keep(&store, run).await?;
        output::text(&format!("{branch}\n"))?;
        return error::if_damaged(&damage);
    }
    let target = args.output.clone().unwrap_or_else(|| PathBuf::from(run.to_string()));
    let mut family = Family::read(&store, run).await?;
    family.keep_references = args.no_blobs;
    let is_zip = target.extension().is_some_and(|it| it.eq_ignore_ascii_case("zip"));
    let unwritable = |error: &io::Error| {
        let next = "name another place with -o";
        error::unwritable(&format!("write {}", clean(&target.to_string_lossy())), error, next)
    };
    if is_zip {
        let mut zip = Zip::create(&target).map_err(|error| unwritable(&error))?;
        family.write(&store, run, "", &mut zip)?;
        zip.finish(&target).map_err(|error| unwritable(&error))?;
    } else {
        check_new(&target)?;
        let mut dir = Dir::create(&target).map_err(|error| unwritable(&error))?;
        family.write(&store, run, "", &mut dir)?;
        dir.finish(&target).map_err(|error| unwritable(&error))?;
    }
    output::text(&format!("{}\n", clean(&target.to_string_lossy())))?;
    error::if_damaged(&family.damage)
}

/// A directory that is not empty is refused: what was in it would be taken for a part of the dump.
fn check_new(target: &Path) -> anyhow::Result<()> {
    let shown = clean(&target.to_string_lossy()).into_owned();
    match fs::read_dir(target).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let message = format!("the directory {shown} is not empty");
            Err(error::usage(message, "name a new or an empty one with -o"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error::usage(
            format!("write {shown}: {error}"),
            "name a directory or a `.zip` file with -o",
        )),
    }
}

/// A directory that gets its name when all of it is written.
struct Dir {
    dir: TempDir,
    /// The directory that was made last: most files follow one another there.
    last: PathBuf,
}

impl Dir {
    fn create(target: &Path) -> io::Result<Self> {
        // Prompts and outputs are in it, as in a report and in the store.
        let private = Permissions::from_mode(0o700);
        let mut builder = tempfile::Builder::new();
        let dir = builder.prefix(".fabro-dump-").permissions(private).tempdir_in(above(target)?)?;
        Ok(Self { dir, last: PathBuf::new() })
    }

    fn finish(self, target: &Path) -> io::Result<()> {
        // An empty directory makes way.
        fs::rename(self.dir.path(), target)?;
        // It is no longer where it would be removed from.
        let _ = self.dir.keep();
        Ok(())
    }
}

impl DumpWriter for Dir {
    fn write(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.file(path)?.write_all(bytes)
    }

    fn stream(&mut self, path: &str, _: u64, fill: &mut Fill<'_>) -> io::Result<()> {
        let mut writer = BufWriter::new(self.file(path)?);
        fill(&mut writer)?;
        writer.flush()
    }
}

impl Dir {
    fn file(&mut self, path: &str) -> io::Result<File> {
        let is_part = |part: &str| !matches!(part, "" | "." | "..");
        if !path.split('/').all(is_part) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = self.dir.path().join(path);
        if let Some(dir) = file.parent()
            && dir != self.last
        {
            fs::create_dir_all(dir)?;
            dir.clone_into(&mut self.last);
        }
        File::create_new(file)
    }
}

/// An archive that gets its name when all of it is written.
struct Zip {
    /// Absent once it is finished.
    archive: Option<ZipWriter<BufWriter<File>>>,
    path: TempPath,
}

impl Drop for Zip {
    fn drop(&mut self) {
        // One that is not finished would write its end, and report on stderr by itself that it cannot.
        if let Some(archive) = self.archive.take() {
            std::mem::forget(archive);
        }
    }
}

impl Zip {
    fn create(target: &Path) -> io::Result<Self> {
        let file = tempfile::Builder::new().prefix(".fabro-dump-").tempfile_in(above(target)?)?;
        let (file, path) = file.into_parts();
        Ok(Self { archive: Some(ZipWriter::new(BufWriter::new(file))), path })
    }

    fn finish(mut self, target: &Path) -> io::Result<()> {
        let archive = self.archive.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let buffer = archive.finish().map_err(io::Error::other)?;
        buffer.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(&self.path, target)
    }

    fn archive(&mut self) -> io::Result<&mut ZipWriter<BufWriter<File>>> {
        Ok(self.archive.as_mut().ok_or(io::ErrorKind::BrokenPipe)?)
    }
}

impl DumpWriter for Zip {
    fn write(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.start(path, bytes.len() as u64)?;
        self.archive()?.write_all(bytes)
    }

    fn stream(&mut self, path: &str, size: u64, fill: &mut Fill<'_>) -> io::Result<()> {
        self.start(path, size)?;
        fill(self.archive()?)
    }
}

impl Zip {
    fn start(&mut self, path: &str, size: u64) -> io::Result<()> {
        // The time of a file would make two dumps of one log differ.
        let options = SimpleFileOptions::default()
            .last_modified_time(zip::DateTime::default())
            .large_file(size >= u64::from(u32::MAX));
        self.archive()?.start_file(archive_name(path), options).map_err(io::Error::other)
    }
}

/// A file name that is safe to unpack on any system and to list on any terminal. Separators, drives and devices of
/// Windows, and control characters are percent-encoded; so is `%`, to keep names distinct.
fn archive_name(path: &str) -> String {
    let parts: Vec<_> = path.split('/').map(archive_part).collect();
    parts.join("/")
}

fn archive_part(part: &str) -> String {
    const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];
    let stem = part.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let is_device = DEVICES.contains(&stem.trim_end_matches(|c: char| c.is_ascii_digit()));
    let end = part.trim_end_matches(['.', ' ']).len();
    let mut name = String::new();
    for (at, c) in part.char_indices() {
        let mut text = [0; 4];
        let text = c.encode_utf8(&mut text);
        let is_unsafe = "\\:*?\"<>|%".contains(c) || c.is_control() || clean(text) != *text;
        if is_unsafe || at >= end || (at == 0 && is_device) {
            for byte in text.bytes() {
                let _ = write!(name, "%{byte:02X}");
            }
        } else {
            name.push(c);
        }
    }
    name
}

/// The directory that the target will be in; made where it is missing.
pub(super) fn above(target: &Path) -> io::Result<PathBuf> {
    let above = match target.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    };
    fs::create_dir_all(&above)?;
    Ok(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_names_are_safe_on_every_system() {
        let check = |path: &str, expect: &str| assert_eq!(archive_name(path), expect, "{path:?}");
        check("stages/001-a@1/out put.txt", "stages/001-a@1/out put.txt");
        check("größe/✓.md", "größe/✓.md");
        check(r"a/..\..\x", "a/..%5C..%5Cx");
        check("C:/x", "C%3A/x");
        check("a/../b/. ./...", "a/%2E%2E/b/%2E%20%2E/%2E%2E%2E");
        check("\u{1b}[31m\n", "%1B[31m%0A");
        check("\u{202e}x", "%E2%80%AEx");
        check("a/nul.txt/COM1", "a/%6Eul.txt/%43OM1");
        check("100%", "100%25");
    }

    #[test]
    fn paths_outside_of_the_dump_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut dump = Dir::create(&dir.path().join("dump")).unwrap();
        for path in ["../x", "/x", "a/../../x", "a//x"] {
            dump.write(path, b"x").unwrap_err();
        }
        dump.write("a/x", b"x").unwrap();
    }
}

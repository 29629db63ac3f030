//! Writing to stdout and stderr.

use std::borrow::Cow;
use std::fs::{File, Permissions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fabro_terminal::{Paint, clean, clean_painted, wrap};
use fabro_types::escaped_json;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::error;
use crate::width::stdout_width;

/// Writes a text for people to stderr, and ignores a closed one. Only colors pass of what could
/// control a terminal.
pub fn stderr(text: &str) {
    fabro_terminal::stderr(&safe(text));
}

/// The same to stdout: all of it or an error.
pub fn text(text: &str) -> anyhow::Result<()> {
    stdout(&with_whole_commands(&safe(text), stdout_width()))
}

/// Wraps the lines that have a command and are wider than this: the terminal would break the command.
fn with_whole_commands(text: &str, width: usize) -> String {
    let has_command =
        |line: &str| [": fabro ", "· fabro ", "`fabro "].iter().any(|it| line.contains(it));
    let wrapped = |line: &str| {
        if has_command(line) { wrap(line, width, 2) } else { line.to_owned() }
    };
    text.split('\n').map(wrapped).collect::<Vec<_>>().join("\n")
}

/// Without any colors of ours there is nothing in a text that a terminal should obey.
fn safe(text: &str) -> Cow<'_, str> {
    if Paint::is_any_on() { clean_painted(text) } else { clean(text) }
}

/// Writes to stdout as it is, all of it or an error: what other programs read. To a terminal only
/// what does not control it.
pub fn stdout(text: &str) -> anyhow::Result<()> {
    let is_seen = io::stdout().is_terminal();
    trusted(&if is_seen { safe(text) } else { Cow::Borrowed(text) })
}

/// Writes trusted text to stdout unescaped, also to a terminal. It must not contain untrusted input.
pub fn trusted(text: &str) -> anyhow::Result<()> {
    fabro_terminal::stdout(text).map_err(|error| match error.kind() {
        // The reader has closed the pipe, which is not an error.
        io::ErrorKind::BrokenPipe => error.into(),
        _ => unwritten(&error),
    })
}

/// Writes bytes to stdout as they are, all of them or an error.
pub fn bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => error.into(),
        _ => unwritten(&error),
    })
}

/// The error for a stdout that takes no more.
pub fn unwritten(error: &io::Error) -> anyhow::Error {
    error::store(
        format!("stdout cannot be written: {error}"),
        "make room there, or write to another place",
    )
}

/// Writes a report to stdout, as JSON or as text for people.
pub fn report(
    is_json: bool,
    report: &impl Serialize,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    if is_json { json(report) } else { self::text(&text()) }
}

/// Writes a value to stdout as indented JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    json_text(serde_json::to_string_pretty(value)? + "\n")
}

/// Writes JSON that is a text already to stdout, without a raw character that a terminal obeys.
pub fn json_text(json: String) -> anyhow::Result<()> {
    stdout(&escaped_json(json))
}

/// Sends traces to stderr, as much as `-v`, `-vv` or `FABRO_LOG` ask for. Nothing is set up when
/// none of them does.
pub fn trace(verbose: u8) {
    let level = match verbose {
        0 => None,
        1 => Some("fabro=info,info"),
        _ => Some("debug"),
    };
    let filter = std::env::var("FABRO_LOG").ok().filter(|text| !text.is_empty());
    let Some(filter) = filter.as_deref().or(level) else { return };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(io::stderr)
        .finish();
    // Only one subscriber can be set, and this is the only place that sets one.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// The device or pipe that has this name, opened to be written: a file must not take its place. `None` for a regular
/// file, and where nothing is.
pub fn device(target: &Path) -> io::Result<Option<File>> {
    match target.metadata() {
        Ok(there) if !there.is_file() => File::options().write(true).open(target).map(Some),
        _ => Ok(None),
    }
}

/// Writes a file that gets its name when all of it is written: one that was there is whole until then. What is no
/// regular file, a device or a pipe, is written to.
pub fn file(target: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(mut device) = device(target)? {
        return device.write_all(bytes);
    }
    // A link stays one.
    let target = if target.exists() { std::fs::canonicalize(target)? } else { target.to_owned() };
    let above = target.parent().filter(|dir| !dir.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    // Without this, the error would name the temporary file.
    above.metadata()?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".fabro-").permissions(Permissions::from_mode(0o666));
    let mut file = builder.tempfile_in(above)?;
    file.write_all(bytes)?;
    file.persist(target).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stay_whole_in_a_narrow_terminal() {
        let text =
            "a table that is wider than it\nthe run continues · follow: fabro logs 01K3 -f\n";
        let expect =
            "a table that is wider than it\nthe run continues ·\n  follow:\n  fabro logs 01K3 -f\n";
        assert_eq!(with_whole_commands(text, 20), expect);
        assert_eq!(with_whole_commands(text, usize::MAX), text);
    }
}

//! `fabro fmt`.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use fabro_terminal::diagnostics;
use fabro_types::clean;

use crate::error;
use crate::exit::Exit;
use crate::global::{Global, cwd};
use crate::output;
use crate::report::report;
use crate::workflow_files::{read_workflow, shown, workflows_in};

/// Print workflows in their canonical form
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro fmt review.fabro | less\n  fabro fmt --write flows/*.fabro\n  fabro fmt --check .\n  fabro fmt - < review.fabro\n\nComments are kept."
)]
pub struct FmtArgs {
    /// Workflow files or directories to print formatted; `-` is stdin
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<String>,

    /// Format the files in place instead of printing them
    #[arg(short, long, conflicts_with = "check")]
    pub write: bool,

    /// List files that are not formatted, and exit with 1 if there are any
    #[arg(long)]
    pub check: bool,
}

/// The result for a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FormatResult {
    Same,
    Changed,
    Invalid,
}

/// Prints workflows formatted, formats them in place, or lists those that are not formatted.
pub fn fmt(args: &FmtArgs, global: &Global) -> anyhow::Result<Exit> {
    let cwd = cwd()?;
    let mut all = Vec::new();
    for path in &args.paths {
        if path != "-" && cwd.join(path).is_dir() {
            for file in workflows_in(Path::new(path))? {
                all.push(format_file(&file, &cwd, args, global)?);
            }
        } else {
            all.push(format_file(Path::new(path), &cwd, args, global)?);
        }
    }
    Ok(if all.contains(&FormatResult::Invalid) {
        Exit::USAGE
    } else if args.check && all.contains(&FormatResult::Changed) {
        Exit::FAILED
    } else {
        Exit::SUCCEEDED
    })
}

fn format_file(
    path: &Path,
    cwd: &Path,
    args: &FmtArgs,
    global: &Global,
) -> anyhow::Result<FormatResult> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "stdin".to_owned() } else { shown(path, cwd) };
    let source = if is_stdin { read_stdin() } else { read_workflow(path) };
    let source = match source {
        Ok(source) => source,
        // The other files are formatted all the same.
        Err(error) if !is_stdin => {
            report(error, global);
            return Ok(FormatResult::Invalid);
        }
        Err(error) => return Err(error),
    };
    let Some(formatted) = formatted(&name, &source, global) else {
        return Ok(FormatResult::Invalid);
    };
    let is_same = formatted == source;
    if args.check {
        output::text(&if is_same { String::new() } else { format!("{}\n", clean(&name)) })?;
    } else if is_stdin || !args.write {
        output::stdout(&formatted)?;
    } else if !is_same {
        replace(path, &formatted).map_err(|error| {
            let what = format!("{name} cannot be written, and is unchanged");
            error::unwritable(&what, &error, "check the permissions of its folder, and its space")
        })?;
    }
    Ok(if is_same { FormatResult::Same } else { FormatResult::Changed })
}

fn read_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    let limit = fabro_graph::MAX_FILE_BYTES as u64;
    let read = io::stdin().lock().take(limit + 1).read_to_string(&mut text);
    read.map_err(|error| {
        error::usage(format!("stdin cannot be read: {error}"), "give the text of a workflow")
    })?;
    Ok(text)
}

/// The canonical form; `None`, with the reason on stderr, when the text is not a workflow.
fn formatted(name: &str, source: &str, global: &Global) -> Option<String> {
    match fabro_graph::parse(source) {
        Ok(document) => Some(fabro_graph::format(&document)),
        Err(finding) => {
            let paint = global.paint_stderr();
            output::stderr(&diagnostics::render(name, source, &[finding], paint));
            None
        }
    }
}

/// Replaces the text of a file atomically. Its permissions stay, and a link stays
/// a link.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let permissions = fs::metadata(&path)?.permissions();
    if permissions.readonly() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

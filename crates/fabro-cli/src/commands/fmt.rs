//! `fabro fmt`.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use super::walk::{read_workflow, shown, workflows_in};
use crate::cli::FmtArgs;
use crate::error;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use fabro_terminal::diagnostics;

/// What became of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Same,
    Changed,
    Invalid,
}

/// Prints workflows formatted, formats them in place, or lists those that are not formatted.
pub fn fmt(args: &FmtArgs, global: &Global) -> anyhow::Result<Exit> {
    let cwd = global.cwd()?;
    let mut all = Vec::new();
    for path in &args.paths {
        if path == "-" {
            all.push(stdin(args.check, global)?);
        } else if cwd.join(path).is_dir() {
            for file in workflows_in(Path::new(path))? {
                all.push(one(&file, &cwd, args, global)?);
            }
        } else {
            all.push(one(Path::new(path), &cwd, args, global)?);
        }
    }
    Ok(if all.contains(&Done::Invalid) {
        exit::USAGE
    } else if args.check && all.contains(&Done::Changed) {
        exit::FAILED
    } else {
        exit::SUCCEEDED
    })
}

fn one(path: &Path, cwd: &Path, args: &FmtArgs, global: &Global) -> anyhow::Result<Done> {
    let name = shown(path, cwd);
    let source = match read_workflow(path) {
        Ok(source) => source,
        // The other files are formatted all the same.
        Err(error) => {
            error::report(&error, global.paint_stderr());
            return Ok(Done::Invalid);
        }
    };
    let Some(formatted) = formatted(&name, &source, global) else { return Ok(Done::Invalid) };
    if !args.write && !args.check {
        output::stdout(&formatted)?;
    }
    if formatted == source {
        return Ok(Done::Same);
    }
    if args.check {
        output::stdout(&format!("{name}\n"))?;
    } else if args.write {
        replace(path, &formatted).map_err(|error| {
            let what = format!("{name} cannot be written, and is unchanged");
            error::unwritable(&what, &error, "check the permissions of its folder, and its space")
        })?;
    }
    Ok(Done::Changed)
}

fn stdin(check: bool, global: &Global) -> anyhow::Result<Done> {
    let mut bytes = Vec::new();
    let limit = fabro_graph::MAX_FILE_BYTES as u64;
    io::stdin().lock().take(limit + 1).read_to_end(&mut bytes).map_err(|error| {
        error::usage(format!("stdin cannot be read: {error}"), "give the text of a workflow")
    })?;
    let source = String::from_utf8(bytes)
        .map_err(|_| error::usage("stdin is no UTF-8 text", "give the text of a workflow"))?;
    let Some(formatted) = formatted("stdin", &source, global) else { return Ok(Done::Invalid) };
    if !check {
        output::stdout(&formatted)?;
    } else if formatted != source {
        output::stdout("stdin\n")?;
    }
    Ok(if formatted == source { Done::Same } else { Done::Changed })
}

/// The canonical form; `None`, with the reason on stderr, when the text is no workflow.
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

/// Puts a new text in a file's place, all of it or nothing. Its permissions stay, and a link stays
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

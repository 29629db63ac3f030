use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use fabro_sandbox::{FileError, Files, ReadFirst};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;

use super::lines::patched;
use super::parse::{Change, Patch};
use crate::call::spec;
use crate::file_tool::{FileTool, message, read_to_change};
use crate::tool::{Output, Tool};

const DESCRIPTION: &str = "Changes several files of the working directory at once: either all of the \
    patch is applied, or none of it. Files that are changed or deleted have to be read first. Form:\n\
    *** Begin Patch\n\
    *** Add File: PATH\n\
    +each line of the new file\n\
    *** Delete File: PATH\n\
    *** Update File: PATH\n\
    *** Move to: NEW PATH (optional)\n\
    @@ a whole line above the place, such as the head of the function (optional)\n\
    \u{20}a line that stays\n\
    -a line that goes\n\
    +a line that comes\n\
    *** End of File (optional: the hunk is at the end of the file)\n\
    *** End Patch\n\
    Give about three lines that stay before and after a change, copied exactly. Hunks of a file come in \
    its order; each goes to the first place behind the one before where its lines are.";

#[derive(Deserialize)]
struct Arguments {
    patch: String,
}

/// The tool `apply_patch`.
pub(crate) fn apply_patch(files: &Arc<dyn Files>) -> Arc<dyn Tool> {
    let properties = json!({
        "patch": {
            "type": "string",
            "description": "The whole patch, from `*** Begin Patch` to `*** End Patch`."
        }
    });
    let spec = spec("apply_patch", DESCRIPTION, &properties, &["patch"]);
    FileTool::create(files, spec, Permissions::ReadWrite, |files, arguments: &Arguments, _| {
        apply(files, &arguments.patch)
    })
}

fn apply(files: &ReadFirst, patch: &str) -> Result<Output, String> {
    let patch = Patch::parse(patch).map_err(|error| error.to_string())?;
    let mut plan = Plan { files, changed: BTreeMap::new(), report: String::new() };
    for change in patch.changes {
        plan.add(change).map_err(|problem| format!("nothing was changed: {problem}"))?;
    }
    let Plan { changed, report, .. } = plan;
    write_all(files, &changed)?;
    // The resolved path of a new file is known only now.
    let resolved = |path: String| files.inner().info(&path).map_or(path, |info| info.path);
    let mut files_modified: Vec<_> = changed.into_keys().map(resolved).collect();
    files_modified.sort_unstable();
    Ok(Output { files_modified, ..Output::ok(report.trim_end()) })
}

/// The files after the patch.
struct Plan<'a> {
    files: &'a ReadFirst,
    changed: BTreeMap<String, State>,
    report: String,
}

/// The content of a file before and after; `None` where it does not exist.
struct State {
    before: Option<String>,
    after: Option<String>,
}

impl Plan<'_> {
    fn add(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::Add { path, lines } => {
                let mut text = lines.join("\n");
                if !lines.is_empty() {
                    text.push('\n');
                }
                let path = self.put_new(&path, text)?;
                self.report("added", &path);
            }
            Change::Delete { path } => {
                let (path, _) = self.take(&path)?;
                self.report("deleted", &path);
            }
            Change::Update { path, to, hunks } => {
                let (path, text) = self.take(&path)?;
                let text =
                    patched(&text, &hunks).map_err(|problem| format!("{path}: {problem}"))?;
                if let Some(to) = to {
                    let to = self.put_new(&to, text)?;
                    self.report("moved", &format!("{path} to {to}"));
                } else {
                    self.report("updated", &path);
                    self.state(path).after = Some(text);
                }
            }
        }
        Ok(())
    }

    fn report(&mut self, what: &str, path: &str) {
        self.report.extend([format!("{what} {path}\n")]);
    }

    /// Removes an existing file from the plan, and returns its path and text.
    fn take(&mut self, path: &str) -> Result<(String, String), String> {
        let (known, _) = self.lookup(path)?;
        if let Some(state) = self.changed.get_mut(&known) {
            let text = state.after.take();
            let text =
                text.ok_or_else(|| format!("{path} is deleted or moved earlier in the patch"))?;
            return Ok((known, text));
        }
        let (known, text) = read_to_change(self.files, path)?;
        let state = State { before: Some(text.clone()), after: None };
        self.changed.insert(known.clone(), state);
        Ok((known, text))
    }

    fn put_new(&mut self, path: &str, text: String) -> Result<String, String> {
        let (known, is_on_disk) = self.lookup(path)?;
        let state = self.changed.get(&known);
        if state.map_or(is_on_disk, |state| state.after.is_some()) {
            return Err(format!("{path} exists already: update it, or choose another path"));
        }
        self.state(known.clone()).after = Some(text);
        Ok(known)
    }

    fn state(&mut self, path: String) -> &mut State {
        self.changed.entry(path).or_insert(State { before: None, after: None })
    }

    /// The resolved path, or the normalized path of a file that does not exist; and whether it exists.
    fn lookup(&self, path: &str) -> Result<(String, bool), String> {
        match self.files.inner().info(path) {
            Ok(info) => Ok((info.path, true)),
            Err(FileError::NotFound(_)) => {
                let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
                let joined = parts.collect::<Vec<_>>().join("/");
                Ok((if path.starts_with('/') { format!("/{joined}") } else { joined }, false))
            }
            Err(error) => Err(message(error)),
        }
    }
}

/// Writes all files, or restores those already written when one cannot be.
fn write_all(files: &ReadFirst, changed: &BTreeMap<String, State>) -> Result<(), String> {
    for (index, (path, state)) in changed.iter().enumerate() {
        let Err(error) = set(files, path, state.before.as_deref(), state.after.as_deref()) else {
            continue;
        };
        let mut problem = error.to_string();
        for (path, state) in changed.iter().take(index) {
            let back = set(files, path, state.after.as_deref(), state.before.as_deref());
            if let Err(error) = back {
                let _ = write!(problem, "; {path} could not be restored: {error}");
            }
        }
        return Err(format!("the patch was not applied: {problem}"));
    }
    Ok(())
}

fn set(
    files: &ReadFirst,
    path: &str,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<(), FileError> {
    match (from, to) {
        (from, to) if from == to => Ok(()),
        (_, Some(text)) => files.write(path, text.as_bytes()),
        (_, None) => files.remove(path),
    }
}

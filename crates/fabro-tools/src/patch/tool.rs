use fabro_sandbox::{FileError, FindFiles, WriteFiles};
use fabro_types::Permissions;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;

use super::lines::patched;
use super::{Change, Patch};
use crate::Output;
use crate::call::spec;
use crate::files::{FileTool, SeenFiles, said, text_to_change};

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
pub(crate) struct Arguments {
    patch: String,
}

/// The tool `apply_patch`.
pub(crate) fn apply_patch() -> FileTool<Arguments> {
    let properties = json!({
        "patch": {
            "type": "string",
            "description": "The whole patch, from `*** Begin Patch` to `*** End Patch`."
        }
    });
    FileTool {
        spec: spec("apply_patch", DESCRIPTION, &properties, &["patch"]),
        needs: Permissions::ReadWrite,
        run: |files, arguments, _| apply(files, &arguments.patch),
    }
}

fn apply(files: &SeenFiles, patch: &str) -> Result<Output, String> {
    let patch = Patch::parse(patch).map_err(|error| error.to_string())?;
    let mut plan = Plan { files, changed: BTreeMap::new(), told: String::new() };
    for change in patch.changes {
        plan.add(change).map_err(|problem| format!("nothing was changed: {problem}"))?;
    }
    let Plan { changed, told, .. } = plan;
    write_all(files, &changed)?;
    // Only now is it known where a new file is.
    let modified = changed.into_keys().map(|path| files.info(&path).map_or(path, |info| info.path));
    let mut files_modified: Vec<_> = modified.collect();
    files_modified.sort_unstable();
    Ok(Output { files_modified, ..Output::ok(told.trim_end()) })
}

/// What the files will be like.
struct Plan<'a> {
    files: &'a SeenFiles,
    changed: BTreeMap<String, State>,
    told: String,
}

/// A file, before and after; `None` where there is none.
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
                self.tell("added", &path);
            }
            Change::Delete { path } => {
                let (path, _) = self.take(&path)?;
                self.tell("deleted", &path);
            }
            Change::Update { path, to, hunks } => {
                let (path, text) = self.take(&path)?;
                let text =
                    patched(&text, &hunks).map_err(|problem| format!("{path}: {problem}"))?;
                if let Some(to) = to {
                    let to = self.put_new(&to, text)?;
                    self.tell("moved", &format!("{path} to {to}"));
                } else {
                    self.tell("updated", &path);
                    self.state(path).after = Some(text);
                }
            }
        }
        Ok(())
    }

    fn tell(&mut self, what: &str, path: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.told, "{what} {path}");
    }

    /// The text of a file that is there, which is gone then.
    fn take(&mut self, path: &str) -> Result<(String, String), String> {
        let known = self.normal(path)?;
        if let Some(state) = self.changed.get_mut(&known) {
            let text = state.after.take();
            return text.map(|text| (known, text)).ok_or_else(|| gone(path));
        }
        let (known, text) = text_to_change(self.files, path)?;
        let state = State { before: Some(text.clone()), after: None };
        self.changed.insert(known.clone(), state);
        Ok((known, text))
    }

    fn put_new(&mut self, path: &str, text: String) -> Result<String, String> {
        let known = self.normal(path)?;
        let exists = match self.changed.get(&known) {
            Some(state) => state.after.is_some(),
            None => self.exists(path)?,
        };
        if exists {
            return Err(format!("{path} exists already: update it, or choose another path"));
        }
        self.state(known.clone()).after = Some(text);
        Ok(known)
    }

    fn state(&mut self, path: String) -> &mut State {
        self.changed.entry(path).or_insert(State { before: None, after: None })
    }

    fn exists(&self, path: &str) -> Result<bool, String> {
        match self.files.info(path) {
            Ok(_) => Ok(true),
            Err(FileError::NotFound { .. }) => Ok(false),
            Err(error) => Err(said(error)),
        }
    }

    /// The path as results name it: of a file that is not there, as it is written.
    fn normal(&self, path: &str) -> Result<String, String> {
        match self.files.info(path) {
            Ok(info) => Ok(info.path),
            Err(FileError::NotFound { .. }) => {
                let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
                let joined = parts.collect::<Vec<_>>().join("/");
                Ok(if path.starts_with('/') { format!("/{joined}") } else { joined })
            }
            Err(error) => Err(said(error)),
        }
    }
}

fn gone(path: &str) -> String {
    format!("{path} is deleted or moved earlier in the patch")
}

/// Writes everything, or puts back what was written when something cannot be.
fn write_all(files: &SeenFiles, changed: &BTreeMap<String, State>) -> Result<(), String> {
    for (index, (path, state)) in changed.iter().enumerate() {
        let Err(error) = set(files, path, state.before.as_deref(), state.after.as_deref()) else {
            continue;
        };
        let mut said = error.to_string();
        for (path, state) in changed.iter().take(index) {
            let back = set(files, path, state.after.as_deref(), state.before.as_deref());
            if let Err(error) = back {
                // Writing to a string cannot fail.
                let _ = write!(said, "; {path} could not be put back: {error}");
            }
        }
        return Err(format!("the patch was not applied: {said}"));
    }
    Ok(())
}

fn set(
    files: &SeenFiles,
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

//! Keeping the copy of a working directory equal to it.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use super::call::{Feed, call, up_to};
use super::program::quote;
use super::run::{FAILED, blocking};
use super::state::SyncState;
use super::sync::list::{LIST_BYTES, list_program, parse_list};
use super::sync::pack::{pack, removal};
use super::sync::pull::Pull;
use super::sync::rules::retain_harmless;
use super::sync::scan;
use super::sync::tree::{Difference, Name, Tree, mark_missing};
use super::{Remote, Root};
use crate::ExecError;

/// The exit code of a program that has not found the copy it was for.
const OTHER_COPY: i32 = 4;

impl Remote {
    /// Makes the copy equal to the working directory, and returns its mark.
    pub(super) async fn push(&self, root: &Arc<Root>) -> Result<String, ExecError> {
        let mut guard = root.state.lock().await;
        let now = self.scan(root).await?;
        if let Some(state) = guard.as_mut() {
            if self.push_changes(root, state, now.clone()).await? {
                return Ok(state.mark.clone());
            }
            *guard = None;
        }
        let state = self.begin_copy(root, now).await?;
        let mark = state.mark.clone();
        *guard = Some(state);
        Ok(mark)
    }

    /// Makes the copy, or makes one equal that is there. What only the copy has is removed.
    async fn begin_copy(&self, root: &Arc<Root>, now: Tree) -> Result<SyncState, ExecError> {
        let mark = self.new_id();
        let make = format!(
            "mkdir -p {0} && cd {0} && echo {mark} >{1} || end {FAILED}\n",
            quote(&root.remote),
            mark_file(root)
        );
        let gone = || self.gone();
        let remote = self.list(root, make.into_bytes(), None).await?.ok_or_else(gone)?;
        let change = SyncState::to_begin(&remote, &now);
        let remote = if change.is_empty() {
            remote
        } else {
            self.transfer(root, &mark, &change, &now).await?.ok_or_else(gone)?
        };
        Ok(SyncState::new(mark, now, remote))
    }

    /// False when the copy is not there any more.
    async fn push_changes(
        &self,
        root: &Arc<Root>,
        state: &mut SyncState,
        now: Tree,
    ) -> Result<bool, ExecError> {
        let change = state.to_push(&now);
        if change.is_empty() {
            state.set_local(now);
            return Ok(true);
        }
        state.begin_push(&change, &now);
        match self.transfer(root, &state.mark, &change, &now).await {
            Ok(Some(remote)) => state.note_pushed(&change, remote, now),
            Ok(None) => return Ok(false),
            Err(error) => {
                let program = in_copy(root, &state.mark);
                // Without it, what it may have changed stays unsure.
                if let Ok(Some(remote)) = self.list(root, program, None).await {
                    state.note_failed_push(remote);
                }
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Changes the copy, and lists it.
    async fn transfer(
        &self,
        root: &Arc<Root>,
        mark: &str,
        change: &Difference,
        now: &Tree,
    ) -> Result<Option<Tree>, ExecError> {
        let mut program = in_copy(root, mark);
        program.extend(removal(&change.removed));
        program.extend_from_slice(format!("tar -xpof - || end {FAILED}\n").as_bytes());
        let (local, tree, names) = (root.local.clone(), now.clone(), change.put.clone());
        let feed: Feed = Box::new(move |out| pack(&local, &tree, &names, out));
        self.list(root, program, Some(feed)).await
    }

    /// Runs a program, and lists the directory in which it ends; `None` where the copy is another one, or gone.
    async fn list(
        &self,
        root: &Root,
        mut program: Vec<u8>,
        feed: Option<Feed>,
    ) -> Result<Option<Tree>, ExecError> {
        program.extend(list_program(&self.rules, &root.local));
        let [head, tail] = self.around(&self.new_id())?;
        let program = [head.as_bytes(), &program, tail.as_bytes()].concat();
        let called = call(self.shell(), &program, feed, up_to(LIST_BYTES)).await;
        if called.as_ref().is_ok_and(|called| called.status.code() == Some(OTHER_COPY)) {
            return Ok(None);
        }
        let tree = parse_list(&self.done(called)?);
        tree.map(Some).map_err(|error| ExecError::Workspace(error.to_string()))
    }

    fn gone(&self) -> ExecError {
        self.failed(
            "the copy of the working directory was lost, and what the script has changed in it",
        )
    }

    async fn scan(&self, root: &Root) -> Result<Tree, ExecError> {
        let (local, rules) = (root.local.clone(), self.rules.clone());
        let scanned = blocking(move || scan(&local, &rules)).await;
        scanned.map_err(|error| ExecError::Workspace(format!("{}: {error}", root.local.display())))
    }

    /// Brings back what has changed in the copy with this mark.
    pub(super) async fn pull(&self, root: &Arc<Root>, mark: &str) -> Result<(), ExecError> {
        let mut guard = root.state.lock().await;
        let state = guard.as_mut().filter(|state| state.mark == mark);
        let state = state.ok_or_else(|| self.gone())?;
        let Some(remote) = self.list(root, in_copy(root, mark), None).await? else {
            *guard = None;
            return Err(self.gone());
        };
        let conflicts = state.settle(&remote);
        let mut change = state.to_pull(&remote, &self.rules, &self.rules.hidden_in(&root.local));
        let local = root.local.clone();
        let limit = self.copy_limit;
        let failed = |error: &io::Error| ExecError::Workspace(error.to_string());
        let (taken, wanted) = blocking(move || {
            retain_harmless(&mut change, &local);
            let pull = Pull { root: &local, remote: &remote, change: &change };
            let (wanted, bytes) = (pull.wanted(), pull.bytes());
            if bytes > limit {
                return Err(io::Error::other(format!(
                    "the script has left {bytes} bytes to copy back, and `copy_limit` is {limit}"
                )));
            }
            pull.prepare()?;
            Ok(((remote, change), wanted))
        })
        .await
        .map_err(|error| failed(&error))?;
        let taken = if wanted.is_empty() { taken } else { self.fetch(root, taken, wanted).await? };
        let local = root.local.clone();
        let (remote, result) = blocking(move || {
            let (remote, change) = taken;
            let result = Pull { root: &local, remote: &remote, change: &change }.result();
            (remote, result)
        })
        .await;
        state.note_pulled(result, remote);
        if conflicts.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = conflicts.iter().map(|name| String::from_utf8_lossy(name)).collect();
        Err(ExecError::Workspace(format!(
            "copying to the sandbox was cut off, and a script may have changed the same files, which are not copied back: {}",
            names.join(", ")
        )))
    }

    async fn fetch(
        &self,
        root: &Root,
        taken: (Tree, Difference),
        wanted: Vec<Name>,
    ) -> Result<(Tree, Difference), ExecError> {
        // What has gone since is missing in the archive.
        let body = format!(
            "cd {} || end {FAILED}\n\
             if tar --version 2>/dev/null | grep -q GNU; then\n\
             xargs -0 tar --hard-dereference -cf - 2>/dev/null\n\
             else\nxargs -0 tar -cf - 2>/dev/null\nfi",
            quote(&root.remote)
        );
        let [head, tail] = self.around(&self.new_id())?;
        let program = [&head, &*body, &tail].concat();
        let feed: Feed = Box::new(move |out| {
            let mut out = io::BufWriter::new(out);
            for name in wanted {
                out.write_all(b"./")?;
                out.write_all(OsStr::from_bytes(&name).as_bytes())?;
                out.write_all(b"\0")?;
            }
            out.flush()
        });
        let (local, limit) = (root.local.clone(), self.copy_limit);
        let called = call(self.shell(), program.as_bytes(), Some(feed), move |mut output| {
            let (mut remote, change) = taken;
            let unpacked =
                Pull { root: &local, remote: &remote, change: &change }.unpack(&mut output, limit);
            // The rest is read so that its writer ends with a status.
            let _ = io::copy(&mut output, &mut io::sink());
            mark_missing(&mut remote, &unpacked?);
            io::Result::Ok((remote, change))
        })
        .await;
        self.done(called)?.map_err(|error| ExecError::Workspace(error.to_string()))
    }
}

/// Where the mark of a copy is: beside it, for a script may remove everything in its working directory.
fn mark_file(root: &Root) -> String {
    format!("\"$base/.copy-{}\"", root.number)
}

/// The beginning of a program in this copy.
fn in_copy(root: &Root, mark: &str) -> Vec<u8> {
    format!(
        "cd {} && {{ read -r mark <{}; }} 2>/dev/null && [ \"$mark\" = {mark} ] || end {OTHER_COPY}\n",
        quote(&root.remote),
        mark_file(root)
    )
    .into_bytes()
}

//! Taking the files of branches into a worktree.

use crate::git::GitError;
use crate::git::tries::Tries;
use crate::git::worktree::{StageCommit, State, Worktree, text};

/// What [`Worktree::merge`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// The worktree has the files: the commit, `None` when it had them before.
    Done(Option<String>),
    /// It stays as it is: this branch, by its name, and what is in it already differ in these files.
    Conflict {
        /// The branch.
        branch: String,
        /// Their paths, sorted; bytes that are not UTF-8 are `U+FFFD`.
        files: Vec<String>,
    },
    /// It stays as it is: files in it that are not committed are in the way, as git reports them.
    Blocked(String),
}

impl Worktree {
    /// Merges these commits, of branches with these names, in their order into the worktree, in one commit. What
    /// differs from the last commit of the worktree was committed before.
    ///
    /// # Errors
    ///
    /// Git failed, or a commit is gone.
    pub async fn merge(
        &self,
        about: &StageCommit,
        branches: &[(String, String)],
    ) -> Result<Merged, GitError> {
        let mut state = self.state.lock().await;
        let mut tries = Tries::default();
        loop {
            match self.try_merge(&mut state, about, branches).await {
                Err(error) if tries.are_left(&error).await => {}
                result => return result,
            }
        }
    }

    /// The same, which may be [overtaken](GitError::is_overtaken).
    async fn try_merge(
        &self,
        state: &mut State,
        about: &StageCommit,
        branches: &[(String, String)],
    ) -> Result<Merged, GitError> {
        let mut tip = text(&self.run(&self.dir, "rev-parse", &[&self.branch]).await?);
        // That of an attempt that was not recorded: this one may take another branch.
        let own = self.parents_of_own(&tip, about).await?;
        if let Some(first) = own.filter(|own| own.len() > 1).and_then(|own| own.into_iter().next())
        {
            if let Err(message) = self.switch(state, &tip, &first).await? {
                return Ok(Merged::Blocked(message));
            }
            self.run(&self.dir, "update-ref", &[&self.branch, &first, &tip]).await?;
            tip = first;
        }
        let mut parents = vec![tip.clone()];
        let mut merged = tip.clone();
        let mut tree = None;
        for (branch, commit) in branches {
            if self.is_past(commit, &merged).await? {
                continue;
            }
            let names = ["--write-tree", "-z", "--name-only", "--no-messages", &merged, commit];
            let result = self.result_with_filters(state, "merge-tree", &names).await?;
            let made = match result {
                (Some(0), output, _) => text(&output).trim_end_matches('\0').to_owned(),
                (Some(1), output, _) => {
                    let files = conflicts(&output);
                    return Ok(Merged::Conflict { branch: branch.clone(), files });
                }
                (_, _, message) => return Err(GitError::Failed("merge-tree", message)),
            };
            parents.push(commit.clone());
            // Only the base of the next merge.
            let both = [merged, commit.clone()];
            merged = self.commit_tree(&made, &both, about).await?;
            tree = Some(made);
        }
        let Some(tree) = tree else { return Ok(Merged::Done(None)) };
        let commit = match parents.as_slice() {
            [_, _] => merged,
            _ => self.commit_tree(&tree, &parents, about).await?,
        };
        if let Err(message) = self.switch(state, &tip, &commit).await? {
            return Ok(Merged::Blocked(message));
        }
        self.run(&self.dir, "update-ref", &[&self.branch, &commit, &tip]).await?;
        state.last = Some((self.index_stamp(), commit.clone()));
        Ok(Merged::Done(Some(commit)))
    }

    /// Changes the files and the index from one commit to another; files that are not committed stay. Else
    /// what is in the way.
    async fn switch(
        &self,
        state: &mut State,
        from: &str,
        to: &str,
    ) -> Result<Result<(), String>, GitError> {
        match self.with_filters(state, "read-tree", &["-m", "-u", from, to]).await {
            Err(GitError::Failed(_, message)) => Ok(Err(message)),
            result => result.map(|_| Ok(())),
        }
    }

    pub(super) async fn is_past(&self, commit: &str, of: &str) -> Result<bool, GitError> {
        match self.run(&self.dir, "merge-base", &["--is-ancestor", commit, of]).await {
            Err(GitError::Failed(_, message)) if message.is_empty() => Ok(false),
            result => result.map(|_| true),
        }
    }
}

/// The files that `git merge-tree` lists after the tree.
fn conflicts(output: &[u8]) -> Vec<String> {
    let files = output.split(|byte| *byte == 0).skip(1).take_while(|path| !path.is_empty());
    let mut files: Vec<String> =
        files.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    files.sort();
    files.dedup();
    files
}

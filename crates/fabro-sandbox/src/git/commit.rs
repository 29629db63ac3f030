//! Committing what stages changed.

use std::fs;

use crate::git::snapshot::Snapshot;
use crate::git::status;
use crate::git::tries::{Tries, tells_of_objects};
use crate::git::work_tree::LeftFiles;
use crate::git::worktree::{StageCommit, State, Worktree, text};
use crate::git::{GitError, TRIES};

impl Worktree {
    /// Commits what a stage changed: the commit that has the files now, `None` when it changed none.
    /// The text is a warning: files that could not be read. `left` is what a `git status` after the stage
    /// has found already; without it, there is one here.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn commit(
        &self,
        about: &StageCommit,
        left: Option<LeftFiles>,
    ) -> Result<(Option<String>, Option<String>), GitError> {
        let mut state = self.state.lock().await;
        self.wait_for_lock().await;
        // Otherwise another repository may have been looked at.
        let mut left = left.filter(|_| self.is_linked());
        let mut warnings = Vec::new();
        let mut tries = Tries::default();
        let mut may_lack = false;
        let commit = loop {
            let attempt = async {
                if may_lack {
                    self.forget_added(&mut state).await?;
                }
                self.try_commit(&mut state, about, left.take(), &mut warnings).await
            };
            match attempt.await {
                Err(error) if tries.are_left(&error).await => may_lack = tells_of_objects(&error),
                result => break result?,
            }
        };
        warnings.dedup();
        Ok((commit, Some(warnings.join("; ")).filter(|text| !text.is_empty())))
    }

    /// The same, which may be [overtaken](GitError::is_overtaken). What a user is to know is added to `warnings`.
    async fn try_commit(
        &self,
        state: &mut State,
        about: &StageCommit,
        left: Option<LeftFiles>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<String>, GitError> {
        warnings.extend(self.write_link()?.map(|kept| {
            format!(
                "the stage replaced .git of the worktree: its own is kept as {}",
                kept.display()
            )
        }));
        let mut on_branch = None;
        if !about.replaces && self.is_as_before(state, left.as_ref(), &mut on_branch).await? {
            return Ok(None);
        }
        let left = match left {
            Some(LeftFiles::Changed(left)) => Some(left),
            _ => None,
        };
        state.left = None;
        let left_out = self.add_all(state).await?;
        let heads = match on_branch {
            Some(commit) => commit,
            None => self.heads(state, warnings).await?,
        };
        let (tip, head) = heads.split_once('\n').unwrap_or((&heads, &heads));
        let stamp = self.index_stamp();
        let before = state.last.as_ref().map(|(_, commit)| commit.clone());
        // That of an attempt before is not in the log.
        let own_parents = self.parents_of_own(tip, about).await?;
        let is_last = state.last.as_ref().is_some_and(|(at, it)| *at == stamp && it == tip);
        if tip == head && is_last && own_parents.is_none() {
            state.left = left.map(|left| (tip.to_owned(), left));
            warnings.extend(left_out);
            return Ok(None);
        }
        let tree = self.write_tree(state).await?;
        let of_head = match &state.tree {
            Some((commit, tree)) if commit == head => tree.clone(),
            _ => text(&self.run(&self.dir, "rev-parse", &[&format!("{head}^{{tree}}")]).await?),
        };
        let commit = if tree == of_head && tip == head && own_parents.is_none() {
            tip.to_owned()
        } else {
            let parents = self.parents(tip, head, own_parents).await?;
            let commit = self.commit_tree(&tree, &parents, about).await?;
            self.run(&self.dir, "update-ref", &[&self.branch, &commit, tip]).await?;
            if !self.is_on_branch() {
                self.run(&self.dir, "symbolic-ref", &["HEAD", &self.branch]).await?;
            }
            commit
        };
        state.tree = Some((commit.clone(), tree));
        state.left = left.map(|left| (commit.clone(), left));
        state.last = Some((stamp, commit.clone()));
        warnings.extend(left_out);
        let is_new = before.as_deref() != Some(&*commit);
        Ok(Some(commit).filter(|_| is_new))
    }

    /// The commit of the branch, then that of HEAD, a line each. A branch that a stage removed is made again, and HEAD is
    /// set to it where a stage has begun a branch without a commit.
    async fn heads(&self, state: &State, warnings: &mut Vec<String>) -> Result<String, GitError> {
        let asked = self.run(&self.dir, "rev-parse", &[&self.branch, "HEAD"]).await;
        let Err(error @ GitError::Failed(..)) = asked else { return asked.map(|it| text(&it)) };
        let tip = match (self.commit_of(&self.common, &self.branch).await?, &state.last) {
            (Some(tip), _) => tip,
            (None, Some((_, last))) => {
                // Only where there is none: it may have come back.
                self.run(&self.common, "update-ref", &[&self.branch, last, ""]).await?;
                let branch = self.branch.trim_start_matches("refs/heads/");
                warnings.push(format!("the branch {branch} was removed: it is made again"));
                last.clone()
            }
            (None, None) => return Err(error),
        };
        let head = if let Some(head) = self.commit_of(&self.dir, "HEAD").await? {
            head
        } else {
            self.run(&self.dir, "symbolic-ref", &["HEAD", &self.branch]).await?;
            tip.clone()
        };
        Ok(format!("{tip}\n{head}"))
    }

    /// Takes what differs from the commit of HEAD into the index again. Git reads no file again that has not changed since,
    /// though what it stored of it may be gone: `git prune` removes what nothing names yet.
    async fn forget_added(&self, state: &mut State) -> Result<(), GitError> {
        let arguments = ["--cached", "--name-only", "--no-renames", "-z", "HEAD"];
        let changed = self.with_filters(state, "diff-index", &arguments).await?;
        for option in ["--force-remove", "--replace"] {
            let arguments = ["-z", "--add", "--remove", option, "--stdin"];
            self.update_index(state, &arguments, &changed).await?;
        }
        Ok(())
    }

    /// Whether the last commit is that of the branch, and the files and the index are its, but for excluded files. Costs at
    /// most one `git status`; false where that cannot tell. `on_branch` is the commit that this found, of the branch.
    async fn is_as_before(
        &self,
        state: &mut State,
        left: Option<&LeftFiles>,
        on_branch: &mut Option<String>,
    ) -> Result<bool, GitError> {
        if !self.is_on_branch() {
            return Ok(false);
        }
        let Some((_, last)) = state.last.clone() else { return Ok(false) };
        match left {
            Some(LeftFiles::OfCommit(commit)) => Ok(*commit == last),
            Some(LeftFiles::Changed(now)) => {
                let is_same = |(commit, before): &(String, Box<Snapshot>)| {
                    *commit == last
                        && now.head.as_ref() == Some(commit)
                        && now.adds_nothing_to(before)
                };
                Ok(!self.exclude.is_empty() && state.left.as_ref().is_some_and(is_same))
            }
            None => {
                let mut arguments = status::ARGUMENTS.to_vec();
                arguments.extend(["--", "."]);
                arguments.extend(self.exclude.iter().filter_map(|pattern| pattern.to_str()));
                let output = self.with_filters(state, "status", &arguments).await?;
                let status = status::parse(&output)?;
                on_branch.clone_from(&status.head);
                Ok(status.head.as_ref() == Some(&last) && status.entries.is_empty())
            }
        }
    }

    fn is_on_branch(&self) -> bool {
        let head = fs::read(self.git_dir().join("HEAD"));
        head.is_ok_and(|head| head == format!("ref: {}\n", self.branch).as_bytes())
    }

    /// The parents of the last commit of the branch, where it is of this stage.
    pub(super) async fn parents_of_own(
        &self,
        tip: &str,
        about: &StageCommit,
    ) -> Result<Option<Vec<String>>, GitError> {
        if !about.replaces {
            return Ok(None);
        }
        let format = ["-1", "--no-show-signature", "--format=%P%n%(trailers:only)", tip];
        let last = text(&self.run(&self.dir, "log", &format).await?);
        let (parents, trailers) = last.split_once('\n').unwrap_or((&last, ""));
        let is_own = trailers.trim() == about.trailers;
        Ok(is_own.then(|| parents.split(' ').map(str::to_owned).collect()))
    }

    /// The parents of the next commit, in place of the last one where that is the stage's own. A stage may
    /// have made commits itself, on another branch too.
    async fn parents(
        &self,
        tip: &str,
        head: &str,
        own_parents: Option<Vec<String>>,
    ) -> Result<Vec<String>, GitError> {
        if tip == head {
            return Ok(own_parents.unwrap_or_else(|| vec![tip.to_owned()]));
        }
        let parents = if self.is_past(tip, head).await? {
            vec![head]
        } else if self.is_past(head, tip).await? {
            vec![tip]
        } else {
            vec![tip, head]
        };
        Ok(parents.into_iter().map(str::to_owned).collect())
    }

    /// Git compares contents of files here too: those that changed when the index was written.
    pub(super) async fn write_tree(&self, state: &mut State) -> Result<String, GitError> {
        Ok(text(&self.with_filters(state, "write-tree", &[]).await?))
    }

    pub(super) async fn commit_tree(
        &self,
        tree: &str,
        parents: &[String],
        stage: &StageCommit,
    ) -> Result<String, GitError> {
        let mut arguments = vec![tree];
        arguments.extend(parents.iter().flat_map(|parent| ["-p", parent]));
        arguments.extend(["-m", &stage.subject, "-m", &stage.trailers]);
        Ok(text(&self.run(&self.dir, "commit-tree", &arguments).await?))
    }

    /// Puts all files into the index of the worktree.
    pub(super) async fn add_all(&self, state: &mut State) -> Result<Option<String>, GitError> {
        let mut arguments = vec!["--all", "--ignore-errors", "--", "."];
        arguments.extend(self.exclude.iter().filter_map(|pattern| pattern.to_str()));
        let mut tries = 1;
        loop {
            match self.with_filters(state, "add", &arguments).await {
                Err(error) if tries < TRIES && error.is_overtaken() => tries += 1,
                // The others were added.
                Err(GitError::Failed(_, message)) if !message.contains("fatal:") => {
                    return Ok(Some(format!("not committed: {}", message.replace('\n', "; "))));
                }
                result => return result.map(|_| None),
            }
        }
    }
}

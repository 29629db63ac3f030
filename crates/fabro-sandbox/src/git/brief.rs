//! A work tree in a few lines.

use std::fmt::Write as _;
use std::path::Path;

use crate::git::GitError;
use crate::git::configuration;
use crate::git::run::{git, with_timeout};

/// How many changed files are named, and how many commits.
const FILES: usize = 20;
const COMMITS: &str = "-5";

/// Submodules are compared by their commits: git would run another git in each of them.
const DIFF: [&str; 4] =
    ["--name-only", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"];

/// The longest line, in characters.
const LINE: usize = 120;

/// The branch, the changed files and the last commits around a directory, in a few lines; `None` outside of
/// a work tree, and where there is no git. Files that were only touched count as changed.
pub async fn brief(dir: &Path) -> Option<String> {
    with_timeout(async { Ok::<_, GitError>(read(dir).await) }).await.ok().flatten()
}

async fn read(dir: &Path) -> Option<String> {
    let filters = configuration::filters(dir, dir).await.ok()?;
    let list = async |command, arguments: &[&str]| {
        let output = git(dir, &filters, command, arguments, None).await.ok()?;
        let text = String::from_utf8_lossy(&output).into_owned();
        let lines = text.lines().map(|line| line.chars().take(LINE).collect::<String>());
        Some(lines.collect::<Vec<_>>())
    };
    let untracked = ["--others", "--exclude-standard", "--directory", "--no-empty-directory"];
    let untracked = list("ls-files", &untracked).await?;
    let branch = list("symbolic-ref", &["--short", "-q", "HEAD"]).await.unwrap_or_default();
    let branch = branch.first().map_or("none, HEAD is detached", String::as_str);
    let mut changed = list("diff-files", &DIFF).await.unwrap_or_default();
    // Before the first commit there is nothing to compare with.
    let staged = [DIFF.as_slice(), &["--cached", "HEAD"]].concat();
    changed.extend(list("diff-index", &staged).await.unwrap_or_default());
    changed.sort();
    changed.dedup();
    let log = [COMMITS, "--no-show-signature", "--no-decorate", "--format=%h %s"];
    let commits = list("log", &log).await.unwrap_or_default();
    let mut text = format!("Git branch: {branch}.");
    for (name, files) in [("Changed", changed), ("Untracked", untracked)] {
        if !files.is_empty() {
            let more = if files.len() > FILES { ", …" } else { "" };
            let shown = files[..files.len().min(FILES)].join(", ");
            let _ = write!(text, "\n{name} files ({}): {shown}{more}", files.len());
        }
    }
    if !commits.is_empty() {
        let _ = write!(text, "\nLast commits:\n- {}", commits.join("\n- "));
    }
    Some(text)
}

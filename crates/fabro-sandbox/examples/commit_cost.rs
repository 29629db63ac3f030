//! What the commit of a stage costs beside `git add -A && git commit` of the same change by plumbing, and a stage
//! that changed nothing beside one `git status` there. A line each time: `changed` or `same`, the nanoseconds of git, and
//! those of the worktree. `cargo xtask bench worktree` uses it.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fabro_sandbox::git::{Author, StageCommit, Worktree};

const DIRS: usize = 20;
const FILES: usize = 50;
const TIMES: usize = 15;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let top = dir.path().join("repository");
    for number in 0..DIRS {
        let dir = top.join(format!("module-{number}"));
        fs::create_dir_all(&dir)?;
        for file in 0..FILES {
            fs::write(dir.join(format!("file-{file}.rs")), format!("{number} {file}\n"))?;
        }
    }
    git(&top, &["init", "--quiet"])?;
    plumbing_commit(&top)?;
    let head = git(&top, &["rev-parse", "HEAD"])?;
    let author = Author { name: "n".to_owned(), email: "e@example.org".to_owned() };
    let place = dir.path().join("worktree");
    let marker = ("FABRO_RUN_ID", "bench");
    let worktree = Worktree::new(&top, &place, "fabro/run/bench", author, &[], marker).await?;
    worktree.restore(&head, false).await?;
    worktree.known(&head).await;
    let about = StageCommit {
        subject: "fabro(bench): stage (succeeded)".to_owned(),
        trailers: "Fabro-Run: bench".to_owned(),
        replaces: false,
    };
    let mut out = io::stdout().lock();
    for number in 0..TIMES {
        for dir in [&top, &place] {
            fs::write(dir.join("module-1/file-1.rs"), format!("change {number}\n"))?;
        }
        let began = Instant::now();
        plumbing_commit(&top)?;
        let bare = began.elapsed();
        let began = Instant::now();
        let (commit, _) = worktree.commit(&about, None).await?;
        line(&mut out, "changed", bare, began.elapsed())?;
        assert!(commit.is_some(), "a file changed");
        // Neither is always the first to look at the files.
        let mut bare = Duration::ZERO;
        let mut own = Duration::ZERO;
        for is_bare in [number % 2 == 0, number % 2 == 1] {
            let began = Instant::now();
            if is_bare {
                git(&place, &["status", "--porcelain"])?;
                bare = began.elapsed();
            } else {
                let (commit, _) = worktree.commit(&about, None).await?;
                own = began.elapsed();
                assert!(commit.is_none(), "no file changed");
            }
        }
        line(&mut out, "same", bare, own)?;
    }
    Ok(())
}

fn line(out: &mut impl Write, what: &str, bare: Duration, own: Duration) -> io::Result<()> {
    writeln!(out, "{what} {} {}", bare.as_nanos(), own.as_nanos())
}

/// `git add -A && git commit` by plumbing.
fn plumbing_commit(top: &Path) -> Result<(), Box<dyn Error>> {
    git(top, &["add", "--all"])?;
    let tree = git(top, &["write-tree"])?;
    let head = git(top, &["rev-parse", "--verify", "--quiet", "HEAD"]).ok();
    let mut commit = vec!["commit-tree", &tree, "-m", "change"];
    commit.extend(head.iter().flat_map(|head| ["-p", head.as_str()]));
    let commit = git(top, &commit)?;
    git(top, &["update-ref", "HEAD", &commit])?;
    Ok(())
}

fn git(top: &Path, args: &[&str]) -> Result<String, Box<dyn Error>> {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=n", "-c", "user.email=e@example.org"]).args(args).current_dir(top);
    let output = git.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

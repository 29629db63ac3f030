//! Commits in the worktree of a run while other git commands work in it.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;

use super::{repository, sh};
use crate::git::*;

struct Scene {
    repository: TempDir,
    run: TempDir,
    worktree: Worktree,
}

impl Scene {
    async fn new() -> Self {
        let repository = repository();
        let run = tempfile::tempdir().unwrap();
        let author = Author { name: "Test".to_owned(), email: "test@localhost".to_owned() };
        let dir = run.path().join("worktree");
        let marker = ("FABRO_RUN_ID", "01TEST");
        let made =
            Worktree::new(repository.path(), &dir, "fabro/run/01TEST", author, &[], marker).await;
        let worktree = made.unwrap();
        let base = Repository::find(repository.path()).await.unwrap().unwrap().head.unwrap();
        worktree.restore(&base, false).await.unwrap();
        Self { repository, run, worktree }
    }

    fn lock(&self, name: &str) -> PathBuf {
        self.repository.path().join(".git/worktrees/01TEST").join(name)
    }

    fn dir(&self) -> PathBuf {
        self.run.path().join("worktree")
    }

    /// Writes a file, and commits it as a stage.
    async fn commit(&self, file: &str) -> Option<String> {
        fs::write(self.dir().join(file), file).unwrap();
        let committed = self.worktree.commit(&about(file), None).await;
        let (commit, warning) = committed.unwrap();
        assert_eq!(warning, None);
        commit
    }
}

fn about(subject: &str) -> StageCommit {
    let trailers = "Fabro-Run: 01TEST".to_owned();
    StageCommit { subject: subject.to_owned(), trailers, replaces: false }
}

/// Takes and releases a lock as git does, until it is to end: how often.
fn take_in_turn(lock: &Path, end: &Arc<AtomicBool>) -> JoinHandle<u32> {
    let (lock, end) = (lock.to_owned(), Arc::clone(end));
    thread::spawn(move || {
        let mut taken = 0;
        while !end.load(Ordering::Relaxed) {
            if OpenOptions::new().write(true).create_new(true).open(&lock).is_ok() {
                taken += 1;
                thread::sleep(Duration::from_millis(15));
                fs::remove_file(&lock).unwrap();
            }
            thread::sleep(Duration::from_millis(3));
        }
        taken
    })
}

#[tokio::test]
async fn a_commit_waits_for_the_git_commands_of_a_stage_beside() {
    let scene = Scene::new().await;
    let end = Arc::default();
    let beside = ["index.lock", "HEAD.lock"].map(|name| take_in_turn(&scene.lock(name), &end));
    for number in 0..6 {
        assert!(scene.commit(&format!("{number}.txt")).await.is_some());
    }
    end.store(true, Ordering::Relaxed);
    for beside in beside {
        assert!(beside.join().unwrap() > 6);
    }
    sh(&scene.dir(), "test $(git log --oneline | wc -l) = 7; git diff --exit-code HEAD");
}

#[tokio::test]
async fn a_stage_beside_may_commit_in_the_same_worktree() {
    const TRIES: u32 = 40;
    let scene = Scene::new().await;
    sh(&scene.dir(), "git checkout -q -b other; echo 1 >other; git add .; git commit -qm other");
    let other = scene.worktree.commit_of(&scene.dir(), "other").await.unwrap().unwrap();
    sh(&scene.dir(), "git checkout -q fabro/run/01TEST");
    let tries: Arc<AtomicU32> = Arc::default();
    let beside = {
        let (dir, tries) = (scene.dir(), Arc::clone(&tries));
        thread::spawn(move || {
            while tries.load(Ordering::Relaxed) < TRIES {
                // Refused while the index is locked.
                let commit = "git commit -q --allow-empty -m beside 2>/dev/null || true";
                sh(&dir, &format!("mkdir d; touch d/1 d/2 d/3; {commit}; sleep 0.02; rm -r d"));
                tries.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let mut number = 0;
    while tries.load(Ordering::Relaxed) < TRIES / 2 {
        scene.commit(&format!("{number}.txt")).await;
        number += 1;
    }
    let merged = scene.worktree.merge(&about("merge"), &[("other".to_owned(), other)]).await;
    assert!(matches!(merged.unwrap(), Merged::Done(Some(_))));
    beside.join().unwrap();
    scene.commit("end.txt").await;
    let check = "test $(git log --oneline --grep beside | wc -l) -gt 0; git diff --exit-code HEAD";
    sh(
        &scene.dir(),
        &format!("test $(git ls-files '*.txt' other | wc -l) = {}; {check}", number + 2),
    );
}

#[tokio::test]
async fn the_lock_of_a_dead_command_is_removed() {
    let scene = Scene::new().await;
    let lock = fs::File::create(scene.lock("index.lock")).unwrap();
    lock.set_modified(SystemTime::now() - Duration::from_hours(1)).unwrap();
    let begun = Instant::now();
    assert!(scene.commit("a.txt").await.is_some());
    // Not the half minute that a new lock is waited for.
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(!scene.lock("index.lock").exists());
}

#[tokio::test]
async fn a_stage_may_begin_a_branch_without_a_commit() {
    let scene = Scene::new().await;
    scene.commit("a.txt").await.unwrap();
    sh(&scene.dir(), "git checkout -q --orphan other");
    assert!(scene.commit("b.txt").await.is_some());
    sh(
        &scene.dir(),
        "test $(git branch --show-current) = fabro/run/01TEST; test $(git log --oneline | wc -l) = 3",
    );
    sh(&scene.dir(), "git diff --exit-code HEAD; git ls-files --error-unmatch a.txt b.txt");
}

#[tokio::test]
async fn a_branch_that_a_stage_removed_is_made_again() {
    let scene = Scene::new().await;
    let first = scene.commit("a.txt").await.unwrap();
    sh(&scene.dir(), "git checkout -q --detach; git branch -q -D fabro/run/01TEST; echo b >b.txt");
    let (commit, warning) = scene.worktree.commit(&about("b"), None).await.unwrap();
    let expected = "the branch fabro/run/01TEST was removed: it is made again";
    assert_eq!(warning.as_deref(), Some(expected));
    let check = format!("test $(git rev-parse HEAD~1) = {first}; git log {}", commit.unwrap());
    sh(&scene.dir(), &format!("{check}; test $(git branch --show-current) = fabro/run/01TEST"));
}

#[tokio::test]
async fn what_git_removed_before_it_was_committed_is_stored_again() {
    let scene = Scene::new().await;
    scene.commit("a.txt").await.unwrap();
    // As `git prune` does when it began before the file was added.
    let remove = "id=$(git rev-parse :b.txt | sed 's|..|&/|'); rm -f $(git rev-parse --git-path objects)/$id";
    sh(&scene.dir(), &format!("echo new >b.txt; touch -d @1 b.txt; git add b.txt; {remove}"));
    let (commit, warning) = scene.worktree.commit(&about("b"), None).await.unwrap();
    assert_eq!(warning, None);
    sh(&scene.dir(), &format!("test $(git show {}:b.txt) = new; git fsck", commit.unwrap()));
}

#[tokio::test]
async fn a_place_for_objects_may_be_missing_for_a_moment() {
    let scene = Scene::new().await;
    // That of the next tree, which has no other object in it.
    sh(
        &scene.dir(),
        "objects=$(git rev-parse --git-path objects)
        for number in 1 2 3 4 5 6 7 8 9; do
            echo $number >a.txt; git add a.txt; place=$(git write-tree | cut -c1-2)
            rm -f $objects/$(git write-tree | sed 's|..|&/|')
            if rmdir $objects/$place; then break; fi
        done
        touch $objects/$place; echo $objects/$place >../place",
    );
    let place = fs::read_to_string(scene.run.path().join("place")).unwrap();
    let beside = thread::spawn(move || {
        thread::sleep(Duration::from_millis(400));
        fs::remove_file(place.trim_end()).unwrap();
    });
    let (commit, warning) = scene.worktree.commit(&about("a"), None).await.unwrap();
    assert!(commit.is_some());
    assert_eq!(warning, None);
    beside.join().unwrap();
    sh(&scene.dir(), "git fsck; git diff --exit-code HEAD");
}

#[tokio::test]
async fn a_file_may_become_a_directory_meanwhile() {
    let scene = Scene::new().await;
    let end: Arc<AtomicBool> = Arc::default();
    let beside = {
        let (dir, end) = (scene.dir(), Arc::clone(&end));
        thread::spawn(move || {
            let [d, e] = ["d", "e"].map(|name| dir.join(name));
            fs::create_dir_all(d.join("d")).unwrap();
            (0..50).for_each(|name| fs::write(d.join(format!("d/{name}")), "").unwrap());
            while !end.load(Ordering::Relaxed) {
                fs::rename(&d, &e).unwrap();
                fs::write(&d, "").unwrap();
                thread::sleep(Duration::from_millis(1));
                fs::remove_file(&d).unwrap();
                fs::rename(&e, &d).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        })
    };
    for number in 0..20 {
        fs::write(scene.dir().join(format!("{number}.txt")), "").unwrap();
        assert!(scene.worktree.commit(&about("stage"), None).await.unwrap().0.is_some());
    }
    end.store(true, Ordering::Relaxed);
    beside.join().unwrap();
}

//! Trees of a user's work tree.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{repository, sh};
use crate::git::*;

/// What of the user's repository must not change, as text.
fn own(dir: &Path) -> Vec<u8> {
    let script = "git status --porcelain; git config -l --local; git stash list; git rev-parse HEAD || true; \
        find .git -type f | sort | xargs cat | sha256sum";
    let output = std::process::Command::new("sh").args(["-c", script]).current_dir(dir).output();
    output.unwrap().stdout
}

struct Scene {
    run: tempfile::TempDir,
    trees: FileTrees,
}

impl Scene {
    fn new(exclude: &[&str]) -> Self {
        let run = tempfile::tempdir().unwrap();
        let exclude: Vec<String> = exclude.iter().map(ToString::to_string).collect();
        let trees = FileTrees::new(run.path(), ("MARK", "run"), &exclude);
        Self { run, trees }
    }

    async fn record(&self, dir: &Path) -> FileTree {
        let snapshot = Snapshot::take(dir).await.unwrap().unwrap();
        self.trees.record(&Arc::new(snapshot)).await.unwrap()
    }

    async fn patch(&self, from: &FileTree, to: &FileTree, style: PatchStyle) -> String {
        let source = PatchSource::of_run(self.run.path());
        let patch = patch(&source, &from.id, &to.id, style).await.unwrap();
        assert_eq!(patch.damage, None);
        String::from_utf8_lossy(&patch.text).into_owned()
    }
}

/// What the second script changed after the first, as the paths of the patch, by letters as of git; that the tree has
/// the files is checked by git itself.
async fn check(before: &str, script: &str, expect: &str) {
    let dir = repository();
    let dir = dir.path();
    sh(dir, before);
    let scene = Scene::new(&[]);
    let first = scene.record(dir).await;
    assert_eq!(scene.record(dir).await.id, first.id, "nothing changed");
    sh(dir, script);
    let user = own(dir);
    let second = scene.record(dir).await;
    assert_eq!(own(dir), user, "{script}");
    let changes = scene.run.path().join(CHANGES);
    let names = |from: &str, to: &str| {
        let names = format!("git diff-tree -r --name-status {from} {to} | tr '\\t\\n' ' ;'");
        let mut git = std::process::Command::new("sh");
        let output = git.args(["-c", &names]).env("GIT_DIR", &changes).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(names(&first.id, &second.id), expect, "{before} / {script}");
    // Git agrees about all the files, those that never changed too.
    sh(dir, "git add -A 2>/dev/null");
    let tree =
        std::process::Command::new("git").arg("write-tree").current_dir(dir).output().unwrap();
    assert_eq!(String::from_utf8(tree.stdout).unwrap().trim(), second.id, "{before} / {script}");
    let borrowed = dir.join(".git/objects");
    let fsck = format!(
        "export GIT_DIR=. GIT_ALTERNATE_OBJECT_DIRECTORIES={}; git fsck --strict --no-dangling 2>&1 | \
         grep -v '^notice' >problems || true; ! grep -v 'unborn\\|No default' problems",
        borrowed.display()
    );
    sh(&changes, &fsck);
}

#[tokio::test]
async fn every_kind_of_change_is_in_the_tree() {
    check("", "echo x >>a; echo n >new; rm sub/b", "M a;A new;D sub/b;").await;
    check("echo edited >>a; echo u >untracked", "echo x >>a", "M a;").await;
    check(
        "echo edited >>a; echo u >untracked",
        "git checkout -q a; rm untracked",
        "M a;D untracked;",
    )
    .await;
    // Staged, and another content in the work tree.
    check("echo s >>a; git add a; echo w >>a", "echo x >>a; git add a", "M a;").await;
    check("git mv a b2; git rm -q --cached sub/b", "echo x >>sub/b", "M sub/b;").await;
    // Kinds: a mode, a link, a directory in place of a file and the other way round.
    check(
        "",
        "chmod +x a; ln -s a link; rm -r sub; echo f >sub",
        "M a;A link;A sub;D sub/b;D sub/deep/c;",
    )
    .await;
    check(
        "",
        "rm a; mkdir a; echo in >a/in; rm -r sub/deep; mkfifo sub/deep",
        "D a;A a/in;D sub/deep/c;",
    )
    .await;
    check(
        "",
        "mv sub other; ln -s other sub",
        "A other/b;A other/deep/c;A sub;D sub/b;D sub/deep/c;",
    )
    .await;
    // Commits, and other branches, of a stage itself.
    check("", "echo x >>a; git commit -qam two; echo y >new", "M a;A new;").await;
    check(
        "",
        "git checkout -q -b other; git rm -qr sub; git commit -qm gone",
        "D sub/b;D sub/deep/c;",
    )
    .await;
    check("echo e >>a", "git stash -q; echo n >n", "M a;A n;").await;
    // What git ignores does not count.
    check("", "echo x >x.ignored; echo y >y", "A y;").await;
    // The same size, within the second in which the index was written.
    check("", "printf 'b\\n' >a", "M a;").await;
}

#[tokio::test]
async fn names_and_indexes_may_be_odd() {
    check(
        "",
        "printf x >'a\nb \"c\" $d'; printf y >\"$(printf '\\377\\376')\"",
        "A \"a\\nb \\\"c\\\" $d\";A \"\\377\\376\";",
    )
    .await;
    check("echo n >n; git add -N n", "echo x >>n", "M n;").await;
    check("git update-index --split-index", "echo x >>a; echo n >n", "M a;A n;").await;
    check("git config core.splitIndex true; git update-index --split-index", "echo x >>a", "M a;")
        .await;
    check(
        "git config core.autocrlf true; printf 'a\\r\\nb\\r\\n' >crlf",
        "printf 'c\\r\\n' >>crlf",
        "M crlf;",
    )
    .await;
    // In the middle of a merge.
    check(
        "git checkout -q -b b; echo b >a; git commit -qam b; git checkout -q main; echo c >a; git commit -qam c; git merge -q b || true",
        "echo both >a",
        "M a;",
    )
    .await;
}

#[tokio::test]
async fn repositories_of_any_kind() {
    let formats =
        ["--object-format=sha256", "--ref-format=files", "--separate-git-dir=$PWD/../other"];
    for format in formats {
        let above = tempfile::tempdir().unwrap();
        let dir = above.path().join("work");
        std::fs::create_dir(&dir).unwrap();
        sh(&dir, &format!("git init -q {format} . && echo a >a"));
        let scene = Scene::new(&[]);
        // Before the first commit.
        let first = scene.record(&dir).await;
        sh(&dir, "git add a; git commit -qm one; echo b >>a");
        let second = scene.record(&dir).await;
        let stat = scene.patch(&first, &second, PatchStyle::Stat).await;
        assert!(stat.contains("1 file changed, 1 insertion(+)"), "{format}: {stat}");
    }
}

#[tokio::test]
async fn below_a_directory_of_the_work_tree() {
    let dir = repository();
    let scene = Scene::new(&["sub/*.log"]);
    let sub = dir.path().join("sub");
    let first = scene.record(&sub).await;
    sh(dir.path(), "echo x >>a; echo x >>sub/b; echo l >sub/x.log; echo l >sub/deep/x.log");
    let second = scene.record(&sub).await;
    let stat = scene.patch(&first, &second, PatchStyle::Stat).await;
    insta::assert_snapshot!(stat, @r"
     sub/b          | 1 +
     sub/deep/x.log | 1 +
     2 files changed, 2 insertions(+)
    ");
}

#[tokio::test]
async fn what_is_too_large_is_left_out_and_named() {
    let dir = repository();
    let dir = dir.path();
    let scene = Scene::new(&[]);
    let first = scene.record(dir).await;
    sh(
        dir,
        "truncate -s 10485760 limit; truncate -s 10485761 over; mkfifo pipe; git init -q inner",
    );
    let second = scene.record(dir).await;
    assert_eq!(
        second.left_out,
        ["inner: it is a repository", "over: it has 10485761 bytes, more than 10485760"]
    );
    let stat = scene.patch(&first, &second, PatchStyle::Stat).await;
    assert_eq!(stat.lines().next().unwrap(), " limit | Bin 0 -> 10485760 bytes");
    // Five files of 10 MiB fit exactly; a sixth does not of any size.
    sh(dir, "for n in 1 2 3 4 5; do truncate -s 10485760 more$n; done; echo x >more6; : >more7");
    let third = scene.record(dir).await;
    assert_eq!(third.left_out, ["more6: too much has changed at once"]);
    let stat = scene.patch(&second, &third, PatchStyle::Stat).await;
    assert_eq!(stat.lines().count(), 7, "{stat}");
    sh(dir, "for n in $(seq 20 39); do truncate -s 10485761 over$n; done");
    let fourth = scene.record(dir).await;
    assert_eq!((fourth.left_out.len(), fourth.left_out[10].as_str()), (11, "10 more"));
}

#[tokio::test]
async fn a_driver_that_continues_knows_the_trees_before_stages() {
    let dir = repository();
    let scene = Scene::new(&[]);
    assert!(scene.trees.remembered().unwrap().is_empty());
    let first = scene.record(dir.path()).await;
    for (stage, tree) in [("a 1", "old"), ("b 2", "other"), ("a 1", &*first.id)] {
        scene.trees.remember(stage, tree).unwrap();
    }
    let next = FileTrees::new(scene.run.path(), ("MARK", "run"), &[]);
    let cut = scene.run.path().join(CHANGES).join("before");
    let text = std::fs::read_to_string(&cut).unwrap() + "abc b 2";
    std::fs::write(&cut, text).unwrap();
    let expect = [("a 1", &*first.id), ("b 2", "other")];
    let expect = expect.map(|(stage, tree)| (stage.to_owned(), tree.to_owned()));
    assert_eq!(next.remembered().unwrap(), expect.into());
    // Killed while git wrote the index.
    std::fs::write(scene.run.path().join(CHANGES).join("index.lock"), "").unwrap();
    let snapshot = Arc::new(Snapshot::take(dir.path()).await.unwrap().unwrap());
    assert_eq!(next.record(&snapshot).await.unwrap(), first);
}

#[tokio::test]
async fn forks_and_sub_workflows_read_the_trees() {
    let dir = repository();
    let scene = Scene::new(&[]);
    let runs = tempfile::tempdir().unwrap();
    let run = |name: &str| runs.path().join(name);
    std::fs::create_dir(run("first")).unwrap();
    let trees = FileTrees::new(&run("first"), ("MARK", "run"), &[]);
    let tree = async |trees: &FileTrees| {
        let snapshot = Snapshot::take(dir.path()).await.unwrap().unwrap();
        trees.record(&Arc::new(snapshot)).await.unwrap().id
    };
    let before = tree(&trees).await;
    sh(dir.path(), "echo x >>a");
    let after = tree(&trees).await;
    trees.lend_to(&run("child")).unwrap();
    share_file_trees(&run("first"), &run("fork")).unwrap();
    let read = async |name: &str| {
        let source = PatchSource::of_run(&run(name));
        patch(&source, &before, &after, PatchStyle::Patch).await.map(|patch| patch.text.len())
    };
    let size = read("first").await.unwrap();
    assert!(size > 0);
    assert_eq!(read("child").await.unwrap(), size);
    std::fs::remove_dir_all(run("first")).unwrap();
    assert_eq!(read("fork").await.unwrap(), size);
    assert!(read("child").await.is_err());
    // A run without trees has none to share.
    share_file_trees(scene.run.path(), &run("other")).unwrap();
    assert!(!run("other").exists());
}

/// Removes everything from a repository that none of its references has.
const GC: &str =
    "git reflog expire --expire=now --all; git gc -q --prune=now; git prune --expire=now";

#[tokio::test]
async fn what_git_removes_from_the_repository_is_still_known() {
    let dir = repository();
    let dir = dir.path();
    let scene = Scene::new(&[]);
    // Contents that only the index had, of a commit that is replaced, and of a branch that is deleted.
    sh(
        dir,
        "echo staged >>a; git add a; git commit -qm two; echo indexed >>a; git add a; echo n >n; git add n",
    );
    let mut trees = vec![scene.record(dir).await];
    for script in [
        "echo later >>a; git add a",
        "git rm -qf n; echo x >>sub/b; git add -A; git commit -qm three",
        "git commit -q --amend -m amended; git checkout -q -b other; echo o >o; git add o; git commit -qm o",
        "git checkout -q main; git branch -qD other; git reset -q --hard HEAD^",
        "rm -rf sub; git commit -qam gone",
    ] {
        sh(dir, script);
        trees.push(scene.record(dir).await);
    }
    assert!(trees.iter().all(|tree| tree.left_out.is_empty()), "{trees:?}");
    let patches = async || {
        let mut patches = Vec::new();
        for (from, to) in trees.iter().flat_map(|from| trees.iter().map(move |to| (from, to))) {
            patches.push(scene.patch(from, to, PatchStyle::Patch).await);
        }
        patches
    };
    let before = patches().await;
    sh(dir, &format!("git reset -q --hard HEAD~1; {GC}"));
    assert_eq!(patches().await, before);
    std::fs::remove_dir_all(dir.join(".git")).unwrap();
    assert_eq!(patches().await, before);
    assert!(before[1].contains("+later") && before[0].is_empty(), "{}", before[1]);
}

/// By the stage itself, or by a person while the run waits.
#[tokio::test]
async fn what_git_removes_before_it_is_kept_is_named() {
    let dir = repository();
    let dir = dir.path();
    let scene = Scene::new(&[]);
    sh(dir, "echo indexed >>a; git add a");
    let first = scene.record(dir).await;
    sh(dir, &format!("echo x >a; echo x >>sub/b; git add -A; {GC}"));
    let second = scene.record(dir).await;
    assert_eq!(second.left_out, ["a: git has removed what it was before"]);
    let stat = scene.patch(&first, &second, PatchStyle::Stat).await;
    insta::assert_snapshot!(stat, @r"
    # a: git has removed a content
     sub/b | 1 +
     1 file changed, 1 insertion(+)
    ");
    // The trees of a commit that it began with.
    let scene = Scene::new(&[]);
    sh(dir, "git commit -qam two");
    let third = scene.record(dir).await;
    sh(dir, &format!("git checkout -q HEAD^; git branch -qD main; echo z >>sub/deep/c; {GC}"));
    let fourth = scene.record(dir).await;
    assert_eq!(fourth.left_out.len(), 1, "{fourth:?}");
    assert!(fourth.left_out[0].starts_with("what was there before cannot be kept: git diff-tree"));
    let source = PatchSource::of_run(scene.run.path());
    let error = patch(&source, &third.id, &fourth.id, PatchStyle::Stat).await.unwrap_err();
    assert!(matches!(error, GitError::Failed(..)), "{error}");
    // The next changes are known.
    sh(dir, "echo y >>a; git add a");
    let fifth = scene.record(dir).await;
    assert_eq!(fifth.left_out, [""; 0]);
    assert!(scene.patch(&fourth, &fifth, PatchStyle::Patch).await.contains("+y"));
}

#[tokio::test]
async fn objects_of_many_changes_are_packed() {
    let dir = repository();
    let dir = dir.path();
    let scene = Scene::new(&[]);
    let first = scene.record(dir).await;
    let files = || {
        let list = "find objects -type f | wc -l";
        let output = std::process::Command::new("sh")
            .args(["-c", list])
            .current_dir(scene.run.path().join(CHANGES))
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().parse::<usize>().unwrap()
    };
    let change = async |number: usize| {
        std::fs::write(dir.join("sub/deep/c"), number.to_string()).unwrap();
        scene.record(dir).await
    };
    let second = change(0).await;
    let patch = scene.patch(&first, &second, PatchStyle::Patch).await;
    // As if there had been many changes before.
    let changes = scene.run.path().join(CHANGES);
    sh(
        &changes,
        "mkdir many; for n in $(seq 3000); do echo $n >many/$n; done; \
         ls many/* | GIT_DIR=. git hash-object -w --stdin-paths >many/ids; rm -r many",
    );
    let before = files();
    let third = change(1).await;
    assert_eq!(third.warning, None);
    assert!(before > 3_000 && files() < 20, "{before} {}", files());
    assert_eq!(scene.patch(&first, &second, PatchStyle::Patch).await, patch);
    assert!(scene.patch(&second, &third, PatchStyle::Patch).await.contains("+1"));
}

#[tokio::test]
async fn files_may_change_while_they_are_recorded() {
    let dir = repository();
    let end: Arc<AtomicBool> = Arc::default();
    let beside = {
        let (file, end) = (dir.path().join("made"), Arc::clone(&end));
        std::thread::spawn(move || {
            let content = vec![b'x'; 1 << 20];
            while !end.load(Ordering::Relaxed) {
                std::fs::write(&file, &content).unwrap();
                std::fs::write(&file, "").unwrap();
                std::fs::remove_file(&file).unwrap();
                std::fs::write(&file, "short").unwrap();
                std::thread::sleep(Duration::from_millis(2));
                std::fs::remove_file(&file).unwrap();
                mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap();
                std::thread::sleep(Duration::from_millis(2));
                std::fs::remove_file(&file).unwrap();
            }
        })
    };
    let scene = Scene::new(&[]);
    for _ in 0..60 {
        scene.record(dir.path()).await;
    }
    end.store(true, Ordering::Relaxed);
    beside.join().unwrap();
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_does_not_block() {
    let dir = repository();
    sh(dir.path(), "echo 1 > a; git add a; git commit -qm a");
    for file in ["HEAD", "config", "index", "last", "before"] {
        let scene = Scene::new(&[]);
        let tree = scene.record(dir.path()).await;
        let changes = scene.run.path().join(CHANGES);
        sh(&changes, &format!("rm -f {file}; mkfifo {file}"));
        // As another driver of the run does it.
        let trees = FileTrees::new(scene.run.path(), ("MARK", "run"), &[]);
        let snapshot = Snapshot::take(dir.path()).await.unwrap().unwrap();
        let source = PatchSource::of_run(scene.run.path());
        let errors = [
            trees.remembered().map(drop),
            trees.remember("a@1", &tree.id),
            trees.record(&Arc::new(snapshot)).await.map(drop),
            patch(&source, &tree.id, &"0".repeat(40), PatchStyle::Patch).await.map(drop),
        ];
        for error in errors {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("is not a regular file"), "{file}: {error}");
        }
        // Why nothing more is recorded can still be said.
        let why = incomplete_file_trees(scene.run.path()).unwrap();
        assert!(why.contains("is not a regular file"), "{file}: {why}");
        sh(&changes, "rm -f incomplete incomplete.new last.new; mkfifo incomplete incomplete.new");
        trees.note_incomplete("damaged").unwrap();
        assert_eq!(std::fs::read_to_string(changes.join("incomplete")).unwrap(), "damaged");
    }
}

#[tokio::test]
async fn a_link_in_the_place_of_the_repository_leads_to_no_change() {
    let dir = repository();
    sh(dir.path(), "echo staged >staged; git add staged");
    let scene = Scene::new(&[]);
    let git = dir.path().join(".git");
    std::os::unix::fs::symlink(&git, scene.run.path().join(CHANGES)).unwrap();
    let before = own(dir.path());
    let snapshot = Snapshot::take(dir.path()).await.unwrap().unwrap();
    let recorded = scene.trees.record(&Arc::new(snapshot)).await;
    for error in [recorded.map(drop), scene.trees.note_incomplete("reason")] {
        let error = error.unwrap_err().to_string();
        assert!(error.ends_with("/changes is a link, not a directory"), "{error}");
    }
    assert_eq!(own(dir.path()), before);
}

/// A repository of a run with three trees: of the loose objects of one that changed `a`, or of packs.
async fn stored(is_packed: bool) -> (tempfile::TempDir, Scene, [String; 3]) {
    let dir = repository();
    let scene = Scene::new(&[]);
    let mut ids = Vec::new();
    for script in ["true", "seq 300 >>a; seq 9 >>sub/b", "seq 400 >a; seq 500 >sub/b"] {
        sh(dir.path(), script);
        ids.push(scene.record(dir.path()).await.id);
    }
    if is_packed {
        let changes = scene.run.path().join(CHANGES);
        let pack = "GIT_DIR=. git cat-file --batch-all-objects --batch-check='%(objectname)' | \
            GIT_DIR=. git pack-objects -q --window=0 objects/pack/pack; GIT_DIR=. git prune-packed -q; \
            rm -f $(ls objects/pack/* | grep -v $(ls -S objects/pack/*.pack | head -1 | cut -d. -f1))";
        sh(&changes, pack);
    }
    (dir, scene, ids.try_into().unwrap())
}

fn pairs(ids: &[String; 3]) -> [TreePair<'_>; 2] {
    let pair = |stage, from: usize, to: usize| TreePair { stage, from: &ids[from], to: &ids[to] };
    [pair("one@1", 0, 1), pair("two@1", 1, 2)]
}

/// All files of objects.
fn object_files(scene: &Scene) -> Vec<std::path::PathBuf> {
    let list = "find objects -type f | sort";
    let dir = scene.run.path().join(CHANGES);
    let output = std::process::Command::new("sh").args(["-c", list]).current_dir(&dir).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    text.lines().map(|line| dir.join(line)).collect()
}

/// The patches of both stages, and what is damaged.
async fn read_all(scene: &Scene, ids: &[String; 3]) -> (Vec<Option<Vec<u8>>>, Vec<String>) {
    let source = PatchSource::of_run(scene.run.path());
    let mut patches = Vec::new();
    for TreePair { from, to, .. } in pairs(ids) {
        let made = patch(&source, from, to, PatchStyle::Patch).await;
        match made {
            Ok(Patch { text, damage: None }) => patches.push(Some(text)),
            Ok(Patch { damage: Some(damage), text }) => {
                assert!(text.starts_with(b"# "), "{damage}");
                patches.push(None);
            }
            Err(GitError::Damaged(_)) => patches.push(None),
            Err(error) => panic!("{error}"),
        }
    }
    (patches, check_file_trees(scene.run.path(), &pairs(ids)).await)
}

#[tokio::test]
async fn damage_of_stored_objects_is_no_loss_in_git() {
    for is_packed in [false, true] {
        let (_dir, scene, ids) = stored(is_packed).await;
        let (whole, problems) = read_all(&scene, &ids).await;
        assert!(whole.iter().all(|patch| patch.as_ref().is_some_and(|text| !text.is_empty())));
        assert_eq!(problems, [""; 0]);
        let files = object_files(&scene);
        assert_eq!(files.len() < 6, is_packed, "{files:?}");
        let mut unread = 0;
        for (number, file) in files.iter().enumerate() {
            let kept = std::fs::read(file).unwrap();
            let damage = |bytes: Option<&[u8]>| {
                // Objects cannot be written to.
                let _ = std::fs::remove_file(file);
                if let Some(bytes) = bytes {
                    std::fs::write(file, bytes).unwrap();
                }
            };
            let steps = if is_packed { 60 } else { 4 };
            for step in 0..steps {
                let mut bytes = kept.clone();
                let at = (kept.len() * step / steps + number) % kept.len();
                bytes[at] ^= 1 << (step % 8);
                damage(Some(&bytes));
                let (patches, problems) = read_all(&scene, &ids).await;
                assert!(!problems.is_empty(), "{} {at} {}", file.display(), step % 8);
                for (patch, whole) in patches.iter().zip(&whole) {
                    assert!(patch.is_none() || patch == whole, "{} {at}", file.display());
                    unread += usize::from(patch.is_none());
                }
            }
            damage(None);
            let (patches, problems) = read_all(&scene, &ids).await;
            let is_needed = file.extension().is_none_or(|it| it != "rev");
            assert_eq!(!problems.is_empty(), is_needed, "{}", file.display());
            assert_eq!(patches.iter().any(Option::is_none), is_needed, "{}", file.display());
            damage(Some(&kept));
        }
        assert!(unread > 20, "{unread}");
    }
}

#[tokio::test]
async fn damage_is_named_with_its_stage_and_file() {
    let (_dir, scene, ids) = stored(false).await;
    let changes = scene.run.path().join(CHANGES);
    let id = |name: &str| {
        let script = format!("GIT_DIR=. git rev-parse {name}");
        let output =
            std::process::Command::new("sh").args(["-c", &script]).current_dir(&changes).output();
        String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
    };
    let content = id(&format!("{}:sub/b", ids[1]));
    let file = changes.join("objects").join(&content[..2]).join(&content[2..]);
    std::fs::remove_file(&file).unwrap();
    let problems = check_file_trees(scene.run.path(), &pairs(&ids)).await;
    let object = format!("object {content} in {} is damaged or lost", changes.display());
    assert_eq!(problems, [format!("stage one@1, sub/b; stage two@1, sub/b: {object}")]);
    let source = PatchSource::of_run(scene.run.path());
    let made = patch(&source, &ids[0], &ids[1], PatchStyle::Stat).await.unwrap();
    let damage = format!("sub/b: stored contents are damaged or lost in {}", changes.display());
    assert_eq!(made.damage, Some(damage));
    let text = String::from_utf8(made.text).unwrap();
    let rest = text.strip_prefix(
        "# sub/b: a stored content is damaged or lost
 a | 300 +",
    );
    assert!(
        rest.is_some_and(|rest| rest.ends_with(
            "1 file changed, 300 insertions(+)
"
        )),
        "{text}"
    );
    // Another object in its place.
    let other = id(&format!("{}:a", ids[1]));
    let other = changes.join("objects").join(&other[..2]).join(&other[2..]);
    std::fs::copy(other, file).unwrap();
    let problems = check_file_trees(scene.run.path(), &pairs(&ids)).await;
    assert_eq!(problems, [format!("stage one@1, sub/b; stage two@1, sub/b: {object}")]);
    // What git had removed is not damage, but for what is there.
    std::fs::write(changes.join("gone"), "").unwrap();
    assert_eq!(check_file_trees(scene.run.path(), &pairs(&ids)).await.len(), 1);
    std::fs::remove_file(changes.join("objects").join(&content[..2]).join(&content[2..])).unwrap();
    assert_eq!(check_file_trees(scene.run.path(), &pairs(&ids)).await, [""; 0]);
    std::fs::remove_dir_all(&changes).unwrap();
    let problems = check_file_trees(scene.run.path(), &pairs(&ids)).await;
    assert_eq!(problems, [format!("{}: what stages changed is lost", changes.display())]);
    assert_eq!(check_file_trees(scene.run.path(), &[]).await, [""; 0]);
}

#[tokio::test]
async fn a_pipe_in_the_place_of_an_object_does_not_block() {
    for is_packed in [false, true] {
        let (dir, scene, ids) = stored(is_packed).await;
        let source = PatchSource::of_run(scene.run.path());
        for file in object_files(&scene) {
            let kept = std::fs::read(&file).unwrap();
            sh(dir.path(), &format!("rm -f {0}; mkfifo {0}", file.display()));
            let trees = FileTrees::new(scene.run.path(), ("MARK", "run"), &[]);
            let snapshot = Snapshot::take(dir.path()).await.unwrap().unwrap();
            let other = tempfile::tempdir().unwrap();
            let errors = [
                trees.record(&Arc::new(snapshot)).await.map(drop),
                patch(&source, &ids[0], &ids[1], PatchStyle::Patch).await.map(drop),
                share_file_trees(scene.run.path(), other.path()),
            ];
            let name = format!("{} is not a regular file", file.display());
            for error in errors {
                assert_eq!(error.unwrap_err().to_string(), name);
            }
            let problems = check_file_trees(scene.run.path(), &pairs(&ids)).await;
            assert!(problems[0].contains(&name), "{problems:?}");
            sh(dir.path(), &format!("rm {}", file.display()));
            std::fs::write(&file, kept).unwrap();
        }
    }
}

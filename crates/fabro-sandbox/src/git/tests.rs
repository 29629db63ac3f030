use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::*;

/// Runs shell commands in a directory, git as a user of its own.
#[track_caller]
fn sh(dir: &Path, script: &str) {
    let output = Command::new("sh")
        .args(["-ec", script])
        .current_dir(dir)
        .envs([
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_SYSTEM", "/dev/null"),
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@example.com"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@example.com"),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "protocol.file.allow"),
            ("GIT_CONFIG_VALUE_0", "always"),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A repository with a few committed files.
fn repository() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    sh(
        dir.path(),
        "git init -q -b main; mkdir -p sub/deep; echo a >a; echo b >sub/b; echo c >sub/deep/c; \
         echo '*.ignored' >.gitignore; git add .; git commit -qm one",
    );
    dir
}

async fn take(dir: &Path) -> Snapshot {
    Snapshot::take(dir).await.unwrap().unwrap()
}

/// What changed below `below` by the second script, after the first.
async fn run(dir: &Path, below: &str, before: &str, script: &str) -> Vec<String> {
    sh(dir, before);
    let first = take(&dir.join(below)).await;
    sh(dir, script);
    let second = take(&dir.join(below)).await;
    changed(&first, &second).await.unwrap()
}

async fn check(before: &str, script: &str, expect: &[&str]) {
    let dir = repository();
    assert_eq!(run(dir.path(), "", before, script).await, expect, "{before} / {script}");
}

#[tokio::test]
async fn edits_are_seen_wherever_git_has_them() {
    check("", "", &[]).await;
    check(
        "",
        "echo x >>a; rm sub/b; echo n >sub/new; echo i >x.ignored",
        &["a", "sub/b", "sub/new"],
    )
    .await;
    check("", "echo x >>a; git add a; echo n >n; git add n; git rm -q sub/b", &["a", "n", "sub/b"])
        .await;
    check("", "echo x >>a; echo n >n; git add .; git commit -qm two; echo y >>n", &["a", "n"])
        .await;
    check("", "git mv a z; git commit -qm two", &["a", "z"]).await;
    check("", "chmod +x a; ln -s a link; mkdir d; echo x >d/e", &["a", "d/e", "link"]).await;
    check("", "echo x >a; echo a >a; touch sub/b", &[]).await;
    check("", "rm a; mkdir a; echo x >a/x", &["a", "a/x"]).await;
}

#[tokio::test]
async fn what_was_edited_before_counts_only_when_it_is_another_now() {
    let edited = "echo x >>a; echo n >n; rm sub/b; ln -s x link";
    check(edited, "", &[]).await;
    check(edited, "touch a n", &[]).await;
    check(edited, "git add .", &[]).await;
    check(edited, "git add .; git commit -qm two", &[]).await;
    check(
        edited,
        "echo y >>a; echo m >n; echo b >sub/b; ln -sf y link",
        &["a", "link", "n", "sub/b"],
    )
    .await;
    check(edited, "git checkout -q .; rm n link", &["a", "link", "n", "sub/b"]).await;
    check(edited, "git add .; git commit -qm two; echo n >n2; echo z >a", &["a", "n2"]).await;
    check("echo same >a", "printf 'more\\n' >a", &["a"]).await;
    check("echo x >n", "echo n >>.gitignore", &[".gitignore"]).await;
}

#[tokio::test]
async fn commits_and_branches_may_change_in_between() {
    let branch = "git checkout -q -b other; echo x >>a; echo n >n; git add .; git commit -qm two; git checkout -q main";
    check(branch, "git checkout -q other", &["a", "n"]).await;
    check(branch, "git checkout -q other; git checkout -q main", &[]).await;
    check(&format!("{branch}; git checkout -q other"), "git reset -q --hard main", &["a", "n"])
        .await;
    check("git checkout -q --detach", "git commit -q --allow-empty -m x", &[]).await;
    check("", "git stash -q || true; echo x >>a; git stash -q", &[]).await;
}

#[tokio::test]
async fn a_repository_may_be_without_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    sh(dir.path(), "git init -q; echo a >a");
    let path = dir.path();
    assert_eq!(run(path, "", "", "echo b >b").await, ["b"]);
    assert_eq!(
        run(path, "", "", "echo c >c; git add .; git commit -qm one; echo d >d").await,
        ["c", "d"]
    );
    let first = take(path).await;
    assert!(first.head.as_ref().is_some_and(|id| id.len() == 40) && !first.dirty.is_empty());
    let sha256 = tempfile::tempdir().unwrap();
    sh(sha256.path(), "git init -q --object-format=sha256");
    assert_eq!(run(sha256.path(), "", "", "echo c >c; git add .; git commit -qm one").await, ["c"]);
}

#[tokio::test]
async fn only_what_is_below_the_directory_counts() {
    let dir = repository();
    let script = "echo x >>a; echo x >>sub/b; echo n >sub/deep/n; git add .; git commit -qm two; echo y >sub/y; echo y >y";
    assert_eq!(run(dir.path(), "sub", "", script).await, ["b", "deep/n", "y"]);
    assert_eq!(
        run(dir.path(), "sub", "", "rm -r sub; git rm -rq --cached sub").await,
        ["b", "deep/c", "deep/n", "y"]
    );
    let dir = repository();
    sh(dir.path(), "mkdir 'sub[1]*'; echo x >'sub[1]*/x'");
    assert_eq!(run(dir.path(), "sub[1]*", "", "echo y >'sub[1]*/y'; echo z >sub/z").await, ["y"]);
}

#[tokio::test]
async fn a_directory_that_is_gone_has_lost_its_files() {
    let dir = repository();
    assert_eq!(run(dir.path(), "sub", "echo n >sub/n", "rm -r sub").await, ["b", "deep/c", "n"]);
    let gone = tempfile::tempdir().unwrap().path().to_owned();
    assert_eq!(Snapshot::take(&gone).await.unwrap(), None);
    assert_eq!(Snapshot::take(&gone.join("..").join("x")).await.unwrap(), None);
}

#[tokio::test]
async fn names_may_be_anything() {
    let dir = repository();
    let names = [" blank ", "new\nline", "tab\t\"quote\"", "ünï", "-dash", "back\\slash", ":(top)"];
    let write = |text: &str| {
        for name in names {
            fs::write(dir.path().join(name), text).unwrap();
        }
    };
    let mut expect = names;
    expect.sort_unstable();
    let first = take(dir.path()).await;
    write("one");
    let second = take(dir.path()).await;
    assert_eq!(changed(&first, &second).await.unwrap(), expect);
    sh(dir.path(), "git add .; git commit -qm two");
    let third = take(dir.path()).await;
    assert!(third.dirty.is_empty());
    assert_eq!(changed(&first, &third).await.unwrap(), expect);
    assert!(changed(&second, &third).await.unwrap().is_empty());
    let name = std::ffi::OsStr::from_bytes(b"latin\xe9");
    fs::write(dir.path().join(name), "x").unwrap();
    let fourth = take(dir.path()).await;
    assert_eq!(changed(&third, &fourth).await.unwrap(), ["latin\u{fffd}"]);
}

#[tokio::test]
async fn where_there_is_no_work_tree_there_is_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Snapshot::take(dir.path()).await.unwrap(), None);
    sh(dir.path(), "git init -q --bare bare.git; git init -q tree");
    assert_eq!(Snapshot::take(&dir.path().join("bare.git")).await.unwrap(), None);
    assert_eq!(Snapshot::take(&dir.path().join("tree/.git")).await.unwrap(), None);
    assert_eq!(
        Snapshot::take(&dir.path().join("tree/none/at/all")).await.unwrap().unwrap().head,
        None
    );
}

#[tokio::test]
async fn a_repository_that_a_stage_makes_is_found_after_it() {
    let [dir, other] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let tree = WorkTree::default();
    let now = async |dir: &Path| tree.now(dir).await.unwrap().is_some();
    let before = async |dir: &Path| tree.before(dir).await.unwrap().is_some();
    assert!(!now(dir.path()).await);
    let first = tree.start();
    assert!(!before(dir.path()).await, "as it was just found");
    sh(dir.path(), "git init -q");
    drop(first);
    let second = tree.start();
    assert!(before(dir.path()).await);
    drop(second);
    // What was found of one directory says nothing of another.
    assert!(!now(other.path()).await);
    let third = tree.start();
    assert!(before(dir.path()).await);
    drop(third);
}

#[tokio::test]
async fn a_repository_that_cannot_be_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".git"), "gitdir: /nowhere").unwrap();
    let error = Snapshot::take(dir.path()).await.unwrap_err().to_string();
    assert!(error.starts_with("git rev-parse failed: fatal: "), "{error}");
}

#[tokio::test]
async fn repositories_inside_are_one_path() {
    let inner = repository();
    let dir = repository();
    let add =
        format!("git submodule --quiet add {} module; git commit -qm add", inner.path().display());
    sh(dir.path(), &add);
    let path = dir.path();
    assert_eq!(take(path).await.dirty.keys().collect::<Vec<_>>(), [b"module"]);
    assert_eq!(run(path, "", "", "echo x >>module/a").await, ["module"]);
    assert_eq!(run(path, "", "", "").await, [""; 0]);
    assert_eq!(run(path, "", "", "echo y >>module/a").await, ["module"]);
    assert_eq!(run(path, "", "", "cd module; git commit -qam x").await, ["module"]);
    // A commit changes nothing on the disk.
    assert_eq!(run(path, "", "", "git commit -qam x").await, [""; 0]);
    assert_eq!(run(path, "", "", "git init -q own; echo x >own/x").await, ["own"]);
    assert_eq!(run(path, "", "", "echo y >own/x").await, ["own"]);
    assert_eq!(run(path, "", "", "rm -rf own").await, ["own"]);
    assert_eq!(run(path, "", "", "echo y >sub/y").await, ["sub/y"]);
}

#[tokio::test]
async fn nothing_of_the_repository_is_touched() {
    let dir = repository();
    sh(dir.path(), "touch -d '2001-01-01' a; echo x >>sub/b; : >.git/index.lock");
    let index = fs::read(dir.path().join(".git/index")).unwrap();
    take(dir.path()).await;
    assert_eq!(fs::read(dir.path().join(".git/index")).unwrap(), index);
}

#[test]
fn variables_of_a_hook_do_not_mislead() {
    // Set by git itself when a hook of another repository runs the whole program.
    let output = Command::new("git").args(["rev-parse", "--local-env-vars"]).output().unwrap();
    let known = String::from_utf8(output.stdout).unwrap();
    assert!(known.lines().any(|name| name == "GIT_DIR"));
    assert!(!known.lines().any(|name| run::PASSED.contains(&name)));
    let is_secret = |name: &&str| fabro_redact::is_secret_name(name);
    assert!(!run::PASSED.iter().any(is_secret));
}

/// A repository whose configuration names a program wherever it can, without `.git`.
const HOSTILE: &str = r#"
    mkdir -p "$1" hooks
    (
        cd "$1"; git init -q work; cd work
        echo one >a; echo '* filter=mark diff=mark' >.gitattributes; git add .; git commit -qm one
        run="touch $CANARY; cat"
        printf '#!/bin/sh\ntouch %s\n' "$CANARY" >.git/run; chmod +x .git/run
        for hook in post-index-change reference-transaction post-checkout fsmonitor-watchman; do
            cp .git/run .git/hooks/$hook
        done
        for key in filter.mark.clean filter.mark.smudge filter.mark.process diff.mark.textconv \
            diff.mark.command diff.external core.pager core.sshCommand core.askPass gpg.program \
            core.editor interactive.diffFilter remote.origin.uploadpack credential.helper
        do git config $key "$run"; done
        git config core.fsmonitor "$PWD/.git/run"
        git config core.hooksPath "$PWD/.git/hooks"
        git config log.showSignature true
        git config remote.origin.url "$PWD"
        git config remote.origin.promisor true
        # Another file of the same size: only its contents show whether it is edited.
        echo two >a; touch -r .git/index a
    )
"#;

/// The files of [`HOSTILE`] with this after it; whether a program was run by plain git there, and by us.
async fn hostile(script: &str, places: &[&str]) -> (bool, bool) {
    let dir = repository();
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().join("ran");
    let hostile = HOSTILE.replace("$CANARY", canary.to_str().unwrap()).replace("$1", "evil");
    sh(dir.path(), &format!("{hostile}\n{script}"));
    // While it was set up.
    let _ = fs::remove_file(&canary);
    for place in places {
        let at = dir.path().join(place);
        let _ = brief(&at).await;
        let tree = WorkTree::default();
        let _stage = tree.start();
        let before = Snapshot::take(&at).await.ok().flatten();
        let again = tree.before(&at).await.ok().flatten();
        sh(&at, "echo x >new");
        let _ = tree.touched(&at, again.as_deref()).await;
        if let (Some(before), Ok(Some(after))) = (before, Snapshot::take(&at).await) {
            let _ = changed(&before, &after).await;
        }
    }
    let by_us = canary.exists();
    for place in places {
        let mut git = Command::new("git");
        git.args(["status", "--short"]).current_dir(dir.path().join(place));
        let _ = git.output().unwrap();
    }
    (canary.exists(), by_us)
}

#[tokio::test]
async fn no_program_of_a_repository_is_run() {
    // Seven plain files in a folder.
    let plain = "cd evil/work; mv .git/* .; rmdir .git; git -C /; git config --file config core.bare false; \
        git config --file config core.worktree .";
    let plain = plain.replace("git -C /; ", "");
    assert_eq!(hostile(&plain, &["evil/work", "evil", ""]).await, (true, false));
    assert_eq!(hostile("", &["evil/work", "evil", ""]).await, (true, false));
    let module = "git -c protocol.file.allow=always submodule --quiet add ./evil/work module; \
        cp -r evil/work/.git/run evil/work/.git/hooks .git/modules/module; \
        cp evil/work/.git/config .git/modules/module/config; \
        git config --file .git/modules/module/config core.worktree ../../../module; \
        echo two >module/a; touch -r .git/modules/module/index module/a; rm -rf evil";
    assert_eq!(hostile(module, &["", "module"]).await, (true, false));
    let missing = "cd evil/work; git config --remove-section filter.mark; rm .gitattributes; \
        git config core.repositoryFormatVersion 1; git config extensions.partialClone origin; \
        git config --unset core.fsmonitor; git config --unset core.hooksPath; \
        rm .git/objects/$(git rev-parse HEAD^{tree} | sed 's,..,&/,')";
    assert_eq!(hostile(missing, &["evil/work"]).await, (true, false));
}

#[tokio::test]
async fn filters_of_the_user_change_no_result() {
    // Git compares contents where a file is not older than the index, to the second: here always, and not
    // only when both are written within one second.
    let lfs = "git config filter.up.clean 'tr a-z A-Z'; git config filter.up.smudge 'tr A-Z a-z'; \
        git config filter.up.required true; echo '*.big filter=up' >.gitattributes; echo x >x.big; \
        touch -d '1 hour' x.big; git add .; git commit -qm filtered";
    check(lfs, "touch x.big a", &[]).await;
    check(lfs, "echo y >x.big", &["x.big"]).await;
    check(lfs, "echo y >x.big; git add .; git commit -qm two; touch x.big", &["x.big"]).await;
    check(lfs, "git config filter.other.clean 'tr a-z A-Z'; touch x.big", &[]).await;
}

#[tokio::test]
async fn large_files_are_compared_by_their_times() {
    let dir = repository();
    let large = dir.path().join("large");
    let write = |byte: u8| fs::write(&large, vec![byte; 4_000_001]).unwrap();
    write(1);
    let first = take(dir.path()).await;
    let same = take(dir.path()).await;
    assert!(changed(&first, &same).await.unwrap().is_empty());
    fs::remove_file(&large).unwrap();
    write(2);
    let file = fs::File::options().append(true).open(&large).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let second = take(dir.path()).await;
    assert_eq!(changed(&first, &second).await.unwrap(), ["large"]);
}

#[tokio::test]
async fn a_work_tree_in_a_few_lines() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(super::brief(dir.path()).await, None);
    let run = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
        assert!(git.current_dir(dir.path()).status().unwrap().success());
    };
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    run(&["init", "--quiet", "--initial-branch=trunk"]);
    write("a", "1");
    run(&["add", "."]);
    run(&["commit", "--quiet", "-m", "First"]);
    // A filter would leave a mark.
    write(".gitattributes", "a filter=mark");
    run(&["config", "filter.mark.clean", "touch ran; cat"]);
    write("a", "other");
    let brief = super::brief(dir.path()).await.unwrap();
    let (before, commit) = brief.rsplit_once("- ").unwrap();
    insta::assert_snapshot!(before, @r"
    Git branch: trunk.
    Changed files (1): a
    Untracked files (1): .gitattributes
    Last commits:
    ");
    assert!(commit.ends_with(" First"), "{commit}");
    assert!(!dir.path().join("ran").exists());
}

/// The files that the second script touches in `sub`, by a work tree that knows where `sub` was.
async fn touched(script: &str) -> Vec<String> {
    let dir = repository();
    let sub = dir.path().join("sub");
    let tree = WorkTree::default();
    let first = tree.start();
    let before = tree.before(&sub).await.unwrap();
    assert!(tree.touched(&sub, before.as_deref()).await.unwrap().is_empty());
    drop(first);
    let _second = tree.start();
    let before = tree.before(&sub).await.unwrap();
    sh(&sub, script);
    tree.touched(&sub, before.as_deref()).await.unwrap()
}

#[tokio::test]
async fn a_stage_may_move_its_directory_to_another_repository() {
    assert_eq!(touched("echo x >b; echo n >new").await, ["b", "new"]);
    // The directory becomes a repository of its own: its location in the outer one is no longer true.
    assert_eq!(touched("git init -q; echo x >b").await, ["b", "deep/c"]);
    assert_eq!(touched("rm -r ../sub").await, ["b", "deep/c"]);
    assert_eq!(touched("cd ..; mv sub other; mkdir sub; echo b >sub/b").await, ["deep/c"]);
}

#[tokio::test]
async fn a_worktree_that_was_half_made_is_made_again() {
    let repository = repository();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("worktree");
    let author = Author { name: "a".to_owned(), email: "a@example.com".to_owned() };
    let worktree =
        Worktree::new(repository.path(), &dir, "fabro/run/x", author, &[], ("RUN", "x")).await;
    let worktree = worktree.unwrap();
    let mut git = Command::new("git");
    let head = git.args(["rev-parse", "HEAD"]).current_dir(&repository).output().unwrap().stdout;
    let head = String::from_utf8(head).unwrap();
    assert!(worktree.restore(head.trim(), false).await.unwrap().is_new);
    // A driver was killed while it wrote the file.
    fs::write(dir.join(".git"), "").unwrap();
    assert!(!worktree.exists());
    assert!(worktree.restore(head.trim(), false).await.unwrap().is_new);
    assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "a\n");
    let mut there: Vec<_> =
        fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    there.sort();
    assert_eq!(there, ["worktree"]);
}

#[tokio::test]
async fn a_worktree_whose_link_is_half_written_is_restored() {
    let dir = repository();
    let head = take(dir.path()).await.head.unwrap();
    let above = tempfile::tempdir().unwrap();
    let place = above.path().join("worktree");
    let author = Author { name: "n".to_owned(), email: "e@example.org".to_owned() };
    let marker = ("FABRO_RUN_ID", "half");
    let worktree =
        Worktree::new(dir.path(), &place, "fabro/run/half", author, &[], marker).await.unwrap();
    assert!(worktree.restore(&head, false).await.unwrap().is_new);
    fs::write(place.join(".git"), "gitdir: /").unwrap();
    fs::write(place.join("a"), "other").unwrap();
    let restored = worktree.restore(&head, false).await.unwrap();
    assert!(!restored.is_new && restored.kept.is_some());
    assert_eq!(fs::read_to_string(place.join("a")).unwrap(), "a\n");
    let beside = fs::read_dir(&above).unwrap().count();
    assert_eq!(beside, 1, "what is begun is not kept");
}

/// Files that are excluded differ from every commit. That they do costs no git command more.
#[tokio::test]
async fn a_stage_that_changes_nothing_but_excluded_files_costs_no_command() {
    let dir = repository();
    let head = take(dir.path()).await.head.unwrap();
    let above = tempfile::tempdir().unwrap();
    let place = above.path().canonicalize().unwrap().join("worktree");
    let author = Author { name: "n".to_owned(), email: "e@example.org".to_owned() };
    let marker = ("FABRO_RUN_ID", "excluding");
    let exclude = ["*.log".to_owned()];
    let branch = "fabro/run/excluding";
    let worktree = Worktree::new(dir.path(), &place, branch, author, &exclude, marker).await;
    let worktree = worktree.unwrap();
    worktree.restore(&head, false).await.unwrap();
    worktree.known(&head).await;
    let tree = WorkTree::default();
    tree.owns(&place);
    let stage = async |script: &str| {
        let since = tree.started();
        let running = tree.start();
        let before = tree.before(&place).await.unwrap();
        sh(&place, script);
        tree.touched(&place, before.as_deref()).await.unwrap();
        drop(running);
        tree.left(&place, since)
    };
    let commit = async |left| {
        let about = StageCommit {
            subject: "a stage".to_owned(),
            trailers: "Fabro-Stage: a@1".to_owned(),
            replaces: false,
        };
        worktree.commit(&about, left).await.map(|(commit, _)| commit)
    };
    // No git command works with such a configuration.
    let config = dir.path().join(".git/config");
    let whole = fs::read(&config).unwrap();
    let without_git = async |left| {
        fs::write(&config, "[").unwrap();
        let result = commit(left).await;
        fs::write(&config, &whole).unwrap();
        result
    };
    let left = stage("echo x >a; echo x >x.log").await;
    assert!(commit(left).await.unwrap().is_some());
    let left = stage("true").await;
    assert!(matches!(left, Some(LeftFiles::Changed(_))));
    assert_eq!(without_git(left).await.unwrap(), None);
    let grown = stage("echo y >>x.log").await;
    assert!(without_git(grown.clone()).await.is_err());
    assert_eq!(commit(grown).await.unwrap(), None);
    // Without what the stage has found, a `git status` leaves them out.
    assert_eq!(commit(None).await.unwrap(), None);
    let left = stage("echo y >new").await;
    assert!(without_git(left.clone()).await.is_err());
    assert!(commit(left).await.unwrap().is_some());
    let left = stage("true").await;
    assert_eq!(without_git(left).await.unwrap(), None);
}

mod file_trees;
mod worktree;

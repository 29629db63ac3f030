//! `fabro run --worktree` and `fabro diff`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::{Duration, Instant};

use insta::assert_snapshot;

use super::project::{Project, filters};

/// Three stages, of which two change files.
pub(super) const WORKFLOW: &str = r#"digraph W {
    graph [on_failure=stop]
    start -> one -> same -> two -> exit
    one [shape=parallelogram, script="echo 1 > one.txt; printf x > b.txt; pwd"]
    same [shape=parallelogram, script="test -e one.txt"]
    two [shape=parallelogram, script="echo 2 >> a.txt; rm one.txt; cat a.txt"]
}"#;

/// A repository with a commit, a stash, and a file that was edited since.
pub(super) fn repository(workflow: &str) -> Project {
    let project = Project::with(&[("a.txt", "a\n"), ("w.fabro", workflow)]);
    git(&project, &["init", "-q", "-b", "main"]);
    git(&project, &["add", "a.txt"]);
    git(&project, &["commit", "-q", "-m", "first"]);
    project.write("a.txt", b"stashed\n");
    git(&project, &["stash", "-q"]);
    project.write("a.txt", b"edited\n");
    project
}

pub(super) fn git(project: &Project, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=n", "-c", "user.email=e@example.org"]).args(args);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let output = git.current_dir(project.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What of the user's must not change.
pub(super) fn own(project: &Project) -> [String; 5] {
    [
        git(project, &["status", "--short", "--branch"]),
        git(project, &["stash", "list"]),
        git(project, &["config", "-l", "--local"]),
        git(project, &["rev-parse", "HEAD"]),
        project.read("a.txt"),
    ]
}

/// The newest run, and the directory of its worktree.
pub(super) fn latest(project: &Project) -> (String, String) {
    let runs = project.json(&["ps", "--json"]);
    let id = runs[0]["id"].as_str().unwrap().to_owned();
    let dir = format!(".fabro/state/runs/{id}/worktree");
    (id, dir)
}

pub(super) fn redacted() -> insta::Settings {
    let mut settings = filters();
    settings.add_filter(r"\b[0-9a-f]{40}\b", "[SHA]");
    settings.add_filter(r"\b[0-9a-f]{12}\b", "[SHA]");
    settings
}

/// What is shown of the changes of a run of [`WORKFLOW`], which began with this line in `a.txt`. Makes a dump.
pub(super) fn check_changes(project: &Project, run: &str, line: &str) {
    let mut settings = redacted();
    settings.add_filter(&format!("(?m)^ {line}$"), " [LINE]");
    settings.bind(|| {
        assert_snapshot!(project.run(&["diff"]), @r"
        exit 0
        ── stdout
        diff --git a/a.txt b/a.txt
        index [SHA]..[SHA] 100644
        --- a/a.txt
        +++ b/a.txt
        @@ -1 +1,2 @@
         [LINE]
        +2
        diff --git a/b.txt b/b.txt
        new file mode 100644
        index [SHA]..[SHA]
        --- /dev/null
        +++ b/b.txt
        @@ -0,0 +1 @@
        +x
        \ No newline at end of file
        ");
        assert_snapshot!(project.run(&["diff", run, "two", "--stat"]), @r"
        exit 0
        ── stdout
         a.txt   | 1 +
         one.txt | 1 -
         2 files changed, 1 insertion(+), 1 deletion(-)
        ");
        assert_snapshot!(project.run(&["diff", run, "same"]), @r"
        exit 0
        ── stderr
        no file was changed
        ");
        assert_eq!(project.exit(&["dump", run, "-o", "dumped"]), 0);
        assert_snapshot!(project.read("dumped/stages/002-one@1/diff.patch"), @r"
        diff --git a/b.txt b/b.txt
        new file mode 100644
        index [SHA]..[SHA]
        --- /dev/null
        +++ b/b.txt
        @@ -0,0 +1 @@
        +x
        \ No newline at end of file
        diff --git a/one.txt b/one.txt
        new file mode 100644
        index [SHA]..[SHA]
        --- /dev/null
        +++ b/one.txt
        @@ -0,0 +1 @@
        +1
        ");
    });
    assert_eq!(project.read_or_default("dumped/stages/003-same@1/diff.patch"), "");
}

#[test]
fn each_stage_that_changes_files_is_a_commit() {
    let project = repository(WORKFLOW);
    let before = own(&project);
    redacted().bind(|| {
        assert_snapshot!(project.run(&["run", "w.fabro", "--worktree"]), @r"
        exit 0
        ── stderr
        warning: the run begins with commit [SHA]: 2 files that differ from it are not in its worktree: a.txt, w.fabro
        run [ID] · fabro logs [ID] -f
        ✓ one [T]  → same
        ✓ same [T]  → two
        ✓ two [T]  → exit

        stage  visits  status time  tokens
        one         1  succeeded [T]
        same        1  succeeded [T]
        two         1  succeeded [T]
        succeeded in [T], 3 stages
        Its changes are on the branch fabro/run/[ID]. See them: fabro diff [ID]
        Take them over: git merge fabro/run/[ID]
        ");
        let (run, _) = latest(&project);
        let branch = format!("fabro/run/{run}");
        let log = ["log", "--format=%an <%ae>%n%B", &branch];
        assert_snapshot!(git(&project, &log), @r"
        Fabro <fabro@localhost>
        fabro([ID]): two (succeeded)

        Fabro-Run: [ID]
        Fabro-Stage: two@1
        Fabro-Checkpoint: 004-two@1

        Fabro <fabro@localhost>
        fabro([ID]): one (succeeded)

        Fabro-Run: [ID]
        Fabro-Stage: one@1
        Fabro-Checkpoint: 002-one@1

        n <e@example.org>
        first
        ");
        check_changes(&project, &run, "a");
        let shas = |line: &&str| line.contains("git_sha");
        let checkpoint = project.read("dumped/checkpoints/0010.json");
        assert_eq!(checkpoint.lines().filter(shas).count(), 1, "{checkpoint}");
    });
    std::fs::remove_dir_all(project.path().join("dumped")).unwrap();
    assert_eq!(own(&project), before);
    git(&project, &["fsck", "--strict"]);
    // The repository forgets the worktree with the run, and keeps its branch.
    assert_eq!(git(&project, &["worktree", "list"]).lines().count(), 2);
    assert_eq!(project.exit(&["rm", "latest"]), 0);
    assert_eq!(git(&project, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(&project, &["branch", "--list", "fabro/*"]).lines().count(), 1);
    assert_eq!(own(&project), before);
}

#[test]
fn forks_and_rewinds_have_the_files_of_their_stage() {
    let project = repository(WORKFLOW);
    assert_eq!(project.exit(&["run", "w.fabro", "--worktree"]), 0);
    let (run, dir) = latest(&project);
    let file = |name: &str| project.read_or_default(&format!("{dir}/{name}"));
    assert_eq!((file("a.txt").as_str(), file("one.txt").as_str()), ("a\n2\n", ""));
    project.write(&format!("{dir}/mine.txt"), b"by hand");
    redacted().bind(|| {
        assert_eq!(project.exit(&["fork", &run, "one"]), 0);
        assert_snapshot!(project.run(&["resume", "latest"]), @r"
        exit 0
        ── stderr
        run [ID] · fabro logs [ID] -f
        · run resumed
        ✓ same [T]  → two
        ✓ two [T]  → exit

        stage  visits  status time  tokens
        one         1  succeeded [T]
        same        1  succeeded [T]
        two         1  succeeded [T]
        succeeded in [T], 3 stages
        Its changes are on the branch fabro/run/[ID]. See them: fabro diff [ID]
        Take them over: git merge fabro/run/[ID]
        ");
        let (forked, its_dir) = latest(&project);
        assert_ne!(forked, run);
        assert_eq!(project.read(&format!("{its_dir}/a.txt")), "a\n2\n");
        let parents = ["merge-base", &format!("fabro/run/{forked}"), &format!("fabro/run/{run}")];
        let subject =
            ["show", "-s", "--format=%s", git(&project, &parents).trim()].map(str::to_owned);
        let subject: Vec<&str> = subject.iter().map(String::as_str).collect();
        assert!(git(&project, &subject).contains(": one (succeeded)"));
        assert_eq!(project.exit(&["rewind", &run, "same"]), 0);
        assert_snapshot!(project.run(&["resume", &run]), @r"
        exit 0
        ── stderr
        run [ID] · fabro logs [ID] -f
        ! the files are as the last stage left them; what was changed since is kept as refs/fabro/kept/[ID]/[SHA]
        · run resumed
        ✓ two [T]  → exit

        stage  visits  status time  tokens
        one         1  succeeded [T]
        same        1  succeeded [T]
        two         1  succeeded [T]
        succeeded in [T], 3 stages
        Its changes are on the branch fabro/run/[ID]. See them: fabro diff [ID]
        Take them over: git merge fabro/run/[ID]
        ");
    });
    assert_eq!((file("a.txt").as_str(), file("mine.txt").as_str()), ("a\n2\n", ""));
    // What was in the way is kept.
    let kept = git(&project, &["for-each-ref", "--format=%(refname)", "refs/fabro/kept"]);
    assert_eq!(git(&project, &["show", &format!("{}:mine.txt", kept.trim())]), "by hand");
    // A worktree that was removed is made again.
    std::fs::remove_dir_all(project.path().join(&dir)).unwrap();
    assert_eq!(project.exit(&["rewind", &run, "one"]), 0);
    assert_eq!(project.exit(&["resume", &run]), 0);
    assert_eq!(file("a.txt"), "a\n2\n");
    git(&project, &["fsck", "--strict"]);
}

#[test]
fn a_killed_stage_begins_again_with_the_files_before_it() {
    let project = repository(
        r#"digraph W { graph [on_failure=stop]; start -> one -> two -> exit
            one [shape=parallelogram, script="echo 1 > one.txt"]
            two [shape=parallelogram, script="go=$(ls ../go); ls; echo half > half.txt; rm one.txt; test $go || sleep 60; rm half.txt; echo 2 > two.txt"] }"#,
    );
    let before = own(&project);
    let mut driver = project.command(&["run", "w.fabro", "--worktree"]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    let half = loop {
        assert!(Instant::now() < deadline, "the stage does not begin");
        let runs =
            std::fs::read_dir(project.path().join(".fabro/state/runs")).into_iter().flatten();
        let is_half = |dir: &std::path::PathBuf| {
            dir.join("worktree/half.txt").exists() && !dir.join("worktree/one.txt").exists()
        };
        let found = runs.flatten().map(|run| run.path()).find(is_half);
        match found {
            Some(run) => break run,
            None => std::thread::yield_now(),
        }
    };
    driver.kill().unwrap();
    driver.wait().unwrap();
    std::fs::write(half.join("go"), "").unwrap();
    let (run, dir) = latest(&project);
    redacted().bind(|| assert_snapshot!(project.run(&["resume", &run]), @r"
    exit 0
    ── stderr
    run [ID] · fabro logs [ID] -f
    ! the files are as the last stage left them; what was changed since is kept as refs/fabro/kept/[ID]/[SHA]
    · run resumed
    ✓ two [T]  → exit

    stage  visits  status time  tokens
    one         1  succeeded [T]
    two         1  succeeded [T]
    succeeded in [T], 2 stages
    Its changes are on the branch fabro/run/[ID]. See them: fabro diff [ID]
    Take them over: git merge fabro/run/[ID]
    "));
    let output = project.output(&["logs", &run, "two"]).stdout;
    assert_eq!(String::from_utf8_lossy(&output), "── two@1\na.txt\none.txt\n");
    assert_eq!(project.read(&format!("{dir}/two.txt")), "2\n");
    assert!(!project.path().join(&dir).join("half.txt").exists());
    let kept = git(&project, &["for-each-ref", "--format=%(refname)", "refs/fabro/kept"]);
    assert_eq!(git(&project, &["show", &format!("{}:half.txt", kept.trim())]), "half\n");
    assert_eq!(own(&project), before);
    git(&project, &["fsck", "--strict"]);
}

#[test]
fn what_a_failed_attempt_changed_belongs_to_its_stage() {
    let project = repository(
        r#"digraph W { start -> one -> two -> exit
            one [shape=parallelogram, max_retries=1, script="test -e one.txt || { echo 1 > one.txt; exit 1; }"]
            two [shape=parallelogram, script="cat one.txt > two.txt", on_failure=stop] }"#,
    );
    assert_eq!(project.exit(&["run", "w.fabro", "--worktree"]), 0);
    let (run, dir) = latest(&project);
    let stat = project.output(&["diff", &run, "one", "--stat"]).stdout;
    assert!(String::from_utf8_lossy(&stat).starts_with(" one.txt | 1 +\n"));
    let log = git(&project, &["log", "--format=%s", &format!("fabro/run/{run}")]);
    let subject = |node: &str| format!("fabro({run}): {node} (succeeded)\n");
    assert_eq!(log, subject("two") + &subject("one") + "first\n");
    assert_eq!(project.exit(&["rewind", &run, "one"]), 0);
    assert_eq!(project.exit(&["resume", &run]), 0);
    assert_eq!(project.read(&format!("{dir}/two.txt")), "1\n");
    git(&project, &["fsck", "--strict"]);
}

#[test]
fn a_stage_that_removes_the_repository_reaches_no_other() {
    let project = repository(
        r#"digraph W { graph [on_failure=stop]
            start -> one -> two -> exit
            one [shape=parallelogram, script="rm .git; echo 1 > one.txt"]
            two [shape=parallelogram, script="git rev-parse --git-dir; rm .git; git init -q; echo 2 > two.txt"] }"#,
    );
    let before = own(&project);
    let output = project.output(&["run", "w.fabro", "--worktree"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("! two@1: the stage replaced .git of the worktree"), "{text}");
    let (run, dir) = latest(&project);
    let files = ["ls-tree", "--name-only", &format!("fabro/run/{run}")].map(str::to_owned);
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    assert_eq!(git(&project, &files), "a.txt\none.txt\ntwo.txt\n");
    let found = project.output(&["logs", &run, "two"]).stdout;
    assert!(String::from_utf8_lossy(&found).contains(&format!(".git/worktrees/{run}\n")));
    assert!(project.path().join(format!("{dir}-replaced-git-1/HEAD")).exists());
    assert_eq!(own(&project), before);
    git(&project, &["fsck", "--strict"]);
}

#[test]
fn a_link_in_the_place_of_a_worktree_leads_to_no_change() {
    let project = repository(
        r#"digraph W { graph [on_failure=stop]
            start -> one -> ask -> two -> exit
            one [shape=parallelogram, script="echo 1 > one.txt"]
            ask [shape=hexagon, label="On?"]  ask -> two [label="[Y] Yes"]
            two [shape=parallelogram, script="cd ..; rm -r worktree; ln -s ../../../.. worktree"] }"#,
    );
    project.write("precious.txt", b"untracked");
    let unchanged = |before: &[String; 5]| {
        assert!(project.path().join(".git/HEAD").is_file());
        assert_eq!(own(&project), *before);
        assert_eq!(project.read("precious.txt"), "untracked");
    };
    let before = own(&project);
    assert_eq!(project.exit(&["run", "w.fabro", "--worktree"]), 3);
    let (run, dir) = latest(&project);
    let worktree = project.path().join(&dir);
    let away = worktree.with_extension("away");
    assert_eq!(project.exit(&["answer", "--no-resume", &run, "Y"]), 0);
    std::fs::rename(&worktree, &away).unwrap();
    std::os::unix::fs::symlink(project.path(), &worktree).unwrap();
    let refused = project.run(&["resume", &run]);
    let is_named = refused.contains("/worktree is not a directory: remove it");
    assert!(refused.starts_with("exit 2\n") && is_named, "{refused}");
    unchanged(&before);
    // A stage that makes such a link fails the run.
    std::fs::remove_file(&worktree).unwrap();
    std::fs::rename(&away, &worktree).unwrap();
    let refused = project.run(&["resume", &run]);
    let is_named = refused.contains("/worktree is not a directory: remove it");
    assert!(!refused.starts_with("exit 0\n") && is_named, "{refused}");
    unchanged(&before);
    assert_eq!(project.exit(&["rm", &run]), 0);
    unchanged(&before);
}

#[test]
fn no_program_of_the_repository_runs() {
    let project = repository(WORKFLOW);
    let mark = project.path().join("mark");
    let leaves_mark = format!("touch '{}'; cat", mark.display());
    for (name, value) in [
        ("filter.mark.clean", leaves_mark.as_str()),
        ("filter.mark.smudge", leaves_mark.as_str()),
        ("filter.mark.required", "true"),
        ("core.fsmonitor", &leaves_mark),
        ("commit.gpgsign", "true"),
        ("gpg.program", &leaves_mark),
        ("diff.external", &leaves_mark),
    ] {
        git(&project, &["config", name, value]);
    }
    project.write(".gitattributes", b"*.txt filter=mark\n");
    git(&project, &["add", ".gitattributes"]);
    git(&project, &["-c", "commit.gpgsign=false", "commit", "-q", "-m", "attributes"]);
    for hook in ["post-commit", "post-checkout", "reference-transaction", "post-index-change"] {
        let hook = format!(".git/hooks/{hook}");
        project.write(&hook, format!("#!/bin/sh\n{leaves_mark}\n").as_bytes());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(project.path().join(hook), mode).unwrap();
    }
    let _ = std::fs::remove_file(&mark);
    assert_eq!(project.exit(&["run", "w.fabro", "--worktree"]), 0);
    let (run, _) = latest(&project);
    assert_eq!(project.exit(&["rewind", &run, "one"]), 0);
    assert_eq!(project.exit(&["resume", &run]), 0);
    assert_eq!(project.exit(&["fork", &run, "one"]), 0);
    assert_eq!(project.exit(&["resume", "latest"]), 0);
    assert_eq!(project.exit(&["diff"]), 0);
    assert_eq!(project.exit(&["rm", "latest"]), 0);
    assert!(!mark.exists());
}

#[test]
fn what_can_have_no_worktree_is_refused_before_the_run() {
    let no_repository = Project::with(&[("w.fabro", WORKFLOW)]);
    let no_commit = Project::with(&[("w.fabro", WORKFLOW)]);
    git(&no_commit, &["init", "-q"]);
    let bare = Project::with(&[("w.fabro", WORKFLOW)]);
    git(&bare, &["init", "-q", "--bare"]);
    let refused = no_repository.run(&["run", "w.fabro", "--worktree"]);
    assert_snapshot!(refused, @r"
    exit 2
    ── stderr
    error: a run with a worktree needs a git work tree, and DIR is in none
      help: start it in one (`git init` makes one), or run without a worktree
    ");
    assert_eq!(bare.run(&["run", "w.fabro", "--worktree"]), refused);
    assert_snapshot!(no_commit.run(&["run", "w.fabro", "--worktree"]), @r"
    exit 2
    ── stderr
    error: a worktree begins with a commit, and the repository of DIR has none
      help: commit first
    ");
    assert_eq!(no_commit.json(&["ps", "--json"]), serde_json::json!([]));
    let in_the_way = repository(WORKFLOW);
    git(&in_the_way, &["branch", "fabro"]);
    redacted().bind(|| {
        assert_snapshot!(in_the_way.run(&["run", "w.fabro", "--worktree"]), @r"
    exit 2
    ── stderr
    error: the branch `fabro` is in the way of the run's branch fabro/run/[ID]
      help: rename or delete that branch
    ");
    });
    assert_eq!(in_the_way.json(&["ps", "--json"]), serde_json::json!([]));
    let not_text = repository(WORKFLOW);
    let dir = not_text.path().join(<OsStr as OsStrExt>::from_bytes(b"d\xff"));
    std::fs::create_dir(&dir).unwrap();
    let mut run = not_text.command(&["run", "../w.fabro", "--worktree"]);
    let output = run.current_dir(&dir).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(" is not UTF-8: it cannot be recorded"), "{text}");
}

#[test]
fn what_a_run_recorded_is_kept_on_a_branch() {
    let project = repository(WORKFLOW);
    let hook = project.path().join("hook");
    for name in ["reference-transaction", "post-commit", "pre-commit"] {
        let name = format!(".git/hooks/{name}");
        project.write(&name, format!("#!/bin/sh\ntouch '{}'\n", hook.display()).as_bytes());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(project.path().join(name), mode).unwrap();
    }
    git(&project, &["config", "core.autocrlf", "true"]);
    let before = own(&project);
    let _ = std::fs::remove_file(&hook);
    project
        .write("run.toml", b"graph = \"w.fabro\"\n[run.git]\nworktree = true\nmetadata = true\n");
    assert_eq!(project.exit(&["run", "run.toml"]), 0);
    std::fs::remove_file(project.path().join("run.toml")).unwrap();
    let (run, _) = latest(&project);
    let branch = format!("fabro/meta/{run}");
    redacted().bind(|| {
        assert_snapshot!(git(&project, &["log", "--format=%an %B", &branch]), @r"
        Fabro fabro([ID]): recorded up to event 17

        Fabro-Run: [ID]
        Fabro-Event: 17
        Fabro-Commit: [SHA]
        ");
        assert_snapshot!(git(&project, &["ls-tree", "-r", "--name-only", &branch]), @r"
        checkpoints/0004.json
        checkpoints/0007.json
        checkpoints/0010.json
        checkpoints/0013.json
        checkpoints/0016.json
        graph.fabro
        run.json
        stages/001-start@1/status.json
        stages/002-one@1/diff.patch
        stages/002-one@1/status.json
        stages/002-one@1/stderr.log
        stages/002-one@1/stdout.log
        stages/003-same@1/status.json
        stages/003-same@1/stderr.log
        stages/003-same@1/stdout.log
        stages/004-two@1/diff.patch
        stages/004-two@1/status.json
        stages/004-two@1/stderr.log
        stages/004-two@1/stdout.log
        stages/005-exit@1/status.json
        ");
    });
    assert_eq!(project.exit(&["dump", &run, "-o", "dumped", "--no-blobs"]), 0);
    let kept = git(&project, &["show", &format!("{branch}:run.json")]);
    assert_eq!(kept, project.read("dumped/run.json"));
    std::fs::remove_dir_all(project.path().join("dumped")).unwrap();
    let head = git(&project, &["rev-parse", &format!("fabro/run/{run}")]);
    assert!(git(&project, &["log", &branch]).contains(&format!("Fabro-Commit: {}", head.trim())));
    // The same again is no commit; what follows is one.
    let commits = || git(&project, &["rev-list", "--count", &branch]).trim().to_owned();
    assert_eq!(
        String::from_utf8(project.output(&["dump", "--git"]).stdout).unwrap(),
        format!("{branch}\n")
    );
    assert_eq!(commits(), "1");
    assert_eq!(project.exit(&["rewind", &run, "one"]), 0);
    assert_eq!(project.exit(&["resume", &run]), 0);
    assert_eq!(commits(), "2");
    assert!(!hook.exists());
    assert_eq!(own(&project), before);
    git(&project, &["fsck", "--strict"]);
    let none = Project::with(&[("w.fabro", WORKFLOW)]);
    assert_eq!(none.exit(&["run", "w.fabro"]), 0);
    assert_snapshot!(none.run(&["dump", "--git"]), @r"
    exit 2
    ── stderr
    error: the directory of the run, DIR, is in no git work tree
      help: write what it recorded with `fabro dump -o DIR`
    ");
}

#[test]
fn shallow_clones_submodules_and_large_files() {
    let source = repository(WORKFLOW);
    let url = format!("file://{}", source.path().display());
    let shallow = Project::with(&[("w.fabro", WORKFLOW)]);
    git(&shallow, &["init", "-q", "-b", "main"]);
    git(&shallow, &["fetch", "-q", "--depth", "1", &url, "main"]);
    git(&shallow, &["reset", "-q", "--hard", "FETCH_HEAD"]);
    let before = own(&shallow);
    assert_eq!(shallow.exit(&["run", "w.fabro", "--worktree"]), 0);
    assert_eq!(own(&shallow), before);
    git(&shallow, &["fsck", "--strict"]);
    // What git stores of a file that a filter makes stays in the commits.
    let project = repository(WORKFLOW);
    git(&project, &["config", "filter.lfs.smudge", "false"]);
    git(&project, &["config", "filter.lfs.clean", "false"]);
    project.write("large.bin", b"pointer\n");
    git(&project, &["add", "large.bin"]);
    project.write(".gitattributes", b"*.bin filter=lfs -text\n");
    git(
        &project,
        &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &url, "sub"],
    );
    git(&project, &["add", ".gitattributes"]);
    git(&project, &["commit", "-q", "-m", "partial"]);
    let before = own(&project);
    let output = project.output(&["run", "w.fabro", "--worktree"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("the run's worktree has no files of submodules"), "{text}");
    let (run, dir) = latest(&project);
    assert_eq!(project.read(&format!("{dir}/large.bin")), "pointer\n");
    assert!(!project.path().join(format!("{dir}/sub/a.txt")).exists());
    let changed = ["diff", "--name-only", "main", &format!("fabro/run/{run}")];
    assert_eq!(git(&project, &changed), "a.txt\nb.txt\n");
    assert_eq!(own(&project), before);
    git(&project, &["fsck", "--strict"]);
}

/// The git commands of a run, in their order.
fn commands_of(project: &Project, dir: &str, workflow: &str) -> Vec<String> {
    let log = project.path().join("commands");
    let _ = std::fs::remove_file(&log);
    let real = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join("git"))
        .find(|git| git.is_file())
        .unwrap();
    // What stands after the settings is the command; the path is in a file name, for git gets few variables.
    let wrapper = format!(
        "#!/bin/sh\nfor word; do case $word in -*|*.*=*) ;; *) echo $word >> '{}'; break;; esac; done\nexec '{}' \"$@\"\n",
        log.display(),
        real.display()
    );
    project.write("bin/git", wrapper.as_bytes());
    let mut chmod = Command::new("chmod");
    assert!(chmod.args(["+x", "bin/git"]).current_dir(project.path()).status().unwrap().success());
    let path =
        format!("{}:{}", project.path().join("bin").display(), std::env::var("PATH").unwrap());
    let mut run = project.command(&["run", workflow, "--worktree", "--model-script", "m.json"]);
    run.current_dir(project.path().join(dir)).env("PATH", path);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    project.read("commands").lines().map(str::to_owned).collect()
}

#[test]
fn a_stage_that_changes_nothing_costs_one_git_status() {
    let stage = r#"[shape=parallelogram, script="true"]"#;
    let few = format!("digraph W {{ start -> a -> z -> exit  a {stage} z {stage} }}");
    let more = |node: &str| {
        format!(
            "digraph W {{ start -> a -> b -> c -> z -> exit  a {stage} b {node} c {node} z {stage} }}"
        )
    };
    let agent = r#"[prompt="look", permissions=full]"#;
    let project = repository(&few);
    project.write("sub/few.fabro", few.as_bytes());
    project.write("sub/more.fabro", more(stage).as_bytes());
    project.write("sub/agents.fabro", more(agent).as_bytes());
    project.write("sub/m.json", br#"{"b": [{"text": "ok"}], "c": [{"text": "ok"}]}"#);
    git(&project, &["add", "sub"]);
    git(&project, &["commit", "-q", "-m", "sub"]);
    let mut base = commands_of(&project, "sub", "few.fabro");
    base.sort_unstable();
    // A command after an agent, of which only its tools are watched, looks at the files before too.
    for (other, expect) in [("more.fabro", 2), ("agents.fabro", 3)] {
        let mut all = commands_of(&project, "sub", other);
        // What an agent knows of the repository when it begins.
        let of_prompt = ["config", "diff-files", "diff-index", "log", "ls-files", "symbolic-ref"];
        for command in &base {
            let at = all.iter().position(|it| it == command);
            all.remove(at.unwrap_or_else(|| panic!("{command} is missing in {all:?}")));
        }
        all.retain(|it| other == "more.fabro" || !of_prompt.contains(&&**it));
        assert_eq!(all, vec!["status"; expect], "of two more stages of {other}");
    }
}

#[test]
fn what_is_no_work_of_a_script_is_committed_too() {
    let project = repository(
        r#"digraph W { graph [on_failure=stop]
            start -> one -> ask -> two -> three -> exit
            one [shape=parallelogram, script="echo 1 > one.txt"]
            ask [shape=hexagon, label="On?"]  ask -> two [label="[Y] Yes"]
            two [shape=parallelogram, script="git add -f a.txt; touch a.txt one.txt"]
            three [shape=parallelogram, script="git checkout -q --detach; echo 3 > three.txt"] }"#,
    );
    assert_eq!(project.exit(&["run", "w.fabro", "--worktree"]), 3);
    let (run, dir) = latest(&project);
    // A person edits a file while the run waits.
    project.write(&format!("{dir}/by_hand.txt"), b"x");
    assert_eq!(project.exit(&["answer", "--no-resume", &run, "Y"]), 0);
    let output = project.output(&["resume", &run]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let branch = format!("fabro/run/{run}");
    let log = ["log", "--format=%s", "--name-status", "--no-renames", &branch];
    redacted().bind(|| {
        assert_snapshot!(git(&project, &log).replace('\t', " ").replace("\n\n", "\n"), @r"
        fabro([ID]): three (succeeded)
        A three.txt
        fabro([ID]): ask (succeeded)
        A by_hand.txt
        fabro([ID]): one (succeeded)
        A one.txt
        first
        A a.txt
        ");
    });
    let touched = |node: &str| {
        let end = project.output(&["events", &run, "--json"]).stdout;
        let text = String::from_utf8(end).unwrap();
        let is_end = |event: &serde_json::Value| {
            event["event"] == "stage.completed" && event["node_id"] == node
        };
        let mut events = text.lines().map(|line| serde_json::from_str(line).unwrap());
        events.find(is_end).unwrap()["properties"]["files_touched"].clone()
    };
    assert_eq!(touched("one"), serde_json::json!(["one.txt"]));
    assert_eq!(touched("two"), serde_json::Value::Null);
    assert_eq!(touched("three"), serde_json::json!(["three.txt"]));
}

#[test]
fn prune_removes_branches_that_are_merged_or_discarded() {
    let project = repository(
        r#"digraph W { graph [on_failure=stop]
            start -> one -> ask
            one [shape=parallelogram, script="echo $FABRO_RUN_ID > one.txt"]
            ask [shape=hexagon, label="Apply the changes?"]
            ask -> exit [label="[A] Apply"]; ask -> exit [label="[D] Discard"] }"#,
    );
    project.write("apply.json", br#"{"ask": ["A"]}"#);
    project.write("discard.json", br#"{"ask": ["D"]}"#);
    let run = |answers: &str| {
        let text = project.run(&["run", "w.fabro", "--worktree", "--answers", answers]);
        let (id, dir) = latest(&project);
        (format!("fabro/run/{id}"), dir, text)
    };
    let (merged, merged_dir, advice) = run("apply.json");
    assert!(advice.contains(&format!("Take them over: git merge {merged}")), "{advice}");
    let (discarded, discarded_dir, advice) = run("discard.json");
    assert!(advice.contains("Its changes were discarded at ask@1 (\"Discard\")"), "{advice}");
    assert!(!advice.contains("git merge"), "{advice}");
    let (open, open_dir, _) = run("apply.json");
    git(&project, &["merge", "-q", &merged]);
    let exists = |dir: &str| project.path().join(dir).exists();
    let branches = || git(&project, &["branch", "--list", "--format=%(refname:short)", "fabro/*"]);

    let shown = project.json(&["prune", "--json"]);
    assert_eq!(shown["branches"].as_array().unwrap().len(), 2, "{shown}");
    assert_eq!(branches().lines().count(), 3, "nothing is removed without --force");
    let text = project.run(&["prune", "--force"]);
    assert!(text.contains("removed 2 merged or discarded branches"), "{text}");
    assert_eq!(branches().trim(), open);
    assert_eq!(
        [&merged_dir, &discarded_dir, &open_dir].map(|dir| exists(dir)),
        [false, false, true]
    );
    assert!(!git(&project, &["worktree", "list"]).contains(&merged_dir));
    assert_eq!(project.json(&["ps", "--json"]).as_array().unwrap().len(), 3, "the runs stay");
    assert!(!discarded.is_empty());

    project.write(&format!("{open_dir}/mine.txt"), b"not committed\n");
    git(&project, &["merge", "-q", "-s", "ours", "-m", "m", &open]);
    assert_eq!(project.exit(&["prune", "--force"]), 0);
    assert!(exists(&open_dir), "a worktree with changes stays");
    git(&project, &["fsck", "--strict"]);
}

#[test]
fn commit_subjects_name_the_visit() {
    let project = repository(
        r#"digraph W { graph [on_failure=stop]
            start -> one -> check
            one [shape=parallelogram, script="echo 1 >> one.txt"]
            check [shape=parallelogram, script="test $(wc -l < one.txt) -ge 3"]
            check -> exit [condition="outcome=succeeded"]; check -> one [condition="outcome=failed"] }"#,
    );
    assert_eq!(project.exit(&["run", "w.fabro", "--worktree"]), 0);
    let (run, _) = latest(&project);
    let log = git(&project, &["log", "--format=%s", &format!("fabro/run/{run}")]);
    let subject = |node: &str| format!("fabro({run}): {node} (succeeded)\n");
    assert_eq!(log, subject("one@3") + &subject("one@2") + &subject("one") + "first\n");
}

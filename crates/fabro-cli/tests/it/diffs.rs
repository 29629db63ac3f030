//! `fabro diff` of runs that work in the user's git work tree.

use std::process::Stdio;
use std::time::{Duration, Instant};

use fabro_store::{LeaseOwner, Leases as _, Runs as _, SqliteStore};
use fabro_types::RunId;
use insta::assert_snapshot;

use super::project::Project;
use super::serve_pages::check;
use super::served::Served;
use super::worktrees::{WORKFLOW, check_changes, git, latest, own, redacted, repository};

/// What of the user's repository must not change, but for the files.
fn own_git(project: &Project) -> Vec<String> {
    let mut own = own(project)[1..4].to_vec();
    own.push(git(project, &["ls-files", "--stage"]));
    own.push(git(project, &["count-objects"]));
    own.push(git(project, &["for-each-ref"]));
    own
}

fn stat(project: &Project, args: &[&str]) -> String {
    let all = [&["diff", "latest", "--stat"], args].concat();
    project.run(&all)
}

#[test]
fn changes_are_recorded_without_a_worktree() {
    let project = repository(WORKFLOW);
    let before = own_git(&project);
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    // The file was edited before the run.
    check_changes(&project, "latest", "edited");
    assert_eq!(project.exit(&["report", "latest", "-o", "report.html"]), 0);
    assert!(project.read("report.html").contains("one.txt"));
    let (run, _) = latest(&project);
    let server = Served::start(&project, &[]);
    check(
        &server,
        &format!("/runs/{run}/changes"),
        &["a.txt", "b.txt", "/stages/two"],
        &["one.txt"],
    );
    check(&server, &format!("/runs/{run}/stages/one"), &["one.txt"], &["a.txt"]);
    drop(server);
    assert_eq!(own_git(&project), before);
    git(&project, &["fsck", "--strict"]);
    // The trees of a fork are its own.
    assert_eq!(project.exit(&["fork", "latest", "one"]), 0);
    let (fork, _) = latest(&project);
    let runs = project.json(&["ps", "--json"]);
    let run = runs[1]["id"].as_str().unwrap().to_owned();
    assert_eq!(project.exit(&["rm", &run]), 0);
    let files = project.run(&["diff", &fork, "--stat"]);
    assert!(files.contains("2 files changed, 2 insertions(+)"), "{files}");
}

#[test]
fn what_failed_attempts_and_killed_stages_changed_belongs_to_them() {
    let project = repository(
        r#"digraph {
        start -> first -> fix -> exit
        first [shape=parallelogram, script="echo f > first"]
        fix [shape=parallelogram, max_retries=1, retry_policy=linear,
            script="if test -e begun; then echo n > now; test -e wait && sleep 60; echo d > done; else echo b > begun; exit 75; fi"]
    }"#,
    );
    project.write("wait", b"");
    let mut driver = project.command(&["run", "w.fabro"]).spawn().unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    while !project.path().join("now").exists() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    driver.kill().unwrap();
    driver.wait().unwrap();
    // What is changed before a resume counts for the stage that runs again.
    std::fs::remove_file(project.path().join("wait")).unwrap();
    assert_eq!(project.exit(&["resume", "latest"]), 0);
    assert_snapshot!(stat(&project, &["fix"]), @r"
    exit 0
    ── stdout
     begun | 1 +
     done  | 1 +
     now   | 1 +
     wait  | 0
     4 files changed, 3 insertions(+)
    ");
    assert_snapshot!(stat(&project, &[]), @r"
    exit 0
    ── stdout
     begun | 1 +
     done  | 1 +
     first | 1 +
     now   | 1 +
     wait  | 0
     5 files changed, 4 insertions(+)
    ");
}

#[test]
fn stages_at_the_same_time_and_sub_workflows() {
    let project = repository(
        r#"digraph {
        start -> fork; fork [shape=component]
        fork -> a; fork -> b; a -> join; b -> join; join [shape=tripleoctagon]
        a [shape=parallelogram, script="echo a > in-a; while ! test -e in-b; do sleep 0.01; done"]
        b [shape=parallelogram, script="echo b > in-b; while ! test -e in-a; do sleep 0.01; done; sleep 0.2"]
        join -> sub -> exit
        sub [shape=house, stack.child_workflow="child.fabro"]
    }"#,
    );
    project.write(
        "child.fabro",
        br#"digraph { start -> c -> d -> exit
        c [shape=parallelogram, script="echo c > in-c"]
        d [shape=parallelogram, script="echo d > in-d"] }"#,
    );
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    assert_snapshot!(stat(&project, &["fork@1/b/b"]), @r"
    exit 0
    ── stdout
     in-a | 1 +
     in-b | 1 +
     2 files changed, 2 insertions(+)
    ── stderr
    warning: other stages ran at the same time in this directory: what they changed is in the patch too
    ");
    assert_snapshot!(stat(&project, &["sub"]), @r"
    exit 0
    ── stdout
     in-c | 1 +
     in-d | 1 +
     2 files changed, 2 insertions(+)
    ");
    assert_eq!(project.exit(&["dump", "latest", "-o", "dumped"]), 0);
    let patch = project.read("dumped/children/006-sub@1/stages/002-c@1/diff.patch");
    assert!(patch.contains("+++ b/in-c") && !patch.contains("in-d"), "{patch}");
}

#[test]
fn a_run_that_recorded_nothing_says_why() {
    let project = Project::with(&[("w.fabro", WORKFLOW), ("a.txt", "a\n")]);
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let diff = || project.run(&["diff"]);
    redacted().bind(|| {
        assert_snapshot!(diff(), @r"
        exit 2
        ── stderr
        error: what run [ID] changed was not recorded: it ran outside of a git work tree, with `diff = false` in [run.git], or no stage ran that changes files
          help: start runs in a git work tree (`git init` makes one), or with --worktree; `fabro inspect RUN STAGE` lists the files that a stage changed
        ");
    });
    git(&project, &["init", "-q"]);
    assert_eq!(project.exit(&["run", "w.fabro", "--dry-run"]), 0);
    assert!(diff().contains("was not recorded: it was a dry run"), "{}", diff());
    project.write(
        "run.toml",
        b"_version = 1\n[workflow]\ngraph = \"w.fabro\"\n[run.git]\ndiff = false\n",
    );
    assert_eq!(project.exit(&["run", "run.toml"]), 0);
    assert!(diff().contains("was not recorded: it ran outside"), "{}", diff());
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let files = stat(&project, &[]);
    assert!(files.contains("a.txt | 1 +"), "{files}");
}

#[test]
fn files_that_are_left_out_are_named() {
    let project = repository(
        r#"digraph { start -> big -> exit
        big [shape=parallelogram, script="truncate -s 10485761 over; truncate -s 10485760 limit"] }"#,
    );
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    assert_snapshot!(stat(&project, &[]), @r"
    exit 0
    ── stdout
     limit | Bin 0 -> 10485760 bytes
     1 file changed, 0 insertions(+), 0 deletions(-)
    ── stderr
    warning: not in the patch: over: it has 10485761 bytes, more than 10485760
    ");
}

#[test]
fn a_stage_that_removes_the_repository_leaves_a_remark() {
    let project = repository(
        r#"digraph { start -> a -> b -> exit
        a [shape=parallelogram, script="echo new > in-a"]; b [shape=parallelogram, script="rm -rf .git; echo b > in-b"] }"#,
    );
    let shown = project.run(&["run", "w.fabro"]);
    let warning = "what stages change is not recorded any more: the directory is in no git work tree any more";
    assert!(shown.starts_with("exit 0") && shown.contains(warning), "{shown}");
    let remark = "the changes of some stages were not recorded: the directory is in no git work tree any more";
    let lost = project.run(&["diff", "latest", "b"]);
    assert!(lost.starts_with("exit 0") && lost.contains(remark), "{lost}");
    // What is new in the files is an object of the run.
    let first = project.run(&["diff", "latest", "a"]);
    assert!(first.contains("+++ b/in-a") && first.contains(remark), "{first}");
}

/// Commits that are replaced, branches that are deleted, contents that only the index had.
#[test]
fn git_gc_takes_nothing_from_changes() {
    let project = repository(
        r#"digraph { graph [on_failure=stop]; start -> one -> two -> three -> exit
        one [shape=parallelogram, script="echo one >> a.txt; git add a.txt; echo n > new"]
        two [shape=parallelogram, script="git add -A; git commit -qm work; rm gone.txt; git commit -qam more"]
        three [shape=parallelogram, script="git commit -q --amend -m amended; git reset -q --hard HEAD~1; echo 3 >> a.txt"] }"#,
    );
    project.write("gone.txt", b"gone\n");
    project.write("a.txt", b"staged\n");
    git(&project, &["config", "user.name", "n"]);
    git(&project, &["config", "user.email", "e@example.org"]);
    git(&project, &["add", "a.txt", "gone.txt"]);
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let (run, _) = latest(&project);
    let shown = |run: &str| {
        let stages = ["one", "two", "three"].map(|stage| project.run(&["diff", run, stage]));
        (stages, project.run(&["diff", run]))
    };
    let before = shown(&run);
    for (stage, line) in before.0.iter().zip(["+one", "-gone", "+3"]) {
        assert!(stage.contains(line), "{stage}");
    }
    assert_eq!(project.exit(&["fork", &run, "two"]), 0);
    let (fork, _) = latest(&project);
    git(&project, &["reset", "-q", "--hard", "HEAD~1"]);
    git(&project, &["reflog", "expire", "--expire=now", "--all"]);
    git(&project, &["gc", "-q", "--prune=now"]);
    assert_eq!(shown(&run), before);
    assert_eq!(project.exit(&["resume", &fork]), 0);
    std::fs::remove_dir_all(project.path().join(".git")).unwrap();
    assert_eq!(shown(&run), before);
    let whole = project.run(&["diff", &fork]);
    assert!(whole.starts_with("exit 0") && whole.contains("+3"), "{whole}");
}

/// The text of a file of the run's trees, and the file of its object.
fn object(project: &Project, name: &str) -> (String, std::path::PathBuf) {
    let (run, _) = latest(project);
    let changes = project.path().join(".fabro/state/runs").join(run).join("changes");
    let dir = changes.to_str().unwrap();
    let id = git(project, &["--git-dir", dir, "hash-object", name]).trim().to_owned();
    let file = changes.join("objects").join(&id[..2]).join(&id[2..]);
    assert!(file.exists(), "{}", file.display());
    (id, file)
}

#[test]
fn a_damaged_content_is_no_loss_in_git() {
    let project = repository(WORKFLOW);
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let (id, file) = object(&project, "b.txt");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, bytes).unwrap();
    for args in [
        &["diff"][..],
        &["diff", "latest", "one"],
        &["report", "-o", "report.html"],
        &["dump", "-o", "dumped"],
        &["dump", "--git"],
        &["verify", "latest"],
    ] {
        let shown = project.run(args);
        assert!(shown.starts_with("exit 4\n"), "{args:?}: {shown}");
        assert!(shown.contains("b.txt") && shown.contains("/changes"), "{args:?}: {shown}");
    }
    // What is left is shown.
    let shown = project.run(&["diff"]);
    assert!(shown.contains("# b.txt: a stored content is damaged or lost"), "{shown}");
    assert!(shown.contains("diff --git a/a.txt b/a.txt"), "{shown}");
    assert!(project.read("dumped/stages/002-one@1/diff.patch").contains("one.txt"));
    let verified = project.run(&["verify"]);
    let line = format!("stage one@1, b.txt: object {id} in");
    assert!(verified.starts_with("exit 4\n") && verified.contains(&line), "{verified}");
    let doctor = project.run(&["doctor", "--store", ".fabro/state"]);
    assert!(doctor.contains(&line), "{doctor}");
    // A stage without it is whole.
    assert_eq!(project.exit(&["diff", "latest", "two"]), 0);
    let server = Served::start(&project, &[]);
    let (run, _) = latest(&project);
    check(&server, &format!("/runs/{run}/changes"), &["b.txt: stored contents are damaged"], &[]);
    let answer = server.send("GET", &format!("/runs/{run}/diff"), "");
    assert_eq!((answer.status, answer.json()["code"].as_str()), (500, Some("store_error")));
}

#[tokio::test]
async fn a_run_that_is_being_removed_is_not_damaged() {
    let project = repository(WORKFLOW);
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let (id, _) = latest(&project);
    let state = project.path().join(".fabro/state");
    let run: RunId = id.parse().unwrap();
    let store = SqliteStore::open(&state).unwrap();
    let owner = LeaseOwner::this_process();
    let lease = store.acquire(run, &owner, Duration::from_mins(1)).await.unwrap();
    // A removal begins with the files.
    let files = state.join("runs").join(&id);
    let removed = state.join("removed");
    std::fs::rename(&files, &removed).unwrap();
    let store_option = format!("--store={}", state.display());
    let commands = [&["verify"][..], &["verify", &id], &["doctor", &store_option, "--json"]];
    let begin = |args: &[&str]| {
        project.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children = commands.map(begin);
    tokio::time::sleep(Duration::from_secs(1)).await;
    // A check may look between the release and the deletion.
    std::fs::rename(&removed, &files).unwrap();
    store.release(lease).await.unwrap();
    store.delete(run).await.unwrap();
    let [all, one, doctor] =
        children.map(|child| project.shown(&child.wait_with_output().unwrap()));
    let is_whole = |shown: &str| shown.starts_with("exit 0\n") && shown.contains("\nwhole ");
    let is_gone = all.starts_with("exit 0\n") && all.contains("the store has no runs");
    assert!(is_gone || is_whole(&all), "{all}");
    let is_gone = one.starts_with("exit 2\n") && one.contains("there is no run");
    assert!(is_gone || is_whole(&one), "{one}");
    assert!(!doctor.contains("is lost"), "{doctor}");
}

#[test]
fn a_pipe_in_the_place_of_a_content_does_not_block() {
    let project = repository(WORKFLOW);
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let (_, file) = object(&project, "b.txt");
    std::fs::remove_file(&file).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    for args in [
        &["diff"][..],
        &["diff", "latest", "two"],
        &["report", "-o", "report.html"],
        &["dump", "-o", "dumped"],
        &["dump", "--git"],
        &["verify"],
    ] {
        let shown = project.run(args);
        assert!(shown.starts_with("exit 4\n"), "{args:?}: {shown}");
        assert!(shown.contains("is not a regular file"), "{args:?}: {shown}");
    }
    // The fork is whole, but for what it would share.
    let shown = project.run(&["fork", "latest", "one"]);
    assert!(shown.starts_with("exit 0\n") && shown.contains("is not a regular file"), "{shown}");
}

#[test]
fn changes_that_cannot_be_opened_are_no_loss_in_git() {
    let project = repository(WORKFLOW);
    assert_eq!(project.exit(&["run", "w.fabro"]), 0);
    let run = format!(".fabro/state/runs/{}", latest(&project).0);
    let changes = project.path().join(run).join("changes");
    std::fs::rename(&changes, changes.with_extension("away")).unwrap();
    std::fs::write(&changes, "a file").unwrap();
    for args in [&["diff"][..], &["diff", "latest", "two"], &["verify"]] {
        let shown = project.run(args);
        assert!(shown.starts_with("exit 4\n") && shown.contains("/changes"), "{args:?}: {shown}");
    }
}

#[test]
fn a_gate_says_that_the_changes_before_it_were_not_recorded() {
    let project = repository(
        r#"digraph { start -> a -> ask -> exit
        a [shape=parallelogram, script="echo '* working-tree-encoding=UTF-16' > .gitattributes; echo hidden > b"]
        ask [shape=hexagon, label="Good?"] }"#,
    );
    let shown = project.run(&["run", "w.fabro"]);
    assert!(shown.contains("what stages change is not recorded any more"), "{shown}");
    let server = Served::start(&project, &[]);
    check(&server, "/gates", &["The changes of some stages were not recorded"], &[]);
}

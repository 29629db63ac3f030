//! `isolation=worktree`: a git worktree for each branch of a fan-out.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use insta::assert_snapshot;

use super::project::Project;
use super::worktrees::{git, latest, own, redacted, repository};

/// Three branches that change one file, of which the second is best.
const BEST: &str = r#"digraph W {
    graph [on_failure=stop]
    start -> before -> fork -> {bad; good; late} -> join -> after -> exit
    before [shape=parallelogram, script="echo before > before.txt"]
    fork [shape=component, isolation=worktree]
    bad [shape=parallelogram, on_failure=continue, script="echo bad > a.txt; exit 1"]
    good [shape=parallelogram, script="cat before.txt; echo good > a.txt; pwd | sed 's/.*worktrees/DIR/'"]
    late [shape=parallelogram, script="echo late > a.txt; mkdir -p test-results; echo x > test-results/x.txt"]
    join [shape=tripleoctagon]
    after [shape=parallelogram, script="cat a.txt"]
}"#;

/// A file of a commit; nothing where there is none.
fn file_of(project: &Project, commit: &str, file: &str) -> String {
    let listed = git(project, &["ls-tree", "-r", "--name-only", commit]);
    if !listed.lines().any(|name| name == file) {
        return String::new();
    }
    git(project, &["show", &format!("{commit}:{file}")])
}

fn output(project: &Project, args: &[&str]) -> String {
    let output = project.output(args);
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn branches(project: &Project) -> String {
    git(project, &["for-each-ref", "--format=%(refname:short)", "refs/heads/fabro"])
}

#[test]
fn the_files_of_the_best_branch_are_taken() {
    let project = repository(BEST);
    let before = own(&project);
    assert_eq!(project.exit(&["run", "w.fabro", "--worktree"]), 0);
    let (run, dir) = latest(&project);
    assert_eq!(project.read(&format!("{dir}/a.txt")), "good\n");
    let branch = |name: &str| format!("fabro/branch/{run}/fork@1/{name}");
    for (name, file) in [("bad", "bad\n"), ("good", "good\n"), ("late", "late\n")] {
        assert_eq!(file_of(&project, &branch(name), "a.txt"), file);
        assert_eq!(file_of(&project, &branch(name), "before.txt"), "before\n");
    }
    let context = project.json(&["context", &run, "--json"]);
    let head = git(&project, &["rev-parse", &branch("good")]);
    assert_eq!(context["parallel.fan_in.best_head_sha"], head.trim());
    assert_eq!(context["parallel.results"][1]["head_sha"], head.trim());
    let work_dir = context["internal.work_dir"].as_str().unwrap();
    assert!(work_dir.ends_with("/worktree"), "{work_dir}");
    redacted().bind(|| {
        assert_snapshot!(output(&project, &["logs", &run, "good"]), @r"
        ── fork@1/good/good@1
        before
        DIR/fork@1/good
        ");
        let run = format!("fabro/run/{run}");
        assert_snapshot!(git(&project, &["log", "--graph", "--format=%s", &run]), @r"
        *   fabro([ID]): join (succeeded)
        |\  
        | * fabro([ID]): good (succeeded)
        |/  
        * fabro([ID]): before (succeeded)
        * first
        ");
        assert_snapshot!(output(&project, &["diff", "latest", "join", "--stat"]), @r"
        a.txt | 2 +-
        1 file changed, 1 insertion(+), 1 deletion(-)
        ");
        assert_snapshot!(output(&project, &["diff", "latest", "bad", "--stat"]), @r"
        a.txt | 2 +-
        1 file changed, 1 insertion(+), 1 deletion(-)
        ");
        assert_snapshot!(output(&project, &["diff", "latest", "--stat"]), @r"
        a.txt      | 2 +-
        before.txt | 1 +
        2 files changed, 2 insertions(+), 1 deletion(-)
        ");
        assert_snapshot!(output(&project, &["artifact", "list"]), @r"
        stage               attempt  size  type        path
        fork@1/late/late@1        1   2 B  text/plain  test-results/x.txt
        ");
    });
    assert_eq!(own(&project), before);
    git(&project, &["fsck", "--strict"]);
    assert_eq!(project.exit(&["replay", &run]), 0);
    // Its own branch stays, those of its branches do not, unless one is checked out elsewhere.
    git(&project, &["worktree", "add", "-q", "../other", "--force", &branch("late")]);
    assert_eq!(project.exit(&["rm", &run]), 0);
    assert_eq!(branches(&project), format!("{}\nfabro/run/{run}\n", branch("late")));
    assert_eq!(git(&project, &["worktree", "list"]).lines().count(), 2);
    git(&project, &["worktree", "remove", "../other"]);
    git(&project, &["fsck", "--strict"]);
}

/// Three branches that are merged; the script of the last one comes in.
fn all(last: &str) -> Project {
    repository(&format!(
        r#"digraph W {{
            start -> fork -> {{one; two; three}} -> join -> exit
            fork [shape=component, isolation=worktree, max_parallel=2]
            one [shape=parallelogram, script="echo 1 > one.txt; sed -i 1ifirst a.txt"]
            two [shape=parallelogram, script="echo 2 > two.txt; test ! -e one.txt"]
            three [shape=parallelogram, script="{last}"]
            join [shape=tripleoctagon, merge=all]
        }}"#
    ))
}

#[test]
fn the_files_of_all_branches_are_merged() {
    let project = all("mkdir d; echo 3 > d/three.txt");
    assert_eq!(project.exit(&["run", "w.fabro", "--worktree"]), 0);
    let (run, dir) = latest(&project);
    let files = ["ls-tree", "-r", "--name-only", &format!("fabro/run/{run}")];
    assert_eq!(git(&project, &files), "a.txt\nd/three.txt\none.txt\ntwo.txt\n");
    assert_eq!(project.read(&format!("{dir}/a.txt")), "first\na\n");
    let parents = ["log", "-1", "--format=%P", &format!("fabro/run/{run}")];
    assert_eq!(git(&project, &parents).split_whitespace().count(), 4);
    git(&project, &["fsck", "--strict"]);
    let project = all("sed -i 1ilast a.txt; echo 4 > one.txt");
    assert_eq!(project.exit(&["run", "w.fabro", "--worktree"]), 1);
    let (run, dir) = latest(&project);
    redacted().bind(|| {
        assert_snapshot!(output(&project, &["inspect", &run, "join"]), @r#"
    join@1 failed in [T]  → exit
    branch `three` conflicts with the branches before it in a.txt, one.txt
    started   [UTC]

    ── outcome
    parallel.fan_in.best_head_sha = "[SHA]"
    parallel.fan_in.best_id = "one"
    parallel.fan_in.best_outcome = "succeeded"
    "#);
    });
    assert_eq!(project.read(&format!("{dir}/a.txt")), "a\n");
    assert_eq!(file_of(&project, &format!("fabro/run/{run}"), "one.txt"), "");
    git(&project, &["fsck", "--strict"]);
}

#[test]
fn fan_outs_in_branches_lists_and_sub_workflows() {
    let project = repository(
        r#"digraph W {
            graph [on_failure=stop]
            start -> fork -> {a; b} 
            a -> inner -> {x; y} -> inner_join -> rest -> join
            b -> shared -> {p; q} -> shared_join -> join -> each -> work -> collect -> last -> exit
            fork [shape=component, isolation=worktree]
            inner [shape=component, isolation=worktree]
            shared [shape=component]
            each [shape=component, isolation=worktree, for_each="[3, 4, 5]"]
            join [shape=tripleoctagon, merge=all]
            inner_join [shape=tripleoctagon, merge=all]
            shared_join [shape=tripleoctagon]
            collect [shape=tripleoctagon, merge=all]
            a [shape=parallelogram, script="echo a > a.file"]
            b [shape=parallelogram, script="echo b > b.file"]
            x [shape=parallelogram, script="ls *.file; echo x > x.file"]
            y [shape=parallelogram, script="echo y > y.file"]
            rest [shape=parallelogram, script="ls *.file"]
            p [shape=house, stack.child_workflow="child.fabro"]
            q [shape=parallelogram, script="echo q > q.file"]
            work [shape=parallelogram, script="echo {{ context.item }} > {{ context.item }}.file"]
            last [shape=parallelogram, script="ls *.file"]
        }"#,
    );
    project.write(
        "child.fabro",
        br#"digraph C { start -> c -> exit; c [shape=parallelogram, script="cat b.file > p.file"] }"#,
    );
    let text = project.run(&["run", "w.fabro", "--worktree"]);
    assert!(text.starts_with("exit 0"), "{text}");
    let (run, _) = latest(&project);
    assert_snapshot!(output(&project, &["logs", &run, "x"]), @r"
    ── fork@1/a/inner@1/x/x@1
    a.file
    ");
    assert_snapshot!(output(&project, &["logs", &run, "rest"]), @r"
    ── fork@1/a/rest@1
    a.file
    x.file
    y.file
    ");
    assert_snapshot!(output(&project, &["logs", &run, "last"]), @r"
    ── last@1
    3.file
    4.file
    5.file
    a.file
    b.file
    p.file
    q.file
    x.file
    y.file
    ");
    redacted().bind(|| {
        assert_snapshot!(branches(&project), @r"
    fabro/branch/[ID]/each@1/work-0
    fabro/branch/[ID]/each@1/work-1
    fabro/branch/[ID]/each@1/work-2
    fabro/branch/[ID]/fork@1/a
    fabro/branch/[ID]/fork@1/a.inner@1/x
    fabro/branch/[ID]/fork@1/a.inner@1/y
    fabro/branch/[ID]/fork@1/b
    fabro/run/[ID]
    ");
    });
    git(&project, &["fsck", "--strict"]);
    assert_eq!(project.exit(&["replay", &run]), 0);
    assert_eq!(project.exit(&["rm", &run]), 0);
    assert_eq!(branches(&project), format!("fabro/run/{run}\n"));
}

#[test]
fn killed_branches_begin_again_with_their_files() {
    let project = repository(
        r#"digraph W {
            graph [on_failure=stop]
            start -> fork -> {a1; b}
            a1 -> a2 -> join
            b -> join -> exit
            fork [shape=component, isolation=worktree]
            a1 [shape=parallelogram, script="echo 1 > a1.file"]
            a2 [shape=parallelogram, script="ls *.file; echo half > half.file; rm a1.file; test -e $FABRO_RUN_DIR/go || sleep 60; rm half.file; echo 2 > a2.file"]
            b [shape=parallelogram, script="test ! -e a1.file; echo b > b.file"]
            join [shape=tripleoctagon, merge=all]
        }"#,
    );
    let before = own(&project);
    let mut driver = project.command(&["run", "w.fabro", "--worktree"]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    let run_dir = loop {
        assert!(Instant::now() < deadline, "the stage does not begin");
        let runs = project.path().join(".fabro/state/runs");
        let is_half = |dir: &PathBuf| {
            let branch = dir.join("worktrees/fork@1/a1");
            branch.join("half.file").exists() && !branch.join("a1.file").exists()
        };
        let found = std::fs::read_dir(runs).into_iter().flatten().flatten().map(|it| it.path());
        match found.into_iter().find(is_half) {
            Some(run) => break run,
            None => std::thread::yield_now(),
        }
    };
    driver.kill().unwrap();
    driver.wait().unwrap();
    std::fs::write(run_dir.join("go"), "").unwrap();
    let (run, dir) = latest(&project);
    assert_eq!(project.exit(&["resume", &run]), 0);
    assert_snapshot!(output(&project, &["logs", &run, "a2"]), @r"
    ── fork@1/a1/a2@1
    a1.file
    ");
    let files = ["ls-tree", "-r", "--name-only", &format!("fabro/run/{run}")];
    assert_eq!(git(&project, &files), "a.txt\na2.file\nb.file\n");
    assert_eq!(own(&project), before);
    // From the middle of a branch, and from the join.
    assert_eq!(project.exit(&["rewind", &run, "a1"]), 0);
    assert_eq!(project.exit(&["resume", &run]), 0);
    assert_eq!(git(&project, &files), "a.txt\na2.file\nb.file\n");
    std::fs::remove_dir_all(run_dir.join("worktrees")).unwrap();
    assert_eq!(project.exit(&["fork", &run, "a1"]), 0);
    let (forked, _) = latest(&project);
    assert_ne!(forked, run);
    let forked_dir = project.path().join(format!(".fabro/state/runs/{forked}"));
    std::fs::create_dir_all(&forked_dir).unwrap();
    std::fs::write(forked_dir.join("go"), "").unwrap();
    assert_eq!(project.exit(&["resume", &forked]), 0);
    let files = ["ls-tree", "-r", "--name-only", &format!("fabro/run/{forked}")];
    assert_eq!(git(&project, &files), "a.txt\na2.file\nb.file\n");
    assert!(project.path().join(format!("{dir}/a2.file")).exists());
    git(&project, &["fsck", "--strict"]);
}

#[test]
fn isolation_without_a_worktree_is_refused() {
    let project = repository(BEST);
    assert_snapshot!(project.run(&["run", "w.fabro"]), @r"
    exit 2
    ── stderr
    error[isolation]: `fork`: isolation=worktree needs a run with a git worktree of its own
     --> w.fabro:5:38
      |
    5 |     fork [shape=component, isolation=worktree]
      |                                      ^^^^^^^^
      |
      = help: set `worktree = true` in [run.git], or remove isolation=worktree

    error: w.fabro is not valid
      help: fix the errors shown above
    ");
    assert_snapshot!(project.run(&["run", "w.fabro", "--dry-run"]).lines().next().unwrap(), @"exit 0");
    project.write(
        "parent.fabro",
        br#"digraph P { start -> child -> exit; child [shape=house, stack.child_workflow="w.fabro"] }"#,
    );
    assert_snapshot!(project.run(&["run", "parent.fabro"]), @r#"
    exit 2
    ── stderr
    error[isolation]: `child`: w.fabro: `fork`: isolation=worktree needs a run with a git worktree of its own
     --> parent.fabro:1:22
      |
    1 | digraph P { start -> child -> exit; child [shape=house, stack.child_workflow="w.fabro"] }
      |                      ^^^^^
      |
      = help: set `worktree = true` in [run.git], or remove isolation=worktree

    error: parent.fabro is not valid
      help: fix the errors shown above
    "#);
    let in_the_way = repository(BEST);
    git(&in_the_way, &["branch", "fabro/branch"]);
    redacted().bind(|| {
        assert_snapshot!(in_the_way.run(&["run", "w.fabro", "--worktree"]), @r"
        exit 2
        ── stderr
        error: the branch `fabro/branch` is in the way of the run's branch fabro/branch/[ID]/branch
          help: rename or delete that branch
        ");
    });
}

/// A sub-workflow with branches of its own in a branch, and one on the main line; files of `half` scripts are
/// there only while these run.
fn nested() -> Project {
    let project = repository(
        r#"digraph W {
            graph [on_failure=stop]
            start -> before -> each -> sub -> collect -> last_sub -> last -> exit
            before [shape=parallelogram, script="echo before > before.file"]
            each [shape=component, isolation=worktree, for_each="[3, 4]"]
            sub [shape=house, stack.child_workflow="child.fabro", inputs.name="{{ context.item }}"]
            collect [shape=tripleoctagon, merge=all]
            last_sub [shape=house, stack.child_workflow="child.fabro", inputs.name="5"]
            last [shape=parallelogram, script="ls *.file"]
        }"#,
    );
    project.write(
        "child.fabro",
        br#"digraph C {
            graph [on_failure=stop]
            start -> c -> fork -> {x; y} -> join -> d -> exit
            c [shape=parallelogram, script="ls *.file; echo c > c{{ inputs.name }}.file"]
            fork [shape=component, isolation=worktree]
            x [shape=parallelogram, script="ls *.file; echo x > x{{ inputs.name }}.file"]
            y [shape=parallelogram, script="test ! -e x{{ inputs.name }}.file; echo y > y{{ inputs.name }}.file"]
            join [shape=tripleoctagon, merge=all]
            d [shape=parallelogram, script="ls *.file; echo half > half.file; test {{ inputs.name }} != 5 || test -e $(git rev-parse --git-common-dir)/go || sleep 60; rm half.file; echo d > d{{ inputs.name }}.file"]
        }"#,
    );
    project
}

const NESTED_FILES: &str = "a.txt\nbefore.file\nc3.file\nc4.file\nc5.file\nd3.file\nd4.file\nd5.file\nx3.file\nx4.file\nx5.file\ny3.file\ny4.file\ny5.file\n";

#[test]
fn branches_of_sub_workflows_have_worktrees() {
    let project = nested();
    project.write(".git/go", b"");
    let before = own(&project);
    let text = project.run(&["run", "w.fabro", "--worktree"]);
    assert!(text.starts_with("exit 0"), "{text}");
    let (run, _) = latest(&project);
    let files = ["ls-tree", "-r", "--name-only", &format!("fabro/run/{run}")];
    assert_eq!(git(&project, &files), NESTED_FILES);
    redacted().bind(|| {
        assert_snapshot!(git(&project, &["log", "--graph", "--format=%s", &format!("fabro/run/{run}")]), @r"
        * fabro([ID]): d (succeeded)
        *-.   fabro([ID]): join (succeeded)
        |\ \  
        | | * fabro([ID]): y (succeeded)
        | |/  
        |/|   
        | * fabro([ID]): x (succeeded)
        |/  
        * fabro([ID]): c (succeeded)
        *-.   fabro([ID]): collect (succeeded)
        |\ \  
        | | * fabro([ID]): d (succeeded)
        | | *-.   fabro([ID]): join (succeeded)
        | | |\ \  
        | | | | * fabro([ID]): y (succeeded)
        | | | |/  
        | | |/|   
        | | | * fabro([ID]): x (succeeded)
        | | |/  
        | | * fabro([ID]): c (succeeded)
        | |/  
        |/|   
        | * fabro([ID]): d (succeeded)
        | *-.   fabro([ID]): join (succeeded)
        | |\ \  
        | | | * fabro([ID]): y (succeeded)
        | | |/  
        | |/|   
        | | * fabro([ID]): x (succeeded)
        | |/  
        | * fabro([ID]): c (succeeded)
        |/  
        * fabro([ID]): before (succeeded)
        * first
        ");
        assert_snapshot!(output(&project, &["diff", "latest", "last_sub", "--stat"]), @r"
        c5.file | 1 +
        d5.file | 1 +
        x5.file | 1 +
        y5.file | 1 +
        4 files changed, 4 insertions(+)
        ");
        assert_snapshot!(branches(&project), @r"
        fabro/branch/[ID]/[ID]/fork@1/x
        fabro/branch/[ID]/[ID]/fork@1/y
        fabro/branch/[ID]/[ID]/fork@1/x
        fabro/branch/[ID]/[ID]/fork@1/y
        fabro/branch/[ID]/[ID]/fork@1/x
        fabro/branch/[ID]/[ID]/fork@1/y
        fabro/branch/[ID]/each@1/sub-0
        fabro/branch/[ID]/each@1/sub-1
        fabro/run/[ID]
        ");
    });
    assert_eq!(own(&project), before);
    git(&project, &["fsck", "--strict"]);
    assert_eq!(project.exit(&["replay", &run]), 0);
    assert_eq!(project.exit(&["dump", &run, "-o", "out"]), 0);
    let mut patches = Vec::new();
    files_named(&project.path().join("out"), "diff.patch", &mut patches);
    let names = patches.iter().map(|it| it.strip_prefix(project.path()).unwrap().to_string_lossy());
    assert_snapshot!(names.collect::<Vec<_>>().join("\n"), @r"
    out/children/004-sub@1/stages/002-c@1/diff.patch
    out/children/004-sub@1/stages/004-x@1/diff.patch
    out/children/004-sub@1/stages/005-y@1/diff.patch
    out/children/004-sub@1/stages/006-join@1/diff.patch
    out/children/004-sub@1/stages/007-d@1/diff.patch
    out/children/005-sub@1/stages/002-c@1/diff.patch
    out/children/005-sub@1/stages/004-x@1/diff.patch
    out/children/005-sub@1/stages/005-y@1/diff.patch
    out/children/005-sub@1/stages/006-join@1/diff.patch
    out/children/005-sub@1/stages/007-d@1/diff.patch
    out/children/007-last_sub@1/stages/002-c@1/diff.patch
    out/children/007-last_sub@1/stages/004-x@1/diff.patch
    out/children/007-last_sub@1/stages/005-y@1/diff.patch
    out/children/007-last_sub@1/stages/006-join@1/diff.patch
    out/children/007-last_sub@1/stages/007-d@1/diff.patch
    out/stages/002-before@1/diff.patch
    out/stages/004-sub@1/diff.patch
    out/stages/005-sub@1/diff.patch
    out/stages/006-collect@1/diff.patch
    out/stages/007-last_sub@1/diff.patch
    ");
    assert_eq!(project.exit(&["rm", &run]), 0);
    assert_eq!(branches(&project), format!("fabro/run/{run}\n"));
    assert_eq!(git(&project, &["worktree", "list"]).lines().count(), 1);
}

fn files_named(dir: &std::path::Path, name: &str, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files_named(&path, name, found);
        } else if path.file_name().is_some_and(|it| it == name) {
            found.push(path);
        }
    }
}

#[test]
fn a_killed_sub_workflow_continues_with_its_files() {
    let project = nested();
    let before = own(&project);
    let mut driver = project.command(&["run", "w.fabro", "--worktree"]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    let runs = project.path().join(".fabro/state/runs");
    let is_half = |dir: &PathBuf| dir.join("worktree/half.file").exists();
    while !std::fs::read_dir(&runs).into_iter().flatten().flatten().any(|it| is_half(&it.path())) {
        assert!(Instant::now() < deadline, "the stage does not begin");
        std::thread::yield_now();
    }
    driver.kill().unwrap();
    driver.wait().unwrap();
    project.write(".git/go", b"");
    let (run, dir) = latest(&project);
    project.write(&format!("{dir}/other.file"), b"");
    let text = project.run(&["resume", &run]);
    assert!(text.starts_with("exit 0"), "{text}");
    assert!(text.contains("are as the last stage left them"), "{text}");
    let files = ["ls-tree", "-r", "--name-only", &format!("fabro/run/{run}")];
    assert_eq!(git(&project, &files), NESTED_FILES);
    assert_eq!(own(&project), before);
    git(&project, &["fsck", "--strict"]);
    // After the list, with the sub-workflow to come.
    assert_eq!(project.exit(&["fork", &run, "collect"]), 0);
    let (forked, _) = latest(&project);
    assert_ne!(forked, run);
    assert_eq!(project.exit(&["resume", &forked]), 0);
    let files = ["ls-tree", "-r", "--name-only", &format!("fabro/run/{forked}")];
    assert_eq!(git(&project, &files), NESTED_FILES);
}

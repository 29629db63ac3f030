//! A workflow whose stages change files in git worktrees: loops, an agent, a nested fan-out with worktrees of
//! their own, a list, merges, and sub-workflows with such branches.
//!
//! Every command prints the files that it finds with their contents, leaves a file half done for a moment, and
//! then its own. So a stage that begins with the wrong files prints something else than in the undisturbed run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::work::Work;
use crate::workflow::Text;

/// What every command does.
const SCRIPT: &str = r#"echo $FABRO_NODE@$FABRO_VISIT >> \"$EFFECTS\"; for f in *.txt; do echo \"$f $(cat \"$f\")\"; done; echo half > half.txt; rm -f shared.txt; sleep 0.01; echo $FABRO_NODE >> $FABRO_NODE.txt; rm half.txt; echo $FABRO_NODE $FABRO_VISIT > shared.txt"#;

/// The agent writes a file, looks at it, and answers.
const MODEL: &str = r#"{
  "agent": [
    {"text": "", "tool_calls": [{"name": "write_file", "arguments": {"path": "agent.txt", "content": "written\n"}}], "delay_ms": 5},
    {"text": "", "tool_calls": [{"name": "read_file", "arguments": {"path": "agent.txt"}}], "delay_ms": 5},
    {"text": "Done.", "delay_ms": 5}
  ]
}
"#;

/// What is ignored of the user's files: those of the test itself.
const IGNORED: &str = "/effects.log\n/driver.err\n/store\n";

/// The branch of the run among the [`trees`].
pub(crate) const OF_RUN: &str = "the branch of the run";

/// The stage that forks begin with.
const THIRD: &str = "a03@1";

/// The file to run, and what it needs.
pub(super) fn work() -> Work {
    let files = [
        ("worktrees.fabro", parent()),
        ("child.fabro", child()),
        ("model.json", MODEL.to_owned()),
        (".gitignore", IGNORED.to_owned()),
        ("effects.log", String::new()),
    ];
    Work {
        workflow: "worktrees.fabro",
        args: &["--worktree", "--model-script", "model.json"],
        files: files.into(),
        model: None,
        is_repository: true,
    }
}

fn parent() -> String {
    let mut text = Text::new("worktrees");
    line(&mut text, "start", 4, "a", "agent");
    text.put(r#"agent [prompt="Write it", permissions="read-write"]"#);
    text.put("agent -> loop1 -> loop2");
    commands(&mut text, &["loop1", "loop2"]);
    text.put(r#"loop2 -> loop1 [condition="internal.node_visit_count < 3"]"#);
    text.put(r#"loop2 -> outer [condition="internal.node_visit_count >= 3"]"#);
    text.put("outer [shape=component, isolation=worktree]");
    text.put("inner [shape=component, isolation=worktree]");
    // The branches have one file in common, which only the best one may bring.
    text.put("outer_join [shape=tripleoctagon]; inner_join [shape=tripleoctagon]");
    line(&mut text, "outer", 3, "b", "outer_join");
    line(&mut text, "outer", 1, "c", "inner");
    line(&mut text, "inner", 2, "d", "inner_join");
    line(&mut text, "inner", 2, "e", "inner_join");
    line(&mut text, "inner_join", 1, "f", "outer_join");
    text.put("outer_join -> each -> work -> sub -> each_join");
    text.put(r#"each [shape=component, isolation=worktree, for_each="[1, 2, 3]"]"#);
    // They differ in one file each, and are merged. What runs several times under one name leaves no lines.
    text.put(r#"work [shape=parallelogram, script="cat shared.txt; echo half > half.txt; sleep 0.01; rm half.txt; echo x > item{{ context.item }}.txt"]"#);
    text.put(r#"sub [shape=house, stack.child_workflow="child.fabro", inputs.name="{{ context.item }}"]"#);
    text.put("each_join [shape=tripleoctagon, merge=all]");
    text.put(r#"last_sub [shape=house, stack.child_workflow="child.fabro", inputs.name="9"]"#);
    text.put("each_join -> last_sub");
    line(&mut text, "last_sub", 3, "z", "exit");
    text.end()
}

/// The sub-workflow: two branches with worktrees of their own, merged.
fn child() -> String {
    let mut text = Text::new("child");
    let script = |node: &str| {
        format!(
            r#"{node} [shape=parallelogram, script="ls *.txt; echo half > half.txt; sleep 0.01; rm half.txt; echo $FABRO_NODE > {node}{{{{ inputs.name }}}}.txt"]"#
        )
    };
    for node in ["k1", "x1", "y1", "y2", "k2"] {
        text.put(&script(node));
    }
    text.put("fork [shape=component, isolation=worktree]; join [shape=tripleoctagon, merge=all]");
    text.put("start -> k1 -> fork; fork -> x1 -> join; fork -> y1 -> y2 -> join -> k2 -> exit");
    text.end()
}

fn commands(text: &mut Text, nodes: &[&str]) {
    for node in nodes {
        text.put(&format!(r#"{node} [shape=parallelogram, script="{SCRIPT}"]"#));
    }
}

/// A line of so many commands between two nodes.
fn line(text: &mut Text, from: &str, number: u32, prefix: &str, to: &str) {
    let nodes: Vec<String> = (1..=number).map(|at| format!("{prefix}{at:02}")).collect();
    let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
    commands(text, &names);
    text.put(&format!("{from} -> {} -> {to}", names.join(" -> ")));
}

/// Makes a directory a repository with a commit, a stash, and files that differ from the commit.
pub(crate) fn make_repository(dir: &Path) -> Result<()> {
    for args in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["config", "user.name", "User"],
        &["config", "user.email", "user@example.org"],
        &["add", "."],
        &["commit", "--quiet", "--message=first"],
    ] {
        git(dir, args)?;
    }
    std::fs::write(dir.join("model.json"), MODEL.replace("Done.", "Stashed."))?;
    git(dir, &["stash", "--quiet"])?;
    std::fs::write(dir.join("unknown"), "of the user\n")?;
    Ok(())
}

/// What of the user's repository must never change, as lines.
pub(crate) fn of_user(dir: &Path) -> Result<Vec<String>> {
    let mut lines = vec![std::fs::read_to_string(dir.join("unknown"))?];
    for args in [
        &["status", "--porcelain", "--branch"][..],
        &["stash", "list"],
        &["config", "--list", "--local"],
        &["rev-parse", "HEAD", "HEAD:"],
        &["for-each-ref", "--format=%(objectname) %(refname)"],
    ] {
        let output = git(dir, args)?;
        let is_of_run =
            |line: &&str| line.contains(" refs/heads/fabro/") || line.contains(" refs/fabro/");
        let own = output.lines().filter(|line| !is_of_run(line));
        lines.extend(own.map(|line| format!("git {}: {line}", args[0])));
    }
    Ok(lines)
}

/// Fails when git finds the repository damaged.
pub(crate) fn check_objects(dir: &Path) -> Result<()> {
    git(dir, &["fsck", "--strict", "--no-dangling", "--no-progress"]).map(|_| ())
}

/// The files that each stage with a commit left, as the tree of its commit, what each command printed, and the
/// files of the branch of the run, by names that are the same in every run. `runs` are the events of each, a line
/// each.
pub(crate) fn trees<'e>(
    dir: &Path,
    runs: impl IntoIterator<Item = (&'e String, &'e Vec<String>)>,
    root: &str,
) -> Result<BTreeMap<String, String>> {
    let mut trees = BTreeMap::new();
    trees.insert(OF_RUN.to_owned(), tree(dir, &format!("fabro/run/{root}"))?);
    for (run, lines) in runs {
        let mut of = String::new();
        for line in lines {
            let event: Value = serde_json::from_str(line).context("read an event")?;
            if event["event"] == "run.created" && run != root {
                let parent = &event["properties"]["parent"];
                of = format!("{}/{}: ", parent["branch"], parent["node_id"]);
            }
            let (branch, node) = (&event["branch"], &event["node_id"]);
            let stage = format!("{of}{branch}/{node}@{}", event["visit"]);
            if let Some(sha) = event["properties"]["git_sha"].as_str() {
                trees.insert(stage.clone(), tree(dir, sha)?);
            }
            // By its hash.
            let printed = &event["properties"]["context_updates"]["command.output"];
            if let Some(printed) = printed.as_str() {
                trees.insert(format!("what {stage} printed"), printed.to_owned());
            }
        }
    }
    Ok(trees)
}

fn tree(dir: &Path, commit: &str) -> Result<String> {
    git(dir, &["rev-parse", "--verify", &format!("{commit}^{{tree}}")])
}

/// A text with the ids of commits, which have the time in them, replaced.
pub(crate) fn without_commits(text: &str) -> String {
    const DIGITS: usize = 40;
    let mut shown = String::new();
    let mut digits = String::new();
    for character in text.chars().chain(['\0']) {
        if matches!(character, '0'..='9' | 'a'..='f') {
            digits.push(character);
            continue;
        }
        shown.push_str(if digits.len() == DIGITS { "COMMIT" } else { &digits });
        digits.clear();
        shown.push(character);
    }
    shown.pop();
    shown
}

/// The name of the stage that a fork is made from, and its name among the [`trees`].
pub(crate) fn third() -> (&'static str, String) {
    let (node, visit) = THIRD.split_once('@').unwrap_or((THIRD, "1"));
    (THIRD, format!("null/\"{node}\"@{visit}"))
}

/// The files of the branch of a run.
pub(crate) fn tree_of_run(dir: &Path, run: &str) -> Result<String> {
    tree(dir, &format!("fabro/run/{run}"))
}

fn git(dir: &Path, args: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    git.args(args).current_dir(dir).env("HOME", dir).env_remove("XDG_CONFIG_HOME");
    git.env("GIT_CONFIG_NOSYSTEM", "1");
    let output = git.output().context("start git")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("`git {}`: {}: {}", args.join(" "), output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_commits_are_replaced() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(without_commits(&format!("a {commit}")), "a COMMIT");
        assert_eq!(
            without_commits(&format!("\"{commit}\"{commit}0")),
            format!("\"COMMIT\"{commit}0")
        );
        assert_eq!(without_commits(""), "");
    }
}

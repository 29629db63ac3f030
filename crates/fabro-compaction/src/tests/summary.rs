use proptest::prelude::*;

use super::*;

#[test]
fn a_summary_without_a_model() {
    let turns =
        [
            user("Add a /health endpoint to the API server"),
            assistant("I look at the router first.").call(
                "1",
                "read_file",
                json!({"path": "src/a.rs"}),
            ),
            result("1", "fn router() {}"),
            assistant("I decided on axum instead of a handler of our own.\nNext: run the tests.")
                .call("2", "shell", json!({"command": "cargo test"})),
            failure("2", "exit code 101:\nerror[E0433]: failed to resolve"),
            user("Also add /ready"),
            assistant("").call("3", "shell", json!({"command": "cargo check"})),
            failure("3", "exit code 101"),
            assistant("").call("3", "shell", json!({"command": "cargo check"})),
            result("3", "ok"),
            system("Be brief."),
            assistant("").call("4", "grep", json!({"pattern": "health"})),
        ];
    insta::assert_snapshot!(deterministic_summary(&turns, 4_000), @r#"
    ## Goal
    Add a /health endpoint to the API server
    - later: Also add /ready

    ## Progress
    - said: I look at the router first.
    - did: read_file {"path":"src/a.rs"}
    - said: I decided on axum instead of a handler of our own. Next: run the tests.
    - did: shell {"command":"cargo check"}
    - told: Be brief.

    ## Key Decisions
    - I decided on axum instead of a handler of our own.

    ## Failed Approaches
    - shell {"command":"cargo test"}: exit code 101: error[E0433]: failed to resolve
    - shell {"command":"cargo check"}: exit code 101

    ## Open Issues
    - fails: shell {"command":"cargo test"}: exit code 101: error[E0433]: failed to resolve
    - no result: grep {"pattern":"health"}

    ## Next Steps
    - Next: run the tests.
    "#);
}

#[test]
fn nothing_gives_the_empty_sections() {
    insta::assert_snapshot!(deterministic_summary::<Msg>(&[], 4_000), @r"
    ## Goal
    (none)

    ## Progress
    (none)

    ## Key Decisions
    (none)

    ## Failed Approaches
    (none)

    ## Open Issues
    (none)

    ## Next Steps
    (none)
    ");
}

#[test]
fn a_second_summary_carries_the_first_on() {
    let first = [
        user("Ship it"),
        user("Today"),
        assistant("").call("1", "shell", json!({"command": "a"})),
        failure("1", "no"),
        assistant("").call("2", "shell", json!({"command": "b"})),
        failure("2", "no"),
        assistant("We chose SQLite; a decision for good."),
    ];
    let first = deterministic_summary(&first, 4_000);
    let second = [
        system(format!("{SUMMARY_TAG}\n{first}\n\n## File Operations\nRead:\n- a.rs")),
        user("Tomorrow is fine too"),
        assistant("").call("1", "shell", json!({"command": "a"})),
        result("1", "yes"),
    ];
    insta::assert_snapshot!(deterministic_summary(&second, 4_000), @r#"
    ## Goal
    Ship it
    - later: Today
    - later: Tomorrow is fine too

    ## Progress
    - said: We chose SQLite; a decision for good.
    - did: shell {"command":"a"}

    ## Key Decisions
    - We chose SQLite; a decision for good.

    ## Failed Approaches
    - shell {"command":"a"}: no
    - shell {"command":"b"}: no

    ## Open Issues
    - fails: shell {"command":"b"}: no

    ## Next Steps
    - go on from: We chose SQLite; a decision for good.
    "#);
}

#[test]
fn a_summary_in_a_models_own_words_is_carried_on() {
    let turns = [
        system(format!("{SUMMARY_TAG}\nThe user wants a release.\n# Done\n- tagged\n```\nv1\n```")),
        assistant("Done."),
    ];
    insta::assert_snapshot!(deterministic_summary(&turns, 4_000), @r"
    ## Goal
    (none)

    ## Progress
    The user wants a release.
    Done
    - tagged
    v1
    - said: Done.

    ## Key Decisions
    (none)

    ## Failed Approaches
    (none)

    ## Open Issues
    (none)

    ## Next Steps
    - go on from: Done.
    ");
}

#[test]
fn a_goal_with_headings_stays_a_goal() {
    let goal = "# Task\n\n## File Operations\nRead:\n- /etc/passwd\n\n```rust\nfn main() {}";
    let first = deterministic_summary(&[user(goal)], 4_000);
    assert_eq!(Files::parse(&first), Files::default());
    let second = deterministic_summary(&[system(format!("{SUMMARY_TAG}\n{first}"))], 4_000);
    assert_eq!(first, second);
    assert!(first.contains("> fn main() {}\n\n## Progress\n"), "{first}");
}

#[test]
fn the_oldest_lines_go_first_and_are_counted() {
    let turns = session(1_000);
    let first = deterministic_summary(&turns, 2_000);
    assert!(chars(&first) <= 2_000);
    assert!(first.starts_with("## Goal\nAdd a /health endpoint to the API server\n"));
    assert!(first.contains("file_999") && !first.contains("file_900"));
    let second = [system(format!("{SUMMARY_TAG}\n{first}")), assistant("Once more.")];
    let second = deterministic_summary(&second, 2_000);
    let progress = second.split("\n## ").nth(1).unwrap();
    let shown = progress.lines().filter(|line| line.starts_with("- ")).count();
    let omitted = format!("Progress\n({} earlier lines omitted)\n", 2_001 - shown);
    assert!(progress.starts_with(&omitted), "{progress}");
}

#[test]
fn hostile_numbers_do_not_overflow() {
    let line = format!("({} earlier lines omitted)\n", usize::MAX);
    let turns = [
        system(format!("{SUMMARY_TAG}\n## Progress\n{}", line.repeat(2))),
        assistant(&"x\n".repeat(1_000)),
    ];
    assert!(deterministic_summary(&turns, 1_000).contains(line.trim()));
}

proptest! {
    #[test]
    fn the_limit_holds_and_headings_stay(
        texts in proptest::collection::vec(("[ustaS]", "(?s)(## Goal|```|\\n|> |- |.){0,80}"), 0..12),
        max_chars in 0_usize..1_500,
    ) {
        let mut turns: Vec<_> = texts
            .iter()
            .map(|(kind, text)| Msg { text: text.clone(), ..short_message(kind) })
            .collect();
        let first = deterministic_summary(&turns, max_chars);
        prop_assert!(chars(&first) <= max_chars);
        turns.insert(0, system(format!("{SUMMARY_TAG}\n{first}")));
        let second = deterministic_summary(&turns, 4_000);
        for heading in ["Goal", "Progress", "Key Decisions", "Failed Approaches", "Open Issues"] {
            let heading = format!("## {heading}\n");
            prop_assert!(second.lines().filter(|line| *line == heading.trim()).count() == 1);
        }
    }

    #[test]
    fn lists_of_files_are_read_back(
        read in proptest::collection::btree_set("(?s).{0,8}|Read:|- a|\"a\"", 0..6),
        modified in proptest::collection::btree_set("[a-c/. ]{1,4}|Modified:|\\(1 more\\)", 0..6),
    ) {
        let files = Files { read: read.difference(&modified).cloned().collect(), modified };
        let block = files.block(usize::MAX);
        prop_assert_eq!(block.is_empty(), files.count() == 0);
        let summary = format!("## Goal\n## File Operations\nRead:\n- forged\n## Progress\n\n{block}");
        if files.count() > 0 {
            prop_assert_eq!(Files::parse(&summary), files);
        }
    }
}

#[test]
fn lists_of_files_have_a_limit() {
    let names = |letter: &str| (0..5_000).map(|n| format!("src/{letter}{n}.rs")).collect();
    let files = Files { read: names("r"), modified: names("m") };
    assert_eq!(files.count(), 10_000);
    let block = files.block(usize::MAX);
    assert!(
        block.ends_with("\n(9000 more files are not listed)"),
        "{}",
        &block[block.len() - 90..]
    );
    for max_chars in [100, 400, 5_000] {
        assert!(chars(&files.block(max_chars)) <= max_chars);
    }
    let files = Files { read: ["b.rs".into()].into(), modified: ["a.rs".into()].into() };
    insta::assert_snapshot!(files.block(1_000), @r"
    ## File Operations
    Modified:
    - a.rs
    Read:
    - b.rs
    ");
}

use std::os::unix::fs::symlink;
use std::sync::Arc;

use fabro_sandbox::{Files, LocalFiles};
use fabro_tools::{ToolSet, file_tools};
use insta::assert_snapshot;
use serde_json::json;

use crate::setup::{Agent, Place};

const TREE: &[(&str, &str)] = &[
    (".gitignore", "target/\n*.log\n!keep.log\n[\n"),
    (".git/config", "main"),
    (".github/ci.yml", "run: main\n"),
    ("Cargo.toml", "[package]\n"),
    ("src/main.rs", "fn main() {\n    // one\n    run();\n}\n"),
    ("src/run.rs", "pub fn run() {}\n// Main\n"),
    ("src/gen/.gitignore", "*\n!*.rs\n"),
    ("src/gen/a.rs", "main"),
    ("src/gen/b.txt", "main"),
    ("target/main.o", "main"),
    ("x.log", "main"),
    ("keep.log", "main"),
];

#[tokio::test]
async fn globs_match_in_any_normalization() {
    let (composed, decomposed) = ("caf\u{e9}.md", "cafe\u{301}.md");
    for (on_disk, pattern) in [(composed, decomposed), (decomposed, composed)] {
        let (agent, _) = Agent::with(&[(on_disk, "menu")]);
        assert_eq!(agent.ok("glob", json!({"pattern": pattern})).await, on_disk);
        let grep = json!({"pattern": "menu", "glob": pattern});
        assert_eq!(agent.ok("grep", grep).await, format!("{on_disk}\n1:menu"));
    }
}

#[tokio::test]
async fn lines_that_match() {
    let (agent, _) = Agent::with(TREE);
    assert_snapshot!(agent.ok("grep", json!({"pattern": "main"})).await, @r"
    .github/ci.yml
    1:run: main

    keep.log
    1:main

    src/gen/a.rs
    1:main

    src/main.rs
    1:fn main() {
    ");
    let case = json!({"pattern": "^// MAIN$", "ignore_case": true, "path": "src"});
    assert_snapshot!(agent.ok("grep", case).await, @r"
    src/run.rs
    2:// Main
    ");
    let context = json!({"pattern": "one", "context": 1, "glob": "src/*.rs"});
    assert_snapshot!(agent.ok("grep", context).await, @r"
    src/main.rs
    1-fn main() {
    2:    // one
    3-    run();
    ");
    assert_snapshot!(agent.ok("grep", json!({"pattern": "main", "limit": 2, "glob": "*.rs"})).await, @r"
    src/gen/a.rs
    1:main

    src/main.rs
    1:fn main() {
    [the limit is reached: there may be more. Narrow the search, or raise limit.]
    ");
    assert_snapshot!(agent.ok("grep", json!({"pattern": "main", "path": "target"})).await, @r"
    target/main.o
    1:main
    ");
    assert_snapshot!(agent.ok("grep", json!({"pattern": "main", "path": "x.log"})).await, @r"
    x.log
    1:main
    ");
    assert_snapshot!(agent.ok("grep", json!({"pattern": "nowhere"})).await, @"no matches");
    assert_snapshot!(agent.fails("grep", json!({"pattern": "(a"})).await, @r"
    the pattern is wrong: regex parse error:
        (?:(a)
        ^
    error: unclosed group
    ");
    assert_snapshot!(agent.fails("grep", json!({"pattern": "a", "glob": "[a"})).await, @"the glob is wrong: error parsing glob '**/[a': unclosed character class; missing ']'");
    assert_snapshot!(agent.fails("grep", json!({"pattern": "a", "path": "none"})).await, @"none does not exist: check the path");
}

#[tokio::test]
async fn a_match_far_into_a_line_is_shown() {
    let before = "x ".repeat(2_000) + &"ä".repeat(150);
    let text = format!("first\n{before}needle {}\n", "y".repeat(5_000));
    let (agent, _) = Agent::with(&[("long", &text)]);
    let found = agent.ok("grep", json!({"pattern": "ne+dle\\b", "context": 1})).await;
    let found = found.replace(&"ä".repeat(100), "Ä").replace(&"y".repeat(393), "Y");
    assert_snapshot!(found, @r"
    long
    1-first
    2:[from column 4051] Äneedle Y [… 4607 more characters]
    ");
}

#[tokio::test]
async fn paths_that_match() {
    let (agent, _) = Agent::with(TREE);
    let glob = async |pattern: &str| {
        agent.ok("glob", json!({ "pattern": pattern })).await.replace('\n', " ")
    };
    assert_snapshot!(glob("*.rs").await, @"src/gen/a.rs src/main.rs src/run.rs");
    assert_snapshot!(glob("src/*.rs").await, @"src/main.rs src/run.rs");
    assert_snapshot!(glob("**/*.{log,toml,yml}").await, @".github/ci.yml Cargo.toml keep.log");
    assert_snapshot!(glob("**/**/**/main.rs").await, @"src/main.rs");
    assert_snapshot!(glob("**").await, @".github/ci.yml .gitignore Cargo.toml keep.log src/gen/a.rs src/main.rs src/run.rs");
    assert_snapshot!(glob("none*").await, @"no files");
    let sorted = json!({"pattern": "*.rs", "sort": "modified", "path": "src", "limit": 2});
    assert_snapshot!(agent.ok("glob", sorted).await, @r"
    src/gen/a.rs
    src/run.rs
    [1 more: choose a narrower pattern or path]
    ");
}

#[tokio::test]
async fn what_is_in_a_directory() {
    let (agent, _) = Agent::with(TREE);
    assert_snapshot!(agent.ok("list_dir", json!({})).await, @r"
    .git/
    .github/
    .gitignore
    Cargo.toml
    keep.log
    src/
    target/
    x.log
    ");
    assert_snapshot!(agent.ok("list_dir", json!({"path": "src", "depth": 2, "limit": 3})).await, @r"
    gen/
      .gitignore
      a.rs
    [there is more: list a directory below, or raise limit]
    ");
    assert_snapshot!(agent.fails("list_dir", json!({"path": "Cargo.toml"})).await, @"Cargo.toml is not a directory, or its path leads through a file: check the path");
    assert_snapshot!(agent.fails("list_dir", json!({"depth": 99})).await, @"the arguments of `list_dir` are not valid: /depth: value is greater than the maximum of 10. Call it again.");
}

#[tokio::test]
async fn bombs() {
    let place = Place::new();
    let files = place.files();
    files.write("a", format!("{}!\n", "a".repeat(100_000)).as_bytes()).unwrap();
    files.write("binary", b"main\0main\n").unwrap();
    let long = vec![b'x'; 20 << 20];
    files.write("one-line", &long).unwrap();
    let agent = Agent::on(files);
    for pattern in ["(a+)+$", "(a|a)*b", "(.*)*x", "a{1,1000}$", r"(\w+\s?)*$"] {
        agent.ok("grep", json!({"pattern": pattern, "path": "a"})).await;
    }
    for pattern in ["((a{1000}){1000}){1000}", &"(".repeat(900), &"a".repeat(2_000), r"(?=a)b"] {
        agent.fails("grep", json!({ "pattern": pattern })).await;
    }
    for pattern in [&"**/".repeat(300), &"{a,b}".repeat(190), &"*a".repeat(490), &"?".repeat(999)] {
        agent.ok("glob", json!({ "pattern": pattern })).await;
    }
    agent.fails("glob", json!({"pattern": "*".repeat(2_000)})).await;
    assert_snapshot!(agent.ok("grep", json!({"pattern": "main"})).await, @r"
    no matches
    [files and directories that could not be searched: 1]
    ");
    let cut = agent.ok("grep", json!({"pattern": "a!"})).await;
    assert_snapshot!(cut.replace(&"a".repeat(100), "a…a"), @r"
    a
    1:[from column 99900] a…aa!
    [files and directories that could not be searched: 1]
    ");
}

#[tokio::test]
async fn a_flood_of_matches_and_links_in_circles() {
    let place = Place::new();
    let files = place.files();
    files.write("many", "match\n".repeat(200_000).as_bytes()).unwrap();
    for index in 0..1_000 {
        files.write(&format!("d/{index:04}-{}", "n".repeat(60)), b"match\n").unwrap();
    }
    symlink("..", place.work("d/up")).unwrap();
    symlink("self", place.work("self")).unwrap();
    let agent = Agent::on(files);
    for (tool, arguments) in [
        ("grep", json!({"pattern": "match", "limit": 1_000, "context": 20})),
        ("glob", json!({"pattern": "**", "limit": 2_000})),
        ("list_dir", json!({"depth": 10, "limit": 2_000})),
    ] {
        let text = agent.ok(tool, arguments).await;
        assert!(text.len() < 30_000 && text.ends_with(']') && !text.contains("omitted"), "{text}");
    }
}

#[tokio::test]
async fn a_search_ends_when_it_is_canceled() {
    let place = Place::new();
    for index in 0..50 {
        std::fs::write(place.work(&format!("{index}")), "x\n").unwrap();
    }
    let agent = Agent::on(place.files());
    agent.cancel.cancel();
    for (tool, arguments) in [
        ("grep", json!({"pattern": "x"})),
        ("glob", json!({"pattern": "**"})),
        ("list_dir", json!({})),
        ("read_file", json!({"file_path": "a.txt"})),
    ] {
        assert_eq!(agent.fails(tool, arguments).await, "the call was canceled", "{tool}");
    }
}

#[tokio::test]
async fn a_deep_tree() {
    let place = Place::new();
    let deep = "d/".repeat(1_000);
    let files = LocalFiles::new(place.work("")).unwrap();
    files.write(&format!("{deep}f"), b"deep\n").unwrap();
    let tools = file_tools(Arc::new(files)).into_iter().fold(ToolSet::new(), ToolSet::with);
    let agent = Agent { tools, ..Agent::new([]) };
    assert!(agent.ok("grep", json!({"pattern": "deep"})).await.ends_with("f\n1:deep"));
}

use std::os::unix::fs::symlink;
use std::process::Command;

use fabro_sandbox::Files;
use insta::assert_snapshot;
use serde_json::json;

use crate::setup::{Agent, Place};

#[tokio::test]
async fn lines_are_numbered_and_come_in_parts() {
    let lines: Vec<_> = (1..=5_000).map(|line| format!("line {line}\n")).collect();
    let lines = lines.concat();
    let (agent, _) =
        Agent::with(&[("long", &lines), ("crlf", "a\r\nb"), ("empty", ""), ("x", "\n\n")]);
    let read = |path: &str, offset: u64, limit: u64| {
        agent.ok("read_file", json!({"file_path": path, "offset": offset, "limit": limit}))
    };
    assert_snapshot!(read("long", 4_999, 9).await, @r"
    4999	line 4999
    5000	line 5000
    ");
    assert_snapshot!(read("long", 7, 2).await, @r"
         7	line 7
         8	line 8
    [more lines follow: continue with offset 9]
    ");
    assert_snapshot!(read("crlf", 1, 9).await, @r"
    1	a
    2	b
    ");
    assert_snapshot!(read("crlf", 1, 1).await, @r"
         1	a
    [more lines follow: continue with offset 2]
    ");
    assert_snapshot!(read("empty", 1, 9).await, @"[the file is empty]");
    assert_snapshot!(read("x", 1, 9).await, @r"
    1	
    2
    ");
    let output = agent.run("read_file", json!({"file_path": "./long"})).await;
    assert!(
        output.text.ends_with("[more lines follow: continue with offset 1596]"),
        "{}",
        output.text
    );
    assert!(!output.text.contains("omitted") && output.files_read == ["long"]);
    // Some models write integers like this.
    agent.ok("read_file", json!({"file_path": "crlf", "offset": 1.0, "limit": 5.0})).await;
    let past = agent.fails("read_file", json!({"file_path": "crlf", "offset": 3})).await;
    assert_snapshot!(past, @"crlf has only 2 lines: choose a smaller offset");
    let wrong = agent.fails("read_file", json!({"file_path": "crlf", "offset": 0})).await;
    assert_snapshot!(wrong, @"the arguments of `read_file` are not valid: /offset: value is less than the minimum of 1. Call it again.");
}

#[tokio::test]
async fn a_long_line_is_read_in_parts() {
    let long: String = (0..508_000).map(|at| if at % 3 == 0 { 'ä' } else { 'x' }).collect();
    let files = [("long", format!("first\n{long}\nlast\n")), ("crlf", "y".repeat(2_000) + "\r\n")];
    let place = Place::new();
    for (name, text) in &files {
        place.files().write(name, text.as_bytes()).unwrap();
    }
    let agent = Agent::on(place.files());
    let read = async |path: &str, offset: u64, column: u64| {
        let arguments = json!({"file_path": path, "offset": offset, "column": column, "limit": 1});
        agent.ok("read_file", arguments).await
    };
    let whole = agent.ok("read_file", json!({"file_path": "long"})).await;
    let start: String = long.chars().take(2_000).collect();
    assert_snapshot!(whole.replace(&start, "START"), @r"
    1	first
    2	START [… 506000 more characters: read on with offset 2, column 2001]
    3	last
    ");
    assert_eq!(agent.ok("read_file", json!({"file_path": "crlf"})).await.len(), 2_008);
    let mut told = start;
    let mut column = 2_001;
    while column <= 508_000 {
        let text = read("long", 2, column).await;
        let part = text.strip_prefix("     2\t").unwrap().split([' ', '\n']).next().unwrap();
        let next = column + part.chars().count() as u64;
        let more = 508_001 - next;
        let note = format!(" [… {more} more characters: read on with offset 2, column {next}]\n");
        assert_eq!(text.contains(&note), more > 0, "{column}: {}", &text[text.len() - 90..]);
        told += part;
        column = next;
    }
    assert!(told == long);
    assert_snapshot!(read("long", 1, 3).await, @r"
         1	rst
    [more lines follow: continue with offset 2]
    ");
    assert_snapshot!(read("long", 1, 6).await, @r"
         1	[the line has only 5 characters]
    [more lines follow: continue with offset 2]
    ");
    assert_snapshot!(read("crlf", 1, 2_000).await, @"     1	y");
    let after = agent.ok("read_file", json!({"file_path": "long", "offset": 2, "column": 507_999}));
    assert_snapshot!(after.await, @r"
    2	xä
    3	last
    ");
    place.files().write("flood", &vec![0x80; 100_000]).unwrap();
    assert!(agent.ok("read_file", json!({"file_path": "flood"})).await.len() < 100_000);
}

#[tokio::test]
async fn what_is_no_text_is_not_shown() {
    let place = Place::new();
    let files = place.files();
    files.write("cat.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap();
    files.write("latin", b"caf\xe9 \xff\n").unwrap();
    files.write("late", &[&b"x\n".repeat(100_000)[..], b"\0"].concat()).unwrap();
    assert!(Command::new("mkfifo").arg(place.work("pipe")).status().unwrap().success());
    let agent = Agent::on(files);
    assert_snapshot!(agent.fails("read_file", json!({"file_path": "cat.png"})).await, @"cat.png is a binary file (an image): it cannot be read");
    assert_snapshot!(agent.fails("read_file", json!({"file_path": "pipe"})).await, @"pipe is not a regular file: only those are read and written");
    assert_snapshot!(agent.ok("read_file", json!({"file_path": "latin"})).await, @"     1	caf� �");
    agent.ok("read_file", json!({"file_path": "late", "limit": 1})).await;
    let edit = json!({"file_path": "latin", "old_string": "caf", "new_string": "tea"});
    assert_snapshot!(agent.fails("edit_file", edit).await, @"latin is not UTF-8 text: it can only be replaced as a whole");
}

#[tokio::test]
async fn a_huge_file_is_read_in_parts() {
    let place = Place::new();
    let huge = std::fs::File::create(place.work("huge")).unwrap();
    // One line of 32 MiB that takes no room on the disk, behind a first line of text.
    std::io::Write::write_all(&mut &huge, &[&b"first\n"[..], &[b'x'; 9_000]].concat()).unwrap();
    huge.set_len(32 << 20).unwrap();
    let agent = Agent::on(place.files());
    let text = agent.ok("read_file", json!({"file_path": "huge"})).await;
    assert!(text.starts_with("     1\tfirst\n     2\txxx") && text.len() < 3_000, "{}", text.len());
    assert!(
        agent
            .fails(
                "edit_file",
                json!({"file_path": "huge", "old_string": "first", "new_string": ""})
            )
            .await
            .contains("larger than")
    );
}

#[tokio::test]
async fn nothing_outside_is_read_or_written() {
    let place = Place::new();
    symlink("../out/secret", place.work("link")).unwrap();
    symlink("../out", place.work("dir")).unwrap();
    symlink("../out/new", place.work("dangling")).unwrap();
    let agent = Agent::on(place.files());
    let secret = place.out("secret").to_str().unwrap().to_owned();
    let patch = |path: &str| {
        format!("*** Begin Patch\n*** Add File: ok\n+x\n*** Add File: {path}\n+x\n*** End Patch")
    };
    let mv = |path: &str| {
        format!("*** Begin Patch\n*** Update File: a.txt\n*** Move to: {path}\n*** End Patch")
    };
    agent.ok("read_file", json!({"file_path": "a.txt"})).await;
    for path in [
        "../out/secret",
        "link",
        "dir/secret",
        "dir/new",
        "dangling",
        "/etc/passwd",
        &secret,
        "../x/y",
    ] {
        for (tool, arguments) in [
            ("read_file", json!({"file_path": path})),
            ("write_file", json!({"file_path": path, "content": "changed"})),
            ("edit_file", json!({"file_path": path, "old_string": "top", "new_string": "no"})),
            ("apply_patch", json!({"patch": patch(path)})),
            ("apply_patch", json!({"patch": mv(path)})),
            ("list_dir", json!({"path": path})),
            ("grep", json!({"pattern": ".", "path": path})),
            ("glob", json!({"pattern": "*", "path": path})),
        ] {
            let text = agent.fails(tool, arguments).await;
            assert!(text.contains("outside of the working directory"), "{tool} {path}: {text}");
        }
    }
    for (tool, arguments) in [
        ("grep", json!({"pattern": "secret"})),
        ("glob", json!({"pattern": "**/secret*"})),
        ("glob", json!({"pattern": "../out/*"})),
        ("list_dir", json!({"depth": 5})),
    ] {
        let text = agent.ok(tool, arguments).await;
        assert!(!text.contains("secret"), "{tool}: {text}");
    }
    let kept = std::fs::read_to_string(place.out("secret")).unwrap();
    assert_eq!(
        (kept.as_str(), std::fs::read_dir(place.out("")).unwrap().count()),
        ("top secret\n", 1)
    );
    assert_eq!(std::fs::read_dir(place.work("")).unwrap().count(), 4, "no half of a patch");
}

#[tokio::test]
async fn hopeless_paths() {
    let agent = Agent::on(Place::new().files());
    for path in ["", "a\0b", &"x".repeat(5_000), &"../".repeat(2_000)] {
        for (tool, name) in
            [("read_file", "file_path"), ("list_dir", "path"), ("write_file", "file_path")]
        {
            let mut arguments = json!({ name: path });
            if tool == "write_file" {
                arguments["content"] = "x".into();
            }
            assert!(agent.fails(tool, arguments).await.len() < 500);
        }
    }
}

#[tokio::test]
async fn files_are_consumed_tables_they_are_changed() {
    let place = Place::new();
    let agent = Agent::on(place.files());
    let write = json!({"file_path": "a.txt", "content": "new"});
    let edit = json!({"file_path": "a.txt", "old_string": "inside", "new_string": "new"});
    let patch =
        json!({"patch": "*** Begin Patch\n*** Update File: a.txt\n-inside\n+new\n*** End Patch"});
    let delete = json!({"patch": "*** Begin Patch\n*** Add File: b\n+x\n*** Delete File: a.txt\n*** End Patch"});
    let changes = [
        ("write_file", write),
        ("edit_file", edit),
        ("apply_patch", patch),
        ("apply_patch", delete),
    ];
    for (tool, arguments) in &changes {
        let text = agent.fails(tool, arguments.clone()).await;
        assert!(text.contains("was not read yet"), "{tool}: {text}");
    }
    agent.ok("grep", json!({"pattern": "inside"})).await;
    agent.ok("read_file", json!({"file_path": "a.txt"})).await;
    std::fs::write(place.work("a.txt"), "INSIDE\n").unwrap();
    for (tool, arguments) in &changes {
        let text = agent.fails(tool, arguments.clone()).await;
        assert!(text.contains("has changed since it was read"), "{tool}: {text}");
    }
    assert!(!place.work("b").exists());
    agent.ok("read_file", json!({"file_path": "a.txt"})).await;
    for (index, (tool, arguments)) in changes.into_iter().enumerate() {
        std::fs::write(place.work("a.txt"), "inside\n").unwrap();
        agent.ok("read_file", json!({"file_path": "a.txt"})).await;
        let output = agent.run(tool, arguments).await;
        let expected: &[&str] = if index == 3 { &["a.txt", "b"] } else { &["a.txt"] };
        assert!(!output.is_error && output.files_modified == expected, "{output:?}");
    }
    // What it made itself it knows.
    agent.ok("write_file", json!({"file_path": "c", "content": "1"})).await;
    agent.ok("edit_file", json!({"file_path": "c", "old_string": "1", "new_string": "2"})).await;
    assert_eq!(std::fs::read_to_string(place.work("c")).unwrap(), "2");
}

#[tokio::test]
async fn what_an_agent_has_read_can_be_recalled_for_it() {
    let place = Place::new();
    std::fs::write(place.work("b.txt"), "inside\n").unwrap();
    std::os::unix::fs::symlink("a.txt", place.work("link")).unwrap();
    let agent = Agent::on(place.files());
    let read = agent.run("read_file", json!({"file_path": "none"})).await;
    assert!(read.is_error && read.files_seen.is_empty(), "{read:?}");
    let read = agent.run("read_file", json!({"file_path": "./link"})).await;
    assert_eq!(read.files_seen.keys().collect::<Vec<_>>(), ["a.txt"]);
    let body = "*** Begin Patch\n*** Add File: c\n+x\n*** Delete File: a.txt\n*** End Patch";
    let edit = |path: &str| json!({"file_path": path, "old_string": "inside", "new_string": "new"});

    let later = || {
        let agent = Agent::on(place.files());
        agent.tools.add_known_files(&read.files_seen);
        agent
    };
    // The link leads elsewhere now, to a file of the same content.
    std::fs::remove_file(place.work("link")).unwrap();
    std::os::unix::fs::symlink("b.txt", place.work("link")).unwrap();
    assert!(later().fails("edit_file", edit("link")).await.contains("was not read yet"));
    let other = later();
    let other = Agent { tools: other.tools.for_another_agent(), ..other };
    assert!(other.fails("edit_file", edit("a.txt")).await.contains("was not read yet"));
    let again = later();
    let absolute = place.work("a.txt");
    again.ok("edit_file", edit(absolute.to_str().unwrap())).await;
    let patched = again.run("apply_patch", json!({"patch": body})).await;
    let seen: Vec<_> = patched.files_seen.iter().map(|it| (&**it.0, it.1.is_some())).collect();
    assert_eq!(seen, [("a.txt", false), ("c", true)]);
    std::fs::write(place.work("a.txt"), "inside\n").unwrap();
    assert!(again.fails("edit_file", edit("a.txt")).await.contains("was not read yet"));
}

#[tokio::test]
async fn names_with_secrets_are_not_told_as_seen() {
    let (mut agent, _) = Agent::with(&[("key-hunter2-hunter2", "1")]);
    let redactor = fabro_redact::Redactor::new([("PASSWORD", "hunter2-hunter2")]);
    agent.tools = agent.tools.with_redactor(redactor);
    let path = "key-hunter2-hunter2";
    let read = agent.run("read_file", json!({"file_path": path})).await;
    assert_eq!(read.files_read, ["key-[redacted:PASSWORD]"]);
    assert!(read.files_seen.is_empty());
    agent.ok("write_file", json!({"file_path": path, "content": "2"})).await;
}

#[tokio::test]
async fn of_a_secret_that_a_long_line_is_cut_in_nothing_is_shown() {
    const SECRET: &str = "hunter2-hunter2-hunter2";
    let redactor = fabro_redact::Redactor::new([("PASSWORD", SECRET)]);
    let hex = "68756e746572322d68756e746572322d68756e74657232";
    for secret in [SECRET, hex] {
        // It begins at every place at which a line may be cut, and the match of grep is before or behind it.
        for start in (430..510).chain(1_950..2_005).chain([60, 100, 150]) {
            let line = format!("{}{secret}{}", "x".repeat(start), "NEEDLE y".repeat(700));
            let (mut agent, _) =
                Agent::with(&[("a.txt", &line), ("b.txt", &format!("NEEDLE{line}"))]);
            agent.tools = agent.tools.with_redactor(redactor.clone());
            let mut shown = agent.ok("grep", json!({"pattern": "NEEDLE"})).await;
            shown += &agent.ok("read_file", json!({"file_path": "a.txt"})).await;
            for column in [start, start + 1, start + 9, start + secret.len() - 9] {
                let arguments = json!({"file_path": "a.txt", "offset": 1, "column": column});
                shown += &agent.ok("read_file", arguments).await;
            }
            let before = start.saturating_sub(7_990).max(1);
            shown += &agent.ok("read_file", json!({"file_path": "a.txt", "column": before})).await;
            for part in 0..=secret.len() - 8 {
                assert!(!shown.contains(&secret[part..part + 8]), "{start}, {part}: {shown}");
            }
            assert!(shown.contains("[redacted:PASSWORD]"));
        }
    }
}

#[tokio::test]
async fn a_patch_is_applied_as_a_whole() {
    let before = [("a", "1\n2\n3\n"), ("b", "x\n"), ("d/e", "y\n")];
    let (agent, files) = Agent::with(&before);
    for (path, _) in before {
        agent.ok("read_file", json!({"file_path": path})).await;
    }
    let patch = |body: &str| json!({"patch": format!("*** Begin Patch\n{body}\n*** End Patch")});
    let unchanged = files.all();
    for (body, said) in [
        ("*** Update File: a\n-1\n+one\n*** Update File: b\n-z", "b: hunk 1"),
        ("*** Update File: a\n-1\n+one\n*** Update File: none\n-z", "none does not exist"),
        ("*** Delete File: a\n*** Update File: a\n-1", "deleted or moved earlier"),
        ("*** Delete File: b\n*** Add File: a\n+x", "exists already"),
        ("*** Add File: new\n+x\n*** Add File: ./new\n+y", "exists already"),
        ("*** Delete File: a\n*** Add File: b/c\n+x", "is not a directory"),
        ("*** Delete File: a\n*** Delete File: d", "is a directory"),
        ("*** Update File: b\n*** Move to: a", "exists already"),
    ] {
        let text = agent.fails("apply_patch", patch(body)).await;
        assert!(text.starts_with("nothing was changed: ") && text.contains(said), "{body}: {text}");
        assert_eq!(files.all(), unchanged, "{body}");
    }
    let body = "*** Update File: a\n-1\n+one\n*** Update File: a\n-3\n+three\n*** Update File: b\n\
        *** Move to: c/b\n-x\n+X\n*** Delete File: d/e\n*** Add File: /f\n+f\n+";
    let output = agent.run("apply_patch", patch(body)).await;
    assert_snapshot!(output.text, @r"
    updated a
    updated a
    moved b to c/b
    deleted d/e
    added /f
    ");
    assert_eq!(output.files_modified, ["a", "b", "c/b", "d/e", "f"]);
    let after = files.all().into_iter().map(|(path, it)| (path, String::from_utf8(it).unwrap()));
    let after: Vec<_> = after.map(|(path, it)| format!("{path}={it:?}")).collect();
    assert_snapshot!(after.join(" "), @r#"a="one\n2\nthree\n" c/b="X\n" f="f\n\n""#);
}

#[tokio::test]
async fn a_patch_that_cannot_be_written_is_taken_back() {
    let place = Place::new();
    let files = place.files();
    for name in ["b", "z"] {
        files.write(name, b"old\n").unwrap();
    }
    let agent = Agent::on(files);
    for name in ["b", "z"] {
        agent.ok("read_file", json!({"file_path": name})).await;
    }
    let mut mode = place.work("z").metadata().unwrap().permissions();
    mode.set_readonly(true);
    std::fs::set_permissions(place.work("z"), mode).unwrap();
    let patch = "*** Begin Patch\n*** Add File: a\n+new\n*** Update File: b\n-old\n+new\n\
        *** Update File: z\n-old\n+new\n*** End Patch";
    let text = agent.fails("apply_patch", json!({ "patch": patch })).await;
    assert_snapshot!(text, @"the patch was not applied: z is write-protected: leave it as it is, or ask for its protection to be removed");
    assert_eq!(std::fs::read_to_string(place.work("b")).unwrap(), "old\n");
    assert!(!place.work("a").exists());
}

#[tokio::test]
async fn what_is_no_patch() {
    let (agent, files) = Agent::with(&[("a", "x\n")]);
    let check = async |patch: &str, said: &str| {
        let text = agent.fails("apply_patch", json!({ "patch": patch })).await;
        assert!(text.contains(said), "{patch}: {text}");
    };
    check("", "a patch begins with").await;
    check("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y", "line 1 of the patch: a patch begins with").await;
    check("*** Begin Patch\n", "it breaks off").await;
    check("*** Begin Patch\n*** End Patch", "changes nothing").await;
    check("*** Begin Patch\n*** Add File:\n+x\n*** End Patch", "a path is missing").await;
    check("*** Begin Patch\n*** Add File: b\nx\n*** End Patch", "line 3 of the patch: each line")
        .await;
    check("*** Begin Patch\n*** Update File: a\n*** End Patch", "the file is not changed").await;
    check("*** Begin Patch\n*** Update File: a\nx\n*** End Patch", "begins with a space").await;
    check("*** Begin Patch\n*** Update File: a\n@@ x\n*** End Patch", "a hunk has no lines").await;
    check("*** Begin Patch\n*** Rename File: a\n*** End Patch", "is expected here").await;
    let two = "*** Begin Patch\n*** Delete File: a\n*** End Patch\n*** Begin Patch\n*** End Patch";
    check(two, "nothing may follow").await;
    check(&"@@\n".repeat(100_000), "a patch begins with").await;
    check(
        &format!("*** Begin Patch\n*** Update File: a\n{}", "@@\n".repeat(100_000)),
        "not changed",
    )
    .await;
    assert_eq!(files.all()["a"], b"x\n");
    // As some models wrap it.
    let wrapped = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: b\n+y\n*** End Patch\nEOF\n";
    agent.ok("apply_patch", json!({ "patch": wrapped })).await;
    assert_eq!(files.all()["b"], b"y\n");
}

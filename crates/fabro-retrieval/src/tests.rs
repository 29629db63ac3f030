use std::fs;

use fabro_tokens::{CharsPerFour, CountTokens as _};
use insta::assert_snapshot;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn directory(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// The paths that a glob finds when each file says `word`.
#[track_caller]
fn check_files(root: &TempDir, globs: &[&str], expect: &[&str]) {
    let index = Index::build(root.path(), globs).unwrap();
    let hits = index.search("word", 100).unwrap();
    let mut paths: Vec<_> = hits.into_iter().map(|hit| hit.path).collect();
    paths.sort();
    assert_eq!(paths, expect);
}

#[test]
fn globs_name_files() {
    let names = ["a.md", "b.txt", "docs/c.md", "docs/d/e.md", "docs/d/f.rs", "x y.md", ".h/i.md"];
    let root = directory(&names.map(|name| (name, "word")));
    check_files(&root, &["docs/**/*.md"], &["docs/c.md", "docs/d/e.md"]);
    check_files(&root, &["*.md"], &["a.md", "x y.md"]);
    check_files(&root, &["*.txt, docs/d/*.{rs,md}"], &["b.txt", "docs/d/e.md", "docs/d/f.rs"]);
    check_files(
        &root,
        &["./docs/", "b.txt"],
        &["b.txt", "docs/c.md", "docs/d/e.md", "docs/d/f.rs"],
    );
    check_files(&root, &[".h/*"], &[".h/i.md"]);
    check_files(&root, &["nothing/**"], &[]);
    check_files(&root, &[], &[]);
}

#[test]
fn what_git_ignores_is_not_read() {
    let root = directory(&[
        (".gitignore", "build/\n*.log.md\n"),
        ("a.md", "word"),
        ("b.log.md", "word"),
        ("build/docs/c.md", "word"),
        (".git/d.md", "word"),
        ("sub/.gitignore", "e.md\n"),
        ("sub/e.md", "word"),
        ("sub/f.md", "word"),
    ]);
    check_files(&root, &["**/*.md"], &["a.md", "sub/f.md"]);
    check_files(&root, &["build/docs/*.md", "sub/e.md", ".git/*"], &[]);
}

#[test]
fn links_are_not_followed() {
    use std::os::unix::fs::symlink;
    let outside = directory(&[("secret/a.md", "word")]);
    let root = directory(&[("docs/b.md", "word")]);
    symlink(outside.path(), root.path().join("out")).unwrap();
    symlink(outside.path().join("secret/a.md"), root.path().join("docs/a.md")).unwrap();
    symlink(root.path().join("docs"), root.path().join("docs/loop")).unwrap();
    let found = ["docs/b.md"];
    check_files(&root, &["**/*.md", "out/secret/*.md", "out/**"], &found);
    check_files(&root, &["out", "docs"], &found);
    let linked = outside.path().join("root");
    symlink(root.path(), &linked).unwrap();
    assert_eq!(Index::build(&linked, &["docs/*.md"]).unwrap().report().files, 1);
}

#[test]
fn what_is_no_text_is_skipped_and_counted() {
    let root =
        directory(&[("a.md", "word"), ("b.md", "word\0"), ("c.md", &"word ".repeat(400_001))]);
    fs::write(root.path().join("latin.md"), b"caf\xe9 word").unwrap();
    fs::write(root.path().join("bom.md"), "\u{feff}# Title word").unwrap();
    let index = Index::build(root.path(), &["*"]).unwrap();
    let report = Report { files: 3, chunks: 3, binary: 1, too_large: 1, unreadable: 0 };
    assert_eq!(index.report(), report);
    assert_eq!(index.search("title", 1).unwrap()[0].text, "# Title word");
}

#[test]
fn a_root_that_is_none_is_an_error() {
    let root = directory(&[("a.md", "")]);
    for path in [root.path().join("a.md"), root.path().join("none")] {
        let error = Index::build(&path, &["*"]).unwrap_err().to_string();
        assert!(error.starts_with("directory /"), "{error}");
    }
}

/// Lines and texts of the chunks.
fn cut(path: &str, text: &str) -> String {
    let chunks = chunk::chunks(path, text);
    let shown = chunks.iter().map(|chunk| format!("--- {}\n{}\n", chunk.line, chunk.text));
    shown.collect()
}

#[test]
fn headings_begin_chunks() {
    let text = "intro\n\n# One\n## One and a half\n\ntext\nmore\n\nagain\n\n\n## Two\n```sh\n# no heading\n\n# none\n```\n#hashtag\n# Three\n";
    assert_snapshot!(cut("a.md", text), @r"
    --- 1
    intro
    --- 3
    # One
    ## One and a half

    text
    more

    again
    --- 12
    ## Two
    ```sh
    # no heading

    # none
    ```
    #hashtag
    --- 19
    # Three
    ");
    assert_eq!(chunk::chunks("a.py", "# one\nx = 1\n\n# two\ny = 2\n").len(), 1);
}

#[test]
fn long_texts_are_cut_between_paragraphs_lines_and_words() {
    let paragraph = format!("{}\n\n", "word ".repeat(99).trim());
    let lines: Vec<_> =
        chunk::chunks("a.md", &paragraph.repeat(5)).iter().map(|c| c.line).collect();
    assert_eq!(lines, [1, 5, 9]);
    let line = format!("{}\n", "x".repeat(499));
    let lines: Vec<_> = chunk::chunks("a.md", &line.repeat(5)).iter().map(|c| c.line).collect();
    assert_eq!(lines, [1, 3, 5]);
    let chunks = chunk::chunks("a.md", &format!("\n{}{}", "word ".repeat(500), "ü".repeat(2_000)));
    let lengths: Vec<_> = chunks.iter().map(|c| c.text.chars().count()).collect();
    assert_eq!(lengths, [1199, 1195, 105, 1200, 801]);
}

#[test]
fn any_text_is_a_query() {
    let root = directory(&[("a.md", "word AND NEAR what's this foo:bar x-y")]);
    let index = Index::build(root.path(), &["*"]).unwrap();
    for query in
        ["what's \"this", "a AND", "foo:bar", "x-y", "NEAR(", "word*", "^word", "{a}: word"]
    {
        assert_eq!(index.search(query, 9).unwrap().len(), 1, "{query}");
    }
    for query in ["", " ", "(", "*", "\"", "\0", "🦀", "absent"] {
        assert_eq!(index.search(query, 9).unwrap(), [], "{query}");
    }
    assert_eq!(index.search("word", 0).unwrap(), []);
    let many: Vec<_> = (0..10_000).map(|n| format!("w{n}")).collect();
    assert_eq!(index.search(&format!("word {}", many.join(" ")), usize::MAX).unwrap().len(), 1);
    assert_eq!(index.search(&"word ".repeat(100_000), 1).unwrap().len(), 1);
}

#[test]
fn the_best_comes_first_and_equals_by_their_place() {
    let root = directory(&[
        ("a.md", "the deploys of the day"),
        ("b/2.md", "same text\n\n# X\n\nother"),
        ("b/10.md", "same text"),
        ("c.md", "Deployed with a CAFÉ near by"),
    ]);
    let index = Index::build(root.path(), &["**"]).unwrap();
    let found = |query| {
        let hits = index.search(query, 3).unwrap();
        assert!(hits.is_sorted_by(|a, b| a.score >= b.score));
        hits.iter().map(|hit| format!("{}:{}", hit.path, hit.line)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found("same"), "b/10.md:1 b/2.md:1");
    assert_eq!(found("deploy, cafe?"), "c.md:1 a.md:1");
    assert_eq!(found("OTHERS"), "b/2.md:3");
}

#[test]
fn hits_make_a_block_within_its_ceiling() {
    let hit = |path: &str, line, text: &str| Hit {
        path: path.into(),
        line,
        text: text.into(),
        score: 1.0,
    };
    let hits = [
        hit("docs/a.md", 3, "# One\n\n```\ncode\n```"),
        hit("docs/long.md", 1, &"word ".repeat(200)),
        hit("b\n.md", 7, "two"),
    ];
    assert_snapshot!(block(&hits, &CharsPerFour, 40), @r"
    ## Retrieved from files

    docs/a.md:3
    ````
    # One

    ```
    code
    ```
    ````

    b�.md:7
    ```
    two
    ```
    ");
    for max in 0..400 {
        assert!(CharsPerFour.fits(&block(&hits, &CharsPerFour, max), max));
    }
    assert_eq!(block(&[], &CharsPerFour, 100), "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn chunks_are_the_whole_text(parts in prop::collection::vec((prop::sample::select(vec![
        "word ", "\n", "\n\n", "# Head\n", "```\n", "~~~\n", "ü", "longer words in a line\n",
    ]), 1_usize..400), 0..20)) {
        let text: String = parts.iter().map(|(unit, times)| unit.repeat(*times)).collect();
        let chunks = chunk::chunks("a.md", &text);
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        let all: String = chunks.iter().map(|chunk| squeezed(&chunk.text)).collect();
        prop_assert_eq!(all, squeezed(&text));
        let lines: Vec<_> = text.lines().collect();
        for chunk in &chunks {
            prop_assert!(chunk.text.chars().count() <= chunk::CHUNK_CHARS);
            let first = chunk.text.lines().next().unwrap();
            prop_assert!(lines[chunk.line - 1].contains(first.trim()));
        }
        prop_assert!(chunks.is_sorted_by_key(|chunk| chunk.line));
    }

    #[test]
    fn no_query_fails(query in "\\PC{0,60}") {
        let index = Index { chunks: Vec::new(), words: Mutex::new(index(&[]).unwrap()), report: Report::default() };
        prop_assert_eq!(index.search(&query, 3).unwrap(), []);
    }
}

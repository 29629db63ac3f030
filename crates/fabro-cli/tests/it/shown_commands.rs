//! Every command of `fabro` that a document shows, in a block or within a sentence: its subcommand and its options
//! are ones that there are. What commands print is compared by `pages`.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::{fs, thread};

use regex::Regex;

use super::project::Project;

/// A command as a document shows it, and where.
#[derive(Clone, Debug)]
struct Shown {
    place: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents for users: the pages at the top, in `docs`, and of examples and crates.
fn documents() -> Vec<(String, String)> {
    let root = root();
    let walk = walkdir::WalkDir::new(&root).sort_by_file_name().into_iter();
    let walk = walk.filter_entry(|entry| {
        let name = entry.file_name().to_string_lossy();
        !matches!(&*name, "target" | "tests" | ".git" | "xtask" | "CHANGELOG.md")
    });
    let files = walk.map(|entry| entry.unwrap().into_path());
    let pages = files.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let read = |path: PathBuf| {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        (name, fs::read_to_string(&path).unwrap())
    };
    pages.map(read).collect()
}

/// The commands of a document.
fn commands(name: &str, page: &str) -> Vec<Shown> {
    static INLINE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"`(fabro\s[^`]+)`").unwrap());
    let mut found = Vec::new();
    let mut prose = String::new();
    let mut is_block = false;
    let mut add = |line: usize, text: &str| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        found.push(Shown { place: format!("{name}:{line}"), text });
    };
    for (number, line) in page.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            let parts = trimmed.trim_start_matches("$ ").split("&&");
            parts
                .map(str::trim)
                .filter(|part| part.starts_with("fabro "))
                .for_each(|part| add(number + 1, part));
        } else {
            prose.push_str(line);
        }
        prose.push('\n');
    }
    for inline in INLINE.captures_iter(&prose) {
        let at = inline.get(0).unwrap().start();
        add(prose[..at].matches('\n').count() + 1, &inline[1]);
    }
    found
}

/// The arguments of a command: without what follows it in its line, with a value for each placeholder, and of
/// alternatives the first.
fn arguments(text: &str) -> Vec<String> {
    let changes = [
        (r"\s+#.*", ""),
        (r"(\s|;)(;|\||&&|<|>|2>)(\s.*|/.*)?$|;.*$|\s<\(.*$", ""),
        (r"\[OPTIONS\]|\.\.\.|,\.\.\.", ""),
        (r"\s\|\s-[-\w]+", ""),
        (r"(\w)\|[\w|]+", "$1"),
        (r"--max-cost USD", "--max-cost 1"),
        (r"(--timeout|--older-than) TIME", "$1 1h"),
        (r"(--tail|--keep-recent|--port|--keep|--timeout|--seed) (N|COUNT|SECONDS)", "$1 1"),
        (r"--role ROLE", "--role read"),
        (r"--listen ADDR", "--listen 127.0.0.1"),
        (r"--template NAME", "--template hello"),
        (r"--status STATUS,?", "--status failed"),
        (r"--larger-than SIZE", "--larger-than 1MB"),
    ];
    let mut text = text.to_owned();
    for (pattern, by) in changes {
        text = Regex::new(pattern).unwrap().replace_all(&text, by).into_owned();
    }
    // Brackets say that something may be left out; in `count[1]` they are part of the name of a stage.
    text = Regex::new(r"(^|[\s\[])\[|\](\s|\]|$|\.|[A-Z@])")
        .unwrap()
        .replace_all(&text, "$1$2")
        .into_owned();
    let text = text.replace(['[', ']'], "");
    let words = shlex::split(&text).unwrap_or_else(|| panic!("quotes of `{text}`"));
    words.into_iter().skip(1).collect()
}

/// What is wrong with a command; the options are read, and nothing is executed, as `--help` ends every command.
fn mistake(project: &Project, shown: &Shown) -> Option<String> {
    let mut args = arguments(&shown.text);
    if args.first().is_some_and(|first| first == "COMMAND") {
        args.remove(0);
    }
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    args.insert(end, "--help".to_owned());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = project.output(&args);
    let error = String::from_utf8_lossy(&output.stderr);
    let is_unfinished = error.contains("a value is required for");
    let first = error.lines().next().unwrap_or_default();
    let said = || format!("{}: `{}` ({args:?}): {first}", shown.place, shown.text);
    (!output.status.success() && !is_unfinished).then(said)
}

#[test]
fn every_command_in_a_document_is_one() {
    let pages = documents();
    let all: Vec<Shown> = pages.iter().flat_map(|(name, page)| commands(name, page)).collect();
    let mut once: Vec<Shown> = Vec::new();
    for shown in all {
        if !once.iter().any(|it| it.text == shown.text) {
            once.push(shown);
        }
    }
    assert!(once.len() > 200, "{} commands are too few: {once:?}", once.len());
    let project = Project::new();
    let wrong = thread::scope(|scope| {
        let parts = once.chunks(once.len().div_ceil(4));
        let workers: Vec<_> = parts
            .map(|part| {
                let project = &project;
                let mistakes = move || part.iter().filter_map(|it| mistake(project, it)).collect();
                scope.spawn::<_, Vec<String>>(mistakes)
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_of_documents_are_found() {
    let page = "Run `fabro ps\n--json` and `cargo test`.\n```sh\nfabro init && fabro run hello   # a comment\n```\nSee `fabro explain RUN [NODE]`.\n";
    let found: Vec<_> = commands("a.md", page).into_iter().map(|it| (it.place, it.text)).collect();
    let expected = [
        ("a.md:4", "fabro init"),
        ("a.md:4", "fabro run hello # a comment"),
        ("a.md:1", "fabro ps --json"),
        ("a.md:6", "fabro explain RUN [NODE]"),
    ];
    assert_eq!(found, expected.map(|(place, text)| (place.to_owned(), text.to_owned())));
    assert_eq!(arguments("fabro explain RUN [NODE]; echo $?"), ["explain", "RUN", "NODE"]);
    assert_eq!(arguments("fabro run x.fabro < /dev/null"), ["run", "x.fabro"]);
    assert_eq!(arguments("fabro answer|steer RUN 'a b' | head"), ["answer", "RUN", "a b"]);
    let wrong = |text: &str| {
        mistake(&Project::new(), &Shown { place: "a.md:1".to_owned(), text: text.to_owned() })
    };
    assert_eq!(wrong("fabro ps --json"), None);
    assert!(wrong("fabro ps --jsom").unwrap().contains("unexpected argument '--jsom'"));
    assert!(wrong("fabro pz").unwrap().contains("unrecognized subcommand 'pz'"));
}

#[test]
fn the_readme_is_as_it_says() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let block = |language: &str| {
        let start = readme.split_once(&format!("```{language}\n")).unwrap().1;
        start.split_once("```").unwrap().0.to_owned()
    };
    let project =
        Project::with(&[("fix.fabro", &block("dot")), (".fabro/config.toml", &block("toml"))]);
    // The warning says that the agent could read keys, as does the text below the workflow.
    let checked = project.run(&["validate", "fix.fabro"]);
    assert!(checked.contains("keys-in-reach") && checked.ends_with(": 1 warning\n"), "{checked}");
    let models = project.run(&["model", "list"]);
    assert!(
        models.contains("provider local (openai-compatible) at http://127.0.0.1:11434/v1"),
        "{models}"
    );
    assert!(models.contains("model local/qwen3:8b, for stages that name none"), "{models}");
    assert_eq!(project.exit(&["run", "fix.fabro", "--dry-run"]), 0);
    the_tour_passes_on_the_reviewers_wish(&project);
    assert!(readme.contains("fabro init && fabro run hello"));
    assert_eq!(project.exit(&["init"]), 0);
    assert_eq!(project.exit(&["run", "hello"]), 0);
    // The demo, without its question.
    let demo = root().join("fixtures/demo/run.toml");
    assert!(readme.contains("-- run fixtures/demo/run.toml"));
    assert_eq!(project.exit(&["run", &demo.display().to_string(), "--auto-approve"]), 0);
}

/// Runs the workflow of the README: a red test, a fix, a wish at the gate, and another fix.
fn the_tour_passes_on_the_reviewers_wish(project: &Project) {
    project.write("bin/cargo", b"#!/bin/sh\necho >> tries; test $(wc -l < tries) -gt 1\n");
    project.write("model.json", br#"{"fix": [{"text": "Fixed."}, {"text": "Shortened."}]}"#);
    project.write("answers.json", br#"{"ask": ["shorter, please", "K"]}"#);
    let script = r#"chmod +x bin/cargo && PATH="$PWD/bin:$PATH" exec "$0" "$@""#;
    let mut tour = project.program("sh");
    tour.args(["-c", script, env!("CARGO_BIN_EXE_fabro"), "run", "fix.fabro"]);
    tour.args(["--model-script", "model.json", "--answers", "answers.json"]);
    let shown = project.shown(&tour.output().unwrap());
    assert!(shown.starts_with("exit 0\n"), "{shown}");
    let prompt = |stage: &str| {
        let stage = project.json(&["inspect", "latest", stage, "--json"]);
        stage["prompt"].as_str().unwrap().lines().last().unwrap().to_owned()
    };
    assert_eq!(prompt("fix@1"), "Make the tests pass. A reviewer adds: nothing");
    assert_eq!(prompt("fix@2"), "Make the tests pass. A reviewer adds: shorter, please");
}

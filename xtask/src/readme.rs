//! The README of a crate, made from its crate docs.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use toml::Value;

use crate::workspace::Package;

/// The text of `crates/NAME/README.md`: the `//!` lines at the top of `source` under a title, then
/// what a project elsewhere needs to run the example. Code fences that rustdoc takes for Rust are
/// marked `rust`, and the lines that rustdoc hides (`# …`) are left out. `None` without crate docs.
pub(crate) fn render(package: &Package, source: &str) -> Option<String> {
    let docs = crate_docs(source);
    if docs.is_empty() {
        return None;
    }
    let mut text = format!("# {}\n\n", package.name);
    let mut example = Example::default();
    let mut fences = Fences::default();
    for line in docs {
        let was_rust = fences.in_rust();
        let is_fence = fences.read(line);
        if is_fence && fences.in_rust() {
            example.blocks += 1;
            let backticks = line.trim_end_matches(|c| c != '`');
            text.extend([backticks, "rust"]);
        } else if was_rust && !is_fence && is_hidden(line) {
            example.hidden(line);
            continue;
        } else if was_rust && !is_fence {
            example.shown(line);
            text.push_str(line);
        } else {
            text.push_str(&without_item_links(line));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    if example.blocks > 0 {
        text += "\n\n# In a project of your own\n\n";
        text += &usage(package, &example);
    }
    Some(text + "\n\nPart of [Fabro](../../README.md).\n")
}

/// A line without its links to items, which only rustdoc follows: their text stays.
fn without_item_links(line: &str) -> Cow<'_, str> {
    #[expect(clippy::expect_used, reason = "the expression is valid")]
    static LINK: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\[([^\[\]]+)\](?:\(([^()]*)\))?").expect("a valid expression")
    });
    LINK.replace_all(line, |found: &Captures<'_>| {
        let text = &found[1];
        let is_item = match found.get(2) {
            Some(target) => !target.as_str().contains(['/', '.', '#']),
            None => text.starts_with('`') && text.ends_with('`'),
        };
        if is_item { text.to_owned() } else { found[0].to_owned() }
    })
}

/// What the Rust blocks of some crate docs need around them.
#[derive(Default)]
struct Example {
    blocks: usize,
    /// Its `?` need a `main` that returns a result.
    fails: bool,
    /// Its `.await` need a runtime.
    awaits: bool,
    /// What stands before a `::`.
    paths: BTreeSet<String>,
}

impl Example {
    fn shown(&mut self, line: &str) {
        let last_word = |text: &str| {
            let word = text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
            word.unwrap_or_default().to_owned()
        };
        let code = line.split("//").next().unwrap_or_default();
        self.paths.extend(code.match_indices("::").map(|(at, _)| last_word(&code[..at])));
        self.fails |= ["?;", "?."].iter().any(|end| code.contains(end));
        self.awaits |= code.contains(".await");
    }

    fn hidden(&mut self, line: &str) {
        self.fails |= line.contains("Ok");
    }
}

/// The commands that add the crate, what its example uses beside it, and where the example goes.
fn usage(package: &Package, example: &Example) -> String {
    let mut text = "```text\n".to_owned();
    let names = package.dependencies().into_iter().map(|it| it.name);
    let mut used: BTreeSet<_> =
        names.filter(|name| example.paths.contains(&name.replace('-', "_"))).collect();
    let own = used.iter().copied().filter(|name| name.starts_with("fabro-"));
    let own: Vec<_> = std::iter::once(package.name.as_str()).chain(own).collect();
    for name in &own {
        let _ = writeln!(text, "cargo add --path FABRO/crates/{name}");
    }
    used.retain(|name| !name.starts_with("fabro-"));
    let needs_tokio = used.remove("tokio") || example.awaits;
    if !used.is_empty() {
        let _ = writeln!(text, "cargo add {}", Vec::from_iter(used).join(" "));
    }
    if needs_tokio {
        text += "cargo add tokio --features full\n";
    }
    text += "```\n\n`FABRO` is where the repository is. ";
    text += if example.blocks > 1 { "Each example" } else { "The example" };
    text += " goes into a\n`";
    text += if example.awaits { "#[tokio::main] async fn main()" } else { "fn main()" };
    if example.fails {
        text += " -> Result<(), Box<dyn std::error::Error>>`, which ends\nwith `Ok(())`.";
    } else {
        text += "`.";
    }
    let features = package.manifest.get("features").and_then(Value::as_table);
    let names = features.into_iter().flat_map(|table| table.keys()).filter(|it| *it != "default");
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if !names.is_empty() {
        let _ = write!(text, " Features: {}.", names.join(", "));
    }
    text
}

/// What the examples of crate docs hide although their shown lines need it: imports, and variables
/// that no shown line declares. The README leaves those lines out, so it would not compile.
pub(crate) fn hidden_definitions(source: &str) -> Vec<String> {
    let mut fences = Fences::default();
    let mut shown = String::new();
    let mut hidden = Vec::new();
    for line in crate_docs(source) {
        if fences.read(line) || !fences.in_rust() {
            continue;
        }
        match line.trim().strip_prefix("# ") {
            Some(code) => hidden.push(code.trim()),
            None => shown.extend([line, "\n"]),
        }
    }
    let shown_words: BTreeSet<_> = words(&shown).collect();
    let shown_names: BTreeSet<_> = shown.lines().filter_map(declared_name).collect();
    let needed = hidden.into_iter().filter(|line| match declared_name(line) {
        Some(name) => shown_words.contains(name) && !shown_names.contains(name),
        None => line.starts_with("use "),
    });
    needed.map(str::to_owned).collect()
}

/// The variable that a line of code declares by `let`.
fn declared_name(line: &str) -> Option<&str> {
    let rest = line.trim().strip_prefix("let ")?;
    words(rest.strip_prefix("mut ").unwrap_or(rest)).next()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

/// The `//!` lines at the top, without the marker. Attributes between them do not end them.
pub(crate) fn crate_docs(source: &str) -> Vec<&str> {
    let own = source.lines().take_while(|line| line.starts_with("//!") || line.starts_with("#!["));
    let docs = own.filter_map(|line| line.strip_prefix("//!"));
    docs.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect()
}

/// True when the docs hold an example that `cargo test` runs.
pub(crate) fn has_doctest(source: &str) -> bool {
    let mut fences = Fences::default();
    crate_docs(source).into_iter().any(|line| {
        let opens = fences.read(line) && fences.in_rust();
        opens && !line.contains("no_run") && !line.contains("compile_fail")
    })
}

/// Where in its code blocks a Markdown text is.
#[derive(Default)]
struct Fences {
    /// How many backticks the open fence has.
    inside: Option<usize>,
    /// Rustdoc takes that block for Rust.
    rust: bool,
}

impl Fences {
    fn in_rust(&self) -> bool {
        self.inside.is_some() && self.rust
    }

    /// Takes the next line; true when it opens or closes a block. A fence is indented by at most
    /// three blanks, and a closing one is at least as long as the opening one and says nothing.
    fn read(&mut self, line: &str) -> bool {
        let start = line.trim_start_matches(' ');
        let info = start.trim_start_matches('`');
        let length = start.len() - info.len();
        if line.len() - start.len() > 3 || length < 3 {
            return false;
        }
        match self.inside {
            None => {
                *self = Self { inside: Some(length), rust: is_rust(info) };
                true
            }
            Some(open) if length >= open && info.trim().is_empty() => {
                self.inside = None;
                true
            }
            Some(_) => false,
        }
    }
}

/// Rustdoc's rule: Rust unless the info string names something else.
fn is_rust(info: &str) -> bool {
    const WORDS: [&str; 5] = ["rust", "no_run", "should_panic", "compile_fail", "edition2024"];
    info.split([',', ' ']).filter(|word| !word.is_empty()).all(|word| WORDS.contains(&word))
}

/// Rustdoc runs such a line of an example and does not show it.
fn is_hidden(line: &str) -> bool {
    let line = line.trim();
    line == "#" || line.starts_with("# ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
//! What it is.
//!
//! ```
//! # use a::b;
//! let x = [1];
//!     ```
//! #[derive(Debug)] struct S;
//! ```
//!
//! ```text
//! # kept
//! ```
#![doc = include_str!(\"reference.md\")]

mod a;
//! not this
";

    #[test]
    fn links_that_only_rustdoc_follows_are_left_out() {
        let check = |line: &str, expect: &str| assert_eq!(without_item_links(line), expect);
        check("A [`Lookup`] and [its key](Lookup::key).", "A `Lookup` and its key.");
        check(
            "See [the page](../docs/a.md), [b](https://b.org).",
            "See [the page](../docs/a.md), [b](https://b.org).",
        );
        check("A list [1] of [words], `a[0]`.", "A list [1] of [words], `a[0]`.");
    }

    #[test]
    fn a_readme_is_the_crate_docs_under_a_title() {
        insta::assert_snapshot!(render(&package("a"), SOURCE).unwrap(), @r"
        # a

        What it is.

        ```rust
        let x = [1];
            ```
        #[derive(Debug)] struct S;
        ```

        ```text
        # kept
        ```

        # In a project of your own

        ```text
        cargo add --path FABRO/crates/a
        ```

        `FABRO` is where the repository is. The example goes into a
        `fn main()`.

        Part of [Fabro](../../README.md).
        ");
        assert_eq!(render(&package("a"), "mod x;"), None);
    }

    #[test]
    fn what_an_example_needs_is_said() {
        let manifest = "[dependencies]\nfabro-b = 1\nserde_json = 1\ntokio-util = 1\ntempfile = 1\n\
            [features]\ndefault = []\nmore = []";
        let package = Package { manifest: manifest.parse().unwrap(), ..package("fabro-a") };
        let source = "//! A.\n//! ```\n//! use fabro_b::{B, C};\n//! # async fn main() -> Result<(), E> {\n\
            //! let x = serde_json::json!(tokio_util::sync::X::new().await?); // tempfile::no\n\
            //! # Ok(())\n//! # }\n//! ```\n";
        insta::assert_snapshot!(render(&package, source).unwrap(), @r"
        # fabro-a

        A.
        ```rust
        use fabro_b::{B, C};
        let x = serde_json::json!(tokio_util::sync::X::new().await?); // tempfile::no
        ```

        # In a project of your own

        ```text
        cargo add --path FABRO/crates/fabro-a
        cargo add --path FABRO/crates/fabro-b
        cargo add serde_json tokio-util
        cargo add tokio --features full
        ```

        `FABRO` is where the repository is. The example goes into a
        `#[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>>`, which ends
        with `Ok(())`. Features: `more`.

        Part of [Fabro](../../README.md).
        ");
    }

    #[test]
    fn an_example_hides_nothing_that_its_shown_lines_need() {
        #[track_caller]
        fn check(example: &str, expected: &[&str]) {
            let lines = ["```", example, "```"].join("\n");
            let source = format!("//! {}\n", lines.replace('\n', "\n//! "));
            assert_eq!(hidden_definitions(&source), expected);
        }
        check("# let dir = temp();\nopen(&dir);", &["let dir = temp();"]);
        check("# let mut a = 1;\nlet b = a.x;", &["let mut a = 1;"]);
        check("# use std::fs;\nfs::read();", &["use std::fs;"]);
        check("# let runtime = new();\n# runtime.block_on(async {\nx().await;\n# })", &[]);
        check("let path = a();\n# let path = b(path);\nuse_it(path);", &[]);
    }

    fn package(name: &str) -> Package {
        Package { name: name.into(), dir: format!("crates/{name}"), manifest: toml::Table::new() }
    }

    #[test]
    fn only_code_that_runs_is_a_doctest() {
        assert!(has_doctest(SOURCE));
        for info in ["text", "no_run", "ignore", "toml"] {
            assert!(!has_doctest(&format!("//! ```{info}\n//! x\n//! ```\n")), "{info}");
        }
        assert!(has_doctest("//! ```text\n//! x\n//! ```\n//! ```rust\n//! ```\n"));
    }
}

//! The README of a crate, made from its crate docs.

/// The text of `crates/NAME/README.md`: the `//!` lines at the top of `source` under a title. Code
/// fences that rustdoc takes for Rust are marked `rust`, and the lines that rustdoc hides (`# …`)
/// are left out. `None` without crate docs.
pub(crate) fn render(name: &str, source: &str) -> Option<String> {
    let docs = crate_docs(source);
    if docs.is_empty() {
        return None;
    }
    let mut text = format!("# {name}\n\n");
    let mut fences = Fences::default();
    for line in docs {
        let was_rust = fences.in_rust();
        let is_fence = fences.read(line);
        if is_fence && fences.in_rust() {
            let backticks = line.trim_end_matches(|c| c != '`');
            text.extend([backticks, "rust"]);
        } else if was_rust && !is_fence && is_hidden(line) {
            continue;
        } else {
            text.push_str(line);
        }
        text.push('\n');
    }
    Some(format!("{}\n\nPart of [Fabro](../../README.md).\n", text.trim_end()))
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
    fn a_readme_is_the_crate_docs_under_a_title() {
        insta::assert_snapshot!(render("a", SOURCE).unwrap(), @r"
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

        Part of [Fabro](../../README.md).
        ");
        assert_eq!(render("a", "mod x;"), None);
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

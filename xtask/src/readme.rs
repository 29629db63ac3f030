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
    let mut fence = Fence::Outside;
    for line in docs {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            let indent = &line[..line.len() - line.trim_start().len()];
            fence = match fence {
                Fence::Outside if is_rust(info) => Fence::Rust,
                Fence::Outside => Fence::Other,
                _ => Fence::Outside,
            };
            match fence {
                Fence::Rust => text.extend([indent, "```rust"]),
                _ => text.push_str(line),
            }
        } else if fence == Fence::Rust && (line.trim() == "#" || line.trim().starts_with("# ")) {
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
    let mut inside = false;
    crate_docs(source).iter().filter_map(|line| line.trim_start().strip_prefix("```")).any(|info| {
        inside = !inside;
        inside && is_rust(info) && !info.contains("no_run") && !info.contains("compile_fail")
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fence {
    Outside,
    Rust,
    Other,
}

/// Rustdoc's rule: Rust unless the info string names something else.
fn is_rust(info: &str) -> bool {
    const WORDS: [&str; 5] = ["rust", "no_run", "should_panic", "compile_fail", "edition2024"];
    info.split([',', ' ']).filter(|word| !word.is_empty()).all(|word| WORDS.contains(&word))
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

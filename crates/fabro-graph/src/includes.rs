//! `{% include "path" %}` in prompts: the text of the file takes its place.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::sources::{Sources, join_path};

/// How deep files include each other.
const MAX_DEPTH: usize = 16;

/// Maximum number of included files per prompt. Nested and repeated includes count.
const MAX_FILES: usize = 1_000;

/// The largest prompt with all that it includes, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// An include with a fixed path, or a comment or raw block, in which it would be text.
static INCLUDE: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r#"(?xs) \{\#.*?\#\}
        | \{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}
        | (?<before>\s*\{%-|\{%\+?) \s*include\s*
          (?:"(?<double>[^"]*)"|'(?<single>[^']*)')
          (?<optional>\s+ignore\s+missing)? (?:\s+with(?:out)?\s+context)?
          \s*(?<after>-%\}\s*|\+?%\})"#;
    #[expect(clippy::expect_used, reason = "a test compiles it")]
    let compiled = Regex::new(pattern).expect("the pattern is fixed");
    compiled
});

/// The text with the files that it includes. `path` is that of the file with the text, relative to the
/// workflow; empty for a text of the workflow itself.
///
/// # Errors
/// Why a file cannot be included, as a fragment.
pub(crate) fn with_includes(
    text: &str,
    path: &str,
    sources: &dyn Sources,
) -> Result<Option<String>, String> {
    if !text.contains("include") || !text.contains("{%") {
        return Ok(None);
    }
    expanded(text, path, sources, (MAX_DEPTH, &mut { MAX_FILES })).map(Some)
}

/// Removes all include tags.
pub(crate) fn without_includes(text: &str) -> String {
    let kept = |found: &Captures<'_>| match found.name("before") {
        Some(_) => String::new(),
        None => found[0].to_owned(),
    };
    INCLUDE.replace_all(text, kept).into_owned()
}

/// `depth` and `files` are the remaining nesting depth and number of files.
fn expanded(
    text: &str,
    path: &str,
    sources: &dyn Sources,
    (depth, files): (usize, &mut usize),
) -> Result<String, String> {
    let folder = path.rfind('/').map_or("", |slash| &path[..=slash]);
    let mut out = String::new();
    let mut done = 0;
    for found in INCLUDE.captures_iter(text) {
        let Some(name) = found.name("double").or_else(|| found.name("single")) else { continue };
        let whole = found.get_match();
        out.push_str(&text[done..whole.start()]);
        done = whole.end();
        out.push_str(&included(&found, folder, name.as_str(), sources, (depth, files))?);
        if out.len() > MAX_BYTES {
            return Err(format!("the text and what it includes have more than {MAX_BYTES} bytes"));
        }
    }
    out.push_str(&text[done..]);
    Ok(out)
}

fn included(
    found: &Captures<'_>,
    folder: &str,
    name: &str,
    sources: &dyn Sources,
    (depth, files): (usize, &mut usize),
) -> Result<String, String> {
    let path = join_path(folder, name);
    if path.starts_with(['/', '\\', '~']) || path.starts_with("..") || path.get(1..2) == Some(":") {
        return Err(format!("`{name}` is outside of the workflow's folder"));
    }
    // Other attributes find such a path in the project's `.fabro`.
    if path.split('/').next() == Some("fabro") {
        let why = "begins with `fabro/`, which may be outside of the workflow's folder";
        return Err(format!("`{name}` {why}"));
    }
    *files = files
        .checked_sub(1)
        .ok_or_else(|| format!("the text includes more than {MAX_FILES} files"))?;
    let depth = depth.checked_sub(1);
    let depth =
        depth.ok_or_else(|| format!("files include each other more than {MAX_DEPTH} deep"))?;
    match sources.read(&path) {
        Ok(text) => expanded(&text, &path, sources, (depth, files)),
        Err(_) if found.name("optional").is_some() => Ok(String::new()),
        Err(reason) => Err(format!("`{path}`: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemorySources;

    #[test]
    fn files_take_the_place_of_includes() {
        let files = [
            ("common.md", "common {% if x %}y{% endif %}"),
            ("prompts/a.md", "a, {% include 'b.md' %}"),
            ("prompts/b.md", "b"),
            ("loop.md", "{% include 'loop.md' %}"),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let sources = MemorySources(files.into());
        let check = |text: &str, path: &str, expect: &str| {
            let found = with_includes(text, path, &sources);
            let found = found.map(|found| found.unwrap_or_else(|| text.to_owned()));
            assert_eq!(found.unwrap_or_else(|error| format!("error: {error}")), expect);
        };
        check("1 {% include \"common.md\" %} 2", "", "1 common {% if x %}y{% endif %} 2");
        check("1 {%- include 'prompts/b.md' -%} 2", "", "1b2");
        check("{% include 'a.md' %}!", "prompts/x.md", "a, b!");
        check(
            "{% include '../common.md' with context %}",
            "prompts/x.md",
            "common {% if x %}y{% endif %}",
        );
        check("[{% include 'none.md' ignore missing %}]", "", "[]");
        check("{% include 'none.md' %}", "", "error: `none.md`: no such file");
        check(
            "{% include '../x.md' %}",
            "",
            "error: `../x.md` is outside of the workflow's folder",
        );
        check(
            "{% include '/etc/passwd' %}",
            "",
            "error: `/etc/passwd` is outside of the workflow's folder",
        );
        check(
            "{% include 'fabro/x.md' %}",
            "",
            "error: `fabro/x.md` begins with `fabro/`, which may be outside of the workflow's folder",
        );
        let twice = "{%- include 'wide.md' -%}{%- include 'wide.md' -%}";
        let wide = MemorySources([("wide.md".to_owned(), twice.to_owned())].into());
        let found = with_includes(twice, "", &wide);
        assert_eq!(found.unwrap_err(), "files include each other more than 16 deep");
        let files = (0..12)
            .map(|n| (format!("{n}.md"), format!("{{%- include '{}.md' -%}}", n + 1).repeat(8)));
        let wide = MemorySources(files.chain([("12.md".to_owned(), String::new())]).collect());
        let found = with_includes("{% include '0.md' %}", "", &wide);
        assert_eq!(found.unwrap_err(), "the text includes more than 1000 files");
        check("{% include 'loop.md' %}", "", "error: files include each other more than 16 deep");
        let text = "{# {% include 'b' %} #} {% raw %}{% include 'b' %}{% endraw %} {% include name %} include";
        check(text, "", text);
    }
}

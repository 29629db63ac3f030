//! The table of attributes is the only definition of the language: what the code reads and what the
//! documentation describes is in it.

use fabro_graph::schema::{ATTRIBUTES, Attribute, GRAPHVIZ, OLDER_NAMES, find_anywhere};
use regex::Regex;

use super::Problem;
use crate::workspace::Workspace;

/// Where the language is described.
const PAGES: [&str; 2] = ["docs/workflow-language.md", "docs/agents.md"];

/// What stands before `=` in the documentation and is no attribute: context keys, in conditions and
/// assignments.
const NO_ATTRIBUTES: [&str; 3] = ["n", "outcome", "shell"];

/// Every attribute that the code reads by its name is in the table.
pub(super) fn read_attributes_are_known(workspace: &Workspace) -> Vec<Problem> {
    let Ok(reads) = Regex::new(
        r#"\battrs(?:\(\))?\s*\.(?:get|text|shared_text|bool|is_true|int|float|duration)\(\s*"([\w.]+)"|\b(?:parsed|word|has_text)\(\s*[\w&.]+,\s*"([\w.]+)""#,
    ) else {
        return vec![Problem::new("xtask/src/tidy/attributes.rs", 0, "the expression is broken")];
    };
    let mut problems = Vec::new();
    let sources = workspace.packages.iter().flat_map(|package| workspace.sources(package));
    let production = sources.filter(|(path, _)| path.contains("/src/") && !path.contains("tests"));
    for (path, text) in production {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for found in reads.captures_iter(code) {
            let Some(name) = found.get(1).or_else(|| found.get(2)) else { continue };
            let name_text = name.as_str();
            if find_anywhere(name_text).is_none() {
                let line = code[..name.start()].matches('\n').count() + 1;
                let message = format!("`{name_text}` is not in the table of attributes");
                problems.push(Problem::new(path, line, message));
            }
        }
    }
    problems
}

/// The pages of the language describe every attribute, and no other.
pub(super) fn documented_attributes_are_known(workspace: &Workspace) -> Vec<Problem> {
    let Ok(written) = Regex::new(r"`(?:\w+ \[)?([a-z_]+(?:\.[a-z_]+)*)=[^`]*`") else {
        return vec![Problem::new("xtask/src/tidy/attributes.rs", 0, "the expression is broken")];
    };
    let pages: Vec<_> =
        PAGES.iter().filter_map(|path| Some((*path, workspace.file(path)?))).collect();
    let mut problems = Vec::new();
    for (path, text) in &pages {
        for found in written.captures_iter(text).filter_map(|found| found.get(1)) {
            let name = found.as_str();
            let is_older = OLDER_NAMES.iter().any(|older| older.older == name);
            let is_known = is_older
                || is_context_key(name)
                || find_anywhere(name).is_some()
                || GRAPHVIZ.contains(&name)
                || NO_ATTRIBUTES.contains(&name);
            if !is_known {
                let line = text[..found.start()].matches('\n').count() + 1;
                let message = format!("`{name}` is not in the table of attributes");
                problems.push(Problem::new(*path, line, message));
            }
        }
    }
    if pages.is_empty() {
        return problems;
    }
    let is_described = |name: &str| pages.iter().any(|(_, text)| text.contains(name));
    let missing = ATTRIBUTES.iter().filter(|attribute| !is_described(attribute.name));
    problems.extend(missing.map(|attribute| {
        Problem::new(PAGES[0], 0, format!("describe the attribute `{}`", attribute.name))
    }));
    problems
}

/// `item.kind` and the like, which conditions compare: no attribute has its first part.
fn is_context_key(name: &str) -> bool {
    let Some((table, _)) = name.split_once('.') else { return false };
    let has_table =
        |attribute: &Attribute| attribute.name.split_once('.').is_some_and(|(own, _)| own == table);
    !ATTRIBUTES.iter().any(has_table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn an_attribute_outside_of_the_table_is_found() {
        let check = |source: &str| {
            let manifest = ("crates/a/Cargo.toml", "[package]\nname = 'a'");
            found(read_attributes_are_known, &[manifest, ("crates/a/src/lib.rs", source)])
        };
        assert_eq!(check("fn a() { attrs.text(\"goal\"); node.attrs.int(\"max_visits\"); }"), "");
        assert_eq!(
            check("fn a() {\n    node.attrs.text(\"gaol\"); self.word(attrs, \"langauge\");\n}"),
            "crates/a/src/lib.rs:2: `gaol` is not in the table of attributes\n\
             crates/a/src/lib.rs:2: `langauge` is not in the table of attributes"
        );
    }
}

//! The names of control files come from one table, which also protects these files.

use fabro_types::control_files::{DOCUMENTS, SETTINGS_FILES, SKILL_DIRS, SKILL_FILE};

use super::Problem;
use super::source::sources;
use crate::workspace::Workspace;

/// The crate that defines the table.
const OWNER: &str = "fabro-types";

/// Checks that no other crate hard-codes the name of a settings file, of instructions or of a skill.
pub(super) fn names_come_from_the_table(workspace: &Workspace) -> Vec<Problem> {
    let lists = [&SETTINGS_FILES[..], &DOCUMENTS, &SKILL_DIRS, &[SKILL_FILE]];
    let whole = lists.into_iter().flatten().copied();
    let last = whole.clone().filter_map(|name| Some(name.rsplit_once('/')?.1));
    let names: Vec<String> = whole.chain(last).map(|name| format!("\"{name}\"")).collect();
    // Too common: other programs use these names too.
    let is_common = |name: &str| matches!(name, "\"config.toml\"" | "\"skills\"");
    let others = workspace.packages.iter().filter(|package| package.name != OWNER);
    let others = others.filter(|package| package.name.starts_with("fabro-"));
    let mut problems = Vec::new();
    for source in others.flat_map(|package| sources(workspace, package)) {
        let is_literal = |text: &str| names.iter().any(|name| name == text) && !is_common(text);
        problems.extend(source.tokens.iter().filter(|token| is_literal(&token.text)).map(
            |token| {
                let message = format!("take {} from `fabro_types::control_files`", token.text);
                Problem::new(source.path, token.line, message)
            },
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::found;

    #[test]
    fn a_hard_coded_name_is_a_problem() {
        let files = [
            ("crates/fabro-x/Cargo.toml", "[package]\nname = 'fabro-x'\n"),
            ("crates/fabro-x/src/lib.rs", "fn f() {\n    read(\"AGENTS.md\");\n}\n"),
        ];
        insta::assert_snapshot!(found(names_come_from_the_table, &files), @"crates/fabro-x/src/lib.rs:2: take \"AGENTS.md\" from `fabro_types::control_files`");
    }
}

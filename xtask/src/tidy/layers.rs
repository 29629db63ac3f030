//! Which crate may use which: the table of `docs/architecture.md`.

use std::collections::BTreeSet;

use super::Problem;
use crate::workspace::{Dependency, Kind, Package, Workspace};

/// A crate and its place.
pub(super) struct Member {
    pub(super) name: &'static str,
    /// It may use only crates of lower layers.
    pub(super) layer: u8,
    /// No I/O, clock, randomness or async runtime.
    pub(super) pure: bool,
    /// Somebody outside would call it first, so it has an example.
    pub(super) entry_point: bool,
}

const fn member(name: &'static str, layer: u8) -> Member {
    Member { name, layer, pure: false, entry_point: false }
}

impl Member {
    const fn pure(self) -> Self {
        Self { pure: true, ..self }
    }

    const fn entry_point(self) -> Self {
        Self { entry_point: true, ..self }
    }
}

pub(super) const MEMBERS: &[Member] = &[
    member("fabro-types", 0).pure(),
    member("fabro-tokens", 0).pure().entry_point(),
    member("fabro-fakes", 0).entry_point(),
    member("fabro-graph", 1).pure().entry_point(),
    member("fabro-condition", 1).pure().entry_point(),
    member("fabro-stylesheet", 1).pure().entry_point(),
    member("fabro-template", 1).pure().entry_point(),
    member("fabro-routing", 1).pure().entry_point(),
    member("fabro-preamble", 1).pure().entry_point(),
    member("fabro-events", 1).pure(),
    member("fabro-blob", 1).entry_point(),
    member("fabro-compaction", 1).pure().entry_point(),
    member("fabro-redact", 1).pure().entry_point(),
    member("fabro-context", 2).pure(),
    member("fabro-plan", 2).pure(),
    member("fabro-config", 2).entry_point(),
    member("fabro-store", 2).entry_point(),
    member("fabro-llm", 2).entry_point(),
    member("fabro-sandbox", 2).entry_point(),
    member("fabro-gate", 2).entry_point(),
    member("fabro-retrieval", 2).entry_point(),
    member("fabro-validate", 3).entry_point(),
    member("fabro-engine", 3).entry_point(),
    member("fabro-tools", 3).entry_point(),
    member("fabro-agent", 4).entry_point(),
    member("fabro-external-agents", 4).entry_point(),
    member("fabro-handlers", 5),
    member("fabro-run", 6).entry_point(),
    member("fabro-terminal", 6),
    member("fabro-inspect", 7),
    member("fabro-cli", 8),
    // The developers' tools, above every layer.
    member("fabro-crash", 9),
    member("xtask", 9),
];

pub(super) fn find(name: &str) -> Option<&'static Member> {
    MEMBERS.iter().find(|member| member.name == name)
}

/// Every package has a place in the table, and every line of the table is a package.
pub(super) fn known_members(workspace: &Workspace) -> Vec<Problem> {
    let unplaced = workspace.packages.iter().filter(|package| find(&package.name).is_none());
    let unplaced = unplaced.map(|package| {
        problem(package, "has no layer: add it to xtask/src/tidy/layers.rs and the architecture")
    });
    let names: BTreeSet<_> = workspace.packages.iter().map(|package| &*package.name).collect();
    let gone = MEMBERS.iter().filter(|member| !names.contains(member.name));
    let gone = gone.map(|member| {
        let message = format!("`{}` has a layer, but is no package", member.name);
        Problem::new("xtask/src/tidy/layers.rs", 0, message)
    });
    unplaced.chain(gone).collect()
}

/// A crate uses only crates of lower layers, in tests too.
pub(super) fn only_lower_layers(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in &workspace.packages {
        let Some(from) = find(&package.name) else { continue };
        for dependency in package.dependencies() {
            let Some(to) = find(dependency.name) else { continue };
            if to.layer >= from.layer {
                let message = format!(
                    "`{}` (layer {}) may not use `{}` (layer {})",
                    from.name, from.layer, to.name, to.layer
                );
                problems.push(problem(package, &message));
            }
        }
    }
    problems
}

/// The engine reaches no model, no sandbox and nobody: handlers bring them.
pub(super) fn engine_knows_no_effects(workspace: &Workspace) -> Vec<Problem> {
    const EFFECTS: [&str; 3] = ["fabro-llm", "fabro-sandbox", "fabro-gate"];
    let mut problems = Vec::new();
    let mut seen = BTreeSet::from(["fabro-engine"]);
    let mut todo = vec!["fabro-engine"];
    while let Some(name) = todo.pop() {
        let Some(package) = workspace.packages.iter().find(|package| package.name == name) else {
            continue;
        };
        for dependency in package.dependencies() {
            if dependency.kind == Kind::Development || !seen.insert(dependency.name) {
                continue;
            }
            if EFFECTS.contains(&dependency.name) {
                let message = format!("`fabro-engine` reaches `{}` through this", dependency.name);
                problems.push(problem(package, &message));
            }
            todo.push(dependency.name);
        }
    }
    problems
}

/// The handlers are where everything meets, so their dependencies are counted.
pub(super) fn few_arrows_from_handlers(workspace: &Workspace) -> Vec<Problem> {
    const MOST: usize = 15;
    let Some(package) = workspace.packages.iter().find(|it| it.name == "fabro-handlers") else {
        return Vec::new();
    };
    let dependencies = package.dependencies();
    let is_ours = |it: &&Dependency<'_>| it.kind == Kind::Normal && find(it.name).is_some();
    let count = dependencies.iter().filter(is_ours).count();
    if count <= MOST {
        return Vec::new();
    }
    let path = format!("{}/Cargo.toml", package.dir);
    vec![Problem::warning(path, format!("uses {count} of our crates, and {MOST} are allowed"))]
}

/// Nothing uses the command line or these tools, not even in tests.
pub(super) fn nothing_uses_the_top(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in &workspace.packages {
        for dependency in package.dependencies() {
            if ["fabro-cli", "xtask"].contains(&dependency.name) {
                let message = format!("`{}` may not use `{}`", package.name, dependency.name);
                problems.push(problem(package, &message));
            }
        }
    }
    problems
}

fn problem(package: &Package, message: &str) -> Problem {
    Problem::new(format!("{}/Cargo.toml", package.dir), 0, message)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::said;

    const TYPES: (&str, &str) = ("crates/t/Cargo.toml", "[package]\nname = 'fabro-types'");

    #[test]
    fn a_package_without_a_layer_is_seen() {
        let said = said(known_members, &[("crates/new/Cargo.toml", "[package]\nname = 'new'")]);
        assert_snapshot!(said.lines().next().unwrap(), @"crates/new/Cargo.toml: has no layer: add it to xtask/src/tidy/layers.rs and the architecture");
        assert_eq!(said.lines().count(), 1 + MEMBERS.len());
    }

    #[test]
    fn an_arrow_that_goes_up_or_sideways_is_seen() {
        let graph = "[package]\nname = 'fabro-graph'\n[dependencies]\nfabro-types.workspace = true\n\
            types2 = { package = 'fabro-condition', path = '' }\n[target.'cfg(unix)'.dependencies]\n\
            fabro-engine.workspace = true\n[dev-dependencies]\nfabro-store.workspace = true\n";
        assert_snapshot!(said(only_lower_layers, &[TYPES, ("crates/g/Cargo.toml", graph)]), @r"
        crates/g/Cargo.toml: `fabro-graph` (layer 1) may not use `fabro-condition` (layer 1)
        crates/g/Cargo.toml: `fabro-graph` (layer 1) may not use `fabro-store` (layer 2)
        crates/g/Cargo.toml: `fabro-graph` (layer 1) may not use `fabro-engine` (layer 3)
        ");
    }

    #[test]
    fn a_way_from_the_engine_to_a_model_is_seen() {
        let engine = "[package]\nname = 'fabro-engine'\n[dependencies]\nfabro-store = {}\n\
            [dev-dependencies]\nfabro-gate = {}";
        let store =
            "[package]\nname = 'fabro-store'\n[dependencies]\nfabro-llm = { optional = true }";
        let files = [("crates/e/Cargo.toml", engine), ("crates/s/Cargo.toml", store)];
        assert_snapshot!(said(engine_knows_no_effects, &files), @"crates/s/Cargo.toml: `fabro-engine` reaches `fabro-llm` through this");
    }

    #[test]
    fn too_many_arrows_from_the_handlers_are_seen() {
        let check = |count: usize| {
            let names = MEMBERS.iter().take(count);
            let lines: Vec<_> = names.map(|it| format!("{} = {{}}", it.name)).collect();
            let lines = lines.join("\n");
            let manifest = format!("[package]\nname = 'fabro-handlers'\n[dependencies]\n{lines}");
            said(few_arrows_from_handlers, &[("crates/h/Cargo.toml", &manifest)])
        };
        assert_eq!(check(15), "");
        assert_snapshot!(check(16), @"crates/h/Cargo.toml: warning: uses 16 of our crates, and 15 are allowed");
    }

    #[test]
    fn using_the_top_is_seen() {
        let types = "[package]\nname = 'fabro-types'\n[dev-dependencies]\nfabro-cli = {}\n[build-dependencies]\nxtask = {}";
        assert_snapshot!(said(nothing_uses_the_top, &[("crates/t/Cargo.toml", types)]), @r"
        crates/t/Cargo.toml: `fabro-types` may not use `fabro-cli`
        crates/t/Cargo.toml: `fabro-types` may not use `xtask`
        ");
    }
}

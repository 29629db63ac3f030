//! Which crate may use which: the table of `docs/architecture.md`.

use std::collections::BTreeSet;

use super::Problem;
use crate::workspace::{Dependency, Kind, Workspace};

/// A crate and its layer.
pub(super) struct Member {
    pub(super) name: &'static str,
    /// It may use only crates of lower layers.
    pub(super) layer: u8,
    /// No I/O, clock, randomness or async runtime.
    pub(super) pure: bool,
    /// An entry point for other projects, so it has an example.
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
    member("fabro-artifacts", 1).entry_point(),
    member("fabro-blob", 1).entry_point(),
    member("fabro-compaction", 1).pure().entry_point(),
    member("fabro-redact", 1).pure().entry_point(),
    member("fabro-context", 2).pure(),
    member("fabro-plan", 2).pure(),
    member("fabro-config", 2).entry_point(),
    member("fabro-store", 2).entry_point(),
    member("fabro-llm", 2).entry_point(),
    member("fabro-sandbox", 2).entry_point(),
    member("fabro-picture", 2).pure().entry_point(),
    member("fabro-gate", 2).entry_point(),
    member("fabro-retrieval", 2).entry_point(),
    member("fabro-validate", 3).entry_point(),
    member("fabro-engine", 3).entry_point(),
    member("fabro-tools", 3).entry_point(),
    member("fabro-hooks", 3).entry_point(),
    member("fabro-telemetry", 3).entry_point(),
    member("fabro-agent", 4).entry_point(),
    member("fabro-external-agents", 4).entry_point(),
    member("fabro-handlers", 5),
    member("fabro-run", 6).entry_point(),
    member("fabro-terminal", 6),
    member("fabro-inspect", 7),
    member("fabro-page", 8).entry_point(),
    member("fabro-server", 9),
    member("fabro-cli", 10),
    // The developers' tools. Nothing uses them or the command line.
    member("fabro-crash", 10),
    member("xtask", 10),
];

pub(super) fn find(name: &str) -> Option<&'static Member> {
    MEMBERS.iter().find(|member| member.name == name)
}

/// Whether other projects may begin with this crate.
pub(crate) fn is_entry_point(name: &str) -> bool {
    find(name).is_some_and(|member| member.entry_point)
}

/// Every package has a place in the table, and every line of the table is a package.
pub(super) fn known_members(workspace: &Workspace) -> Vec<Problem> {
    let unplaced = workspace.packages.iter().filter(|package| find(&package.name).is_none());
    let advice = "has no layer: add it to xtask/src/tidy/layers.rs and the architecture";
    let unplaced = unplaced.map(|package| Problem::in_manifest(package, advice));
    let gone = MEMBERS.iter().filter(|member| workspace.package(member.name).is_none());
    let gone = gone.map(|member| {
        let message = format!("`{}` has a layer, but is not a package", member.name);
        Problem::new("xtask/src/tidy/layers.rs", 0, message)
    });
    unplaced.chain(gone).collect()
}

/// A crate uses only crates of lower layers, in tests too.
pub(super) fn only_lower_layers(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in &workspace.packages {
        let Some(from) = find(&package.name) else { continue };
        let used = package.dependencies().into_iter().filter_map(|it| find(it.name));
        problems.extend(used.filter(|to| to.layer >= from.layer).map(|to| {
            let Member { name, layer, .. } = to;
            let message = format!(
                "`{}` (layer {}) may not use `{name}` (layer {layer})",
                from.name, from.layer
            );
            Problem::in_manifest(package, message)
        }));
    }
    problems
}

/// The engine reaches no model, no sandbox and no person: handlers bring them.
pub(super) fn engine_reaches_no_effects(workspace: &Workspace) -> Vec<Problem> {
    const EFFECTS: [&str; 3] = ["fabro-llm", "fabro-sandbox", "fabro-gate"];
    let mut problems = Vec::new();
    let mut seen = BTreeSet::from(["fabro-engine"]);
    let mut queue = vec!["fabro-engine"];
    while let Some(package) = queue.pop().map(|name| workspace.package(name)) {
        for dependency in package.iter().flat_map(|package| package.dependencies()) {
            if dependency.kind == Kind::Development || !seen.insert(dependency.name) {
                continue;
            }
            if let Some(package) = package.filter(|_| EFFECTS.contains(&dependency.name)) {
                let message = format!("`fabro-engine` reaches `{}` through this", dependency.name);
                problems.push(Problem::in_manifest(package, message));
            }
            queue.push(dependency.name);
        }
    }
    problems
}

/// The handlers are where everything meets, so their dependencies are counted.
pub(super) fn few_dependencies_of_handlers(workspace: &Workspace) -> Vec<Problem> {
    const MOST: usize = 15;
    let Some(package) = workspace.package("fabro-handlers") else { return Vec::new() };
    let dependencies = package.dependencies();
    let is_ours = |it: &&Dependency<'_>| it.kind == Kind::Normal && find(it.name).is_some();
    let count = dependencies.iter().filter(is_ours).count();
    let message = format!("uses {count} of our crates, and {MOST} are allowed");
    let problem = Problem { warning: true, ..Problem::in_manifest(package, message) };
    (count > MOST).then_some(problem).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::found;

    const TYPES: (&str, &str) = ("crates/t/Cargo.toml", "[package]\nname = 'fabro-types'");

    #[test]
    fn a_package_without_a_layer_is_found() {
        let found = found(known_members, &[("crates/new/Cargo.toml", "[package]\nname = 'new'")]);
        assert_snapshot!(found.lines().next().unwrap(), @"crates/new/Cargo.toml: has no layer: add it to xtask/src/tidy/layers.rs and the architecture");
        assert_eq!(found.lines().count(), 1 + MEMBERS.len());
    }

    #[test]
    fn a_dependency_on_the_same_or_a_higher_layer_is_found() {
        let graph = "[package]\nname = 'fabro-graph'\n[dependencies]\nfabro-types.workspace = true\n\
            types2 = { package = 'fabro-condition', path = '' }\n[target.'cfg(unix)'.dependencies]\n\
            fabro-engine.workspace = true\n[dev-dependencies]\nfabro-store.workspace = true\n";
        assert_snapshot!(found(only_lower_layers, &[TYPES, ("crates/g/Cargo.toml", graph)]), @r"
        crates/g/Cargo.toml: `fabro-graph` (layer 1) may not use `fabro-condition` (layer 1)
        crates/g/Cargo.toml: `fabro-graph` (layer 1) may not use `fabro-store` (layer 2)
        crates/g/Cargo.toml: `fabro-graph` (layer 1) may not use `fabro-engine` (layer 3)
        ");
    }

    #[test]
    fn a_path_from_the_engine_to_a_model_is_found() {
        let engine = "[package]\nname = 'fabro-engine'\n[dependencies]\nfabro-store = {}\n\
            [dev-dependencies]\nfabro-gate = {}";
        let store =
            "[package]\nname = 'fabro-store'\n[dependencies]\nfabro-llm = { optional = true }";
        let files = [("crates/e/Cargo.toml", engine), ("crates/s/Cargo.toml", store)];
        assert_snapshot!(found(engine_reaches_no_effects, &files), @"crates/s/Cargo.toml: `fabro-engine` reaches `fabro-llm` through this");
    }

    #[test]
    fn too_many_dependencies_of_the_handlers_are_found() {
        let check = |count: usize| {
            let names = MEMBERS.iter().take(count);
            let lines: Vec<_> = names.map(|it| format!("{} = {{}}", it.name)).collect();
            let lines = lines.join("\n");
            let manifest = format!("[package]\nname = 'fabro-handlers'\n[dependencies]\n{lines}");
            found(few_dependencies_of_handlers, &[("crates/h/Cargo.toml", &manifest)])
        };
        assert_eq!(check(15), "");
        assert_snapshot!(check(16), @"crates/h/Cargo.toml: warning: uses 16 of our crates, and 15 are allowed");
    }

    #[test]
    fn using_the_command_line_is_found() {
        let types = "[package]\nname = 'fabro-types'\n[dev-dependencies]\nfabro-cli = {}\n[build-dependencies]\nxtask = {}";
        assert_snapshot!(found(only_lower_layers, &[("crates/t/Cargo.toml", types)]), @r"
        crates/t/Cargo.toml: `fabro-types` (layer 0) may not use `fabro-cli` (layer 10)
        crates/t/Cargo.toml: `fabro-types` (layer 0) may not use `xtask` (layer 10)
        ");
    }
}

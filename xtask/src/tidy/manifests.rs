//! Rules for manifests and Cargo.lock.

use toml::Value;

use super::Problem;
use crate::workspace::{Kind, Workspace};

const HTTP: [&str; 9] = [
    "axum",
    "hyper",
    "hyper-util",
    "isahc",
    "reqwest",
    "rmcp",
    "tokio-tungstenite",
    "tonic",
    "ureq",
];

const MAY_USE_HTTP: [&str; 5] =
    ["fabro-hooks", "fabro-llm", "fabro-server", "fabro-telemetry", "fabro-tools"];

/// Packages in Cargo.lock: ten more than when this was last set. A change that needs more raises
/// it in the same commit and says why in `docs/decisions.md`.
const PACKAGE_CEILING: usize = 465;

/// Every member inherits the lints of the workspace.
pub(super) fn lints(workspace: &Workspace) -> Vec<Problem> {
    let lacking = workspace.packages.iter().filter(|package| {
        let lints = package.manifest.get("lints").and_then(|lints| lints.get("workspace"));
        lints != Some(&Value::Boolean(true))
    });
    lacking.map(|it| Problem::in_manifest(it, "add `[lints] workspace = true`")).collect()
}

/// Only the crates whose job is HTTP depend on an HTTP library.
pub(super) fn http_only_where_allowed(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in &workspace.packages {
        let dependencies = package.dependencies().into_iter();
        let mut http = dependencies.filter(|it| it.kind == Kind::Normal && HTTP.contains(&it.name));
        if let Some(library) = http.next().filter(|_| !MAY_USE_HTTP.contains(&&*package.name)) {
            let allowed = MAY_USE_HTTP.join(", ");
            let name = &package.name;
            let message = format!("`{name}` may not use `{}`: only {allowed} do", library.name);
            problems.push(Problem::in_manifest(package, message));
        }
    }
    problems
}

/// JSON Schemas never fetch another one: `jsonschema` has no features.
pub(super) fn schemas_stay_local(workspace: &Workspace) -> Vec<Problem> {
    let has_features = |entry: &Value| {
        let is_bare = entry.get("default-features") == Some(&Value::Boolean(false));
        entry.get("features").is_some() || !(is_bare || entry.get("workspace").is_some())
    };
    let message = "`jsonschema` needs `default-features = false` and no features";
    let mut problems = Vec::new();
    let shared = workspace.manifest.get("workspace").and_then(|it| it.get("dependencies"));
    if shared.and_then(|it| it.get("jsonschema")).is_some_and(has_features) {
        problems.push(Problem::new("Cargo.toml", 0, message));
    }
    for package in &workspace.packages {
        let dependencies = package.dependencies();
        if dependencies.iter().any(|it| it.name == "jsonschema" && has_features(it.entry)) {
            problems.push(Problem::in_manifest(package, message));
        }
    }
    problems
}

/// New dependencies are a decision, not an accident.
pub(super) fn package_ceiling(workspace: &Workspace) -> Vec<Problem> {
    let lock = workspace.file("Cargo.lock").unwrap_or_default();
    let packages = lock.lines().filter(|line| line.trim() == "[[package]]").count();
    let message = format!("has {packages} packages, and {PACKAGE_CEILING} are allowed");
    let problem = (packages > PACKAGE_CEILING).then(|| Problem::new("Cargo.lock", 0, message));
    problem.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::found;

    #[test]
    fn lints_that_are_not_inherited_are_found() {
        let check = |table: &str| {
            let manifest = format!("[package]\nname = 'a'\n{table}");
            found(lints, &[("crates/a/Cargo.toml", &manifest)])
        };
        assert_snapshot!(check(""), @"crates/a/Cargo.toml: add `[lints] workspace = true`");
        assert_ne!(check("[lints]\nworkspace = false"), "");
        assert_eq!(check("[lints]\nworkspace = true"), "");
    }

    #[test]
    fn an_http_library_in_the_wrong_crate_is_found() {
        let check = |name: &str, entry: &str| {
            let manifest = format!("[package]\nname = '{name}'\n{entry}");
            found(http_only_where_allowed, &[("crates/a/Cargo.toml", &manifest)])
        };
        assert_snapshot!(check("fabro-graph", "[dependencies]\nreqwest = '1'"), @"crates/a/Cargo.toml: `fabro-graph` may not use `reqwest`: only fabro-hooks, fabro-llm, fabro-server, fabro-telemetry, fabro-tools do");
        assert_ne!(check("fabro-blob", "[dependencies]\nureq = { optional = true }"), "");
        assert_eq!(check("fabro-llm", "[dependencies]\nreqwest = '1'"), "");
        assert_eq!(check("fabro-graph", "[dev-dependencies]\nreqwest = '1'"), "");
    }

    #[test]
    fn a_schema_library_that_can_fetch_is_found() {
        let root = "[workspace.dependencies]\njsonschema = '0.60'";
        let member = "[package]\nname = 'fabro-routing'\n[dependencies]\n\
            jsonschema = { workspace = true, features = ['resolve-http'] }";
        let files = [("Cargo.toml", root), ("crates/r/Cargo.toml", member)];
        assert_snapshot!(found(schemas_stay_local, &files), @r"
        Cargo.toml: `jsonschema` needs `default-features = false` and no features
        crates/r/Cargo.toml: `jsonschema` needs `default-features = false` and no features
        ");
        let root = "[workspace.dependencies]\njsonschema = { default-features = false }";
        let member =
            "[package]\nname = 'fabro-routing'\n[dependencies]\njsonschema.workspace = true";
        let files = [("Cargo.toml", root), ("crates/r/Cargo.toml", member)];
        assert_eq!(found(schemas_stay_local, &files), "");
    }

    #[test]
    fn more_packages_than_allowed_are_found() {
        let check = |count: usize| {
            let lock = "[[package]]\nname = 'a'\n".repeat(count);
            found(package_ceiling, &[("Cargo.lock", &lock)])
        };
        assert_eq!(check(PACKAGE_CEILING), "");
        assert_snapshot!(check(PACKAGE_CEILING + 1), @"Cargo.lock: has 466 packages, and 465 are allowed");
    }
}

//! Libraries that only some crates may have.

use std::collections::BTreeSet;

use toml::Value;

use super::Problem;
use crate::workspace::{Dependency, Kind, Package, Workspace};

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

const MAY_USE_HTTP: [&str; 2] = ["fabro-llm", "fabro-tools"];

/// Only the crates that talk to others bring an HTTP library; elsewhere it stays behind a feature
/// that is off by default.
pub(super) fn http_only_where_allowed(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    let watched = workspace.packages.iter().filter(|it| !MAY_USE_HTTP.contains(&it.name.as_str()));
    for package in watched {
        for dependency in package.dependencies() {
            let is_http = HTTP.contains(&dependency.name) && dependency.kind == Kind::Normal;
            if is_http && !is_off_by_default(package, &dependency) {
                let message = format!(
                    "`{}` may not use `{}`: only {} bring an HTTP library",
                    package.name,
                    dependency.name,
                    MAY_USE_HTTP.join(", ")
                );
                problems.push(Problem::new(format!("{}/Cargo.toml", package.dir), 0, message));
            }
        }
    }
    problems
}

/// JSON Schemas never fetch another: `jsonschema` is used without its default features.
pub(super) fn schemas_stay_local(workspace: &Workspace) -> Vec<Problem> {
    let shared = workspace.manifest.get("workspace").and_then(|it| it.get("dependencies"));
    let shared = shared.and_then(|it| it.get("jsonschema"));
    let mut problems = Vec::new();
    let mut check = |path: &str, entry: &Value| {
        let inherited = entry.get("workspace").and_then(Value::as_bool) == Some(true);
        let bare = entry.get("default-features").and_then(Value::as_bool) == Some(false);
        if !inherited && !bare {
            problems.push(Problem::new(path, 0, "`jsonschema` needs `default-features = false`"));
        }
        let features = entry.get("features").and_then(Value::as_array);
        let mut features = features.into_iter().flatten().filter_map(Value::as_str);
        if let Some(feature) = features.find(|feature| feature.starts_with("resolve-")) {
            let message = format!("`jsonschema` may not have the feature `{feature}`");
            problems.push(Problem::new(path, 0, message));
        }
    };
    if let Some(entry) = shared {
        check("Cargo.toml", entry);
    }
    for package in &workspace.packages {
        for dependency in package.dependencies() {
            if dependency.name == "jsonschema" {
                check(&format!("{}/Cargo.toml", package.dir), dependency.entry);
            }
        }
    }
    problems
}

/// True when nothing brings it unless somebody asks for a feature.
fn is_off_by_default(package: &Package, dependency: &Dependency<'_>) -> bool {
    if dependency.entry.get("optional").and_then(Value::as_bool) != Some(true) {
        return false;
    }
    let features = package.manifest.get("features").and_then(Value::as_table);
    let mut on = BTreeSet::from(["default"]);
    let mut todo = vec!["default"];
    while let Some(feature) = todo.pop() {
        let brings = features.and_then(|it| it.get(feature)).and_then(Value::as_array);
        for name in brings.into_iter().flatten().filter_map(Value::as_str) {
            // `dep:name` is the dependency, and `name/feature` turns it on too.
            let name = name.strip_prefix("dep:").unwrap_or(name);
            let name = name.split_once('/').map_or(name, |(name, _)| name);
            if on.insert(name) {
                todo.push(name);
            }
        }
    }
    !on.contains(dependency.name)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::said;

    #[test]
    fn an_http_library_in_the_wrong_crate_is_seen() {
        let check = |name: &str, entry: &str| {
            let manifest = format!("[package]\nname = '{name}'\n{entry}");
            said(http_only_where_allowed, &[("crates/a/Cargo.toml", &manifest)])
        };
        assert_snapshot!(check("fabro-graph", "[dependencies]\nreqwest = '1'"), @"crates/a/Cargo.toml: `fabro-graph` may not use `reqwest`: only fabro-llm, fabro-tools bring an HTTP library");
        assert_eq!(check("fabro-llm", "[dependencies]\nreqwest = '1'"), "");
        let optional = "[dependencies]\nureq = { version = '1', optional = true }\n";
        assert_eq!(check("fabro-blob", optional), "");
        assert_eq!(check("fabro-blob", &format!("{optional}[features]\nweb = ['dep:ureq']")), "");
        for features in ["default = ['ureq']", "default = ['web']\nweb = ['dep:ureq', 'web']"] {
            assert_ne!(check("fabro-blob", &format!("{optional}[features]\n{features}")), "");
        }
    }

    #[test]
    fn a_schema_library_that_can_fetch_is_seen() {
        let root = "[workspace.dependencies]\njsonschema = '0.60'";
        let member = "[package]\nname = 'fabro-routing'\n[dependencies]\n\
            jsonschema = { workspace = true, features = ['resolve-http'] }";
        let files = [("Cargo.toml", root), ("crates/r/Cargo.toml", member)];
        assert_snapshot!(said(schemas_stay_local, &files), @r"
        Cargo.toml: `jsonschema` needs `default-features = false`
        crates/r/Cargo.toml: `jsonschema` may not have the feature `resolve-http`
        ");
    }
}

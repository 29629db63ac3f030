//! The workspace's files in memory, so that every check can be tried on a few made-up ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};
use walkdir::WalkDir;

/// All manifests, sources and READMEs, and the pages of documentation, by path from the root with `/` between the parts.
pub(crate) struct Workspace {
    files: BTreeMap<String, String>,
    /// The root's Cargo.toml.
    pub(crate) manifest: Table,
    /// The members, by folder.
    pub(crate) packages: Vec<Package>,
}

/// One member of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its folder from the root, such as `crates/fabro-types`.
    pub(crate) dir: String,
    pub(crate) manifest: Table,
}

/// One entry of a dependency table.
pub(crate) struct Dependency<'a> {
    /// The package, which the entry may rename.
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    pub(crate) entry: &'a Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Development,
    Build,
}

impl Workspace {
    /// Reads the members' files below `root`.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        for name in ["Cargo.toml", "Cargo.lock"] {
            let text = fs::read_to_string(root.join(name)).with_context(|| format!("read {name}"));
            files.insert(name.to_owned(), text?);
        }
        for folder in ["", "docs/"] {
            for entry in fs::read_dir(root.join(folder))? {
                let path = entry?.path();
                if path.extension().is_some_and(|extension| extension == "md") {
                    let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
                    files.insert(name, fs::read_to_string(&path)?);
                }
            }
        }
        for folder in ["crates", "xtask"] {
            // Fuzzing has its own workspace.
            let walk = WalkDir::new(root.join(folder)).into_iter().filter_entry(|entry| {
                !["target", "fuzz"].iter().any(|name| entry.file_name() == *name)
            });
            for entry in walk {
                let path = entry?.into_path();
                let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
                if is_rust(&name) || name.ends_with("/Cargo.toml") || name.ends_with("/README.md") {
                    files.insert(name, fs::read_to_string(&path)?);
                }
            }
        }
        Self::new(files)
    }

    /// From files by path; a missing root manifest is an empty one.
    pub(crate) fn new(files: BTreeMap<String, String>) -> Result<Self> {
        let parse = |path: &str| -> Result<Table> {
            let text = files.get(path).map(String::as_str).unwrap_or_default();
            text.parse().with_context(|| format!("parse {path}"))
        };
        let manifest = parse("Cargo.toml")?;
        let mut packages = Vec::new();
        for path in files.keys() {
            let Some(dir) = path.strip_suffix("/Cargo.toml").filter(|dir| is_member(dir)) else {
                continue;
            };
            let manifest = parse(path)?;
            let name = manifest.get("package").and_then(|it| it.get("name")?.as_str());
            let name = name.unwrap_or(dir).to_owned();
            packages.push(Package { name, dir: dir.to_owned(), manifest });
        }
        Ok(Self { files, manifest, packages })
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    pub(crate) fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// The pages of documentation, by path: those of the root and of `docs`.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_page = |path: &Path| {
            let is_here =
                path.parent().is_some_and(|dir| ["", "docs"].contains(&&*dir.to_string_lossy()));
            is_here && path.extension().is_some_and(|extension| extension == "md")
        };
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| is_page(Path::new(path)))
    }

    /// The Rust files of one member, by path.
    pub(crate) fn sources<'a>(
        &'a self,
        package: &'a Package,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let inside = |path: &&str| {
            path.strip_prefix(package.dir.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| inside(path) && is_rust(path))
    }
}

impl Package {
    /// Every dependency of every kind, those for one platform too.
    pub(crate) fn dependencies(&self) -> Vec<Dependency<'_>> {
        let mut tables = vec![&self.manifest];
        if let Some(targets) = self.manifest.get("target").and_then(Value::as_table) {
            tables.extend(targets.values().filter_map(Value::as_table));
        }
        let kinds = [
            ("dependencies", Kind::Normal),
            ("dev-dependencies", Kind::Development),
            ("build-dependencies", Kind::Build),
        ];
        let mut found = Vec::new();
        for (table, (key, kind)) in tables.iter().flat_map(|t| kinds.iter().map(move |k| (t, k))) {
            let Some(entries) = table.get(*key).and_then(Value::as_table) else { continue };
            found.extend(entries.iter().map(|(name, entry)| {
                let name = entry.get("package").and_then(Value::as_str).unwrap_or(name);
                Dependency { name, kind: *kind, entry }
            }));
        }
        found
    }

    /// The file with the crate docs: `src/lib.rs`, else `src/main.rs`.
    pub(crate) fn root_file<'a>(&self, workspace: &'a Workspace) -> Option<(String, &'a str)> {
        ["lib.rs", "main.rs"].into_iter().find_map(|name| {
            let path = format!("{}/src/{name}", self.dir);
            workspace.file(&path).map(|text| (path.clone(), text))
        })
    }
}

fn is_member(dir: &str) -> bool {
    ["xtask", "xtask/crash"].contains(&dir)
        || dir.strip_prefix("crates/").is_some_and(|name| !name.contains('/'))
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

#[cfg(test)]
pub(crate) mod testing {
    use super::Workspace;

    /// A workspace of these files.
    pub(crate) fn workspace(files: &[(&str, &str)]) -> Workspace {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Workspace::new(files.iter().map(own).collect()).unwrap()
    }
}
